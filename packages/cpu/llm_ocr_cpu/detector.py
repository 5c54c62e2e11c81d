"""Detect regions with the embedded engine's layout; its text is discarded.

Known limits compared with a trained detector: formulas are detected as text, and scans require that its OCR detects the
lines.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from llm_ocr.engines import ContentTools, PageReader
from llm_ocr.engines.regions.detection import Layout, Region
from llm_ocr.types import Block, BlockKind, Box, Page
from llm_ocr_cpu.regions import FORMULA

#: Increased when a change alters results for the same blocks; part of the key.
RESULT_VERSION = 2
#: Margin around the detected boxes, as a share of the page's sides, because boxes of letters are tight.
_MARGIN_ACROSS, _MARGIN_DOWN = 0.006, 0.003
_LABELS = {
    BlockKind.TITLE: "doc_title",
    BlockKind.HEADING: "paragraph_title",
    BlockKind.TEXT: "text",
    BlockKind.LIST_ITEM: "text",
    BlockKind.TABLE: "table",
    BlockKind.FORMULA: "display_formula",
    BlockKind.CODE: "algorithm",
    BlockKind.FIGURE: "image",
    BlockKind.CAPTION: "figure_title",
    BlockKind.FOOTNOTE: "footnote",
    BlockKind.HEADER: "header",
    BlockKind.FOOTER: "footer",
    BlockKind.PAGE_NUMBER: "number",
}


class EmbeddedDetector:
    """`Detector`; `close()` also closes `reader`."""

    name = "embedded"

    def __init__(self, reader: PageReader, tools: ContentTools, *, workers: int) -> None:
        self._reader = reader
        self._tools = tools
        self.parallel = 2 * workers

    def identity(self) -> Mapping[str, Any]:
        return {"model": self.name, "result_version": RESULT_VERSION, "reader": dict(self._reader.identity())}

    async def detect(self, page: Page) -> Layout:
        """Return the regions of the page's blocks. Raises `PageFailure`, also if OCR is required and missing."""
        known = page if page.content is not None else await self._tools.content(page)
        attempt = await self._reader.read(known)
        return Layout(tuple(regions_of(attempt.blocks)), attempt.image, attempt.rotation)

    async def close(self) -> None:
        await self._reader.close()


def regions_of(blocks: Iterable[Block]) -> Iterator[Region]:
    """Yield a region for each block and each continuation of its text; consecutive list items form one region."""
    order = 0
    for is_list, run in groupby(blocks, key=lambda block: block.kind is BlockKind.LIST_ITEM and not block.continued):
        members = list(run)
        if is_list:
            members = _in_columns(members)
        for block in members:
            for box in (block.box, *block.continued):
                yield Region(_label(block), _with_margin(box), order=order)
                order += 1


def _in_columns(items: list[Block]) -> list[Block]:
    """Merge list items into one block per column: an item that starts above the last one begins the next column."""
    joined = items[:1]
    for item in items[1:]:
        last = joined[-1]
        if item.box.y0 >= last.box.y0:
            joined[-1] = replace(last, box=last.box.union(item.box))
        else:
            joined.append(item)
    return joined


def _label(block: Block) -> str:
    if block.kind is BlockKind.FIGURE and block.label == "chart":
        return "chart"
    if block.label == FORMULA:
        return _LABELS[BlockKind.FORMULA]
    return _LABELS[block.kind]


def _with_margin(box: Box) -> Box:
    return Box(box.x0 - _MARGIN_ACROSS, box.y0 - _MARGIN_DOWN, box.x1 + _MARGIN_ACROSS, box.y1 + _MARGIN_DOWN).clipped()
