import io
from dataclasses import replace

import pypdfium2
import pytest
from layout_pages import line, page, paragraph, prose
from reportlab.pdfgen import canvas

from llm_ocr.types import Block, BlockKind, Box, Line, PageContent, Path
from llm_ocr_cpu.layout import page_blocks
from llm_ocr_cpu.layout.measures import measure
from llm_ocr_cpu.page import laid_out
from llm_ocr_cpu.pdf_text import page_content
from llm_ocr_cpu.regions import Region


def starts(blocks: tuple[Block, ...]) -> list[str]:
    """First words of the blocks, in order."""
    return [block.text.split()[0] for block in blocks if block.text]


def column(seed: int, x: float, y: float, width: float, count: int = 3) -> list[Line]:
    lines: list[Line] = []
    for index in range(count):
        lines += paragraph(prose(10 * seed + index), x, y, width, indent=12)
        y = lines[-1].box.y0 + 12
    return lines


def test_two_columns_are_read_one_after_the_other():
    blocks = page_blocks(page([*column(1, 50, 100, 240), *column(2, 310, 100, 240)]), [])
    assert starts(blocks) == ["Start10", "Start11", "Start12", "Start20", "Start21", "Start22"]


def test_three_columns_are_read_from_left_to_right():
    content = page([*column(1, 40, 100, 165), *column(2, 220, 100, 165), *column(3, 400, 100, 165)])
    assert starts(page_blocks(content, [])) == [f"Start{c}{i}" for c in (1, 2, 3) for i in range(3)]


def test_heading_over_both_columns_separates_above_from_below():
    heading = line("A heading that reaches from the first column into the second one", 80, 330, size=14)
    content = page(
        [
            *column(1, 50, 100, 240, 2),
            *column(2, 310, 100, 240, 2),
            heading,
            *column(3, 50, 370, 240, 2),
            *column(4, 310, 370, 240, 2),
        ]
    )
    assert starts(page_blocks(content, [])) == [
        *("Start10", "Start11", "Start20", "Start21", "A", "Start30", "Start31", "Start40", "Start41")
    ]


def test_short_heading_over_balanced_columns_separates_them():
    content = page(
        [
            *column(1, 50, 100, 240, 2),
            *column(2, 310, 100, 240, 2),
            line("Second part", 50, 346, size=16),
            *column(3, 50, 380, 240, 2),
            *column(4, 310, 380, 240, 2),
        ]
    )
    assert starts(page_blocks(content, [])) == [
        *("Start10", "Start11", "Start20", "Start21", "Second", "Start30", "Start31", "Start40", "Start41")
    ]


def test_short_heading_over_wide_title_follows_columns_above():
    content = page(
        [
            *column(1, 50, 100, 240, 2),
            *column(2, 310, 100, 240, 2),
            line("SECOND PART", 50, 356, size=14),
            line("The title of the text that follows on this page", 50, 376, size=20),
            *column(3, 50, 430, 240, 2),
            *column(4, 310, 430, 240, 2),
        ]
    )
    assert starts(page_blocks(content, [])) == [
        *("Start10", "Start11", "Start20", "Start21", "SECOND", "The", "Start30", "Start31", "Start40", "Start41")
    ]


def test_columns_may_begin_at_different_heights():
    content = page([*column(1, 50, 100, 240, 4), *column(2, 310, 220, 240, 3)])
    assert starts(page_blocks(content, [])) == [f"Start{n}" for n in (10, 11, 12, 13, 20, 21, 22)]


def test_right_to_left_page_columns_begin_at_the_right():
    def text(seed: int) -> str:
        return " ".join(["مرحبا", *(["نص", "طويل", "جدا", "كلمة"] * 12), f"نهاية{seed}."])

    left = [*paragraph(text(2), 50, 100, 240)]
    right = [*paragraph(text(1), 310, 100, 240)]
    blocks = page_blocks(page([*left, *right]), [])
    assert ["نهاية1" in block.text for block in blocks] == [True, False]


@pytest.mark.parametrize("horizontal", [0, 8])  # lines of horizontal text above the columns
def test_columns_of_vertical_writing_are_read_from_the_right(horizontal):
    columns = ["北野商店はガラス瓶を", "品物は三月の十四日に", "代金は九万八千円です"]
    standing = [
        Line(text, Box(400 - 30 * at, 300, 414 - 30 * at, 500), 14.0, stacked=True) for at, text in enumerate(columns)
    ]
    above = [line("湖の町の会報です", 60, 60 + 14 * row) for row in range(horizontal)]
    blocks = page_blocks(page([*above, *standing[::-1]]), [])
    assert "".join(block.text for block in blocks).endswith("".join(columns))


def test_stacked_lines_without_a_column_are_read():
    boxes = [Box(60, 100 + 20 * at, 80, 114 + 20 * at) for at in range(3)]
    rows = [Line(text, box, 14.0, stacked=True) for text, box in zip("北野商", boxes, strict=True)]
    assert [block.text.split() for block in page_blocks(page(rows), [])] == [["北野商"]]


def test_rows_of_a_table_that_no_region_covers_are_read_across():
    rows = [("Apples", "12", "3.50"), ("Pears", "7", "2.25"), ("Plums", "31", "1.10"), ("Cherries", "4", "9.80")]
    lines = [line(text, 60 + 150 * c, 100 + 14 * r) for r, row in enumerate(rows) for c, text in enumerate(row)]
    (block,) = page_blocks(page(lines), [])
    assert [row.split() for row in block.text.splitlines()] == [list(row) for row in rows]


def test_labels_and_values_of_a_form_stay_together():
    rows = [
        ("Name:", "Ines Carvalho"),
        ("Date of birth:", "3 May 1970"),
        ("Town:", "Hollow Bridge"),
        ("Signed:", "yes"),
    ]
    lines = [line(text, 60 + 200 * c, 100 + 16 * r) for r, row in enumerate(rows) for c, text in enumerate(row)]
    text = "\n".join(block.text for block in page_blocks(page(lines), []))
    for label, value in rows:
        assert f"{label}   {value}" in text


def test_table_and_caption_keep_their_position_on_the_page():
    before, after = list(paragraph(prose(1), 50, 100, 400)), list(paragraph(prose(2), 50, 400, 400))
    cells = [line("a", 60, 220), line("b", 200, 220)]
    caption = line("Table 1: What was measured", 60, 200)
    lines = [*before, caption, *cells, *after]
    first = len(before)
    region = Region(
        "table", Box(50, 215, 300, 300), frozenset({first + 1, first + 2}), "| a | b |", "ruled", frozenset({first})
    )
    blocks = page_blocks(page(lines), [region])
    assert [block.kind for block in blocks] == [BlockKind.TEXT, BlockKind.CAPTION, BlockKind.TABLE, BlockKind.TEXT]
    assert blocks[2].text == "| a | b |"
    assert blocks[1].text == "Table 1: What was measured"


def test_a_figure_keeps_the_text_inside_it_and_its_caption_below():
    lines = [
        line("metres", 100, 150),
        line("hours", 200, 250),
        line("Figure 2: Levels", 100, 320),
        *paragraph(prose(1), 50, 400, 400),
    ]
    region = Region("figure", Box(60, 100, 400, 310), frozenset({0, 1}), label="chart", caption=frozenset({2}))
    blocks = page_blocks(page(lines), [region])
    assert [block.kind for block in blocks] == [BlockKind.FIGURE, BlockKind.CAPTION, BlockKind.TEXT]
    assert blocks[0].inside.split() == ["metres", "hours"]
    assert blocks[0].caption == blocks[1].text == "Figure 2: Levels"
    assert blocks[0].label == "chart"


def test_a_paragraph_broken_by_a_figure_is_whole_again():
    text = prose(1, 80)
    lines = list(paragraph(text, 50, 100, 400))
    half = len(lines) // 2
    moved = [line(item.text, item.box.x0, item.box.y0 + 200, width=item.box.width) for item in lines[half:]]
    region = Region("figure", Box(50, lines[half].box.y0, 450, lines[half].box.y0 + 180), frozenset())
    blocks = page_blocks(page([*lines[:half], *moved]), [region])
    assert [block.kind for block in blocks] == [BlockKind.TEXT, BlockKind.FIGURE]
    assert blocks[0].text == text


def test_sideways_page_is_read_in_the_order_of_its_lines():
    upright = list(paragraph(prose(1), 50, 100, 400))
    width, height = 800.0, 600.0

    def turned(box: Box) -> Box:  # read from the bottom to the top
        return Box(box.y0, height - box.x1, box.y1, height - box.x0)

    lines = tuple(
        Line(
            item.text,
            turned(item.box),
            item.size,
            tuple(type(word)(word.text, turned(word.box)) for word in item.words),
        )
        for item in reversed(upright)
    )
    (block,) = page_blocks(PageContent(width, height, lines), [])
    assert block.text == prose(1)
    assert block.box.height > block.box.width


def test_a_page_without_anything_has_no_blocks():
    assert page_blocks(page([]), []) == ()


def test_a_figure_on_a_page_without_text_is_a_block():
    (block,) = page_blocks(page([]), [Region("figure", Box(60, 80, 300, 400), frozenset(), label="image")])
    assert block.kind is BlockKind.FIGURE
    assert (block.box.x0, block.box.y0, block.box.x1, block.box.y1) == (0.1, 0.1, 0.5, 0.5)


def drawn(degrees: int) -> PageContent:
    """A PDF page with a heading, text, and a table, turned clockwise on the paper."""
    out = io.BytesIO()
    sheet = canvas.Canvas(out, pagesize=(600, 400) if degrees in (90, 270) else (400, 600))
    sheet.translate(*{0: (0, 0), 90: (0, 400), 180: (400, 600), 270: (600, 0)}[degrees])
    sheet.rotate(-degrees)
    sheet.setFont("Helvetica-Bold", 16)
    sheet.drawString(40, 550, "Gauges of the river")
    sheet.setFont("Helvetica", 10)
    for number in range(15):
        sheet.drawString(
            40, 520 - 12 * number, f"Line {number} of this text tells the level of the water at the bridge"
        )
    for y in (260, 240, 180):
        sheet.line(40, y, 360, y)
    for row, cells in enumerate(
        (("Name", "Count", "Size"), ("Alpha", "12", "3.4"), ("Beta", "56", "7.8"), ("Gamma", "9", "1.0"))
    ):
        for column, text in enumerate(cells):
            sheet.drawString(45 + column * 110, 246 - row * 18, text)
    sheet.save()
    return page_content(pypdfium2.PdfDocument(out.getvalue())[0])


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_text_layer_is_read_like_the_upright_one(degrees: int):
    upright, turned = laid_out(drawn(0)), laid_out(drawn(degrees))
    assert [block.kind for block in upright] == [BlockKind.TITLE, BlockKind.TEXT, BlockKind.TABLE]
    assert [(block.kind, block.text) for block in turned] == [(block.kind, block.text) for block in upright]
    for one, other in zip(upright, turned, strict=True):
        assert one.box.turned(degrees).iou(other.box) > 0.9


def test_two_rows_of_stretched_words_are_not_columns():
    places = [(50, "determines every"), (165, "garden"), (205, "in 1859. The")]
    stretched = [line(text, x, 124) for x, text in places]
    places = [(50, "inspector"), (105, "accepts"), (165, "each"), (195, "several"), (240, "planet")]
    stretched += [line(text, x, 136) for x, text in places]
    first = line("The channel is wide and region", 50, 112, width=235)
    block, *_ = page_blocks(page([first, *stretched, *paragraph(prose(3), 50, 148, 235)]), [])
    words = "determines every garden in 1859. The inspector accepts each several planet"
    assert words in " ".join(block.text.split())


def test_a_painted_box_beside_a_text_is_read_as_a_whole():
    above = [*paragraph(prose(1, 30), 50, 80, 500), line("End.", 50, 116)]
    narrow = list(paragraph(prose(2, 60), 50, 140, 300))
    facts = [
        line(text, 380, 146 + 13 * index) for index, text in enumerate(["In brief", "The bus runs daily", "in the"])
    ]
    facts.append(line("valley.", 380, 185))
    box = Path(Box(370, 138, 550, 205), None, (238, 238, 238), 5)
    blocks = page_blocks(replace(page([*above, *narrow, *facts]), paths=(box,)), [])
    assert [block.text.split()[-1] for block in blocks] == ["end1.", "End.", "end2.", "brief", "valley."]


def test_lists_side_by_side_are_columns():
    left = [line("• Loyal customers", 50, 100), line("• Staff", 50, 115), line("• Short times", 50, 130)]
    right = [line("• Old software", 300, 100), line("• High rents in the", 300, 115), line("city", 310, 130)]
    texts = [block.text for block in page_blocks(page([*left, *right]), [])]
    assert texts == ["- Loyal customers", "- Staff", "- Short times", "- Old software", "- High rents in the city"]


@pytest.mark.parametrize(("x", "gap"), [(50, 0), (562, 0), (562, 5)])
def test_notes_are_read_with_their_paragraphs(x, gap):
    texts = [list(paragraph(prose(seed, 90), 200, y, 350)) for seed, y in ((3, 100), (4, 300))]
    notes = [line(text, x, y + gap, size=7) for text, y in (("Art. 5", 100), ("void", 109), ("Art. 6", 300))]
    blocks = page_blocks(page([*texts[0], *texts[1], *notes], width=700), [])
    first, second = (" ".join(each.text for each in text) for text in texts)
    assert [block.text for block in blocks] == ["Art. 5 void", first, "Art. 6", second]


def test_text_goes_on_in_the_next_column_after_a_note():
    first = list(paragraph(prose(3, 150), 200, 100, 200))[:-2]
    second = list(paragraph(f"continues here {prose(4, 150)}", 420, 100, 200))
    low = first[-1].box.y0 - 20
    notes = [line(text, 50, low + 9 * row, size=7) for row, text in enumerate(("Received", "in May", "of 2004"))]
    blocks = page_blocks(page([*first, *second, *notes], width=700), [])
    assert [block.text for block in blocks] == [
        " ".join(each.text for each in (*first, *second)),
        "Received in May of 2004",
    ]


def test_small_signs_of_list_items_are_no_notes():
    texts = [list(paragraph(prose(seed, 60), 80, y, 350)) for seed, y in ((3, 100), (4, 200))]
    signs = [line("•", 60, y + 2, size=7) for y in (100, 200)]
    blocks = page_blocks(page([*texts[0], *texts[1], *signs]), [])
    assert [block.kind for block in blocks] == [BlockKind.LIST_ITEM] * 2


def test_wide_word_gap_in_a_stretched_line_is_no_gutter():
    short = [line("water of the river rose", 50, 100 + 12 * number) for number in range(45)]
    stretched = [line("the magazine Science", 50, 640), line("International,", 200, 640)]
    blocks = page_blocks(page([*short, *stretched, *paragraph(prose(2, 400), 310, 105, 240)]), [])
    text = " ".join(block.text for block in blocks)
    assert text.index("International,") < text.index("Start2")


def test_a_program_beside_its_output_is_read_as_a_whole():
    program = ["\\begin{tree}", "\\node{attr1}", "\\node{attr2}", "\\node{attr3}", "\\end{tree}"]
    code = [line(text, 50, 100 + 12 * index, mono=True) for index, text in enumerate(program)]
    output = [line("A", 300, 106), line("attr1", 290, 118), line("B", 300, 130)]
    blocks = page_blocks(page([*code, *output]), [])
    assert blocks[0].text == "\n".join(program)


def test_gutter_is_found_next_to_page_numbers_of_left_column():
    left = [line(f"Part {index} of the whole of it", 50, 100 + 14 * index) for index in range(12)]
    numbers = [line(str(index % 10), 265, 100 + 14 * index) for index in range(12)]
    right = [line(f"Section {index} of the rest of it", 280, 106 + 14 * index) for index in range(12)]
    text = " ".join(block.text for block in page_blocks(page([*left, *numbers, *right]), []))
    assert text.index("Part 11") < text.index("Section 0")


def test_exact_sizes_are_steady_in_a_mix_of_sizes():
    lines = [line(prose(index, 8), 50, 100 + 14 * index, size=(7, 9, 10)[index % 3]) for index in range(12)]
    assert not measure(page(lines), lines).noisy
    uneven = [replace(one, size=one.size + 0.3 * index) for index, one in enumerate(lines)]
    assert measure(page(uneven), uneven).noisy


def test_entries_of_an_index_side_by_side_are_columns():
    entries = [[f"{name}{index} . . . . {index}" for index in range(10, 16)] for name in ("Cell", "Rule")]
    lines = [
        line(text, x, 100 + 12 * row)
        for x, column in zip((50, 250), entries, strict=True)
        for row, text in enumerate(column)
    ]
    text = " ".join(block.text for block in page_blocks(page(lines), []))
    assert text.index("Cell15") < text.index("Rule10")


def short_columns(*, by_rows: bool) -> PageContent:
    """Two lines in each of two columns, drawn column after column, or row by row."""
    left = [line("8 Empty deposit and city", 50, 104, size=13), line("The reservoir prepares this survey", 50, 124)]
    right = [line("around each process before the decade,", 310, 100), line("because it moves every memory.", 310, 112)]
    order = [0, 2, 1, 3] if by_rows else [0, 1, 2, 3]
    lines = [replace(one, drawn=place) for place, one in zip(order, [*left, *right], strict=True)]
    return page(lines)


def test_two_lines_drawn_column_after_column_are_columns():
    text = [block.text for block in page_blocks(short_columns(by_rows=False), [])]
    assert "The reservoir prepares this survey around each process before the decade, because" in " ".join(text)


def test_two_lines_drawn_row_by_row_are_read_across():
    text = " ".join(block.text for block in page_blocks(short_columns(by_rows=True), []))
    assert text.index("around") < text.index("The reservoir")


def test_words_of_a_stretched_line_are_no_columns():
    words = ["[4] W. Brendel and S. Todorovic.", "Learning spatiotemporal"]
    lines = [line(words[0], 50, 100), line(words[1], 50 + 170, 100), line("graphs of human activities. " * 2, 50, 112)]
    blocks = page_blocks(page(replace(one, drawn=place) for place, one in enumerate(lines)), [])
    assert " ".join(" ".join(block.text for block in blocks).split()).startswith(" ".join(words))
