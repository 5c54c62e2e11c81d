"""Figures are found by their captions, by their pictures and by their strokes; decoration and text are not taken."""

import contextlib
import io

import pypdfium2
import pytest
from any_page import PROSE, contents
from hypothesis import HealthCheck, given, settings
from pdf_writing import pages, text

from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.types import Box, Line, PageContent, Path, Raster, Word
from llm_ocr_cpu.figures import find_figures
from llm_ocr_cpu.pdf_text import page_content
from llm_ocr_cpu.regions import Region
from llm_ocr_cpu.tables import find_tables


def line(text, x, y, size=10, **look):
    end = x + sum(size * (0.3 if letter in "ijlt.,:r " else 0.52) for letter in text)
    return Line(text, Box(x, y, end, y + size), size, (), **look)


def prose(x, y, count, words=14):
    return [line(" ".join(PROSE.split()[:words]), x, y + 12 * number) for number in range(count)]


def curve(x0, y0, x1, y1):
    return Path(Box(x0, y0, x1, y1), (0, 0, 0), None, 12)


def bar(x0, y0, x1, y1, fill=(0, 0, 200)):
    return Path(Box(x0, y0, x1, y1), None, fill, 5)


def page(lines=(), paths=(), rasters=(), width=595, height=842):
    return PageContent(width, height, tuple(lines), tuple(Raster(box) for box in rasters), tuple(paths))


def figures(content):
    return find_figures(content, find_tables(content))


def only(content):
    (figure,) = figures(content)
    return figure


def test_image_with_caption_below_is_figure_with_that_caption():
    body = prose(60, 60, 8)
    caption = [line("Figure 3: A fox that jumps,", 60, 420), line("and a dog.", 60, 432)]
    figure = only(page([*body, *caption, *prose(60, 470, 20)], rasters=[Box(100, 200, 400, 400)]))
    assert figure.kind == "figure"
    assert figure.label == "image"
    assert figure.caption == {8, 9}
    assert figure.box.iou(Box(100, 200, 400, 400)) > 0.95


@pytest.mark.parametrize("running", [False, True])
def test_labels_left_of_figure_belong_to_it_within_caption_width(running):
    caption = line("Figure 3: A fox that jumps over the dog and lives in a long caption beside its den.", 60, 420)
    labels = prose(60, 220, 8, 6) if running else [line("Input", 62, 230), line("Output", 62, 350)]
    figure = only(page([caption, *labels, *prose(60, 470, 20)], rasters=[Box(200, 200, 400, 400)]))
    assert figure.lines == (frozenset() if running else {1, 2})


def test_part_names_above_caption_do_not_split_it_from_figure():
    parts = [line("(a) Before the flood had reached the bridge at night", 100, 405)]
    caption = [line("Figure 3: A fox that jumps,", 60, 425), line("and a dog.", 60, 437)]
    figure = only(page([*prose(60, 60, 8), *parts, *caption, *prose(60, 470, 20)], [curve(100, 200, 400, 400)] * 20))
    assert figure.caption == {9, 10} and 8 in figure.lines


def test_wide_abstract_does_not_split_a_figure_from_its_caption():
    abstract = prose(90, 100, 6, 15)
    columns = [*prose(60, 200, 40, 8), *prose(310, 200, 5, 8), *prose(310, 480, 16, 8)]
    caption = [line("Figure 1: The river in an", 310, 440, 9), line("evening of autumn.", 310, 451, 9)]
    figure = only(page([*abstract, *columns, *caption], rasters=[Box(310, 270, 530, 435)]))
    assert figure.caption == {len(abstract) + len(columns), len(abstract) + len(columns) + 1}


def test_caption_keeps_smaller_lines_and_lines_in_pieces():
    lines = [
        line("Figure 1: The first line of it which is the", 60, 420, 9),
        Line("second that has a small size here and, in", Box(60, 431, 240, 440), 7.4),
        Line("third, no letters that", Box(60, 442, 150, 450.5), 6.4),
        line("reach up", 154, 441.5, 9),
        Line("are.", Box(60, 453, 80, 459.5), 6.4),
        *prose(60, 500, 20),
    ]
    assert only(page(lines, rasters=[Box(60, 200, 240, 410)])).caption == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    "head", ["Fig. 2.", "FIG. 4", "Abb. 1:", "Chart 5.", "Exhibit A:", "Plate IV.", "图 3", "Figure 1-2"]
)
def test_captions_are_known_in_many_forms(head):
    lines = [*prose(60, 60, 8), line(f"{head} A drawing", 60, 420, 8), *prose(60, 470, 20)]
    assert only(page(lines, rasters=[Box(100, 300, 200, 400)])).caption == {8}


def test_a_sentence_that_begins_with_figure_is_no_caption():
    lines = prose(60, 60, 20)
    lines[10] = line("Figure 3 shows that the fox has jumped over the lazy dog for a", 60, 180)
    assert figures(page(lines, [curve(60, 400, 66, 404)])) == []


def test_panels_under_one_caption_are_one_figure_with_labels():
    panels = [Box(60 + 130 * n, 200, 170 + 130 * n, 300) for n in range(4)]
    labels = [line(f"({'abcd'[n]})", 105 + 130 * n, 306, 8) for n in range(4)]
    lines = [*prose(60, 60, 8), *labels, line("Figure 1: Four panels of it.", 60, 330, 9), *prose(60, 360, 30)]
    figure = only(page(lines, rasters=panels))
    assert figure.box.iou(Box(60, 200, 560, 316)) > 0.9
    assert figure.lines == set(range(8, 12))


def test_tiles_and_strips_of_an_image_are_one_figure():
    tiles = [Box(100 + 50 * x, 200 + 20 * y, 150 + 50 * x, 220 + 20 * y) for x in range(5) for y in range(8)]
    assert only(page(prose(60, 420, 20), rasters=tiles)).box.iou(Box(100, 200, 350, 360)) > 0.95


def chart():
    bars = [bar(120 + 40 * n, 300 - 20 * n, 140 + 40 * n, 400) for n in range(6)]
    axes = [Path(Box(110, 200, 110.5, 400), (0, 0, 0), None, 2), Path(Box(110, 400, 360, 400.5), (0, 0, 0), None, 2)]
    numbers = [line(str(20 * n), 92, 395 - 40 * n, 7) for n in range(6)] + [
        line(str(2000 + n), 120 + 40 * n, 404, 7) for n in range(6)
    ]
    return [*bars, *axes], numbers


def test_a_chart_takes_in_its_numbers_and_says_what_it_is():
    paths, numbers = chart()
    caption = line("Figure 2: Growth over time.", 60, 430, 9)
    figure = only(page([*prose(60, 60, 8), *numbers, caption, *prose(60, 460, 25)], paths))
    assert figure.label == "chart"
    assert figure.lines == set(range(8, 20))
    assert figure.box.x0 < 94
    assert figure.box.y1 > 408


def test_chart_with_frame_over_most_of_the_page_is_a_figure():
    frame = Path(Box(60, 40, 560, 740), (0, 0, 0), None, 5)
    ticks = [Path(Box(52, 100 * n, 60, 100 * n + 0.5), (0, 0, 0), None, 2) for n in range(1, 8)]
    ticks += [Path(Box(100 * n, 740, 100 * n + 0.5, 748), (0, 0, 0), None, 2) for n in range(1, 6)]
    values = [Path(Box(80, 90 * n, 540, 90 * n + 80), (200, 0, 0), None, 40) for n in range(1, 6)]
    numbers = [line(f"0.{n}", 34, 100 * n - 4) for n in range(1, 8)]
    numbers += [line(str(n), 100 * n - 3, 752) for n in range(1, 6)]
    assert only(page(numbers, [frame, *ticks, *values])).box.iou(Box(34, 40, 560, 762)) > 0.95


def test_a_drawing_without_caption_needs_many_strokes():
    strokes = [curve(150 + 7 * n, 200 + 5 * n, 250 + 7 * n, 260 + 5 * n) for n in range(30)]
    assert only(page(prose(60, 500, 20), strokes)).label == "diagram"
    assert figures(page(prose(60, 500, 20), strokes[:5])) == []


ELLIPSES = b"".join(
    b"%d 450 m %d 580 %d 580 %d 450 c %d 320 %d 320 %d 450 c S " % (x, x, x + 200, x + 200, x + 200, x, x)
    for x in (150, 240)
)
ARROWS = b"150 400 m 300 480 l S 300 480 m 450 400 l S 120 370 60 30 re S 270 480 60 30 re S 420 370 60 30 re S "
ROUND_FRAME = (
    b"160 400 m 440 400 l 446 400 450 404 450 410 c 450 490 l 450 496 446 500 440 500 c 160 500 l "
    b"154 500 150 496 150 490 c 150 410 l 150 404 154 400 160 400 c S "
)
CROSS = b"150 400 m 450 500 l S 150 500 m 450 400 l S "
BAND = b"0.8 g 150 380 m 450 420 l 450 520 l 150 480 l f 0 g "
STRIKE = b"150 400 m 450 520 l S "


@pytest.mark.parametrize(
    ("drawn", "found"),
    [(ELLIPSES, 1), (ARROWS, 1), (CROSS, 1), (ROUND_FRAME, 0), (3 * ROUND_FRAME, 0), (BAND, 0), (STRIKE, 0)],
)
def test_few_slanted_strokes_are_a_figure_but_no_frame_or_band(drawn, found):
    labels = text("north", 200, 450) + text("south", 320, 450)
    prose = b"".join(text(PROSE, 60, 250 - 14 * row, 10) for row in range(8))
    pdf = pypdfium2.PdfDocument(pages(drawn + labels + prose))
    with contextlib.closing(pdf):
        content = from_wire(PageContent, to_wire(page_content(pdf[0])))
    assert len(figures(content)) == found


def test_a_caption_above_its_figure_is_found_too():
    lines = [*prose(60, 60, 8), line("Chart 1: Above the picture.", 60, 180, 9), *prose(60, 440, 25)]
    assert only(page(lines, rasters=[Box(100, 210, 400, 400)])).caption == {8}


def test_figures_of_two_columns_keep_apart():
    left, right = Box(60, 200, 280, 300), Box(310, 150, 530, 300)
    lines = [*prose(60, 60, 6, 8), *prose(310, 60, 6, 8), line("Figure 1: Left one.", 60, 310, 9),
             line("Figure 2: Right one.", 310, 310, 9), *prose(60, 340, 30, 8), *prose(310, 340, 30, 8)]  # fmt: skip
    found = figures(page(lines, rasters=[left, right]))
    assert sorted(min(figure.caption) for figure in found) == [12, 13]
    assert all(max(figure.box.iou(left), figure.box.iou(right)) > 0.9 for figure in found)


@pytest.mark.parametrize(
    ("lines", "paths", "rasters"),
    [
        (prose(60, 120, 40), [], [Box(40, 30, 160, 80)]),
        (prose(60, 60, 50), [], [Box(0, 0, 595, 842)]),
        (prose(60, 60, 50), [bar(50, 50, 550, 400, (240, 240, 200))], []),
        (prose(60, 60, 50), [bar(0, 20, 595, 50)], []),
        (
            prose(60, 60, 50),
            [Path(Box(60, 71 + 12 * n, 200, 71.5 + 12 * n), (0, 0, 0), None, 2) for n in range(40)],
            [],
        ),
        (prose(60, 60, 50), [curve(100, 300, 140, 312)], [Box(60, 100, 70, 110)]),
        ([line(str(n), 20, 20 + 15 * n) for n in range(50)], [bar(30, 30, 500, 800, (255, 255, 255))], []),
    ],
    ids=["logo", "scanned page", "text box", "title bar", "underlines", "formula and icon", "white fill"],
)
def test_decoration_is_not_a_figure(lines, paths, rasters):
    assert figures(page(lines, paths, rasters)) == []


def test_a_coloured_table_is_not_a_figure():
    xs, ys = [100, 200, 300, 400], [100, 120, 140, 160]
    cells = [bar(x, y, x + 100, y + 20, (200, 220, 255)) for x in xs[:3] for y in ys[:3]]
    rules = [Path(Box(100, y, 400, y + 0.5), (0, 0, 0), None, 2) for y in ys]
    rules += [Path(Box(x, 100, x + 0.5, 160), (0, 0, 0), None, 2) for x in xs]
    words = [line(f"cell {x}{y}", x + 5, y + 5) for x in xs[:3] for y in ys[:3]]
    content = page([*words, *prose(60, 300, 30)], [*cells, *rules])
    assert len(find_tables(content)) == 1
    assert figures(content) == []


@pytest.mark.parametrize(
    "lines",
    [
        prose(120, 300, 2),
        [
            *(line(text, 120, y) for y, text in ((300, "Rope 12"), (340, "Oars 30"), (380, "Salt 2"))),
            *prose(60, 700, 5),
        ],
        [line("Harbour Report", 120, 300, size=32), line("Annual figures", 120, 350, size=18), *prose(60, 700, 5)],
    ],
)
@pytest.mark.parametrize("caption", [[], [line("Figure 3: The seal of the office", 100, 620)]])
def test_text_drawn_over_a_picture_stays_text(lines, caption):
    figure = only(page([*lines, *caption], rasters=[Box(80, 200, 540, 600)]))
    assert (figure.label, figure.lines) == ("image", frozenset())


def test_labels_and_lines_of_ocr_in_a_picture_belong_to_it():
    picture = [Box(80, 200, 540, 600)]
    labels = [line("Lake", 120, 300), line("Old mill", 300, 400), *prose(60, 620, 8)]
    assert only(page(labels, rasters=picture)).lines == {0, 1}
    seen = [line(each.text, each.box.x0, each.box.y0, confidence=0.9) for each in prose(120, 300, 2)]
    assert only(page([*seen, *prose(60, 620, 8)], rasters=picture)).lines == {0, 1}


def test_names_and_prices_between_pictures_are_text_of_the_page():
    pictures = [Box(60, 200, 220, 300), Box(228, 200, 388, 300), Box(60, 320, 220, 420)]
    words = [line("Oak table", 62, 301), line("310.00", 62, 310), line("Rug", 230, 301), line("Room 14", 62, 421)]
    found = figures(page([*words, *prose(60, 500, 8)], rasters=pictures))
    assert found and all(figure.lines == frozenset() for figure in found)


@pytest.mark.parametrize("caption", [[], [line("Figure 3: The voucher", 100, 620)]])
def test_few_short_lines_over_a_picture_without_caption_are_text(caption):
    lines = [line("Voucher 25 euros", 120, 300), line("Code QX-4471", 380, 560), *prose(60, 700, 8), *caption]
    assert only(page(lines, rasters=[Box(80, 200, 540, 600)])).lines == (frozenset({0, 1}) if caption else frozenset())


@pytest.mark.parametrize("filled", [False, True])
def test_ornaments_around_a_certificate_are_no_figure(filled):
    sides = [(60 + 16 * n, y) for n in range(30) for y in (60, 400)] + [
        (x, 60 + 16 * n) for n in range(22) for x in (60, 530)
    ]
    inner = [curve(100 + 13 * n, 120, 112 + 13 * n, 160) for n in range(30)] if filled else []
    words = [line("Certificate of Merit", 200, 200, 30), line("Ada Quill", 250, 260, 20)]
    found = figures(page(words, [*(curve(x, y, x + 14, y + 14) for x, y in sides), *inner]))
    assert len(found) == filled


def test_a_poster_keeps_its_text():
    strokes = [curve(20 + 10 * n, 20, 120 + 10 * n, 820) for n in range(45)]
    assert figures(page(prose(60, 100, 40), strokes)) == []


def test_lines_of_tables_stay_with_the_tables():
    content = page([line("12", 200, 250)], rasters=[Box(100, 200, 400, 400)])
    (figure,) = find_figures(content, [Region("table", Box(190, 240, 230, 270), frozenset({0}), "| 12 |")])
    assert figure.lines == frozenset()


def test_a_photo_and_its_caption_are_read_from_a_pdf():
    canvas_module = pytest.importorskip("reportlab.pdfgen.canvas", reason="reportlab is not installed")
    from PIL import Image
    from reportlab.lib.utils import ImageReader

    out = io.BytesIO()
    canvas = canvas_module.Canvas(out, pagesize=(595, 842))
    canvas.drawImage(ImageReader(Image.effect_noise((60, 40), 80).convert("RGB")), 150, 500, 300, 200)
    canvas.setFont("Helvetica", 9)
    canvas.drawString(150, 480, "Figure 1: Noise.")
    canvas.setFont("Helvetica", 10)
    for row in range(20):
        canvas.drawString(60, 440 - 12 * row, PROSE)
    canvas.save()
    pdf = pypdfium2.PdfDocument(out.getvalue())
    with contextlib.closing(pdf):
        content = page_content(pdf[0])
    figure = only(content)
    assert figure.box.iou(Box(150, 142, 450, 342)) > 0.95
    assert [content.lines[index].text for index in figure.caption] == ["Figure 1: Noise."]


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(contents())
def test_any_page_is_searched_and_no_line_is_in_two_regions(content):
    tables = find_tables(content)
    taken = []
    for region in [*tables, *find_figures(content, tables)]:
        taken.extend([*region.lines, *region.caption])
        assert region.box.x0 <= region.box.x1
        assert region.box.y0 <= region.box.y1
    assert len(taken) == len(set(taken))


def test_grid_lines_over_most_of_the_page_join_chart_bars():
    heights = (450 - 51 * step for step in range(7))
    grid = [Path(Box(100, y, 637, y + 1.5), (135, 135, 135), None, 2) for y in heights]
    axis = Path(Box(100, 140, 101.5, 451), (135, 135, 135), None, 2)
    bars = [bar(130 + 130 * n, top, 170 + 130 * n, 450.5) for n, top in enumerate((234, 326, 275, 224))]
    numbers = [line(str(n), 84, 443 - 51 * n, size=18) for n in range(7)]
    figure = only(page(numbers, [*grid, axis, *bars], width=720, height=540))
    assert figure.label == "chart"
    assert figure.lines == set(range(7))


def test_the_line_of_a_chart_does_not_cut_the_axes():
    axes = Path(Box(100, 200, 320, 350), (0, 0, 0), None, 3)
    values = curve(105, 230, 300, 310)
    labels = [line(str(number), 110 + 20 * number, 353, 8) for number in range(9)]
    caption = [line("Figure 1: The level of the river.", 60, 375)]
    figure = only(page([*prose(60, 60, 8), *labels, *caption, *prose(60, 400, 20)], [axes, values]))
    assert figure.box.iou(Box(100, 200, 320, 362)) > 0.9


def test_letters_that_fill_the_areas_of_a_map_are_a_figure():
    def symbols(count):
        places = [(60 + 8 * (n % 40), 400 + 8 * (n // 40)) for n in range(count)]
        return [Line("L", Box(x, y, x + 4, y + 6), 6, (Word("L", Box(x, y, x + 4, y + 6)),)) for x, y in places]

    frame = [curve(60, 720, 380, 722)]
    figure = only(page([*prose(60, 60, 8), *symbols(1200)], frame))
    assert figure.box.iou(Box(60, 400, 376, 640)) > 0.9
    assert not figures(page([*prose(60, 60, 8), *symbols(200)], frame))


def test_program_on_painted_rows_with_line_numbers_is_no_chart():
    rows = range(30)
    painted = [bar(80, 100 + 14 * row, 540, 114 + 14 * row, (40, 40, 40)) for row in rows]
    numbers = [line(str(row), 66, 102 + 14 * row, 6) for row in rows]
    program = [line(r"\let\nextname\lastname\relax", 84 + row % 3 * 8, 102 + 14 * row, mono=True) for row in rows]
    assert figures(page([*numbers, *program], painted)) == []


def test_panel_over_most_of_cover_makes_no_figure_of_its_text():
    logo = [curve(60 + 4 * n, 40, 66 + 4 * n, 60) for n in range(30)]
    panel = bar(56, 58, 540, 770, (242, 243, 244))
    text = [line("A thesis about foxes", 100, 280, 14), line("Bert Bibber", 100, 310), line("June 2012", 420, 700)]
    assert figures(page(text, [panel, *logo])) == []


def test_framed_program_with_numbered_lines_is_no_table_or_chart():
    rows = range(12)
    program = [line(f"{row}/PA.{row},", 84 + row % 3 * 8, 102 + 14 * row, mono=True) for row in rows]
    numbers = [line(str(row + 1), 60, 104 + 14 * row, size=5) for row in rows]
    painted = [bar(70, 100 + 14 * row, 500, 114 + 14 * row, (220, 250, 250)) for row in rows]
    frame = [curve(x, 98 + 7 * y, x + 10, 106 + 7 * y) for x in (70, 490) for y in range(24)]
    content = page([*program, *numbers, *prose(60, 300, 12)], [*painted, *frame])
    assert (find_tables(content), figures(content)) == ([], [])


def test_points_in_frame_with_ticks_and_axis_numbers_are_a_chart():
    def rule(x0, y0, x1, y1):
        return Path(Box(x0 - 0.4, y0 - 0.4, x1 + 0.4, y1 + 0.4), (0, 0, 0), None, 2)

    frame = [Path(Box(150, 400, 450, 600), (0, 0, 0), None, 5)]
    ticks = [rule(144, y, 150, y) for y in range(410, 600, 30)] + [rule(x, 600, x, 606) for x in range(160, 450, 40)]
    numbers = [line(f"{row}0", 131, 405 + 30 * row) for row in range(7)]
    numbers += [line(str(column), 157 + 40 * column, 610) for column in range(8)]
    points = [line("1 2"[: 1 + 2 * (n % 2)], 170 + 37 * n % 250, 415 + 53 * n % 170) for n in range(20)]
    figure = only(page([*prose(60, 60, 8), *numbers, *points], [*frame, *ticks]))
    assert figure.label == "chart"
    assert len(figure.lines) == 35
