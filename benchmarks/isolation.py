"""What locking the renderer in costs: `isolation.py FOLDER [ROUNDS]` over a folder's PDFs, with and without, in turn.

Prints for each kind the least milliseconds until a fresh renderer has opened a document, and the least processor
seconds of the renderers for the first four pages of each PDF; the ratio is locked in / open.
"""

import asyncio
import resource
import sys
import time
from pathlib import Path

from llm_ocr.documents import rendering
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.errors import PageFailure

MODULES = {"locked in": rendering.MODULE, "open": "tests.fakes.open_renderer"}
STARTS = 5


async def measured(files: list[Path]) -> tuple[float, float]:
    """Milliseconds of a start, processor seconds of the pages."""
    starts = []
    for _ in range(STARTS):
        async with Renderer(RenderOptions(workers=1)) as renderer:
            begin = time.perf_counter()
            await renderer.open(str(files[0]))
            starts.append(1000 * (time.perf_counter() - begin))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    async with Renderer(RenderOptions(workers=1)) as renderer:
        for file in files:
            try:
                for number in range(1, min(4, await renderer.open(str(file))) + 1):
                    await renderer.page(str(file), "", number, page_id="p", document_id="d")
            except PageFailure:
                continue  # of both kinds alike
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return min(starts), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    files = sorted(Path(sys.argv[1]).rglob("*.pdf"))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in MODULES}
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 3):
        for name, module in MODULES.items():
            rendering.MODULE = module
            found[name].append(asyncio.run(measured(files)))
    best = {name: tuple(map(min, zip(*values, strict=True))) for name, values in found.items()}
    for name, (start, seconds) in best.items():
        print(f"{name:10} start {start:7.1f} ms   pages {seconds:7.2f} processor seconds")
    print(f"ratio of the pages: {best['locked in'][1] / best['open'][1]:.3f}")


if __name__ == "__main__":
    main()
