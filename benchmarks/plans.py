"""Plans of very many documents: time, memory and stored bytes; then what reads such a plan.

    python benchmarks/plans.py [--documents 10000,100000,1000000] [--output benchmarks/results/plans.json]

The documents are made up, as a bucket would list them; nothing is opened but the sample. Each size and each step is a
process of its own, over a local workspace. See README.md.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from llm_ocr.documents.remote.cache import LocalCopy
from llm_ocr.documents.sources import SourceDocument
from llm_ocr.results.documents import DocumentNames
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages.counting import CountOptions, PageCounter, counted
from llm_ocr.stages.extract import expected_pages
from llm_ocr.stages.plan import known_totals
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import generations, read_units
from llm_ocr.workspace.items import items
from llm_ocr.workspace.plan import plan_stream
from llm_ocr.workspace.status import run_status

PAGES_PER_UNIT = 64
BYTES_A_PAGE = 100_000
SEED = 17


def documents(count: int) -> Iterator[SourceDocument]:
    """PDFs of a bucket, most of them short; their bytes per page vary tenfold."""
    random_ = random.Random(SEED)
    for number in range(count):
        size = int(pages_of(number) * BYTES_A_PAGE * 10 ** random_.uniform(-0.5, 0.5))
        name = f"year-{number % 30 + 1990}/{number:08d}-some-report.pdf"
        yield SourceDocument(f"s3://bucket/papers/{name}", name, "pdf", f"etag:{number:032x}:{size}", size=size)


def pages_of(number: int) -> int:
    """How many pages the document has: 8 in the mean, few of them more than a unit holds."""
    return 1 + int(random.Random(number).expovariate(1 / 7.5))


class Opened:
    """A renderer and remote documents in one: knows the pages by the number in the name."""

    def __init__(self) -> None:
        self.count = 0

    async def open(self, source: str, kind: str = "") -> int:
        self.count += 1
        return pages_of(int(Path(source).name[:8]))

    @asynccontextmanager
    async def copy(self, source: str, version: str) -> Any:
        yield LocalCopy(Path(source), version)


class Remote:
    """Gives every document at once."""

    def __init__(self, opened: Opened) -> None:
        self.open = opened.copy


def plan(folder: Path, count: int) -> dict[str, Any]:
    """As `llm-ocr plan` does with a listing."""
    with Workspace.open(str(folder), create=True) as workspace:
        opened = Opened()
        with known_totals(workspace) as totals:
            counter = PageCounter(opened, Remote(opened), totals=totals)  # type: ignore[arg-type]
            stream = counted(documents(count), counter, CountOptions(pages_per_unit=PAGES_PER_UNIT))
            result = asyncio.run(plan_stream(workspace, stream, pages_per_unit=PAGES_PER_UNIT))
        return {"opened": opened.count, "new": result.generation.documents if result.generation else 0}


def units(folder: Path, count: int) -> dict[str, Any]:
    """Every unit, once."""
    with Workspace.open(str(folder)) as workspace:
        return {"units": sum(1 for _ in read_units(workspace))}


def status(folder: Path, count: int) -> dict[str, Any]:
    """`llm-ocr status`."""
    with Workspace.open(str(folder)) as workspace:
        return {"expected": run_status(workspace).pages.expected}


def start(folder: Path, count: int) -> dict[str, Any]:
    """What a worker of Extract reads before its first page."""
    with Workspace.open(str(folder)) as workspace:
        expected = expected_pages(workspace, "0" * 12)
        return {"expected": expected.pages, "first": PlannedUnits(workspace)[0].id}


def names(folder: Path, count: int) -> dict[str, Any]:
    """What Assemble reads before its first item."""
    with Workspace.open(str(folder)) as workspace:
        parts = (part for item in items(workspace) for part in item.parts)
        DocumentNames.of_plan((part.document_id, path) for part in parts for path in (part.relative, *part.aliases))
        return {}


STEPS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "plan": plan,
    "plan_again": plan,
    "units": units,
    "status": status,
    "worker_start": start,
    "assemble_start": names,
}


def _step(name: str, folder: Path, count: int, answer: Any) -> None:
    list(documents(10))
    before, began, cpu = _peak(), time.perf_counter(), time.process_time()
    about = STEPS[name](folder, count)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    answer.send(
        {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu, 2),
            "peak_growth_mib": round((_peak() - before) / 2**20, 1),
            "peak_growth_bytes_per_document": round((_peak() - before) / count),
            **about,
        }
    )


def _peak() -> int:
    """Largest resident memory of this process so far, in bytes: on Linux ru_maxrss would begin with its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def measured(count: int, folder: Path) -> dict[str, Any]:
    """All steps for a plan of so many documents."""
    found: dict[str, Any] = {"documents": count}
    spawn = multiprocessing.get_context("spawn")  # memory of a step is its own
    for name in STEPS:
        ours, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_step, args=(name, folder, count, theirs))
        process.start()
        theirs.close()
        found[name] = ours.recv()
        process.join()
        print(f"{count:>9,} {name:<15} {json.dumps(found[name])}", file=sys.stderr)
        if name == "status":
            real = sum(map(pages_of, range(count)))
            found["real_pages"], found["wrong_by"] = real, round(found[name]["expected"] / real - 1, 4)
        if name == "plan":
            with Workspace.open(str(folder)) as workspace:
                (generation,) = generations(workspace)
            found["units"], found["parts"] = generation.units, len(generation.parts)
            found["stored_bytes_per_document"] = round(sum(part.size for part in generation.parts) / count)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--documents", default="10000,100000,1000000", help="how many, with commas")
    parser.add_argument("--output", type=Path, help="write the figures there as JSON")
    arguments = parser.parse_args()
    results = []
    for count in map(int, arguments.documents.split(",")):
        with tempfile.TemporaryDirectory(prefix="plans-") as folder:
            results.append(measured(count, Path(folder) / "workspace"))
    text = json.dumps({"pages_per_unit": PAGES_PER_UNIT, "plans": results}, indent=2) + "\n"
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
