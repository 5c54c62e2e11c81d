"""A page arrives at a worker as it was sent, but for digits that nobody can see."""

import json
from dataclasses import replace

import pytest

from llm_ocr.documents.page_wire import page_from_wire, page_to_wire
from llm_ocr.types import Box, EncodedImage, Line, Page, PageContent, Path, Raster, Word

WORDS = (Word("two", Box(1, 2, 3, 4)), Word("words", Box(4, 2, 9, 4)))
LINES = (
    Line("two words", Box(1, 2, 9, 4), 2.0, WORDS, bold=True, mono=True),
    Line("文字", Box(1, 5, 2, 6), 1.25, (), italic=True, recurs=True, confidence=0.5),
    Line("not as the words", Box(1, 2, 9, 4), 2.0, WORDS),
)
CONTENT = PageContent(
    612.5, 792, LINES, (Raster(Box(0, 0, 1, 1)),), (Path(Box(0, 0, 5, 0), (1, 2, 3), None, 2),), unmapped=3
)
PAGE = Page("d-p00001", "d", 1, EncodedImage(b"\x89PNG", "image/png", 10, 20), CONTENT, "/a/b.pdf")


@pytest.mark.parametrize("page", [PAGE, replace(PAGE, content=None), replace(PAGE, content=PageContent(1, 1))])
def test_a_page_comes_back_as_it_was(page):
    assert page_from_wire(page_to_wire(page)) == page


def test_content_is_json():
    wire = page_to_wire(PAGE)
    again = {**json.loads(json.dumps({**wire, "image": None})), "image": wire["image"]}
    assert page_from_wire(again) == PAGE
