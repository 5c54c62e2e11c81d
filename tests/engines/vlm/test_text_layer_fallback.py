"""The embedded engine told never to do OCR: the fallback of a model that could not read a page."""

import io

import numpy
import pytest
from PIL import Image

from llm_ocr.engines import EngineOptions
from llm_ocr.errors import PageFailure
from llm_ocr.types import Box, EncodedImage, Line, Page, PageContent, Reason, Status, Word
from llm_ocr_cpu.page import read_text_layer
from llm_ocr_cpu.reader import EmbeddedReader

WORDS = "The quick brown fox jumps over the lazy dog near the river bank"


def page(text: str | None) -> Page:
    """A page with these words in its text layer, and none of them on its picture."""
    out = io.BytesIO()
    Image.fromarray(numpy.full((400, 300), 255, numpy.uint8)).save(out, "PNG")
    image = EncodedImage(out.getvalue(), "image/png", 300, 400)
    if text is None:
        return Page("d-p00001", "d", 1, image)
    boxes = [Box(10 + 20 * number, 100, 28 + 20 * number, 110) for number in range(len(text.split()))]
    words = tuple(Word(word, box) for word, box in zip(text.split(), boxes, strict=True))
    lines = (Line(text, Box(10, 100, boxes[-1].x1, 110), 10.0, words),) if words else ()
    return Page("d-p00001", "d", 1, image, PageContent(300, 400, lines))


def test_text_layer_is_read_even_if_the_image_disagrees():
    attempt = read_text_layer(page(WORDS))
    assert (attempt.status, attempt.source) == (Status.OK, "text-layer")
    assert " ".join(block.text for block in attempt.blocks) == WORDS


@pytest.mark.parametrize("text", [None, ""])
def test_a_page_without_a_text_layer_fails(text):
    with pytest.raises(PageFailure, match="no text layer"):
        read_text_layer(page(text))


def test_a_text_layer_that_cannot_be_a_language_is_not_believed():
    shifted = "".join(
        chr((ord(letter) - 97 + 11) % 26 + 97) if letter.isalpha() else letter for letter in WORDS.lower()
    )
    with pytest.raises(PageFailure) as caught:
        read_text_layer(page(f"{shifted} {shifted}"))
    assert caught.value.reason is Reason.MALFORMED


async def test_the_worker_process_reads_the_layer_and_does_no_ocr():
    reader = EmbeddedReader(EngineOptions(workers=1, ocr=False))
    try:
        assert await reader.read_figure(page(None).image) == ""
        with pytest.raises(PageFailure, match="no text layer"):
            await reader.read(page(None))
        attempt = await reader.read(page(WORDS))
    finally:
        await reader.close()
    assert " ".join(block.text for block in attempt.blocks) == WORDS


def test_the_key_of_the_whole_engine_stays_what_it_was():
    with_ocr, without = (EmbeddedReader(EngineOptions(workers=1, ocr=ocr)).identity() for ocr in (True, False))
    optional = {"ocr_models", "layout_model"}  # of wheels that may be installed
    assert set(with_ocr) - optional == {"engine", "result_version", "text_layer"}
    assert {**with_ocr, "ocr": False} == {**without, **{k: v for k, v in with_ocr.items() if k in optional}}
