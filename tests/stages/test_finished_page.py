"""From what a reader made of a page to the row that is stored."""

import asyncio

from llm_ocr.results.schema import pages_from_parquet, pages_to_parquet
from llm_ocr.stages.extract import finished_page
from llm_ocr.types import Attempt, Block, BlockKind, Box, DocumentPart, EncodedImage, Page, PageRecord, Status

IMAGE = EncodedImage(b"pixels", "image/png", 100, 200)
PART = DocumentPart("d", "/in/a.pdf", "a.pdf", "v", (1,), 1, 0)
BOX = Box(0.1, 0.1, 0.9, 0.4)
BLOCKS = (
    Block(BlockKind.HEADER, Box(0.1, 0.0, 0.9, 0.05), "The Arlen"),
    Block(BlockKind.FIGURE, BOX, label="chart", caption="Figure 1", described="A chart of levels."),
    Block(BlockKind.TEXT, Box(0.1, 0.5, 0.9, 0.6), "Text."),
)


class Cropper:
    async def crop(self, image, boxes):
        return tuple(EncodedImage(b"crop", "image/png", 80, 60) for _ in boxes)


def finished(**options) -> PageRecord:
    attempt = Attempt("olmocr-2", "model", Status.OK, BLOCKS, notes={"primary_language": "de"})
    page = Page("d-p00001", "d", 1, IMAGE)
    return asyncio.run(finished_page(PART, 0, page, attempt, Cropper(), **options))


def test_what_the_model_said_goes_with_the_row_and_its_figures_and_is_stored():
    record = finished()
    (figure,) = record.figures
    assert (figure.described, figure.caption, record.notes) == (
        "A chart of levels.",
        "Figure 1",
        {"primary_language": "de"},
    )
    assert pages_from_parquet(pages_to_parquet([record]), images=True) == [record]


def test_the_markdown_of_a_figure_is_its_link_alone():
    assert finished().markdown == "![d-p00001-f01](figure:d-p00001-f01)\n\nText."


def test_running_heads_stand_in_the_markdown_where_they_are_wanted_and_always_in_the_layout():
    assert finished(furniture=True).markdown.startswith("The Arlen\n\n![")
    assert [block.kind for block in finished().blocks] == [block.kind for block in BLOCKS]
