"""Tables are found where rules or clear columns show one, and come out as Markdown or HTML."""

import html
from dataclasses import replace
from itertools import pairwise

import pytest
from any_page import PROSE, contents
from hypothesis import HealthCheck, given, settings
from table_pages import drawn, grid, line, page, rows, rule

from llm_ocr.results.sanitizing import inert_markdown
from llm_ocr.types import Box, Line, Path, Raster, Script
from llm_ocr_cpu.figures import find_figures
from llm_ocr_cpu.tables import find_tables


def only(content):
    (table,) = find_tables(content)
    return table


def cell_lines(table, xs, ys):
    return [
        line(text, x + 3, y + 3)
        for y, row in zip(ys, table, strict=False)
        for x, text in zip(xs, row, strict=False)
        if text
    ]


def test_a_ruled_grid_becomes_a_pipe_table_with_empty_cells_kept():
    cells = [["Name", "Type"], ["alpha", ""], ["beta", "string"]]
    xs, ys = [100, 200, 300], [100, 120, 140, 160]
    table = only(page(cell_lines(cells, xs, ys), grid(xs, ys)))
    assert table.label == "ruled"
    assert rows(table.text) == cells
    assert table.lines == frozenset(range(5))


@pytest.mark.parametrize("spanning", [False, True])
def test_scripts_in_cells_are_tags_and_values_stay_values(spanning):
    scripts = {"a<b CO2": (Script(6, 7, True),), "cm2 1": (Script(2, 3),), "104": (Script(2, 3),)}
    cells = [["" if spanning else "Name", "a<b CO2"], ["cm2 1", "104"], ["beta", "7"]]
    xs, ys = [100, 200, 300], [100, 120, 140, 160]
    marked = [replace(one, scripts=scripts.get(one.text, ())) for one in cell_lines(cells, xs, ys)]
    rules = grid(xs, ys) if not spanning else [*grid(xs, ys[1:]), *(rule(x, 100, x, 120) for x in (100, 300))]
    text = only(page(marked, [*rules, rule(100, 100, 300, 100)])).text
    assert text.replace("\\<", "&lt;") == inert_markdown(text)
    assert text.startswith("<table>") is spanning
    shown = html.unescape(text).replace("\\<", "<")
    assert all(cell in shown for cell in ("a<b CO<sub>2</sub>", "cm<sup>2</sup> 1", "10<sup>4</sup>", "beta"))


def test_heading_over_part_of_the_gap_does_not_join_two_columns():
    lines = [line("Offense", 53, 100), line("All", 157, 100), line("Under 18", 176, 100)]
    for number in range(20):
        y = 117 + 12 * number
        lines += [line(f"Row {number}", 53, y), line(f"{number + 10}.1", 152, y), line(f"{number + 20}.2", 195, y)]
    rules = [rule(50, 97, 250, 97), rule(50, 114, 250, 114), rule(50, 360, 250, 360), rule(130, 97, 130, 360)]
    cells = only(page(lines, [*rules, rule(50, 97, 50, 360), rule(250, 97, 250, 360)])).text
    assert (rows(cells)[0], rows(cells)[8]) == (["Offense", "All", "Under 18"], ["Row 7", "17.1", "27.2"])


def test_one_long_cell_in_many_rows_is_in_its_column():
    names = ["Ann Lee"] * 19 + ["Marguerite Wellington"]
    lines = [line("Name", 53, 100), line("Harbor", 195, 100)]
    for number, name in enumerate(names):
        lines += [line(name, 53, 117 + 12 * number), line(f"Port {number}", 195, 117 + 12 * number)]
    rules = [rule(50, 97, 250, 97), rule(50, 114, 250, 114), rule(50, 360, 250, 360)]
    for stray in ([], [line("(old)", 150, 177)]):
        table = only(page([*lines, *stray], [*rules, rule(50, 97, 50, 360), rule(250, 97, 250, 360)]))
        assert "Marguerite Wellington" in table.text
        assert "Ann Lee Ann Lee" not in table.text
        assert "Wellington Port" not in table.text


def test_bullets_of_a_symbol_font_are_lines_of_their_cell():
    xs, ys = [100, 200, 400], [100, 120, 160]
    lines = cell_lines([["Column", "Meaning"], ["usage", "One of two:"]], xs, ys)
    lines += [line("\ufffd allowed", 203, 134), line("\ufffd denied", 203, 146)]
    assert rows(only(page(lines, grid(xs, ys))).text)[1] == ["usage", "One of two:<br>• allowed<br>• denied"]


def test_fills_of_cells_part_columns_with_narrow_gaps():
    xs, ys, words = [100, 160, 200, 226, 250], [100, 120, 140, 160, 180], []
    cells = [["Stop", "Mon", "Sat", "Sun"], ["Station", "06:10", "–", "–"], ["School", "06:20", "–", "–"],
             ["Hospital", "06:30", "7:28", "9:28"]]  # fmt: skip
    for y, row in zip(ys, cells, strict=False):
        one = line(" ".join(row), 103, y + 4)
        boxes = [
            replace(word, box=Box(x0 + 3, y + 4, x1 - 2, y + 14))
            for (x0, x1), word in zip(pairwise(xs), one.words, strict=True)
        ]
        words += [replace(one, text=word.text, box=word.box, words=(word,)) for word in boxes[:2]]
        words += [replace(one, text=" ".join(row[2:]), box=boxes[2].box.union(boxes[3].box), words=tuple(boxes[2:]))]
    fills = [Path(Box(x0, y, x1, y + 20), None, (230, 230, 230), 5) for y in (100, 140) for x0, x1 in pairwise(xs)]
    assert rows(only(page(words, fills)).text) == cells


def test_rules_drawn_in_pieces_and_doubled_are_still_one_grid():
    xs, ys = [100, 200, 300], [100, 120, 140]
    pieces = [rule(x, y, x + 9, y) for y in ys for x in range(100, 300, 10)]
    pieces += [rule(x + d, 100, x + d, 140) for x in xs for d in (0, 1.5)]
    cells = [["Name", "Type"], ["alpha", "string"]]
    assert rows(only(page(cell_lines(cells, xs, ys), pieces)).text) == cells


def test_a_column_of_commands_beside_their_meanings_is_a_table():
    cells = [["Command", "Meaning"], ["--all", "every file"], ["--silent", "no message"], ["--limit=5", "few files"]]
    words = [line(text, 100 + 120 * at, 100 + 14 * n) for n, row in enumerate(cells) for at, text in enumerate(row)]
    words = [replace(one, mono=one.text.startswith("-")) for one in words]
    across = [rule(95, y, 280, y) for y in (97, 112, 155)]
    assert rows(only(page(words, across)).text) == cells
    assert not find_tables(page([replace(one, mono=True) for one in words], across))


def test_stroked_rectangles_and_image_rules_make_a_grid():
    xs, ys = [100, 200, 300], [100, 120, 140]
    boxes = [Path(Box(x0, y0, x1, y1), (0, 0, 0), None, 5)
             for x0, x1 in pairwise(xs) for y0, y1 in pairwise(ys)]  # fmt: skip
    images = [Raster(Box(r.box.x0, r.box.y0, r.box.x1, r.box.y1)) for r in grid(xs, ys)]
    cells = [["Name", "Type"], ["alpha", "string"]]
    assert rows(only(page(cell_lines(cells, xs, ys), boxes)).text) == cells
    assert rows(only(page(cell_lines(cells, xs, ys), rasters=images)).text) == cells


def test_a_value_next_to_a_long_label_is_its_own_cell():
    words = [line("Year", 100, 103), line("2024", 300, 103), line("2023", 360, 103)]
    for number, label in enumerate(["Sales", "Cost of sales", "Tax", "Interest", "Other income"]):
        y = 123 + 14 * number
        words += [line(label, 100, y), line("$", 270, y), line(f"{number},111", 300, y), line(f"{number},222", 360, y)]
    y = 123 + 14 * 5
    words += [line("Research and development, and more of it", 100, y)]
    words += [line("3,423", 300, y), line("3,100", 360, y)]
    table = only(page(words, [rule(95, y, 400, y) for y in (98, 118, 210)]))
    assert "colspan" not in table.text
    assert rows(table.text)[-1] == ["Research and development, and more of it", "3,423", "3,100"]
    assert rows(table.text)[1] == ["Sales", "$ 0,111", "0,222"]


def test_rows_without_rules_have_the_columns_of_the_ruled_rows():
    """Accounts often have fills or frames in every second row."""
    xs, words, paths = [100, 300, 320, 400], [], []
    for number, label in enumerate(["Sales", "Research and development", "Taxes", "Net income"]):
        y = 100 + 20 * number
        words += [line(label, 103, y + 4), line(f"{number},423", 350, y + 4)]
        paths += grid(xs, [y, y + 20]) if number % 2 == 0 else [rule(100, y, 100, y + 20), rule(400, y, 400, y + 20)]
    table = only(page(words, paths))
    assert [cell for cell in rows(table.text)[1] if cell] == ["Research and development", "1,423"]


def test_rules_above_values_only_leave_labels_in_the_table():
    """Accounts draw rules below headings and above sums, as wide as the columns of values."""
    cells = [["", "2024", "2023"], ["Net sales", "3,423", "3,056"], ["Cost of sales", "(1,902)", "(1,745)"],
             ["Gross profit", "1,521", "1,311"], ["Taxes", "(162)", "(101)"], ["Net income", "485", "303"]]  # fmt: skip
    words = [line(row[0], 100, 100 + 16 * number) for number, row in enumerate(cells) if row[0]]
    for number, row in enumerate(cells):
        values = [line(text, x, 100 + 16 * number) for text, x in zip(row[1:], (300, 400), strict=True)]
        words += [line(value.text, 2 * value.box.x0 - value.box.x1, value.box.y0) for value in values]  # right-aligned
    rules = [rule(265, y, 402, y) for y in (114, 146, 178, 196)]
    assert rows(only(page(words, rules)).text) == cells


def test_bold_heading_above_rules_below_rows_belongs_to_table():
    xs = (103, 150, 303, 403)
    lines = [line(text, x, 103, bold=True) for text, x in zip(("No.", "Item", "Quantity", "Total"), xs, strict=True)]
    lines += cell_lines([["1", "Hammer", "2", "28.00"], ["3", "Delivery", "1", "6.50"]], xs, (120, 170))
    lines += cell_lines([["", "Saw blades"], ["2", "", "1", "39.90"], ["", "for wood"]], xs, (139, 145, 151))
    table = only(page(lines, [rule(100, y, 440, y) for y in (118, 138, 168, 188)]))
    assert rows(table.text)[0] == ["No.", "Item", "Quantity", "Total"]
    assert rows(table.text)[2] == ["2", "Saw blades for wood", "1", "39.90"]


SENTENCE = "the river was high in that year and every farmer near the old bridge had to move his sheep to the upper"


@pytest.mark.parametrize("verticals", [(), (295,)])
@pytest.mark.parametrize("stops", [(90, 700), (90, 130, 700), (90, 300, 500, 700)])
def test_two_columns_of_text_between_rules_are_no_table(verticals, stops):
    words = [line("The Gazette", 60, 100), line("12", 500, 100)]
    for number in range(36):
        y = 140 + 15 * number
        words += [line(SENTENCE[number % 5 :][:40].strip(), 60, y), line(SENTENCE[number % 7 :][:40].strip(), 310, y)]
    rules = [rule(50, y, 545, y) for y in stops]
    rules += [rule(x, stops[0], x, stops[-1]) for x in ((50, *verticals, 545) if verticals else ())]
    assert find_tables(page(words, rules)) == []


def test_part_with_long_cells_below_a_midrule_belongs_to_table():
    parts = [
        [("Term", "Meaning"), ("cell", "unit")],
        [(f"Third key {n}", SENTENCE[:52].capitalize()) for n in range(5)],
    ]
    words, y, stops = [], 100, [96]
    for part in parts:
        for key, value in part:
            words += [line(key, 100, y), line(value, 190, y)]
            y += 14
        stops.append(y)
        y += 4
    table = only(page(words, [rule(95, stop, 440, stop) for stop in stops]))
    assert [row[0] for row in rows(table.text)][1:] == [f"Third key {n}" for n in range(5)]


def test_a_list_between_rules_is_no_table():
    words = []
    for number in range(8):
        words += [line("•", 100, 110 + 15 * number), line(f"Point {number} of the list", 120, 110 + 15 * number)]
    assert find_tables(page(words, [rule(95, 100, 400, 100), rule(95, 240, 400, 240)])) == []


def test_a_total_begins_a_row_and_stacked_headings_are_one_row():
    words = [line("Multi-", 200, 104), line("Part", 100, 116), line("modal", 200, 116), line("Out of", 330, 116)]
    for number in range(4):
        y = 140 + 14 * number
        words += [line(f"P{number}", 100, y), line("The crystal was examined", 200, y), line(f"/{number + 4}", 330, y)]
    words += [line("Total score:", 200, 196), line("/25", 330, 196)]
    table = rows(only(page(words, [rule(95, y, 400, y) for y in (100, 132, 212)])).text)
    assert table[0] == ["Part", "Multimodal", "Out of"]
    assert table[-1] == ["", "Total score:", "/25"]


def test_spanning_cells_make_html_table_without_other_attributes():
    xs = [100, 180, 260, 340]
    rules = [rule(100, y, 340, y) for y in (100, 140, 160)] + [rule(180, 120, 340, 120)]
    rules += [rule(x, 100, x, 160) for x in (100, 180, 340)] + [rule(260, 120, 260, 160)]
    words = [line("Key", 103, 113), line("Both <a> & b", 183, 103), line("one", 183, 123), line("two", 263, 123)]
    words += cell_lines([["k", "1", "2"]], xs, [140])
    text = only(page(words, rules)).text
    assert text == (
        '<table>\n<tr><th rowspan="2">Key</th><th colspan="2">Both &lt;a&gt; &amp; b</th></tr>\n'
        "<tr><th>one</th><th>two</th></tr>\n<tr><td>k</td><td>1</td><td>2</td></tr>\n</table>"
    )


def test_lines_of_a_cell_are_joined_and_pipes_escaped():
    xs, ys = [100, 200, 300], [100, 120, 150]
    words = cell_lines([["# of Name", "1. Type"]], xs, ys)
    words += [line("a|b", 103, 123), line("a long exam-", 203, 123), line("ple of text", 203, 135)]
    assert only(page(words, grid(xs, ys))).text.split("\n")[::2] == [
        "| # of Name | 1. Type |",  # no line of a cell begins a heading or a list
        "| a\\|b | a long example of text |",
    ]


def test_values_on_common_baselines_are_rows_without_rules():
    xs, ys = [100, 200, 300], [100, 120, 160]
    words = cell_lines([["City", "Count"]], xs, ys)
    for row, (name, value) in enumerate([("Bonn", "12"), ("Kiel", "34"), ("Ulm", "56")]):
        words += [line(name, 103, 122 + 12 * row), line(value, 203, 122 + 12 * row)]
    assert rows(only(page(words, grid(xs, ys))).text)[1:] == [["Bonn", "12"], ["Kiel", "34"], ["Ulm", "56"]]


def booktabs(body, xs=(100, 220, 320), top=100, ends=(98, 380)):
    words = [line(text, x, top + 6) for x, text in zip(xs, body[0], strict=True)]
    for number, cells in enumerate(body[1:]):
        words += [line(text, x, top + 30 + 14 * number) for x, text in zip(xs, cells, strict=True) if text]
    last = top + 30 + 14 * (len(body) - 1)
    return words, [rule(ends[0], y, ends[1], y) for y in (top, top + 22, last)]


def test_multiline_sentence_is_one_cell_next_to_rows_of_values():
    xs, ys = (100, 140, 330, 430, 500), (100, 120, 160, 180)
    cells = [(1, "40", 135), (2, "Acids of two metals and their", 128), (2, "oligomers of all kinds.", 142)]
    cells += [(3, "231-801", 128), (4, "135-68", 128), (3, "236-881", 142), (4, "773-94", 142)]
    for y, row in ((105, ("N", "Name", "EC", "CAS")), (165, ("39", "Salt", "203-7", "10-8"))):
        cells += [(at, text, y) for at, text in enumerate(row, 1)]
    text = only(page([line(text, xs[at - 1] + 4, y) for at, text, y in cells], grid(xs, ys))).text
    name = "Acids of two metals and their oligomers of all kinds."
    assert f'<td rowspan="2">{name}</td><td>231-801</td><td>135-68</td></tr>' in text


def test_a_booktabs_table_has_its_columns_from_the_gaps():
    body = [["Model", "Size", "Score"], ["small net", "1.2", "0.81"], ["large net", "33", "0.9"], ["none", "", "0.1"]]
    words, rules = booktabs(body)
    table = only(page(words, rules))
    assert table.label == "booktabs"
    assert rows(table.text) == body


def test_table_between_two_rules_below_same_width_frame_is_found():
    body = [["Ada Noor", "Mill", "Dock"], ["Old Street", "New Street", "Quay"], ["Hill 4", "Park 9", "Pier 2"]]
    code = "\\address{street and number}{city}{country}{telephone}"
    prose = "The command in the frame gives a result like the table"
    rows_of_code = [line(code, 100, y) for y in (*range(104, 174, 14), *range(344, 400, 14))]
    words = [*rows_of_code, line(prose, 100, 194), line(prose, 100, 314)]
    words += cell_lines(body, (97, 217, 317), (223, 237, 251))
    rules = [rule(98, y, 380, y) for y in (100, 176, 220, 270, 340, 402)]
    assert rows(only(page(words, rules)).text) == body


def test_a_heading_over_a_short_rule_spans_its_columns():
    words, rules = booktabs([["Model", "Size", "Score"], ["small", "1.2", "0.81"], ["large", "33", "0.9"]])
    words = [line("Results", 250, 92), *words]
    rules = [rule(98, 88, 380, 88), rule(215, 103, 350, 103), *rules[1:]]
    text = only(page(words, rules)).text
    assert '<th colspan="2">Results</th>' in text
    assert "<tr><th>Model</th><th>Size</th><th>Score</th></tr>" in text


def test_line_that_continues_a_text_cell_joins_the_row_above():
    body = [["Item", "Note", "N"], ["one", "some words", "1"], ["", "and more", ""], ["two", "other words", "2"]]
    words, rules = booktabs(body)
    assert rows(only(page(words, rules)).text) == [
        ["Item", "Note", "N"], ["one", "some words and more", "1"], ["two", "other words", "2"]]  # fmt: skip


def test_year_below_name_joins_row_above_with_its_adjacent_text():
    body = [["Office", "Advice", "N"], ["Bureau of Wells", "some words", "1"], ["(2012)", "and more", ""],
            ["Rivers", "other words", "2"]]  # fmt: skip
    words, rules = booktabs(body)
    words = [line(one.text, 107, one.box.y0) if one.text == "(2012)" else one for one in words]
    joined = ["Bureau of Wells (2012)", "some words and more", "1"]
    assert rows(only(page(words, rules)).text) == [body[0], joined, body[3]]


def test_captions_above_and_below_are_given_with_the_table():
    words, rules = booktabs([["Model", "Size", "Score"], ["small", "1.2", "0.81"], ["large", "33", "0.9"]])
    above = [line("Table 3: Results of the two", 98, 70), line("models.", 98, 82)]
    below = [line("TABLE IV", 98, 170)]
    assert only(page([*words, *above], rules)).caption == {len(words), len(words) + 1}
    assert only(page([*words, *below], rules)).caption == {len(words)}
    titled = [line("Table B1", 98, 58, bold=True), line("A Table of the Results of Both Models", 98, 82, italic=True)]
    assert only(page([*words, *titled], rules)).caption == {len(words), len(words) + 1}


def test_numbers_beside_labels_are_a_table_without_any_rule():
    body = [["", "2023", "2024"], ["Bread", "12.5", "13"], ["Milk", "3", "4.1"], ["Eggs", "30", "31"],
            ["Salt", "7", "8"], ["Tea", "9.9", "10.1"], ["Rice", "2", "2.2"]]  # fmt: skip
    words = [line(text, x - 5 * len(text) * (x > 100), 100 + 14 * n) for n, cells in enumerate(body)
             for x, text in zip((100, 240, 300), cells, strict=True) if text]  # fmt: skip
    assert rows(only(page(words)).text) == body


def test_leader_dots_are_not_text_of_the_table():
    words = []
    for number, (name, first, second) in enumerate([("Bonn", "12", "13"), ("Kiel", "34", "31"), ("Ulm", "5", "6"),
                                                    ("Hof", "7", "9"), ("Jena", "8", "2")]):  # fmt: skip
        y = 100 + 12 * number
        words += [
            line(f"{name} . . . . . .", 100, y),
            line(first, 220 - 5 * len(first), y),
            line(second, 260 - 5 * len(second), y),
        ]
    assert rows(only(page(words)).text)[0] == ["Bonn", "12", "13"]


def test_leader_dots_through_the_names_are_not_table_text():
    body = [["City", "Count", "Rate"], ["Bonn", "12", "..."], ["Kiel", "34", "3"], ["Ulm", "5", "6"]]
    words, rules = booktabs(body)
    words += [line(". " * 18 + ".", 99, 130 + 14 * row) for row in range(3)]
    assert rows(only(page(words, rules)).text) == body


def test_borders_with_cut_corners_make_a_grid():
    xs, ys = [100 + 60 * n for n in range(6)], [100 + 22 * n for n in range(20)]
    sides = [(x0, y, x1, y) for y in ys for x0, x1 in pairwise(xs)]
    sides += [(x, y0, x, y1) for x in xs for y0, y1 in pairwise(ys)]
    cells = [[f"{name} {row}" for name in ("oak", "elm", "ash", "fir", "yew")] for row in range(len(ys) - 1)]
    words = [
        line(text, x + 4, y + 4) for y, row in zip(ys, cells, strict=False) for x, text in zip(xs, row, strict=False)
    ]
    found = only(page(words, [replace(rule(*side), segments=7) for side in sides]))
    assert (found.label, rows(found.text)) == ("ruled", cells)


def test_ellipsis_in_a_cell_is_table_text():
    body = [["Syntax", "Meaning"], ["rule: ...", "Define a rule"], ["%ignore ...", "Ignore a terminal"]]
    assert rows(only(page(*booktabs(body, xs=(100, 220)))).text) == body


def test_many_letters_in_a_row_with_numbers_are_no_table():
    words = [line("L", 60 + 8 * at, 100 + 12 * row) for at in range(40) for row in range(12)]
    words += [line(f"1{row}", x, 100 + 12 * row) for row in range(12) for x in (420, 460)]
    assert not find_tables(page(words))


def test_reportlab_table_with_filled_heading_and_spans_is_read():
    platypus = pytest.importorskip("reportlab.platypus", reason="reportlab is not installed")

    def draw(canvas):
        table = platypus.Table(
            [["Region", "Sales", ""], ["", "2023", "2024"], ["North", "10", "12"], ["South", "7", "9"]],
            colWidths=80, rowHeights=18,
            style=[("GRID", (0, 0), (-1, -1), 0.5, "black"), ("BACKGROUND", (0, 0), (-1, 1), "lightblue"),
                   ("SPAN", (1, 0), (2, 0)), ("SPAN", (0, 0), (0, 1))],
        )  # fmt: skip
        table.wrapOn(canvas, 400, 400)
        table.drawOn(canvas, 100, 500)

    text = only(drawn(draw)).text
    assert '<th rowspan="2">Region</th><th colspan="2">Sales</th>' in text
    assert "<td>North</td><td>10</td><td>12</td>" in text


def test_colour_banded_rows_without_rules_are_a_table():
    def draw(canvas):
        for row in range(6):
            canvas.setFillGray(0.9 if row % 2 else 0.75)
            canvas.rect(80, 700 - 20 * row, 300, 20, stroke=0, fill=1)
            canvas.setFillGray(0)
            for x, text in ((90, f"item {row}"), (200, f"{row * 3}.5"), (300, "red" if row % 2 else "blue")):
                canvas.drawString(x, 706 - 20 * row, text)

    assert rows(only(drawn(draw)).text)[2] == ["item 2", "6.5", "blue"]


STRIPES = [["Item", "Mass", "Colour"], ["Bread", "12.5", "brown"], ["Milk", "3.0", "white"],
           ["Eggs", "30.1", "white"], ["Salt", "7.2", "grey"], ["Tea", "9.9", "red"], ["Rice", "2", "red"]]  # fmt: skip


def test_striped_table_includes_its_heading_and_last_row():
    def draw(canvas):
        canvas.drawString(80, 730, "A sentence about the goods in the store of the mill, which stands above the table.")
        for number, row in enumerate(STRIPES):
            if number % 2:
                canvas.setFillGray(0.9)
                canvas.rect(80, 700 - 20 * number, 300, 20, stroke=0, fill=1)
                canvas.setFillGray(0)
            for x, text in zip((90, 200, 300), row, strict=True):
                canvas.drawString(x, 706 - 20 * number, text)
        canvas.drawString(80, 560, "Another sentence about the goods, which stands below the table and is no row.")

    assert rows(only(drawn(draw)).text) == STRIPES


def test_record_above_first_stripe_is_below_two_heading_rows():
    table = [["", "Bread", "Milk"], ["", "Mass", "Price"], ["North", "12.5", "3.0"], ["South", "30.1", "7.2"],
             ["East", "9.9", "2.0"], ["West", "1.0", "4.4"], ["Inland", "8.0", "5.1"]]  # fmt: skip

    def draw(canvas):
        for number, row in enumerate(table):
            if number in (3, 5):
                canvas.setFillGray(0.9)
                canvas.rect(80, 700 - 20 * number, 300, 20, stroke=0, fill=1)
                canvas.setFillGray(0)
            for x, text in zip((90, 200, 300), row, strict=True):
                canvas.drawString(x, 706 - 20 * number, text)

    text = only(drawn(draw)).text
    assert "North | 12.5 | 3.0" in text or "<td>North</td><td>12.5</td><td>3.0</td>" in text


def test_word_columns_next_to_number_columns_are_in_the_table():
    body = [["Name", "First", "Metal", "Second", "Remark"], ["Mill one", "12.5", "iron", "4.1", "Repaired in spring."],
            ["Mill two", "3.0", "zinc", "8.0", "Sold to the town."], ["Mill three", "30.1", "lead", "7.7", "Closed."],
            ["Mill four", "7.2", "iron", "1.0", "Bought by a farmer."],
            ["Mill five", "9.9", "tin", "0.3", "New."]]  # fmt: skip
    xs = (60, 150, 200, 260, 320)
    lines = [line(text, x, 100 + 16 * n) for n, row in enumerate(body) for x, text in zip(xs, row, strict=True)]
    assert rows(only(page(lines)).text) == body


def test_flags_behind_few_values_are_in_their_rows():
    body = [["Iron", "13.2", "g/dL", ""], ["Zinc", "11.8", "g/L", "H"], ["Lead", "24", "mg", ""],
            ["Salt", "0.7", "mg", ""], ["Tin", "128", "mg", "L"], ["Lime", "139", "mmol", ""]]  # fmt: skip
    lines = [line(text, x, 100 + 16 * n) for n, row in enumerate(body)
             for x, text in zip((60, 150, 200, 280), row, strict=True) if text]  # fmt: skip
    assert rows(only(page(lines)).text) == body


def test_word_columns_below_a_wider_bold_heading_are_in_table():
    body = [["Mill one", "12.5", "iron", "old"], ["Mill two", "3.0", "zinc", "new"], ["Mill six", "3.1", "lead", "old"],
            ["Mill four", "7.2", "iron", "new"], ["Mill five", "9.9", "tin", "old"]]  # fmt: skip
    lines = [
        line(text, x, 132 + 16 * n)
        for n, row in enumerate(body)
        for x, text in zip((60, 150, 210, 260), row, strict=True)
    ]
    lines += [line(text, x, 116, bold=True) for x, text in ((150, "Load"), (210, "Metal"), (260, "Age"))]
    lines += [
        line(text, x, 100, bold=True) for x, text in ((60, "Mill"), (145, "Tested"), (212, "What it is all made of"))
    ]
    text = only(page(lines)).text
    assert "What it is all made of" in text
    assert "<td>Mill four</td><td>7.2</td><td>iron</td><td>new</td>" in text or "Mill four | 7.2 | iron | new" in text


def word_rows(table, xs, **look):
    return [line(text, x, 100 + 16 * n, **look) for n, row in enumerate(table) for x, text in zip(xs, row, strict=True)]


def test_words_are_a_table_below_bold_but_not_plain_headings():
    cells = [["Name", "Role", "Town"], ["Anna Keller", "Head of sales", "Basel"], ["Tom Weber", "Counsel", "Bern"]]
    cells += [["Lea Frei", "Research", "Chur"]]
    xs = (60, 123, 192)  # half a letter size behind the longest cells
    assert find_tables(page(word_rows(cells, xs))) == []
    bold = [replace(each, bold=True) if number < 3 else each for number, each in enumerate(word_rows(cells, xs))]
    assert rows(only(page(bold)).text) == cells
    assert find_tables(page([*bold[:3], line(" ".join(["running text"] * 8), 60, 116), *bold[9:]])) == []


def test_labels_with_colons_and_values_at_one_place_are_a_table():
    cells = [["Project:", "Harbor extension"], ["Client:", "City of Hamburg"], ["Start:", "Spring"]]
    assert rows(only(page(word_rows(cells, (60, 140)))).text) == cells
    ragged = [line(f"{label} {value}", 60, 100 + 16 * n) for n, (label, value) in enumerate(cells)]
    assert find_tables(page(ragged)) == []
    prose = [[label, "value in a sentence that goes on for more than ten words"] for label, _ in cells]
    assert find_tables(page(word_rows(prose, (60, 140)))) == []


def test_three_values_are_a_table_only_below_a_heading():
    body = [["Name", "Height"], ["Mill one", "12.5"], ["Mill two", "3.0"], ["Mill six", "7.1"]]
    lines = [line(text, x, 100 + 16 * n) for n, row in enumerate(body) for x, text in zip((60, 200), row, strict=True)]
    assert rows(only(page(lines)).text) == body
    assert find_tables(page(lines[2:])) == []


def test_number_and_word_that_ocr_joined_are_two_cells():
    names = ("Upper mill", "Old forge", "Brewery", "Saw mill", "Tannery", "Lime kiln")
    body = [["Name", "Share", "Metal"], *([name, f"{n}.5", "iron"] for n, name in enumerate(names))]
    lines = []
    for number, (name, share, metal) in enumerate(body):
        first, second = line(share, 200, 100 + 16 * number), line(metal, 240, 100 + 16 * number)
        both = Line(f"{share} {metal}", first.box.union(second.box), 10, (*first.words, *second.words))
        lines += [line(name, 100, 100 + 16 * number), *([both] if number in (2, 3, 5) else [first, second])]
    assert rows(only(page(lines)).text) == body


def test_columns_of_a_page_between_two_tables_are_not_in_a_table():
    cells = [["Item", "Price", "Sum"], ["A", "1.00", "2.00"], ["B", "3.00", "6.00"]]
    upper, first = booktabs(cells, (60, 260, 450), 100, (60, 530))
    lower, second = booktabs(cells, (60, 260, 450), 400, (60, 530))
    parts = [" ".join(PROSE.split()[n % 7 : n % 7 + 5]) for n in range(14)]
    text = [line(part, x, 200 + 12 * n, width=140) for x in (60, 230, 400) for n, part in enumerate(parts)]
    found = find_tables(page([*upper, *text, *lower], [*first, *second]))
    assert [rows(table.text) for table in found] == [cells, cells]


def test_headings_above_one_rule_share_its_columns():
    body = [["", "Cold", "Warm", "Dry", "Wet"], ["North", "1", "2", "3", "4"], ["South", "5", "6", "7", "8"]]
    body.append(["West", "2", "3", "5", "9"])
    words, rules = booktabs(body, (100, 200, 260, 320, 380), 120, (98, 420))
    top = [line("Temperature", 202, 104), line("Rain", 345, 104), line("Region", 100, 104)]
    rules = [rule(98, 100, 420, 100), rule(190, 117, 420, 117), *rules[1:]]
    text = only(page([*top, *words[1:]], rules)).text
    assert '<th rowspan="2">Region</th><th colspan="2">Temperature</th><th colspan="2">Rain</th>' in text
    assert "<th>Cold</th><th>Warm</th><th>Dry</th><th>Wet</th>" in text


def test_cells_that_wrap_in_all_columns_are_one_row():
    cells = [(("Upper mill", "on the hill"), ("The wheel was rebuilt after", "the flood of the river.")),
             (("Lower mill",), ("It stands beside the bridge", "and grinds for the town.")),
             (("New mill at", "the harbour"), ("The owner bought it from", "his brother in autumn."))]  # fmt: skip
    words, y = [line("Mill", 100, 104), line("History", 220, 104)], 124
    for cell in cells:
        for x, part in zip((100, 220), cell, strict=True):
            words += [line(text, x, y + 11 * n) for n, text in enumerate(part)]
        y += 28
    found = rows(only(page(words, [rule(98, at, 380, at) for at in (100, 118, y)])).text)
    assert found == [["Mill", "History"], *([" ".join(key), " ".join(text)] for key, text in cells)]


def prose(x, y, count, words=14):
    return [line(" ".join(PROSE.split()[:words]), x, y + 12 * number) for number in range(count)]


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        (prose(60, 100, 30), []),
        (prose(60, 100, 30, 8) + prose(320, 100, 30, 8), [rule(60, 90, 540, 90), rule(60, 470, 540, 470)]),
        (prose(60, 100, 6), grid([50, 480], [90, 180])),
        (prose(60, 100, 40), grid([20, 575], [20, 822])),
        ([line("Title of the whole", 200, 100, 16)], grid([180, 420], [90, 130])),
        ([line("0", 90, 200), line("50", 85, 100), line("1", 120, 212)],
         [rule(100, y, 300, y) for y in range(100, 220, 20)] + [rule(x, 100, x, 200) for x in range(100, 320, 20)]),
        ([line(f"Chapter {n} . . . . . . .", 80, 100 + 14 * n) for n in range(9)]
         + [line(str(n * 7), 400, 100 + 14 * n) for n in range(9)], []),
        ([line("Name", 60, 105), line("Street", 60, 135)],
         grid([50, 400], [90, 160]) + grid([120, 300], [100, 118]) + grid([120, 300], [130, 148])),
    ],
    ids=["prose", "two columns between rules", "frame", "page border", "title box", "graph paper", "contents", "form"],
)  # fmt: skip
def test_what_is_not_a_table_is_not_taken_for_one(lines, paths):
    assert find_tables(page(lines, paths)) == []


def test_code_in_columns_and_pictures_in_a_grid_are_no_tables():
    code = [line(a, 100, 110 + 12 * n, mono=True) for n, a in enumerate(["SELECT", "FROM", "WHERE"])]
    code += [line(a, 200, 110 + 12 * n, mono=True) for n, a in enumerate(["name", "people", "age > 3"])]
    assert find_tables(page(code, [rule(95, 100, 400, 100), rule(95, 150, 400, 150)])) == []
    xs, ys = [100, 200, 300], [100, 200, 300]
    labels = [line("left", 130, 185), line("right", 230, 185), line("low", 130, 285), line("last", 230, 285)]
    pictures = [Raster(Box(x + 5, y + 5, x + 95, y + 80)) for x in xs[:2] for y in ys[:2]]
    assert find_tables(page(labels, grid(xs, ys), pictures)) == []


def test_content_over_a_figure_caption_is_a_chart_and_no_table():
    words, rules = booktabs([["Model", "Size", "Score"], ["small", "1.2", "0.81"], ["large", "33", "0.9"]])
    assert find_tables(page([*words, line("Figure 2: The models at work.", 98, 165)], rules)) == []


def test_drawing_on_graph_paper_is_a_figure_if_captioned_as_one():
    squares = grid(range(100, 310, 30), range(100, 310, 30))
    labels = [
        line(name, x, y) for name, x, y in (("R1", 110, 135), ("C2", 200, 165), ("in", 105, 255), ("out", 285, 255))
    ]
    drawing = page([*labels, line("Figure 1: Circuit diagram.", 150, 325)], squares)
    assert find_tables(drawing) == []
    (figure,) = find_figures(drawing, [])
    assert figure.lines >= {0, 1, 2, 3}


def test_columns_of_an_index_are_no_table():
    cells = [
        ["\\closeout", "319,", "323,", "328,"],
        ["\\color", "331,", "336,", "339,"],
        ["\\commby", "345,", "357,", "366,"],
    ]
    words = spaces_only(cells * 3, xs=(100, 200, 240, 280))
    assert find_tables(page([line("Index of Table 2", 100, 60), *words])) == []


def test_a_long_caption_below_a_table_is_given_whole():
    words, rules = booktabs([["Model", "Size", "Score"], ["small", "1.2", "0.81"], ["large", "33", "0.9"]])
    text = ["Table 2: " + " ".join(PROSE.split()[:8])] + [" ".join(PROSE.split()[:9])] * 11
    caption = [line(part, 98, 170 + 11.5 * number) for number, part in enumerate(text)]
    assert only(page([*words, *caption], rules)).caption == set(range(len(words), len(words) + 12))


def spaces_only(cells, xs=(100, 200, 300)):
    return [
        line(text, x, 100 + 18 * number)
        for number, row in enumerate(cells)
        for x, text in zip(xs, row, strict=True)
        if text
    ]


def test_short_aligned_cells_with_only_spaces_are_a_table():
    cells = [["Time", "Level", "Gates"], ["6.00", "0.71 m", "one open"], ["7.00", "0.88 m", "both open"],
             ["8.00", "1.02 m", "both open"], ["9.00", "1.11 m", "both open"]]  # fmt: skip
    lines = [*spaces_only(cells), *prose(100, 220, 3)]
    table = only(page(lines))
    assert rows(table.text) == cells
    assert table.lines == set(range(15))


@pytest.mark.parametrize(
    "cells",
    [
        [["Ann Abel", "Bob Best", "Cid Cox"], ["Rome", "Bern", "Oslo"], ["Italy", "Swiss", "Norway"], ["a", "b", "c"]],
        [["Part", "Title", "Page"], ["I", "River", "3"], ["II", "Weir", "14"], ["III", "Quay", "31"]],
        [["1", "a1", "b1"], ["2", "a2", "b2"], ["3", "a3", "b3"], ["4", "a4", "b4"]],
        [["Time", "Level", "Gates"], ["6.00", "", "one"], ["7.00", "0.88", "two"], ["8.00", "1.02", "two"]],
    ],
    ids=["authors", "contents", "no headings", "gaps"],
)
def test_word_and_page_columns_are_no_table_without_rules(cells):
    assert find_tables(page(spaces_only(cells))) == []


def test_page_rules_around_a_table_do_not_include_surroundings():
    xs, ys = [60, 150, 240, 540], [300, 320, 340, 360]
    cells = [["Item", "Price", "Sum"], ["A", "1.00", "2.00"], ["B", "3.00", "6.00"]]
    keys = [("Bill to", "Number", "1847"), ("The Mill", "Date", "14 May"), ("Bridge", "Due", "14 June")]
    lines = [line(text, x, 150 + 16 * n) for n, row in enumerate(keys) for x, text in zip(xs, row, strict=False)]
    notes = [line("Please pay within thirty days.", 60, 400), line("Boats are welcome.", 60, 416)]
    rules = [*grid(xs, ys), rule(60, 120, 540, 120), rule(60, 780, 540, 780)]
    table = only(page([*cell_lines(cells, xs, ys), *lines, *notes], rules))
    assert rows(table.text) == cells


def test_an_empty_corner_of_a_table_leaves_it_a_pipe_table():
    xs, ys = [100, 200, 300, 400], [100, 120, 140, 160]
    rules = [rule(100, y, 400, y) for y in ys[:3]] + [rule(300, 160, 400, 160), rule(200, 160, 400, 160)]
    rules += [rule(x, 100, x, 140) for x in xs] + [rule(300, 140, 300, 160), rule(400, 140, 400, 160)]
    cells = [["Name", "Count", "Sum"], ["one", "2", "3"], ["", "", "3"]]
    assert rows(only(page(cell_lines(cells, xs, ys), rules)).text) == cells


def test_tables_come_from_top_to_bottom():
    first, upper = booktabs([["Model", "Size", "Score"], ["small", "1.2", "0.81"], ["large", "33", "0.9"]], top=400)
    second, lower = booktabs([["A", "B", "C"], ["x", "1", "2"], ["y", "3", "4"]], top=100)
    found = find_tables(page([*first, *second], [*upper, *lower]))
    assert [table.text.split("\n")[0] for table in found] == ["| A | B | C |", "| Model | Size | Score |"]


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(contents())
def test_any_page_is_searched_and_no_line_is_in_two_tables(content):
    taken = []
    for table in find_tables(content):
        assert table.text
        taken.extend([*table.lines, *table.caption])
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(range(len(content.lines)))


def test_lists_side_by_side_below_bold_headings_are_no_table():
    heads = [line("SKILLS", 50, 100, bold=True), line("DUTIES", 300, 100, bold=True)]
    items = [
        line(f"• {text}", x, 115 + 13 * row)
        for row, pair in enumerate([("Planning", "Reports"), ("Python", "Training"), ("Excel", "Routes")])
        for x, text in zip((50, 300), pair, strict=True)
    ]
    assert not find_tables(page([*heads, *items]))


def right_aligned(text, x, y, **look):
    """A line that ends at x."""
    whole = line(text, 0, y, **look)
    return line(text, x - whole.box.x1, y, **look)


def accounts(y, rows, step=25):
    """Lines of labels over one or more lines, a number of a note, and two amounts; without rules."""
    lines = []
    for labels, note, *amounts in rows:
        lines += [line(label, 90, y + 14 * number) for number, label in enumerate(labels)]
        lines += [line(note, 280, y)] * bool(note)
        lines += [right_aligned(amount, x, y) for amount, x in zip(amounts, (400, 510), strict=False)]
        y += step + 14 * (len(labels) - 1)
    return lines


def test_multiline_account_label_is_one_cell_and_header_is_none():
    header = [line("Foundation", 90, 37), line("Annual accounts", 277, 37)]
    head = [right_aligned(text, x, 75) for text, x in (("Note", 300), ("2023", 400), ("2022", 510))]
    units = [right_aligned("EUR", x, 89) for x in (400, 510)]
    rows_ = [
        (["Land and buildings", "including plants", "on land of others"], "(1)", "6.645.754,61", "2.601.003,11"),
        (["Machines"], "", "1.116.938,02", "6.738.579,70"),
        (["Securities of the", "Fixed assets"], "(2)", "8.730.844,68", "6.044.906,35"),
        (["Stocks"], "", "2.897.830,13", "4.391.925,27"),
        (["Cash"], "(3)", "431.162,82", "4.367.340,34"),
        (["Other"], "", "3.246.311,21", "5.199.419,37"),
    ]
    table = only(page([*header, *head, *units, *accounts(114, rows_)]))
    found = rows(table.text)
    assert found[0] == ["", "Note", "2023 EUR", "2022 EUR"]
    labels = [" ".join(row[0]) for row in rows_]
    assert [row[0] for row in found[1:]] == labels


def test_rules_above_sums_do_not_end_the_headings():
    def amounts(y, label, *values, bold=False):
        cells = [right_aligned(text, x, y, bold=bold) for text, x in zip(values, (300, 345, 390), strict=True)]
        return [line(label, 60, y, bold=bold)] * bool(label) + cells

    lines = amounts(100, "", "Jan", "Feb", "Total", bold=True)
    for top, name in ((115, "Housing"), (190, "Living")):
        lines += [line(name, 55, top, bold=True)]
        lines += amounts(top + 15, "First", "1,993.00", "239.00", "2,232.00")
        lines += amounts(top + 30, "Second", "2,597.00", "0.00", "2,597.00")
        lines += amounts(top + 45, f"Total {name}", "4,590.00", "239.00", "4,829.00", bold=True)
    paths = [rule(53, y, 392, y) for y in (112, 158, 233)]
    table = only(page(lines, paths))
    found = rows(table.text)
    assert found[0] == ["", "Jan", "Feb", "Total"]
    assert found[-1] == ["Total Living", "4,590.00", "239.00", "4,829.00"]
    assert len(found) == 9


def test_ruled_row_without_rules_between_words_has_same_cells():
    xs, ys = [80, 190, 300, 410, 520], [180, 195, 210, 225, 240]
    table = [
        ["Feature", "Basic", "Standard", "Premium"],
        ["Storage", "5 GB", "50 GB", "unlimited"],
        ["Support", "none", "E-mail", "Phone and e-mail"],
        ["Price", "free", "€ 4.99", "€ 12.99"],
    ]
    paths = [rule(xs[0], y, xs[-1], y) for y in ys] + [rule(x, ys[0], x, ys[-1]) for x in (xs[0], xs[-1])]
    paths += [rule(x, top, x, top + 15) for x in xs[1:-1] for top in (ys[1], ys[3])]
    assert rows(only(page(cell_lines(table, xs, ys), paths)).text) == table


def test_left_aligned_words_can_head_right_aligned_numbers():
    lines = [line(text, x, 80) for text, x in (("Year", 55), ("North", 115), ("South", 175), ("West", 235))]
    table = [[str(2016 + year), str(40 - 3 * year), str(85 - year), str(20 + 7 * year)] for year in range(5)]
    for y, row in enumerate(table):
        lines += [right_aligned(text, x, 95 + 15 * y) for text, x in zip(row, (113, 172, 232, 292), strict=True)]
    assert rows(only(page(lines)).text) == [["Year", "North", "South", "West"], *table]


def test_rules_of_header_and_footer_make_no_table_of_the_page():
    rows = [("numpy", "NumPy"), ("scipy", "SciPy"), ("perl", "Perl"), ("viper", "Viper"), ("xml", "XML")]
    cells = [
        line(text, x, 100 + 90 * row) for row, pair in enumerate(rows) for x, text in zip((60, 200), pair, strict=True)
    ]
    heading = line("Commands", 60, 700, 14)
    rules = [rule(60, 60, 540, 60), rule(60, 780, 540, 780)]
    assert all(table.box.y1 < 690 for table in find_tables(page([*cells, heading], rules)))


def test_monospaced_column_next_to_equally_wide_words_is_no_code():
    names = ["paper.cls", "paper.dtx", "template.bib", "logo.pdf", "figure.pdf"]
    words = [line(name, 60, 130 + 14 * row, width=6 * len(name), mono=True) for row, name in enumerate(names)]
    words += [
        line(text, 200, 130 + 14 * row, width=6 * len(text))
        for row, text in enumerate(["tex", "source", "tex", "doc", "texts"])
    ]
    heads = [line("File", 60, 106), line("Directory", 200, 106)]
    rules = [rule(50, y, 300, y) for y in (100, 122, 204)]
    assert only(page([*heads, *words], rules)).text.startswith("| File | Directory |")


def test_a_caption_belongs_to_the_nearest_table():
    upper, rules = booktabs([["Model", "Size", "Score"], ["small", "1.2", "0.81"], ["large", "33", "0.9"]])
    down = 110
    lower = [replace(one, box=replace(one.box, y0=one.box.y0 + down, y1=one.box.y1 + down), words=()) for one in upper]
    moved = [replace(one, box=replace(one.box, y0=one.box.y0 + down, y1=one.box.y1 + down)) for one in rules]
    caption = line("Table 3: Results of the larger models", 98, 192)
    tables = find_tables(page([*upper, *lower, caption], [*rules, *moved]))
    assert [table.caption for table in tables] == [frozenset(), {len(upper) + len(lower)}]


@pytest.mark.parametrize("apart", [False, True])
def test_rows_drawn_before_and_after_a_text_are_two_tables(apart):
    cells = [["Name", "Type"], ["alpha", "word"], ["beta", "string"], ["gamma", "list"]]
    xs, ys = [100, 200, 300], [100, 120, 140, 160, 180]
    lines = cell_lines(cells, xs, ys)
    text = line("A sentence in the other column of this page", 320, 103)
    order = [*lines[:4], text, *lines[4:]] if apart else [*lines, text]
    fills = [Path(Box(x0, y, x1, y + 20), None, (230, 230, 230), 5) for y in ys[:-1:2] for x0, x1 in pairwise(xs)]
    drawn_lines = [replace(one, drawn=place) for place, one in enumerate(order)]
    assert bool(find_tables(page(drawn_lines, fills))) is not apart
    assert find_tables(page(drawn_lines, grid(xs, ys)))  # closed cells are evidence enough
