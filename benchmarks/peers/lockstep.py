"""A client of the predecessor's shape: batches in lockstep, all output at the end. For the Python of its environment.

    python lockstep.py LIST OUTPUT --url URL --model NAME --prompt FILE --batch N

Pages are rendered in this process, a batch of them is gathered and sent with `asyncio.gather`, its answers are written,
then the next batch begins. One failed request loses its batch, after the two repeats that the openai package makes by
itself. Nothing stands in OUTPUT/dataset before the last batch is done, and nothing is resumed. Two defects of the
predecessor are left out, which speak for it here: its connections outlived their event loop, so that batches failed
without a fault, and a run without any page ended in an exception.
"""

import argparse
import asyncio
import base64
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdfium2
from openai import AsyncOpenAI
from PIL import Image

LONGEST = 1288  # pixels, as olmOCR's pages
MAX_TOKENS = 8000
TEMPERATURE = 0.1


@dataclass(slots=True)
class Page:
    """A page in memory."""

    id: str
    image: Image.Image
    markdown: str = ""


def rendered(paths: list[Path]) -> Iterator[Page]:
    for path in paths:
        with pypdfium2.PdfDocument(path) as document:
            for number, page in enumerate(document, start=1):
                image = page.render(scale=LONGEST / max(page.get_size())).to_pil().convert("RGB")
                yield Page(f"{path.name}-{number}", image)


def batches(pages: Iterator[Page], size: int) -> Iterator[list[Page]]:
    batch: list[Page] = []
    for page in pages:
        batch.append(page)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def png(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, format="PNG")
    return data.getvalue()


async def ask(client: AsyncOpenAI, page: Page, model: str, prompt: str, seconds: float) -> str:
    url = "data:image/png;base64," + base64.b64encode(png(page.image)).decode()
    content: Any = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": url}}]
    answer = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": content}],
        max_tokens=MAX_TOKENS,
        temperature=TEMPERATURE,
        timeout=seconds,
    )
    return answer.choices[0].message.content or ""


async def read(given: argparse.Namespace, paths: list[Path], folder: Path) -> list[dict[str, str]]:
    """All batches, one after the other; the pages that failed."""
    client = AsyncOpenAI(base_url=given.url, api_key="none")
    prompt = given.prompt.read_text()
    failed = []
    for number, batch in enumerate(batches(rendered(paths), given.batch)):
        try:
            texts = await asyncio.gather(*(ask(client, page, given.model, prompt, given.timeout) for page in batch))
        except Exception as error:  # noqa: BLE001 - as the predecessor: whatever one page raised is the batch's end
            failed += [{"page": page.id, "error": f"{type(error).__name__}: {error}"[:200]} for page in batch]
            continue
        for page, text in zip(batch, texts, strict=True):
            page.markdown = text
        write(batch, folder, number)
    await client.close()
    return failed


def write(batch: list[Page], folder: Path, number: int) -> None:
    """A batch's rows, its page images, and those with boxes, which no answer of this model has."""
    with (folder / f"batch-{number:05d}.jsonl").open("w") as rows:
        for page in batch:
            paths = [folder / f"{page.id}-{kind}.png" for kind in ("source", "boxes")]
            for path in paths:
                path.write_bytes(png(page.image))
            source, boxes = map(str, paths)
            row = {"sample_id": page.id, "source_image": source, "document_with_boxes_image": boxes}
            rows.write(json.dumps({**row, "document_markdown": page.markdown}) + "\n")


def publish(folder: Path, output: Path) -> None:
    """All rows as one dataset."""
    import datasets

    files = [str(path) for path in sorted(folder.glob("*.jsonl"))]
    if files:
        rows = datasets.load_dataset("json", data_files=files, split="train", cache_dir=str(folder / "cache"))
        for column in ("source_image", "document_with_boxes_image"):
            rows = rows.cast_column(column, datasets.Image())
        rows.save_to_disk(str(output / "dataset"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", type=Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--timeout", type=float, default=120.0)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.output) as scratch:
        failed = asyncio.run(
            read(given, [Path(line) for line in given.list.read_text().split("\n") if line], Path(scratch))
        )
        publish(Path(scratch), given.output)
    (given.output / "manifest.json").write_text(json.dumps({"failed": failed}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
