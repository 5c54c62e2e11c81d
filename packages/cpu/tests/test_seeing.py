"""What is seen on a page that a model reads: figures, the way up, text; OCR is asked only where nothing else tells."""

import asyncio
import io
from dataclasses import astuple, replace

import numpy
import pytest
from PIL import Image

from llm_ocr.engines import EngineOptions
from llm_ocr.types import BlockKind, Box, EncodedImage, Line, Page, PageContent, Path, Raster, Word
from llm_ocr_cpu.inspection import inspect_page, ocr_text, orientation, text_of
from llm_ocr_cpu.ocr import OcrPage, available
from llm_ocr_cpu.reader import EmbeddedReader

WORDS = "The quick brown fox jumps over the lazy dog near the river bank"
needs_ocr = pytest.mark.skipif(not available(), reason="needs OpenCV")


def image(picture: tuple[int, int, int, int] | None = None) -> EncodedImage:
    """White, 300 x 400, with a grey picture at x0, y0, x1, y1."""
    pixels = numpy.full((400, 300, 3), 255, numpy.uint8)
    if picture:
        x0, y0, x1, y1 = picture
        noise = numpy.random.default_rng(1).integers(40, 140, (y1 - y0, x1 - x0, 1), numpy.uint8)
        pixels[y0:y1, x0:x1] = noise
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return EncodedImage(out.getvalue(), "image/png", 300, 400)


def line(text: str = WORDS, y: float = 60.0) -> Line:
    words = tuple(Word(word, Box(30 + 18 * i, y, 46 + 18 * i, y + 10)) for i, word in enumerate(text.split()))
    return Line(text, Box(30, y, 30 + 18 * len(words), y + 10), 10.0, words)


def standing(text: str = WORDS, *, up: bool = True) -> Line:
    """Read from the bottom to the top, or from the top to the bottom."""
    places = [Box(100, 350 - 18 * i, 110, 366 - 18 * i) for i in range(len(text.split()))]
    places = places if up else places[::-1]
    words = tuple(Word(word, box) for word, box in zip(text.split(), places, strict=True))
    return Line(text, Box(100, 100, 110, 366), 10.0, words)


def page(content: PageContent | None, picture: tuple[int, int, int, int] | None = None) -> Page:
    return Page("d-p00001", "d", 1, image(picture), content, "d.pdf")


class Ocr:
    """Stands for the models: what it is asked is counted."""

    scripts = frozenset({"LATIN"})

    def __init__(self, *lines: Line, rotation: int = 0, skew: float = 0.0, unread: tuple[Box, ...] = ()) -> None:
        self.asked: list[str] = []
        self._unread = unread
        self._lines, self._rotation, self._skew = lines, rotation, skew

    def __call__(self):
        return self

    def read(self, pixels):
        self.asked.append("read")
        turned = numpy.rot90(pixels, -self._rotation // 90)
        return OcrPage(self._lines, self._rotation, turned, self._skew, self._unread)

    def orientation(self, pixels):
        self.asked.append("orientation")
        return 90


def figures(seen) -> list[Box]:
    return [block.box for block in seen.blocks if block.kind is BlockKind.FIGURE]


def test_page_without_objects_has_no_figures_and_uses_no_process(monkeypatch):
    reader = EmbeddedReader(EngineOptions(workers=1))
    monkeypatch.setattr(reader, "_call", None)
    plain = page(PageContent(300, 400, (line(),)), (30, 100, 270, 250))
    seen = asyncio.run(reader.inspect(plain, hinted=True))
    assert (seen.blocks, seen.digital) == ((), True)


def test_an_image_of_a_digital_page_is_a_figure():
    ocr = Ocr()
    content = PageContent(300, 400, (line(), line(y=300.0)), (Raster(Box(30, 100, 270, 250)),))
    seen = inspect_page(page(content), ocr, hinted=False)
    (box,) = figures(seen)
    assert box.iou(Box(0.1, 0.25, 0.9, 0.625)) > 0.8
    assert [block.kind for block in seen.blocks] == [BlockKind.TEXT, BlockKind.FIGURE, BlockKind.TEXT]
    assert (seen.digital, ocr.asked) == (True, [])


def test_a_digital_page_without_a_figure_gives_no_blocks():
    content = PageContent(300, 400, (line(),), (), (Path(Box(30, 80, 270, 81), None, (0, 0, 0), 1),))
    assert inspect_page(page(content), Ocr(), hinted=True).blocks == ()


@needs_ocr
def test_ocr_reads_a_scan_only_if_picture_or_text_requires_it():
    for picture, hinted, asked in ((None, False, []), (None, True, ["read"]), ((30, 100, 270, 250), False, ["read"])):
        ocr = Ocr(line())
        inspect_page(page(None, picture), ocr, hinted=hinted)
        assert ocr.asked == asked


@needs_ocr
def test_a_picture_on_a_scan_has_its_place_whatever_ocr_turned():
    upright = inspect_page(page(None, (30, 100, 270, 250)), Ocr(line()), hinted=False)
    (box,) = figures(upright)
    assert box.iou(Box(0.1, 0.25, 0.9, 0.625)) > 0.8
    assert not upright.digital
    (turned,) = figures(inspect_page(page(None, (30, 100, 270, 250)), Ocr(line(), rotation=90), hinted=False))
    assert turned.iou(box) > 0.9
    (level,) = figures(inspect_page(page(None, (30, 100, 270, 250)), Ocr(line(), skew=2.0), hinted=False))
    assert level.area > box.area and level.iou(box) > 0.7


@needs_ocr
def test_a_scan_with_a_text_layer_of_older_ocr_is_not_read_again():
    ocr = Ocr()
    scan = PageContent(600, 800, (line(), line(y=85.0)), (Raster(Box(0, 0, 600, 800)),))
    (box,) = figures(inspect_page(page(scan, (30, 150, 270, 300)), ocr, hinted=False))
    assert box.iou(Box(0.1, 0.375, 0.9, 0.75)) > 0.8
    assert ocr.asked == []


def test_without_ocr_a_scan_says_why_no_figures_were_looked_for(monkeypatch):
    monkeypatch.setattr("llm_ocr_cpu.ocr.available", lambda: False)
    seen = inspect_page(page(None, (30, 100, 270, 250)), Ocr(), hinted=True)
    assert seen.blocks == () and "OCR is not installed" in seen.detail


@pytest.mark.parametrize(
    ("lines", "degrees"),
    [
        ((line(),), 0),
        ((standing(),), 90),
        ((standing(up=False),), 270),
        ((replace(standing(up=False), stacked=True),), 0),
    ],
    ids=["0", "90", "270", "vertical writing"],
)
def test_the_text_layer_tells_which_way_up_a_page_stands(lines, degrees):
    ocr = Ocr()
    assert orientation(page(PageContent(300, 400, lines)), ocr) == degrees
    assert ocr.asked == []


def test_a_scan_is_turned_by_what_ocr_sees():
    ocr = Ocr()
    assert orientation(page(None), ocr) == 90
    assert ocr.asked == ["orientation"]


def test_the_text_is_read_in_columns():
    left = [Line(f"left {n} of the first column", Box(20, 20 * n, 140, 20 * n + 10), 10.0) for n in range(1, 8)]
    right = [Line(f"right {n} of the second column", Box(160, 20 * n, 280, 20 * n + 10), 10.0) for n in range(1, 8)]
    rows = tuple(one for pair in zip(left, right, strict=True) for one in pair)
    text = text_of(page(PageContent(300, 400, rows)))
    assert text.index("left 7") < text.index("right 1")


def test_a_text_layer_that_lies_is_no_text():
    shifted = "".join(chr((ord(c) - 97 + 11) % 26 + 97) if c.isalpha() else c for c in WORDS.lower())
    assert text_of(page(PageContent(300, 400, (line(f"{shifted} {shifted}"),)))) == ""
    assert text_of(page(None)) == ""


def test_text_to_verify_has_its_places_on_the_given_image():
    words = (Word("The", Box(30, 60, 46, 70), confidence=0.7), Word("fox", Box(48, 60, 66, 70), confidence=0.9))
    sideways = Line("The fox", Box(30, 60, 66, 70), 10.0, words, confidence=0.8)
    found = ocr_text(image(), Ocr(sideways, rotation=90, unread=(Box(40, 90, 100, 100),)))
    read, unreadable = found.lines  # on an image of 400 x 300 pixels
    assert (read.text, read.confidence, read.words) == ("The fox", 0.8, (0.7, 0.9))
    assert astuple(read.box) == pytest.approx((60 / 300, 1 - 66 / 400, 70 / 300, 1 - 30 / 400))
    assert (unreadable.text, unreadable.confidence) == ("\ufffd" * 12, 0.0)
    assert found.scripts == {"LATIN"}
