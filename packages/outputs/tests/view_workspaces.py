"""Workspaces for the viewer: output of the stages, with pages as defined by the tests."""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from export_workspaces import publish_units
from PIL import Image, ImageDraw

import llm_ocr
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import (
    Block,
    BlockKind,
    Box,
    DocumentPart,
    EncodedImage,
    Figure,
    FigureRecord,
    Ledger,
    PageRecord,
    Reason,
    Status,
    figure_id,
    page_id,
)
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.plan import PlannedDocument
from tests.fakes.planning import plan_documents

TABLE = "| gauge | level |\n|---|--:|\n| Mill Weir | 187 |\n| Upper Tarn | 112 |"
FORMULA = "E = \\sum_{i=1}^{6} w_i x_i"


@dataclass(frozen=True)
class Wanted:
    """Page of a test: its text as blocks, and its outcome."""

    blocks: tuple[tuple[BlockKind, str], ...] = ()
    status: Status = Status.OK
    reason: Reason | None = None
    detail: str = ""
    quality: float | None = None
    figure: str = ""  # description of a figure at the end of the page
    engine: str = "deepseek-ocr"
    ledger: Ledger | None = None
    invisible_chars: int = 0


def text(*lines: str, **more) -> Wanted:
    return Wanted(tuple((BlockKind.TEXT, line) for line in lines), **more)


Page = Callable[[str, int], Wanted]


def make(url: str, documents: dict[str, int], page: Page, *, assemble: bool = True, ids: str = "") -> str:
    """Plan documents with these page counts by name, publish `page(name, number)` for each page, and assemble."""
    with Workspace.open(url, create=True) as workspace:
        workspace.create_json("plan/settings.json", {"settings": {"engine": "vllm"}})
        planned = []
        for name, pages in documents.items():
            numbers, given = tuple(range(1, pages + 1)), f"{ids}{name}" if ids else None
            planned.append(PlannedDocument(f"/in/{name}", name, f"sha of {name}", given, numbers, pages))
        plan_documents(workspace, planned, pages_per_unit=8)
        publish_units(workspace, lambda part, n, index: record(part, n, index, page(part.relative, n)))
    if assemble:
        llm_ocr.assemble(workspace=url)
    return url


def record(part: DocumentPart, number: int, index: int, wanted: Wanted) -> tuple[PageRecord, list[FigureRecord]]:
    """Return the rows of a page and of its figure."""
    page = page_id(part.document_id, number)
    common = (page, part.document_id, part.source, number, index, wanted.status, wanted.reason, wanted.detail)
    if wanted.status is Status.FAILED:
        return PageRecord(*common, attempts=({"status": "failed", "seconds": 1.5},)), []
    blocks = list(_blocks(wanted))
    figures: tuple[Figure, ...] = ()
    described = []
    if wanted.figure:
        box = Box(0.1, 0.7, 0.9, 0.95)
        figures = (Figure(figure_id(page, 1), "chart", box, drawn(120, 60)),)
        blocks.append(Block(BlockKind.FIGURE, box, label="chart", figure_id=figures[0].id))
        common_figure = (figures[0].id, page, part.document_id, Status.OK, "describe")
        described = [FigureRecord(*common_figure, description=wanted.figure)]
    return PageRecord(
        *common,
        engine=wanted.engine,
        text_source="model",
        image=drawn(300, 400, f"{part.relative} {number}"),
        markdown=blocks_to_markdown(blocks),
        blocks=tuple(blocks),
        figures=figures,
        tokens_in=100,
        tokens_out=50,
        quality=wanted.quality,
        ledger=wanted.ledger,
        invisible_chars=wanted.invisible_chars,
    ), described


def _blocks(wanted: Wanted) -> Iterable[Block]:
    for at, (kind, words) in enumerate(wanted.blocks):
        top = 0.05 + 0.1 * at
        label = "latex" if kind is BlockKind.FORMULA else kind.value
        yield Block(kind, Box(0.1, min(top, 0.9), 0.9, min(top + 0.08, 0.98)), words, label)


def drawn(width: int, height: int, words: str = "") -> EncodedImage:
    """Return a small picture."""
    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).text((10, 10), words.encode("ascii", "replace").decode(), fill="black")
    out = io.BytesIO()
    image.save(out, "PNG")
    return EncodedImage(out.getvalue(), "image/png", width, height)
