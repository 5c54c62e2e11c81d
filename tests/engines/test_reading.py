"""Which text of a page is believed: the text layer where it is true, else OCR; and what a page without either is."""

import io

import numpy
import pytest
from PIL import Image

from llm_ocr.engines.embedded.ocr import OcrPage, available
from llm_ocr.engines.embedded.page import read_page, read_text_layer
from llm_ocr.errors import PageFailure
from llm_ocr.types import Box, EncodedImage, Line, Page, PageContent, Raster, Reason, Status, Word

WORDS = "The quick brown fox jumps over the lazy dog near the river bank"


def image(shade: int = 255, mark: bool = True) -> EncodedImage:
    pixels = numpy.full((400, 300, 3), shade, numpy.uint8)
    if mark:
        pixels[100:120, 50:250] = 0
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return EncodedImage(out.getvalue(), "image/png", 300, 400)


def line(text: str, y: float = 100.0) -> Line:
    words = tuple(Word(word, Box(50 + 20 * i, y, 66 + 20 * i, y + 10)) for i, word in enumerate(text.split()))
    return Line(text, Box(50, y, 50 + 20 * len(words), y + 10), 10.0, words)


def page(content: PageContent | None, *, number: int = 2, mark: bool = True) -> Page:
    return Page("d-p00002", "d", number, image(mark=mark), content, "d.pdf")


class Ocr:
    """Stands for the models: what it is asked is counted, what it reads is given."""

    def __init__(self, *, probe: float | None = 0.0, lines: tuple[Line, ...] = (), unread: int = 0, rotation: int = 0):
        self.asked: list[str] = []
        self._probe, self._lines, self._unread, self._rotation = probe, lines, unread, rotation

    def __call__(self):
        return self

    def probe(self, pixels, content):
        self.asked.append("probe")
        return self._probe

    def read(self, pixels):
        self.asked.append("read")
        return OcrPage(self._lines, self._rotation, numpy.asarray(pixels), unread=self._unread)


def text_of(attempt) -> str:
    return " ".join(block.text for block in attempt.blocks)


def test_a_text_layer_that_raises_no_doubt_is_read_without_models():
    ocr = Ocr()
    attempt = read_page(page(PageContent(300, 400, (line(WORDS),))), ocr, text_layer=True)
    assert (attempt.source, attempt.probe, ocr.asked) == ("text-layer", None, [])
    assert "quick brown fox" in text_of(attempt)


@pytest.mark.skipif(not available(), reason="OCR is not installed: extra embedded")
@pytest.mark.parametrize(("probe", "source"), [(0.0, "text-layer"), (None, "text-layer"), (0.9, "ocr")])
def test_the_first_page_is_probed_and_a_lying_layer_is_not_believed(probe, source):
    ocr = Ocr(probe=probe, lines=(line("what is really printed on this page here"),))
    attempt = read_page(page(PageContent(300, 400, (line(WORDS),)), number=1), ocr, text_layer=True)
    assert (attempt.source, attempt.probe) == (source, probe)
    assert ("really printed" in text_of(attempt)) == (source == "ocr")


def test_a_stamp_on_a_scan_is_not_its_text():
    content = PageContent(300, 400, (line("Page 3"),), rasters=(Raster(Box(0, 0, 300, 400)),))
    attempt = read_page(page(content), Ocr(lines=(line(WORDS),)), text_layer=True)
    assert (attempt.source, attempt.status) == ("ocr", Status.OK)


def test_told_never_to_believe_text_layers_it_does_not():
    attempt = read_page(
        page(PageContent(300, 400, (line(WORDS),))), Ocr(lines=(line("from the picture"),)), text_layer=False
    )
    assert (attempt.source, "from the picture" in text_of(attempt)) == ("ocr", True)


def test_a_blank_page_is_ok_and_empty_and_needs_no_models():
    ocr = Ocr()
    attempt = read_page(page(PageContent(300, 400), mark=False), ocr, text_layer=True)
    assert (attempt.status, attempt.blocks, ocr.asked) == (Status.OK, (), [])


def test_a_page_that_shows_nothing_of_its_text_layer_is_marked():
    hidden = page(PageContent(300, 400, (line(WORDS),)), number=1, mark=False)
    attempt = read_page(hidden, Ocr(probe=1.0), text_layer=True)
    assert (attempt.status, attempt.reason, attempt.blocks) == (Status.DEGRADED, Reason.EMPTY, ())
    assert f"{len(WORDS)} invisible characters" in attempt.detail


@pytest.mark.parametrize("read", [read_text_layer, lambda page: read_page(page, Ocr(), text_layer=True)])
def test_a_text_layer_that_was_read_in_part_is_marked(read):
    attempt = read(page(PageContent(300, 400, (line(WORDS),), unread=1234)))
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.TRUNCATED)
    assert "1,234 characters" in attempt.detail
    assert text_of(attempt) == WORDS


def test_text_of_an_unknown_script_is_never_passed_off_as_read():
    few = Ocr(lines=(line("a little latin text in between"),), unread=20)
    attempt = read_page(page(None), few, text_layer=True)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.SCRIPT_NOT_SUPPORTED)
    with pytest.raises(PageFailure) as failure:
        read_page(page(None), Ocr(unread=20), text_layer=True)
    assert failure.value.reason is Reason.SCRIPT_NOT_SUPPORTED


def test_a_turned_page_comes_back_upright_with_its_angle():
    attempt = read_page(page(None), Ocr(lines=(line(WORDS),), rotation=90), text_layer=True)
    assert attempt.rotation == 90
    assert attempt.image is not None


def test_an_image_that_cannot_be_decoded_is_a_failed_page():
    broken = Page("d-p00001", "d", 1, EncodedImage(b"no image", "image/png", 1, 1), None)
    with pytest.raises(PageFailure) as failure:
        read_page(broken, Ocr(), text_layer=True)
    assert failure.value.reason is Reason.UNREADABLE
