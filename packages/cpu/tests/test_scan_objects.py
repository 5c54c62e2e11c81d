"""Rules and pictures are seen in the pixels of a scan; text, edges and handwriting are not."""

import pytest

np = pytest.importorskip("numpy")
cv2 = pytest.importorskip("cv2", reason="OpenCV comes with the embedded extra, which is not installed")

from llm_ocr.types import Box, Line, PageContent  # noqa: E402
from llm_ocr_cpu.figures import find_figures  # noqa: E402
from llm_ocr_cpu.layout import page_blocks  # noqa: E402
from llm_ocr_cpu.scan_objects import scan_objects  # noqa: E402
from llm_ocr_cpu.tables import find_tables  # noqa: E402

HEIGHT, WIDTH = 1540, 1090


def paper(level=245, noise=3):
    pixels = np.random.default_rng(1).normal(level, noise, (HEIGHT, WIDTH, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def write(image, text, x, y, scale=0.7, color=(20, 20, 20)):
    """Draws text with its top left at x, y and gives its line."""
    (width, height), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, 2)
    cv2.putText(image, text, (x, y + height), cv2.FONT_HERSHEY_SIMPLEX, scale, color, 2)
    return Line(text, Box(x, y, x + width, y + height + base / 2), height + base / 2)


def photo(image, x0, y0, x1, y1):
    rough = np.random.default_rng(2).integers(20, 210, ((y1 - y0) // 12 + 1, (x1 - x0) // 12 + 1, 3)).astype(np.uint8)
    image[y0:y1, x0:x1] = cv2.resize(rough, (x1 - x0, y1 - y0), interpolation=cv2.INTER_LINEAR) // 2 + 30


def page_of(image, lines):
    objects = scan_objects(image, tuple(lines))
    return PageContent(image.shape[1], image.shape[0], tuple(lines), objects.rasters, objects.paths)


def text_page(image):
    return [write(image, "some words that stand in a line of text here", 80, 80 + 34 * row) for row in range(12)]


def test_a_page_of_text_has_neither_rules_nor_pictures():
    image = paper()
    objects = scan_objects(image, tuple(text_page(image)))
    assert objects.rasters == ()
    assert objects.paths == ()


@pytest.mark.parametrize("sky", [False, True])
def test_photo_is_one_raster_in_place_even_with_a_bright_sky(sky):
    image = paper()
    lines = text_page(image)
    photo(image, 200, 700, 800, 1100)
    if sky:
        image[860:920, 200:480] = image[700:920, 420:480] = 230  # parts a corner from the rest
    (raster,) = scan_objects(image, tuple(lines)).rasters
    assert raster.box.iou(Box(200, 700, 800, 1100)) > 0.9


def test_a_photo_with_a_caption_on_a_scan_is_a_figure():
    image = paper()
    lines = text_page(image)
    photo(image, 200, 700, 800, 1100)
    lines.append(write(image, "Figure 1: A photo.", 200, 1120))
    content = page_of(image, lines)
    (figure,) = find_figures(content, find_tables(content))
    assert figure.caption == {12}


@pytest.mark.parametrize("grey", [40, 190])
def test_dark_or_light_ruled_grids_become_tables_as_in_a_pdf(grey):
    image = paper()
    lines = []
    for row in range(4):
        for column in range(3):
            lines.append(write(image, f"cell {row}{column}", 120 + 250 * column, 212 + 60 * row))
    for row in range(5):
        cv2.line(image, (100, 200 + 60 * row), (850, 200 + 60 * row + 1), (grey,) * 3, 2)
    for column in range(4):
        cv2.line(image, (100 + 250 * column, 200), (100 + 250 * column, 440), (grey,) * 3, 2)
    (table,) = find_tables(page_of(image, lines))
    assert table.text.split("\n")[0] == "| cell 00 | cell 01 | cell 02 |"
    assert len(table.text.split("\n")) == 5


def test_a_rule_that_leans_by_four_pixels_parts_its_cells():
    image = paper()
    lines = [
        write(image, f"cell {row}{column}", 130 + 250 * column, 515 + 60 * row)
        for row in range(2)
        for column in range(3)
    ]
    for row in range(3):
        cv2.line(image, (100, 500 + 60 * row), (850, 500 + 60 * row), (20, 20, 20), 2)
    for column in range(4):
        lean = 4 if column == 1 else 0
        cv2.line(image, (100 + 250 * column, 500), (100 + 250 * column + lean, 620), (20, 20, 20), 2)
    (table,) = find_tables(page_of(image, lines))
    assert table.text.split("\n")[0] == "| cell 00 | cell 01 | cell 02 |"


def headed_table(image, *, parted):
    """Three columns with light headings on a dark bar; `parted`: light rules part the bar's cells."""
    lines = []
    cv2.rectangle(image, (100, 500), (850, 545), (110, 90, 20), -1)
    for column, text in enumerate(("Item", "Price", "Sum")):
        (width, height), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.7, 2)
        x, y = 120 + 250 * column, 512
        cv2.putText(image, text, (x, y + height), cv2.FONT_HERSHEY_SIMPLEX, 0.7, (255, 255, 255), 2)
        lines.append(Line(text, Box(x - 2, y - 3, x + width + 2, y + height + base / 2 + 3), height + base / 2))
    for row in range(3):
        cv2.line(image, (100, 600 + 55 * row), (850, 600 + 55 * row), (170, 170, 160), 2)
        for column in range(3):
            lines.append(write(image, f"{row}{column}.50", 120 + 250 * column, 560 + 55 * row))
    for column in range(4):
        x = 100 + 250 * column
        cv2.line(image, (x, 500 if parted else 546), (x, 710), (235, 235, 235) if parted else (170, 170, 160), 3)
        cv2.line(image, (x, 546), (x, 710), (170, 170, 160), 2)
    return lines


@pytest.mark.parametrize("parted", [True, False])
def test_light_headings_on_a_dark_bar_head_the_table_below_it(parted):
    image = paper()
    content = page_of(image, [*text_page(image), *headed_table(image, parted=parted)])
    (table,) = find_tables(content)
    assert table.text.split("\n")[0] == "| Item | Price | Sum |"
    assert table.text.split("\n")[-1] == "| 20.50 | 21.50 | 22.50 |"
    assert find_figures(content, [table]) == []


def test_dark_edges_punch_holes_and_specks_are_no_pictures():
    image = paper()
    image[:, :40], image[-30:] = 10, 15
    for y in (300, 800):
        cv2.circle(image, (70, y), 18, (5, 5, 5), -1)
    for x, y in np.random.default_rng(3).integers(100, 1000, (80, 2)).tolist():
        image[y : y + 3, x : x + 3] = 30
    assert scan_objects(image, ()).rasters == ()


def test_yellowed_paper_with_a_shadow_is_still_paper():
    image = paper(level=200)
    image[..., 2] = image[..., 2] // 2 + 60
    shade = np.linspace(1.0, 0.8, WIDTH)[None, :, None]
    image = (image * shade).astype(np.uint8)
    lines = text_page(image)
    assert scan_objects(image, tuple(lines)).rasters == ()


@pytest.mark.parametrize("ground", [(205, 229, 255), (120, 120, 120), (42, 93, 132)], ids=["light", "gray", "dark"])
@pytest.mark.parametrize("marked", [False, True], ids=["text alone", "with a drawing"])
def test_text_on_a_colored_ground_stays_text(ground, marked):
    image = paper()
    lines = [write(image, "some words that stand in the long line of a text", 60, 80 + 34 * row) for row in range(24)]
    cv2.rectangle(image, (740, 660), (1050, 860), ground, -1)
    ink = (255, 255, 255) if sum(ground) < 300 else (10, 10, 10)
    inside = [write(image, f"Facts of box {row}", 760, 680 + 34 * row, color=ink) for row in range(4)]
    if marked:
        cv2.circle(image, (995, 780), 40, ink, 5)
    content = page_of(image, [*lines, *inside])
    figures = find_figures(content, find_tables(content))
    assert len(figures) == marked
    assert any("Facts of box 0 Facts of box 1" in block.text for block in page_blocks(content, figures))


def test_text_in_a_deep_shadow_of_the_page_stays_text():
    image = paper()
    across, down = np.meshgrid(np.linspace(0, 1, WIDTH), np.linspace(0, 1, HEIGHT))
    image = (image * np.clip(1.7 - 1.1 * across - 0.9 * down, 0.35, 1)[..., None]).astype(np.uint8)
    lines = [write(image, "words in the shadow of a hand", 620, 1200 + 34 * row) for row in range(3)]
    content = page_of(image, [*text_page(image), *lines])
    assert find_figures(content, find_tables(content)) == []


def test_possible_handwriting_without_caption_is_no_figure():
    image = paper()
    lines = text_page(image)
    rng = np.random.default_rng(4)
    for row in range(8):
        points = np.stack((np.arange(150, 900, 12), 700 + 60 * row + rng.integers(-16, 16, 63)), axis=1)
        cv2.polylines(image, [points.astype(np.int32)], False, (40, 40, 90), 2)
    content = page_of(image, lines)
    assert find_figures(content, find_tables(content)) == []


def test_tiny_and_empty_images_are_searched_without_an_error():
    for height, width in ((1, 1), (39, 500), (60, 60), (41, 3000)):
        assert scan_objects(np.full((height, width, 3), 255, np.uint8), ()).rasters == ()
    box = Box(-5, -5, 90, 90)
    scan_objects(paper()[:60, :60], (Line("out", box, 10), Line("", Box(3, 3, 3, 3), 0)))
