"""Measure whether words that are found in an exported PDF are where the page shows them.

    python benchmarks/words.py ../shared/data/pdfs --output benchmarks/results/words.json

Digital pages become scans: images, whose words and their ink are known from the text layer of the page. Three readers
read them: the CPU reader, and a model with and without boxes, which is the simulated server with the page's exact text
as its answer. `export --format pdf` places the text, and pdfium finds it.

A word is found if pdfium finds the same word on the page; the nearest one counts. It is covered if its box contains
`COVERED` of the word's ink, without ruled lines. `larger` is the median of the area of its box, relative to that of the
true word's box. Pages in scripts that OCR does not read have only the places of blocks; they are counted apart.
"""

import argparse
import asyncio
import contextlib
import io
import json
import os
import re
import statistics
import tempfile
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy
import pypdfium2
from PIL import Image
from reporting import keep, tell

import llm_ocr
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.engines import EngineOptions
from llm_ocr.errors import PageFailure
from llm_ocr.plugins import ENGINES
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.results.quality.text_layer import is_true
from llm_ocr.types import Attempt, Block, BlockKind, Box, Status
from llm_ocr_simulator import running

#: Share of a word's ink that its box must contain, share of the brightness below which a pixel is ink, and length of a
#: ruled line in pixels.
COVERED, INK, RULE = 0.9, 0.6, 80
#: Longest side of the scans in pixels, and the largest share of a page that pictures may cover.
SIDE, PICTURED = 2200, 0.2
#: Fewest words of a page.
ENOUGH = 30
#: Model with boxes, with its answers, and model without.
BOXES, PLAIN = "deepseek-ocr", "olmocr-2"


@dataclass(frozen=True, slots=True)
class Scan:
    """Page with known words: `words` have their texts and relative boxes."""

    name: str
    image: bytes
    words: tuple[tuple[str, Box], ...]
    blocks: tuple[Block, ...]


async def scans_of(files: Sequence[Path], pages: int) -> tuple[list[Scan], int]:
    """Return the first digital pages of each file as scans, and the number of those that OCR does not read."""
    found, unreadable = [], 0
    reader = ENGINES.get("embedded").page_reader(EngineOptions(2))
    try:
        async with Renderer(RenderOptions(SIDE, image_format="jpeg", workers=2)) as renderer:
            for file in files:
                with contextlib.suppress(PageFailure):
                    for number in range(1, min(pages, await renderer.open(str(file))) + 1):
                        page = await renderer.page(str(file), "", number, page_id="p", document_id="d")
                        content, evidence = page.content, page.evidence
                        layer = Attempt("embedded", "text-layer", Status.OK)
                        if content is None or evidence is None or not is_true(evidence, layer):
                            continue
                        words = [word for line in content.lines for word in line.words]
                        if evidence.pictured > PICTURED or len(words) < ENOUGH or content.invisible:
                            continue
                        letters = [letter for word in words for letter in word.text if letter.isalpha()]
                        scripts = (await reader.ocr_text(page)).scripts
                        known = sum(unicodedata.name(letter, "").split(" ")[0] in scripts for letter in letters)
                        if 2 * known < len(letters):
                            unreadable += 1
                            continue
                        attempt = await reader.read(page)
                        placed = [
                            (word.text, word.box.scaled(1 / content.width, 1 / content.height).clipped())
                            for word in words
                        ]
                        scan = Scan(f"{file.stem[:40]}-{number}", page.image.data, tuple(placed), attempt.blocks)
                        found.append(scan)
    finally:
        await reader.close()
    return found, unreadable


def answer(scan: Scan, model: str) -> str:
    """Return the page's text as the model writes it."""
    if model == PLAIN:
        head = (
            "primary_language: en\nis_rotation_valid: true\nrotation_correction: 0\nis_table: false\nis_diagram: false"
        )
        return f"---\n{head}\n---\n{blocks_to_markdown(scan.blocks)}"
    parts = []
    for block in scan.blocks:
        text = block.inside if block.kind is BlockKind.FIGURE else block.text
        box = [round(999 * side) for side in (block.box.x0, block.box.y0, block.box.x1, block.box.y1)]
        label = "image" if block.kind is BlockKind.FIGURE else block.kind.value
        parts.append(f"<|ref|>{label}<|/ref|><|det|>[{box}]<|/det|>\n{'' if label == 'image' else text}\n")
    return "\n".join(parts)


def exported(scans: Sequence[Scan], folder: Path, model: str) -> dict[str, bytes]:
    """Return the PDF of each scan, read by the CPU reader ("") or a simulated model."""
    found: dict[str, bytes] = {}
    for name, group in {scan.name: [scan] for scan in scans}.items() if model else [("all", scans)]:
        source = folder / name
        source.mkdir()
        for scan in group:
            (source / f"{scan.name}.jpg").write_bytes(scan.image)
        options = {"workspace": folder / f"{name}-w", "progress": None}
        if model:
            said = folder / f"{name}.json"
            said.write_text(json.dumps({"*": answer(group[0], model)}))
            with running(
                said=said, model=llm_ocr_model(model), max_model_len=65_536, preset="h100", speed=100
            ) as server:
                llm_ocr.run(source, server_url=server.url, model=model, **options)
        else:
            llm_ocr.run(source, engine="embedded", **options)
        llm_ocr.export(workspace=folder / f"{name}-w", output=folder / f"{name}-o", format="pdf", progress=None)
        found |= {scan.name: (folder / f"{name}-o" / f"{scan.name}.jpg.pdf").read_bytes() for scan in group}
    return found


def llm_ocr_model(name: str) -> str:
    """Return the Hub's name of a model, by which the server serves it."""
    from llm_ocr.models.registry import find_profile

    return find_profile(name).model


def words_in(pdf: bytes) -> Iterator[tuple[str, Box]]:
    """Yield the words that pdfium finds on the first page, with their relative boxes."""
    with pypdfium2.PdfDocument(pdf) as document:
        width, height = document[0].get_size()
        text_page = document[0].get_textpage()
        text, boxes = "", list[Box]()
        for index in range(text_page.count_chars()):
            letter = text_page.get_text_range(index, 1)
            if letter.strip():
                left, bottom, right, top = text_page.get_charbox(index)
                text += letter
                boxes.append(Box(left / width, 1 - top / height, right / width, 1 - bottom / height))
            elif text:
                yield text, reduce(Box.union, boxes)
                text, boxes = "", []
        if text:
            yield text, reduce(Box.union, boxes)


def measured(scan: Scan, pdf: bytes) -> tuple[int, list[float], list[float]]:
    """Return the number of true words, and of each found one the covered share of its ink and its box's area."""
    where: dict[str, list[Box]] = defaultdict(list)
    for text, box in words_in(pdf):
        where[_key(text)].append(box)
    dark = numpy.asarray(Image.open(io.BytesIO(scan.image)).convert("L")) < 255 * INK
    dark &= ~(_in_runs(dark) | _in_runs(dark.T).T)
    height, width = dark.shape
    total, covered, larger = 0, [], []
    for text, true in scan.words:
        key = _key(text)
        left, right = int(true.x0 * width), int(numpy.ceil(true.x1 * width))
        top, bottom = int(true.y0 * height), int(numpy.ceil(true.y1 * height))
        ink = dark[top:bottom, left:right]
        if not key or not ink.any():
            continue
        total += 1
        if not (same := where.get(key)):
            continue
        near = min(same, key=lambda box: abs(box.centre[0] - true.centre[0]) + abs(box.centre[1] - true.centre[1]))
        rows, columns = numpy.nonzero(ink)
        x, y = (columns + left + 0.5) / width, (rows + top + 0.5) / height
        inside = (x >= near.x0) & (x <= near.x1) & (y >= near.y0) & (y <= near.y1)
        covered.append(float(inside.mean()))
        larger.append(near.area / max(true.area, 1e-9))
    return total, covered, larger


def _in_runs(dark: "numpy.typing.NDArray[numpy.bool_]") -> "numpy.typing.NDArray[numpy.bool_]":
    """Return the pixels in horizontal runs of at least `RULE`."""
    sums = numpy.pad(numpy.cumsum(dark, axis=1, dtype=numpy.int32), ((0, 0), (1, 0)))
    full = (sums[:, RULE:] - sums[:, :-RULE]) == RULE
    starts = numpy.pad(numpy.cumsum(full, axis=1, dtype=numpy.int32), ((0, 0), (RULE, RULE - 1)), mode="edge")
    starts[:, :RULE] = 0
    return (starts[:, RULE:] - starts[:, :-RULE]) > 0


def _key(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def summary(scans: Sequence[Scan], pdfs: Mapping[str, bytes]) -> dict[str, float]:
    """Return the shares over all pages."""
    total, covered, larger = 0, list[float](), list[float]()
    for scan in scans:
        words, shares, areas = measured(scan, pdfs[scan.name])
        total, covered, larger = total + words, covered + shares, larger + areas
        if os.environ.get("WORDS_BY_PAGE"):
            tell(f"{scan.name}: {len(shares)} of {words} found, {_share(shares):.3f} covered")
    return {
        "pages": len(scans),
        "words": total,
        "found": round(len(covered) / max(1, total), 4),
        "covered": round(_share(covered), 4),
        "larger": round(statistics.median(larger or [0.0]), 2),
    }


def _share(shares: Sequence[float]) -> float:
    return sum(share >= COVERED for share in shares) / max(1, len(shares))


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with PDFs")
    parser.add_argument("--pages", type=int, default=2, help="pages of each PDF (default: 2)")
    parser.add_argument("--model-pages", type=int, default=16, help="scans that the models read (default: 16)")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    options = parser.parse_args()
    scans, unreadable = asyncio.run(scans_of(sorted(options.folder.glob("*.pdf")), options.pages))
    tell(f"{len(scans)} scans, and {unreadable} in scripts that OCR does not read")
    report: dict[str, object] = {"unreadable": unreadable}
    for name, model in (("CPU reader", ""), ("model with boxes", BOXES), ("model without boxes", PLAIN)):
        some = scans[:: max(1, len(scans) // options.model_pages)] if model else scans
        with tempfile.TemporaryDirectory() as folder:
            report[name] = summary(some, exported(some, Path(folder), model))
        tell(f"{name}: {report[name]}")
    keep(report, options.output)


if __name__ == "__main__":
    main()
