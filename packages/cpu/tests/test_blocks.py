""""""

import contextlib
import io
from collections import Counter
from dataclasses import replace
from itertools import accumulate

import pypdfium2
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from layout_pages import line, page, paragraph, prose
from markdown_it import MarkdownIt

from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.results.joining import join, vocabulary
from llm_ocr.results.sanitizing import inert_markdown
from llm_ocr.types import Block, BlockKind, Box, Line, PageContent, Path, Script, Word
from llm_ocr_cpu.layout import escape, page_blocks, unescape
from llm_ocr_cpu.layout.rows import make_row
from llm_ocr_cpu.pdf_text import page_content
from llm_ocr_cpu.regions import Region


def kinds(blocks: tuple[Block, ...]) -> list[tuple[str, str]]:
    return [(block.kind.value, block.text) for block in blocks]


def body(y: float = 300, seed: int = 9) -> list[Line]:
    """Enough running text for a page to have a body size."""
    return [*paragraph(prose(seed), 50, y, 400), *paragraph(prose(seed + 1), 50, y + 150, 400)]


def test_a_first_line_indent_begins_a_paragraph():
    first, second = prose(1, 40), prose(2, 40)
    lines = list(paragraph(first, 50, 100, 400, indent=15))
    lines += paragraph(second, 50, lines[-1].box.y0 + 12, 400, indent=15)
    assert [block.text for block in page_blocks(page(lines), [])] == [first, second]


def test_a_wider_gap_begins_a_paragraph():
    first, second = prose(1, 40), prose(2, 40)
    lines = list(paragraph(first, 50, 100, 400))
    lines += paragraph(second, 50, lines[-1].box.y0 + 20, 400)
    assert [block.text for block in page_blocks(page(lines), [])] == [first, second]


def test_hanging_indents_keep_an_entry_together():
    lines: list[Line] = []
    entries = [prose(seed, 25) for seed in (1, 2, 3, 4)]
    for entry in entries:
        y = lines[-1].box.y0 + 12 if lines else 100
        set_lines = list(paragraph(entry, 70, y, 380))
        head = set_lines[0]
        lines += [line(head.text, 50, y, width=400), *set_lines[1:]]
    assert [block.text for block in page_blocks(page(lines), [])] == entries


def test_a_full_row_alone_is_an_entry_among_hanging_entries():
    lines = [line(prose(1, 25)[:76] + ".", 50, 88, width=400)]
    for number in range(3):
        y = lines[-1].box.y0 + 12
        lines += [line(f"Author{number} and others. A title of many words in", 50, y, width=400)]
        # an address that ends like a sentence before a full row
        lines += [line("print, www.paper.org/get?", 70, y + 12), line("if = name 2004.", 70, y + 24)]
    found = [block.text for block in page_blocks(page(lines), [])]
    entries = (" ".join(one.text for one in lines[at : at + 3]).replace("get? ", "get?") for at in (1, 4, 7))
    assert found == [lines[0].text, *entries]


def test_second_row_of_bibliography_entry_is_no_new_paragraph():
    rows = [
        "[22] B. Romera and other authors of the paper, F. J. R.",
        "Ruiz, who is the last of them. A title of words",
    ]
    lines = [*body(80), line(rows[0], 50, 400, width=400), line(rows[1], 70, 412, width=380), line("in 2023.", 70, 424)]
    assert page_blocks(page(lines), [])[-1].text == " ".join([*rows, "in 2023."])


def test_rows_beside_a_drop_capital_are_part_of_its_paragraph():
    text = list(paragraph(prose(1).replace("Start1 ", ""), 50, 100, 300))
    rows = [replace(one, box=replace(one.box, x0=80), words=()) for one in text[1:3]]
    capital = replace(line("Over", 50, 100, size=10.0), words=(Word("Over", Box(50, 98, 80, 124)),))
    first = replace(line(f"Over {text[0].text}", 50, 100, width=300), words=(*capital.words, *text[0].words))
    lines = [first, *rows, replace(text[3], text=text[3].text.title()), *text[4:]]
    (block,) = page_blocks(page(lines), [])
    assert block.text.startswith("Over ")


def test_two_row_heading_in_capitals_is_separate_from_its_text():
    text = list(paragraph(prose(2), 50, 80, 400))
    y = text[-1].box.y0 + 30
    head = [line("THE DUTIES OF A READER OF RIVERS:", 50, y, width=390), line("THE CONTEXT", 50, y + 12)]
    found = kinds(page_blocks(page([*text, *head, *paragraph(prose(3), 50, y + 24, 400)]), []))
    assert ("heading", "THE DUTIES OF A READER OF RIVERS: THE CONTEXT") in found


def test_numbered_row_above_indented_paragraph_is_not_part_of_it():
    lines = [line("(1) The duties of all readers", 50, 100, width=395)]
    lines += paragraph(prose(1), 50, 112, 400, indent=15)
    lines += [line("(2) The duties of all writers", 50, lines[-1].box.y0 + 24, width=395)]
    lines += paragraph(prose(2), 50, lines[-1].box.y0 + 12, 400, indent=15)
    found = [block.text for block in page_blocks(page(lines), [])]
    assert found == ["- (1) The duties of all readers", prose(1), "- (2) The duties of all writers", prose(2)]


def test_unknown_sign_at_start_is_bullet_unless_quote_is_closed():
    texts = ["\ufffdThe Gauge\ufffd is a leaflet for", "\ufffd one item of a list"]
    lines = [line(text, 50, 300 + 30 * number) for number, text in enumerate(texts)]
    found = kinds(page_blocks(page([*body(80), *lines]), []))[-2:]
    assert found == [("text", texts[0]), ("list_item", "- one item of a list")]


def test_an_address_keeps_its_lines():
    lines = [
        line(text, 50, 200 + 12 * row) for row, text in enumerate(("Mara Hollins", "The Mill House", "Hollow Bridge"))
    ]
    blocks = page_blocks(page([*lines, *body()]), [])
    assert blocks[0].text.split("  \n") == ["Mara Hollins", "The Mill House", "Hollow Bridge"]


@pytest.mark.parametrize(
    ("texts", "left", "right"),
    [
        (["Harper and Sons", "12 Mill Lane, Old Town, Oxford", "Reading RG1 7XY"], 50.0, None),
        (["Harper and Sons", "12 Mill Lane, Old Town, Oxford", "Reading RG1 7XY"], None, 450.0),
        (["Mr Leo Client", "Association", "Delarue Street 25", "4321 Bridge Town"], 365.0, None),
    ],
)
def test_an_address_with_a_number_keeps_its_lines(texts, left, right):
    starts = [left if left is not None else right - 5 * len(text) for text in texts]
    lines = [line(text, x, 100 + 12 * row) for row, (text, x) in enumerate(zip(texts, starts, strict=True))]
    assert page_blocks(page([*lines, *body()]), [])[0].text.split("  \n") == texts


def test_labeled_paragraph_is_one_paragraph_and_form_row_is_not():
    first = "Where the owner of the land has died, the name of the person who holds it now is"
    second = "Entered in its place, with the date on which the land passed to them."
    lines = [
        *(line("A3.", 50, 200), line(first, 80, 200, width=370), line(second, 80, 212, width=330)),
        *(line("An owner", 50, 260), line("Go to Part B", 230, 260), line("A tenant for life", 50, 272)),
    ]
    blocks = page_blocks(page([*lines, *body()]), [])
    (owner,) = (block.text for block in blocks if block.text.startswith("A3."))
    assert f"{first} {second}" in owner
    assert not any("Part B A tenant" in block.text for block in blocks)


def test_rules_of_dots_or_underscores_are_no_text():
    lines = [line("S Chapman", 50, 100), line("." * 80, 50, 112), line(". . . . . . . .", 50, 130), *body()]
    lines.append(line("_" * 60, 50, 142))
    texts = [block.text for block in page_blocks(page(lines), [])]
    assert not any(".." in text or ". ." in text or "__" in text for text in texts)


def test_title_headings_and_text_differ_by_size_and_numbers():
    content = page(
        [
            line("Reading the Staff of a Small River", 100, 80, size=20),
            line("1 Introduction", 50, 150, size=12, bold=True),
            *paragraph(prose(1), 50, 170, 400),
            line("1.1 The River", 50, 270, size=10, bold=True),
            *paragraph(prose(2), 50, 290, 400),
            line("References", 50, 400, size=12, bold=True),
            *paragraph(prose(3), 50, 420, 400),
        ]
    )
    found = [(b.kind, b.level, b.text) for b in page_blocks(content, []) if b.kind is not BlockKind.TEXT]
    assert found == [
        (BlockKind.TITLE, 1, "Reading the Staff of a Small River"),
        (BlockKind.HEADING, 1, "1 Introduction"),
        (BlockKind.HEADING, 2, "1.1 The River"),
        (BlockKind.HEADING, 1, "References"),
    ]


def test_a_heading_of_two_lines_is_one_heading():
    content = page(
        [
            line("A long heading that is set in", 50, 200, size=13, bold=True),
            line("two lines", 50, 216, size=13, bold=True),
            *body(),
        ]
    )
    assert (BlockKind.HEADING, "A long heading that is set in two lines") in [
        (b.kind, b.text) for b in page_blocks(content, [])
    ]


def test_a_title_above_a_line_in_lower_case_is_a_title():
    lines = [line("Services agreement", 200, 80, size=16, bold=True), line("between", 250, 104)]
    assert page_blocks(page([*lines, *paragraph(prose(1), 50, 130, 500)]), [])[0].kind is BlockKind.TITLE


def test_the_end_of_a_sentence_above_small_print_is_no_title():
    lines = [line("following argument is displayed:", 50, 80, size=14), *body(120)]
    assert page_blocks(page(lines), [])[0].kind is BlockKind.TEXT


def test_a_caption_at_the_bottom_is_no_footer():
    lines = [*body(80), *body(380, 3), line("Figure 6: A staff of brass", 200, 745, size=8.0), line("5", 295, 800)]
    assert "caption" in [kind for kind, _ in kinds(page_blocks(page(lines), []))]


def test_numbered_names_of_sections_in_a_list_are_items():
    names = ["Title Page", "Abstract", "Table of Contents", "List of Figures", "Text"]
    lines = [line(f"{row + 1}. {name}", 60, 300 + 20 * row) for row, name in enumerate(names)]
    kinds = [block.kind for block in page_blocks(page([*body(80), *lines]), [])]
    assert kinds[-5:] == [BlockKind.LIST_ITEM] * 5


def test_a_numbered_bold_row_at_the_end_of_a_page_is_a_heading():
    content = page([*body(80), line("2. SUPPLY OF SERVICES", 50, 600, bold=True)])
    assert page_blocks(content, [])[-1].kind is BlockKind.HEADING


def test_a_smaller_item_with_a_dash_is_an_item_of_its_own():
    lines = [
        line("What went well", 190, 49, size=44, width=339),
        line("• Revenue up 12 % on the year before", 43, 134, size=32, width=616),
        line("– Strong growth in the north and in the", 79, 178, size=28, width=545),
        line("two new branches that opened in", 102, 213, size=28, width=469),
        line("January", 102, 246, size=28, width=108),
        line("– Online shop: 31 % more orders", 79, 284, size=28, width=458),
        line("• mostly returning customers", 115, 322, size=24, width=350),
        line("• Fewer complaints", 43, 358, size=32, width=308),
        line("• New hires completed training", 43, 403, size=32, width=499),
    ]
    found = [(block.level, block.text) for block in page_blocks(page(lines, 720, 540), [])]
    assert found[1:3] == [
        (0, "- Revenue up 12 % on the year before"),
        (1, "- Strong growth in the north and in the two new branches that opened in January"),
    ]


def test_a_large_name_above_an_address_is_no_heading():
    lines = [line("Notes on rivers", 200, 60, size=20), line("Anna Miller", 230, 90, size=14)]
    lines.append(line("anna@example.org", 230, 108))
    kinds = [block.kind for block in page_blocks(page([*lines, *body(140)]), [])]
    assert kinds[:2] == [BlockKind.TITLE, BlockKind.TEXT]


def test_check_boxes_of_a_list_are_kept():
    lines = [line("☐ Single", 50, 100), line("☒ Family", 50, 115), line("✔ Paid", 50, 130), line("❏ Sent", 50, 145)]
    texts = [block.text for block in page_blocks(page(lines), [])]
    assert texts == ["- ☐ Single", "- ☒ Family", "- ✔ Paid", "- ❏ Sent"]


def test_bold_paragraph_start_and_bold_sentence_are_no_headings():
    first = list(paragraph("Summary. " + prose(1), 50, 100, 400))
    bold = line("Nothing of this may be copied without being asked for.", 50, 260, bold=True)
    content = page([line(first[0].text, 50, 100, width=400, bold=True), *first[1:], bold, *body()])
    assert {block.kind for block in page_blocks(content, [])} == {BlockKind.TEXT}


def test_bullets_and_numbers_become_list_items_with_their_depth():
    content = page(
        [
            *body(80),
            line("• Paint the staff", 60, 400),
            line("• Read it every", 60, 412),
            line("morning", 69, 424),
            line("– also on Sundays", 80, 436),
            line("• Chalk the result", 60, 448),
            line("1. First of all", 60, 500),
            line("2. Second of all", 60, 512),
            line("3. Third of all", 60, 524),
        ]
    )
    items = [(b.level, b.text) for b in page_blocks(content, []) if b.kind is BlockKind.LIST_ITEM]
    assert items[:4] == [
        (0, "- Paint the staff"),
        (0, "- Read it every morning"),
        (1, "- also on Sundays"),
        (0, "- Chalk the result"),
    ]
    assert [text for _, text in items[4:]] == ["1. First of all", "2. Second of all", "3. Third of all"]


def test_initials_and_years_at_line_starts_are_no_list_items():
    content = page([*body(80), line("A. Smith wrote to the council about the quay.", 50, 400), *body(500, 3)])
    assert BlockKind.LIST_ITEM not in {block.kind for block in page_blocks(content, [])}


def test_table_of_contents_entries_are_lines_with_short_leaders():
    entries = ["Preface", "1.1 A long title of a section", "Risks"]
    lines = [line(f"{text} {'. ' * (50 - len(text))}{n}", 50 + 15 * n, 300 + 12 * n) for n, text in enumerate(entries)]
    block = next(block for block in page_blocks(page([*body(80), *lines]), []) if "Preface" in block.text)
    assert (block.kind, block.text) == (
        BlockKind.TEXT,
        "Preface ... 0  \n1.1 A long title of a section ... 1  \nRisks ... 2",
    )


def test_entries_of_an_index_with_several_pages_are_lines():
    entries = [
        f"{name} {'. ' * 25}{pages}" for name, pages in (("cells", "3, 45"), ("rules", "7, 12–14"), ("gaps", "9"))
    ]
    lines = [line(text, 50, 300 + 12 * n, width=290) for n, text in enumerate(entries)]
    block = page_blocks(page(lines), [])[0]
    assert block.text == "cells ... 3, 45  \nrules ... 7, 12–14  \ngaps ... 9"


def test_a_justified_row_with_wide_gaps_is_part_of_its_paragraph():
    text = list(paragraph(prose(2, 40), 50, 100, 200))
    y = text[3].box.y0
    wide = [line("which", 50, y), line("the", 140, y), line("animals", 215, y)]
    lines = [*text[:3], *wide, *(replace(one, text=f"a{one.text}") for one in text[4:])]
    (found,) = page_blocks(page(lines), [])
    assert "which the animals a" in found.text
    assert "\n" not in found.text


def test_a_justified_row_of_a_hanging_entry_has_no_cells():
    wide = [line("Affairs", 70, 112), line("bureau.", 165, 112), line("From", 262, 112)]
    wide.append(line("<http://paper.org/public/documents/wcms", 344, 112))
    lines = [
        line("An author. The market of many words in a", 50, 100, width=489),
        *wide,
        line("_142363.pdf.>", 70, 124),
    ]
    (block,) = page_blocks(page([*lines]), [])
    assert block.text == f"{lines[0].text} Affairs bureau. From \\<http://paper.org/public/documents/wcms_142363.pdf.>"


def test_consecutive_fields_keep_their_lines():
    lines = [
        line("Diet: bark, leaves, and water plants", 50, 300, width=395),
        line("Life span: 10 to 15 years", 50, 312),
    ]
    texts = [block.text for block in page_blocks(page([*body(80, 3), *lines]), [])]
    assert "Diet: bark, leaves, and water plants  \nLife span: 10 to 15 years" in texts


def test_roman_numerals_are_a_list_and_a_sum_is_no_heading():
    lines = [line("(i) of all transactions;", 60, 400), line("(ii) of all assets.", 60, 430)]
    lines += [line("Total due $88.54", 50, 480, size=14.0, bold=True)]
    found = kinds(page_blocks(page([*body(80), *lines, *body(520, 3)]), []))
    assert ("list_item", "- (i) of all transactions;") in found
    assert ("list_item", "- (ii) of all assets.") in found
    assert "Total due" not in " ".join(text for kind, text in found if kind in ("heading", "title"))


def test_an_address_in_typewriter_face_is_part_of_its_entry():
    entry = [line("[5] M. Fulda. What can you do with a rock? In IJCAI, 2017. URL https:", 50, 300, width=400)]
    entry += [line("//api.example.org/CorpusID:1", 50, 312, mono=True)]
    other = [line("[6] L. Fan. Agents with knowledge of the internet. In Benchmarks, 2022.", 50, 330, width=400)]
    other += [line("URL https://api.example.org/", 50, 342, mono=True), line("CorpusID:49552345.", 50, 354, mono=True)]
    found = kinds(page_blocks(page([*body(50), *entry, *other]), []))
    assert [kind for kind, _ in found] == ["text"] * len(found)
    assert found[-2][1].endswith("2017. URL https://api.example.org/CorpusID:1")
    assert found[-1][1].endswith("2022. URL https://api.example.org/CorpusID:49552345.")


def test_a_program_keeps_its_line_numbers_and_empty_lines():
    rows = ["\\RequirePackage{lastpage}", "", "\\def\\sheet@name{Sheet}", "}{", "\\newpage"]
    lines = [line(str(n), 40, 400 + 12 * n, size=7.0) for n in range(8, 8 + len(rows))]
    lines += [line(text, 55, 400 + 12 * n, mono=True) for n, text in enumerate(rows, 8) if text]
    (code,) = [block for block in page_blocks(page([*body(80), *lines]), []) if block.kind is BlockKind.CODE]
    assert [row.split() for row in code.text.split("\n")] == [
        [str(n), text] if text else [str(n)] for n, text in enumerate(rows, 8)
    ]


def test_words_in_another_font_inside_a_program_row_are_code():
    rows = [[line("\\date{20:00", 50, 400, mono=True), line("March", 115, 400), line("21, 2022}", 145, 400, mono=True)]]
    rows += [[line(text, 50, 412 + 12 * n, mono=True)] for n, text in enumerate(("\\number{1}", "\\title{Spring}"))]
    blocks = page_blocks(page([*body(80), *(one for row in rows for one in row)]), [])
    (code,) = [block for block in blocks if block.kind is BlockKind.CODE]
    assert len(code.text.split("\n")) == len(rows)


def test_entries_of_an_index_keep_their_lines():
    rows = [
        ("beacon, 12, 31–33", 0),
        ("boat", 0),
        ("moored, 7", 10),
        ("of the keeper and of his brother in the harbor, see ship,", 0),
        ("of the keeper", 20),
        ("bridge, 104, xii", 0),
        ("buoy, 9", 0),
        ("canal, 21", 0),
    ]
    lines = [line(text, 50 + indent, 300 + 12 * n, width=4.2 * len(text)) for n, (text, indent) in enumerate(rows)]
    ((kind, text),) = kinds(page_blocks(page(lines), []))
    assert (kind, text.replace("  \n", "\n").split("\n")) == (
        "text",
        [
            "beacon, 12, 31–33",
            "boat",
            "moored, 7",
            "of the keeper and of his brother in the harbor, see ship, of the keeper",
            "bridge, 104, xii",
            "buoy, 9",
            "canal, 21",
        ],
    )


def test_contents_without_space_before_numbers_keep_lines():
    words = ("Sails", "Ropes", "Knots", "Oars", "Tar")
    rows = [f"{word}{' .' * 7}{page}" for word, page in zip(words, (" 14", "15", "16", " 18", " 20"), strict=True)]
    lines = [line(text, 50, 300 + 12 * n, width=300) for n, text in enumerate(rows)]
    ((_, text),) = kinds(page_blocks(page(lines), []))
    assert text.split("  \n") == ["Sails ... 14", "Ropes ... 15", "Knots ... 16", "Oars ... 18", "Tar ... 20"]


def test_lines_of_a_verse_keep_their_ends():
    verse = ["The harbor sleeps", "Below the hill and all its boats lie still", "Who keeps the light", "He went away"]
    lines = [line(text, 50, 300 + 12 * n, width=5 * len(text)) for n, text in enumerate(verse)]
    ((_, text),) = kinds(page_blocks(page(lines), []))
    assert text.split("  \n") == verse


def test_captions_and_sentences_on_their_lines_are_no_verse():
    for texts in (
        [
            "Table 1. Boats by harbor",
            "Figure 2. The light",
            "Figure 3. The quay and its cranes",
            "Figure 4. Nets",
        ],
        ["The keeper opened.", "Nobody came.", "He wrote the name of the last boat into a book.", "Then he left."],
    ):
        lines = [line(text, 50, 300 + 12 * n, width=5 * len(text)) for n, text in enumerate(texts)]
        assert "  \n" not in "".join(block.text for block in page_blocks(page(lines), []))


def test_item_with_an_indented_first_row_keeps_its_other_rows():
    rows = [
        ("• The harbor opens at nine for all boats that carry fish or salt or wool", 70),
        ("close at noon. The keeper of the gate writes their names into a large book", 50),
        ("Every boat pays a fee.", 50),
    ]
    lines = [line(text, x, 300 + 12 * n, width=5 * len(text)) for n, (text, x) in enumerate(rows)]
    item = next(block for block in page_blocks(page([*body(80), *lines]), []) if "harbor" in block.text)
    assert item.text == "- " + " ".join(text for text, _ in rows).removeprefix("• ")


def test_command_with_own_indent_in_a_sentence_is_code():
    rows = [line("With apt, you can set a package to hold using", 50, 400)]
    rows += [line("hold package_name", 75, 412, mono=True), line("and remove the hold again.", 50, 424)]
    assert kinds(page_blocks(page([*body(80), *rows]), []))[-3:] == [
        ("text", "With apt, you can set a package to hold using"),
        ("code", "hold package_name"),
        ("text", "and remove the hold again."),
    ]
    item = [line("• adding new units by the name that one of", 50, 400), line("new_base_unit()", 60, 412, mono=True)]
    assert [kind for kind, _ in kinds(page_blocks(page([*body(80), *item]), []))][-1] == "list_item"


def test_output_in_typewriter_face_beside_prose_keeps_its_lines():
    rows = [f"{n} hg{n}  knownGene  Entrez Gene ID  TRUE" for n in range(10, 40)]
    typed = [line(row, 50, 240 + 12 * n, mono=True) for n, row in enumerate(rows)]
    content = page([*paragraph(prose(3, 40), 50, 60, 400), *typed])
    assert kinds(page_blocks(content, []))[1:] == [("code", "\n".join(rows))]


def test_a_program_is_code_on_a_page_with_little_text():
    rows = [line(f"\\newlength{{\\margin{n}}}", 50, 200 + 12 * n, mono=True) for n in range(30)]
    found = kinds(page_blocks(page([line("The lengths are defined here.", 50, 180), *rows]), []))
    assert [kind for kind, _ in found] == ["text", "code"]


def test_monospaced_list_items_and_titles_are_no_code():
    lines = [line("The thumb package", 50, 60, size=17.0, mono=True)]
    lines += [line(f"– chapter{n}.tex", 70, 400 + 20 * n, mono=True) for n in range(3)]
    lines += [line("1fee of the quay", 50, 700, size=8.0, mono=True, scripts=(Script(0, 1),))]
    found = kinds(page_blocks(page([*lines, *body(90)]), []))
    assert [kind for kind, _ in found] == ["title", "text", "text", *["list_item"] * 3, "footnote"]


def test_a_slide_has_a_footer_and_an_agenda_has_no_headings():
    lines = [line("Agenda", 40, 60, size=24.0)]
    times = [line(f"6:0{n} - 6:1{n} Report of the committee {n}", 40, 120 + 36 * n, bold=n == 0) for n in range(5)]
    lines += [replace(one, size=18.0) for one in times]
    lines += [line("General Meeting, February 6", 40, 770, size=8.0), line("2", 550, 770, size=8.0)]
    found = kinds(page_blocks(page(lines), []))
    assert found[-2:] == [("page_number", "2"), ("footer", "General Meeting, February 6")]
    assert not [text for kind, text in found if kind == "heading" and ":" in text]


def header_rule(y: float) -> Path:
    return Path(Box(50, y, 450, y + 0.5), (0, 0, 0), None, 2)


def test_a_rule_below_the_first_line_makes_it_a_header():
    lines = [line("2.2 Lists", 50, 100), *body(140), *body(440, 3)]
    assert page_blocks(replace(page(lines), paths=(header_rule(114),)), [])[0].kind is BlockKind.HEADER
    caption = [line("Table 2. Lists of the quay", 50, 100), *lines[1:]]
    assert page_blocks(replace(page(caption), paths=(header_rule(114),)), [])[0].kind is BlockKind.CAPTION


def test_header_and_number_at_small_page_margin_are_furniture():
    lines = [line("ADVICE TO AUTHORS", 180, 120, size=8.0), line("3", 446, 120, size=8.0), *body(150), *body(440, 3)]
    assert [block.kind for block in page_blocks(page(lines), [])][:2] == [BlockKind.PAGE_NUMBER, BlockKind.HEADER]
    numbered = replace(lines[1], text="111:3")
    assert page_blocks(page([lines[0], numbered, *body(170), *body(440, 3)]), [])[0].kind is BlockKind.TEXT
    top = [replace(one, box=Box(one.box.x0, 60, one.box.x1, 68)) for one in (lines[0], numbered)]
    assert page_blocks(page([*top, *lines[2:]]), [])[0].kind is BlockKind.PAGE_NUMBER


@pytest.mark.parametrize(
    ("parts", "size", "italic"),
    [
        (["The Staff of a Small River", "M. Hollins and others"], 10.0, False),
        (["RIVERSTAFF", "7", "19 September 2015"], 10.0, False),
        (["riverstaff v1.0", "5 Readings"], 10.0, True),
        (["6 The Readings of a Year"], 13.0, True),
    ],
)
def test_a_row_apart_from_the_text_is_a_header_without_recurring(parts, size, italic):
    starts = [50.0, 240.0, 350.0] if len(parts) == 3 else [50.0, 350.0]
    head = [
        replace(line(text, x, 50, size=size), italic=italic)
        for text, x in zip(parts, starts[: len(parts)], strict=True)
    ]
    content = page([*head, *body(50 + 2.6 * size), *paragraph(prose(3), 50, 500, 400)])
    found = kinds(page_blocks(content, []))
    assert {kind for kind, text in found if any(part in text for part in parts)} <= {"header", "page_number"}


@pytest.mark.parametrize(
    "text", ["b) Was a conviction recorded?", "A.1 Readings of the Staff . . . . . . . . . . . 13"]
)
def test_question_and_contents_entry_at_page_edge_are_text(text):
    row = [line(text, 50, 40), line("Yes", 300, 40)] if text.endswith("?") else [line(text, 50, 760)]
    assert not {"header", "footer"} & {kind for kind, _ in kinds(page_blocks(page([*row, *body(90), *body(400)]), []))}


def test_year_on_title_page_and_text_of_last_heading_are_text():
    year = kinds(page_blocks(page([line("A Thesis", 250, 200, size=20.0), line("2007", 290, 740)]), []))
    assert year[-1] == ("text", "2007")
    last = [line("2.3 License", 50, 712, size=12.0, bold=True), line("It is licensed under the same terms.", 50, 733)]
    found = kinds(page_blocks(page([*body(80), *body(380, 3), *last, line("5", 440, 765)]), []))
    assert found[-2:] == [("text", "It is licensed under the same terms."), ("page_number", "5")]


def test_lines_below_a_page_number_are_a_footer():
    notes = [line(f"This note {n} is about the copyright of all pages.", 150, 750 + 12 * n, size=8.0) for n in range(2)]
    found = kinds(page_blocks(page([*body(80), *body(380, 3), line("4", 245, 730), *notes]), []))
    assert [kind for kind, _ in found[-3:]] == ["footer", "footer", "page_number"]


def test_headers_of_page_with_sideways_table_are_furniture():
    text = [line(f"Row {n} of a long table with many words {n}", 0, 0) for n in range(20)]
    sideways = [replace(one, box=Box(150 + 15 * n, 200, 160 + 15 * n, 600), words=()) for n, one in enumerate(text)]
    found = kinds(page_blocks(page([*sideways, line("Thesis of the University", 240, 60), line("19", 295, 750)]), []))
    assert {text for kind, text in found if kind in ("header", "page_number")} == {"Thesis of the University", "19"}


def test_numbered_chinese_heading_is_no_header_and_is_one_row():
    rows = ["论文答辩通过后送校学位办公室图书馆和档案馆的论文需将学位论文评阅及", "答辩情况填入学位论文评阅表。"]
    text = [line(one, 50, 400 + 12 * n, width=(400, 150)[n]) for n, one in enumerate(rows)]
    heading = line("A.3 学位论文评阅", 50, 388, width=120)
    found = [block.text for block in page_blocks(page([*body(60), heading, *text]), [])]
    assert found[-2:] == ["A.3 学位论文评阅", "".join(rows)]
    top = page([line("A.3 学位论文评阅", 50, 58), *body(80)])
    assert page_blocks(top, [])[0].kind is not BlockKind.HEADER


def test_centered_names_and_dates_below_title_are_no_headings():
    title, version = line("River Gauges", 199, 60, size=17.0), line("version 2.1", 217, 78, size=12.0)
    names = [line("Anna Smith", 220, 110, size=12.0), line("July 2022", 223, 135, size=12.0)]
    found = kinds(page_blocks(page([title, version, *names, *body(160), *body(460, 3)]), []))
    assert found[:4] == [
        *(("title", "River Gauges"), ("text", "version 2.1"), ("text", "Anna Smith"), ("text", "July 2022"))
    ]
    left = [replace(one, box=Box(50, one.box.y0, 150, one.box.y1)) for one in (title, names[1])]
    found = kinds(page_blocks(page([*left, *body(160), *body(460, 3)]), []))
    assert [kind for kind, _ in found[:2]] == ["title", "heading"]


def test_a_label_before_a_question_at_the_top_is_no_page_number():
    lines = [line("A6", 50, 40, bold=True), line("Provide the following details", 75, 40, bold=True)]
    found = kinds(page_blocks(page([*lines, *body(100), *body(450, 3)]), []))
    assert not {kind for kind, _ in found} & {"header", "page_number"}


def test_a_caption_needs_no_stop_after_its_number():
    found = kinds(page_blocks(page([*body(20), line("Table 2 Results of the", 50, 330), *body(360, 3)]), []))
    assert ("caption", "Table 2 Results of the") in found


def test_small_lines_beside_a_large_one_are_read_downward():
    small = [line(text, 450 - 9 * n, 500 + 10 * n, size=8.0) for n, text in enumerate(("Vol. 12", "May 2024", "No. 4"))]
    assert make_row([*small[::-1], line("GAZETTE", 50, 500, size=30.0)]).text == "GAZETTE\tVol. 12 May 2024 No. 4"


def test_code_keeps_its_lines_and_indentation():
    content = page(
        [
            *body(80),
            line("def level(h):", 60, 400, mono=True),
            line("return 3 * h", 80, 412, mono=True),
            line("print(level(2))", 60, 436, mono=True),
            *body(500, 3),
        ]
    )
    (code,) = [block.text for block in page_blocks(content, []) if block.kind is BlockKind.CODE]
    assert code == "def level(h):\n    return 3 * h\n\nprint(level(2))"


def test_a_monospaced_page_is_code_if_its_rows_are_a_program():
    program = [
        "import os",
        "def walk(folder):",
        "    for name in os.listdir(folder):",
        "        walk(join(folder, name))",
    ]
    _is_one_program(program)
    letter = [replace(each, mono=True) for each in body(100)]
    assert {block.kind for block in page_blocks(page(letter), [])} == {BlockKind.TEXT}


def test_monospaced_page_is_code_if_its_rows_have_program_names():
    _is_one_program(["CASE", "    WHEN TAX_ID <> OLD_ID", "    THEN EMPLOYEES . TAX_ID", "    AND LAST_YEAR ( DAYS )"])


def _is_one_program(program):
    rows = [line(each.strip(), 60 + 5 * (len(each) - len(each.lstrip())), 100, mono=True) for each in program]
    rows = [replace(row, box=Box(row.box.x0, 100 + 12 * n, row.box.x1, 110 + 12 * n)) for n, row in enumerate(rows)]
    assert [block.text for block in page_blocks(page(rows), [])] == ["\n".join(program)]


def test_page_numbers_and_running_headers_are_furniture():
    content = page(
        [
            line("46", 50, 40),
            line("L. Lucaccioni et al., 2015, Vol. 113", 350, 40),
            *(item for n in range(5) for item in paragraph(prose(n), 50, 100 + 110 * n, 400)),
            line("Page 3 of 10", 270, 770),
        ]
    )
    found = kinds(page_blocks(content, []))
    assert found[0] == ("page_number", "46")
    assert found[1] == ("header", "L. Lucaccioni et al., 2015, Vol. 113")
    assert found[-1] == ("page_number", "Page 3 of 10")
    assert {kind for kind, _ in found[2:-1]} == {"text"}


@pytest.mark.parametrize("number", [None, "12"])
def test_guide_words_of_a_dictionary_are_a_running_header(number):
    head = [line("ABANDON", 50, 30, size=13), line("ADDER", 510, 30, size=13)]
    middle = [line(number, 294, 30, size=13)] if number else []
    columns = [
        item for x in (50, 230, 410) for n in range(3) for item in paragraph(prose(n), x, 50 + 180 * n, 150, size=9)
    ]
    found = kinds(page_blocks(page([*head, *middle, *columns]), []))
    assert ("header", "ABANDON\tADDER") in [(kind, text.replace("   ", "\t")) for kind, text in found]
    assert (("page_number", "12") in found) == (number is not None)
    short = page([*(replace(one, text=one.text.title()) for one in head), *columns])  # words without capitals or number
    assert "header" not in {kind for kind, _ in kinds(page_blocks(short, []))}


def test_scanned_dictionary_entries_are_separate_paragraphs():
    entries = [
        f"{word}, n. {prose(n, 14)}" for n, word in enumerate(("Abbey", "Abbot", "Abet", "Able", "Abode", "Abyss"))
    ]
    lines, y = [], 60.0
    for entry in entries:
        rows = list(paragraph(entry, 50, y, 200))
        for at, row in enumerate(rows):  # all rows are full: only the narrow outdent shows where an entry begins
            x0 = 50 if at == 0 else 57
            box = Box(x0, row.box.y0, 250, row.box.y1)
            lines.append(replace(row, box=box, confidence=0.99))
        y = rows[-1].box.y0 + 12
    assert [text for kind, text in kinds(page_blocks(page(lines), [])) if kind == "text"] == entries


def test_scan_headings_that_differ_only_in_number_are_headings():
    lines = []
    for n in range(4):
        y = 40 + 150 * n
        lines.append(replace(line(f"Report {n + 1}", 50, y, size=10.5), bold=n < 2, confidence=0.99))
        lines += [replace(one, confidence=0.99) for one in paragraph(prose(n), 50, y + 26, 400)]
    found = kinds(page_blocks(page(lines), []))
    assert [text for kind, text in found if kind == "heading"] == [f"Report {n + 1}" for n in range(4)]


def scanned(lines, *mono):
    """The lines as OCR reads them, those at the given places as monospaced."""
    return page([replace(one, confidence=0.99, mono=at in mono) for at, one in enumerate(lines)])


def test_a_program_of_a_scan_is_code_after_the_sentence_above_it():
    text = [line("We set the length first.", 50, 60), *paragraph(prose(2), 50, 120, 400)]
    program = [line("\\makeatletter\\if@poorlayout", 50, 72), line("\\setlength{\\parindent}{1em}", 50, 84)]
    for number in (1, 2):
        found = kinds(page_blocks(scanned([text[0], *program[:number], *text[1:]], 1, number), []))
        assert found[1] == ("code", "\n".join(one.text for one in program[:number]))


def test_monospaced_scan_line_within_a_sentence_is_text():
    lines = list(paragraph(prose(3, 60), 50, 60, 400))
    lines[1] = replace(lines[1], text=f"\\section {lines[1].text}")
    (found,) = kinds(page_blocks(scanned(lines, 1), []))
    assert found[0] == "text"


def test_typewritten_lines_of_a_scan_are_text():
    lines = list(paragraph(prose(3, 120), 50, 60, 400))
    lines = [replace(one, text=f"Line {one.text}") for one in lines]  # no row goes on in lower case
    (found,) = kinds(page_blocks(scanned(lines, 2, 3, 4), []))
    assert found[0] == "text"


def test_short_scan_heading_that_looks_monospaced_is_no_code():
    lines = [line("Use of packages", 50, 60), *paragraph(prose(3, 60), 50, 90, 400)]
    assert "code" not in dict(kinds(page_blocks(scanned(lines, 0), [])))


def test_a_title_of_a_scan_with_a_footnote_mark_is_a_title():
    lines = [line("Notation for Tensors*", 150, 60, size=18), *paragraph(prose(3), 50, 120, 400)]
    assert kinds(page_blocks(scanned(lines), []))[0] == ("title", "Notation for Tensors*")


def test_words_of_a_scan_whose_boxes_touch_are_apart():
    number, name = line("14.6", 50, 60), line("Lists of Names", 69, 60)
    found = kinds(page_blocks(scanned([number, name, *paragraph(prose(3), 50, 90, 400)]), []))
    assert found[0] == ("heading", "14.6 Lists of Names")


def test_rows_of_one_heading_of_a_scan_may_differ_in_size():
    names = "3.1 A Particularly Long Name of a Section That Goes On", "With Another Row"
    heading = [line(names[0], 50, 60, size=13.7), line(names[1], 80, 77, size=11.8)]
    lines = [*(replace(one, bold=True) for one in heading), *paragraph(prose(3), 50, 120, 400)]
    found = kinds(page_blocks(scanned(lines), []))
    assert found[0] == ("heading", " ".join(names))


def test_scan_row_between_paragraphs_of_same_font_is_heading():
    above, below = paragraph(prose(3), 50, 60, 400), paragraph(prose(4), 50, 202, 400)
    found = kinds(page_blocks(scanned([*above, line("The harbor in winter", 50, 180), *below]), []))
    assert found[1] == ("heading", "The harbor in winter")


def test_a_page_number_below_a_wide_margin_is_furniture():
    text = list(paragraph(prose(3, 200), 100, 200, 400))
    found = kinds(page_blocks(page([*text, line("7", 296, 700)]), []))
    assert found[-1] == ("page_number", "7")


def test_numbers_of_lines_in_a_margin_are_furniture():
    text = list(paragraph(prose(3, 200), 100, 200, 400))
    numbers = [replace(line(str(41 + at), 70, one.box.y0 + 3), size=6.0) for at, one in enumerate(text)]
    found = kinds(page_blocks(page([*text, *numbers]), []))
    assert [text for kind, text in found if kind != "page_number"] == [prose(3, 200)]


def test_numbered_bold_heading_below_text_size_is_no_list_item():
    head = [replace(line("A. Second level", 220, 160), size=9.0, bold=True)]
    found = kinds(page_blocks(page([*head, *paragraph(prose(3, 200), 100, 200, 400)]), []))
    assert found[0] == ("heading", "A. Second level")


def test_what_recurs_on_other_pages_is_furniture():
    content = page([line("Some words", 50, 30, recurs=True), *body(100), *body(300)])
    assert kinds(page_blocks(content, []))[0] == ("header", "Some words")


def test_head_of_a_table_that_recurs_on_its_pages_is_text():
    names = ("District", "Precincts", "Green", "Other", "Total")
    head = [line(name, 50 + 90 * place, 60, recurs=True) for place, name in enumerate(names)]
    for rules in ([], [Path(Box(50, 73, 500, 73.5), (0, 0, 0), None, 2)]):
        found = kinds(page_blocks(replace(page([*head, *body(100), *body(300)]), paths=tuple(rules)), []))
        assert found[0] == ("text", "   ".join(names))


@pytest.mark.parametrize(
    "lines",
    [
        # without a gap to the text; a sentence; a page of few lines
        [line("Some words", 50, 88, recurs=True), *body(100)],
        [line("Dear reader, the gauge was read on 3 May.", 50, 50, recurs=True), *body(100)],
        [line("Question: How satisfied were you?", 50, 50, recurs=True), line("Answer: good", 50, 100)],
    ],
)
def test_text_that_recurs_on_letters_and_forms_is_kept(lines):
    found = kinds(page_blocks(page(lines), []))
    assert {kind for kind, _ in found} == {"text"}
    assert found[0][1].startswith(lines[0].text)


def test_a_title_that_recurs_on_the_next_slide_is_kept():
    slide = page([line("Report of the Staff", 50, 30, size=22, recurs=True), *body(100)], width=1000, height=600)
    assert kinds(page_blocks(slide, []))[0] == ("title", "Report of the Staff")


def test_first_text_line_title_and_letterhead_are_kept():
    top_text = page([item for n in range(6) for item in paragraph(prose(n), 50, 30 + 110 * n, 400)])
    assert {block.kind for block in page_blocks(top_text, [])} == {BlockKind.TEXT}
    letter = page([line("Hollow Bridge Parish Council", 200, 40, size=16), *body(200)])
    assert page_blocks(letter, [])[0].kind in (BlockKind.TITLE, BlockKind.HEADING)


def test_a_row_over_the_rest_of_a_sentence_is_a_running_header():
    rest = f"and the {prose(1)}"
    lines = [item for n in range(4) for item in paragraph(prose(n), 50, 220 + 110 * n, 400)]
    header = page([line("Rivers of the north", 50, 50), *paragraph(rest, 50, 75, 400), *lines])
    assert kinds(page_blocks(header, []))[:2] == [("header", "Rivers of the north"), ("text", rest)]
    sentence = page([line("Rivers of the north rise late", 50, 50, width=400), *paragraph(rest, 50, 62, 400), *lines])
    assert page_blocks(sentence, [])[0].text == f"Rivers of the north rise late {rest}"


@pytest.mark.parametrize("address", [False, True])
def test_one_line_footnote_above_page_number_is_no_footer(address: bool):
    text = [item for n in range(5) for item in paragraph(prose(n), 50, 60 + 110 * n, 400)]
    if address:
        note = [line("1 https://example.org/records", 50, 740, size=7)]
    else:
        note = [line("1", 50, 738, size=5), line("The records of each parish", 54, 740, size=7)]
    blocks = page_blocks(page([*text, *note, line("– 124 –", 50, 770, size=7)]), [])
    found = {block.text: block.kind for block in blocks}
    assert found["– 124 –"] is BlockKind.PAGE_NUMBER
    (kept,) = (block for block in blocks if "records" in block.text)
    assert kept.kind in (BlockKind.FOOTNOTE, BlockKind.TEXT)
    assert kept.text.startswith("1")


@pytest.mark.parametrize("text", ["1 See the notebooks of the parish.", "5) 「약관 부표」"])
def test_footnotes_follow_the_text_of_all_columns(text: str):
    def column(x: float, seed: int) -> list[Line]:
        return [item for n in range(3) for item in paragraph(prose(seed + n), x, 100 + 180 * n, 240)]

    blocks = page_blocks(page([*column(50, 10), line(text, 50, 700, size=7), *column(310, 20)]), [])
    assert blocks[-1].kind is BlockKind.FOOTNOTE
    assert unescape(blocks[-1].text) == text


def test_margin_stamp_is_header_and_other_vertical_text_is_kept():
    stamp = Line("arXiv:1511.05298v3 [cs.CV] 11 Apr 2016", Box(15, 200, 30, 600), 12)
    label = Line("Height above the mark", Box(560, 300, 570, 420), 9)
    blocks = page_blocks(page([stamp, label, *body(100)]), [])
    assert (blocks[0].kind, blocks[0].text[:5]) == (BlockKind.HEADER, "arXiv")
    assert "Height above the mark" in [block.text for block in blocks]


def drawn_list(gap: float) -> PageContent:
    """A list whose bullets are discs, as Chromium draws them, at a distance from the text."""
    items = [list(paragraph(prose(n, 20), 70, 300 + 40 * n, 380)) for n in range(3)]
    discs = [
        Path(Box(70 - gap - 3, first.box.y0 + 4, 70 - gap, first.box.y0 + 7), None, (0, 0, 0), 49)
        for first, *_ in items
    ]
    lines = [*paragraph(prose(7), 50, 100, 400), *(item for rows in items for item in rows)]
    return PageContent(600, 800, tuple(lines), (), tuple(discs))


def test_bullets_drawn_as_shapes_make_list_items():
    items = [block for block in page_blocks(drawn_list(6), []) if block.kind is BlockKind.LIST_ITEM]
    assert [block.text for block in items] == [f"- {prose(n, 20)}" for n in range(3)]


def test_small_shapes_far_from_the_text_are_no_bullets():
    assert {block.kind for block in page_blocks(drawn_list(40), [])} == {BlockKind.TEXT}


def test_a_heading_above_a_formula_stays_a_heading():
    formula = line("k = 2 + n", 250, 312)
    content = page(
        [*paragraph(prose(1), 50, 100, 400), line("Level of the river", 50, 295, bold=True), formula, *body(340)]
    )
    found = kinds(page_blocks(content, []))
    assert ("heading", "Level of the river") in found


def test_numbered_list_continued_in_next_column_keeps_its_depth():
    def items(first: int, x: float) -> list[Line]:
        lines: list[Line] = []
        for number in range(first, first + 4):
            y = lines[-1].box.y0 + 12 if lines else 200
            head, *rest = paragraph(f"{number}. {prose(number, 40)}", x, y, 240)
            lines += [head, *(line(item.text, x + 15, item.box.y0, width=225) for item in rest)]
        return lines

    blocks = page_blocks(page([*items(1, 50), *items(5, 310)]), [])
    assert [(block.kind, block.level) for block in blocks] == [(BlockKind.LIST_ITEM, 0)] * 8
    assert [block.text.split()[0] for block in blocks] == [f"{number}." for number in range(1, 9)]


@pytest.mark.parametrize(("start", "end"), [("example.", "org/material."), ("arxiv.org/abs/2102.", "02926.")])
def test_an_address_of_the_web_broken_over_two_lines_is_no_code(start, end):
    lines = list(paragraph(prose(1, 40), 50, 100, 400))
    y = lines[-1].box.y0
    lines += [
        line(f"see the material at http://{start}", 50, y + 12, width=400),
        line(end, 50, y + 24, mono=True),
    ]
    assert {block.kind for block in page_blocks(page([*lines, *body()]), [])} == {BlockKind.TEXT}


WIDTH, HEIGHT = 600.0, 800.0


#: Characters that the layout takes away (hyphens at line ends) or writes in another way (bullets).
VARIABLE = set("-\u2010\u2011\u00ad•–—o*+▪\uf0b7")


token = st.one_of(
    st.text(alphabet="abcdeXYZ", min_size=1, max_size=8),
    st.sampled_from(["•", "-", "1.", "(a)", "2)", "iv.", "12", "Figure", "3:", "1.2", "Page", "of", "Abstract", "\\*"]),
    st.sampled_from(["self-", "wa-", "ter", "本文", "한국", "مرحبا", "*x*", "`y`", "<b>", "#", ">", "_z_", "![a](b)"]),
    st.sampled_from(["www.example.org/", "\u00ad"]),
)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    text = " ".join(draw(st.lists(token, min_size=1, max_size=6)))
    size = draw(st.sampled_from([6.0, 9.7, 10.0, 10.0, 10.0, 14.0, 24.0]))
    x = draw(st.one_of(st.sampled_from([50.0, 60.0, 310.0]), st.floats(0, 590)))
    y = draw(st.one_of(st.integers(0, 65).map(lambda row: 12.0 * row), st.floats(0, 790)))
    box = Box(x, y, x + draw(st.sampled_from([4.0, 60.0, 240.0])), y + size)
    if draw(st.integers(0, 12)) == 0:
        box = Box(x, y, x + size, y + 120)
    words = tuple(Word(word, box) for word in text.split()) if draw(st.booleans()) else ()
    faces = {name: draw(st.integers(0, 5)) == 0 for name in ("bold", "italic", "mono", "recurs")}
    return Line(text, box, size, words, confidence=draw(st.sampled_from([1.0, 0.9])), **faces)


@st.composite
def pages(draw: st.DrawFn) -> tuple[PageContent, list[Region]]:
    found = tuple(draw(st.lists(lines(), max_size=40)))
    free = list(range(len(found)))
    regions = []
    for kind in draw(st.lists(st.sampled_from(["table", "figure"]), max_size=2)):
        members = {free.pop() for _ in range(min(len(free), draw(st.integers(0, 4))))}
        caption = {free.pop() for _ in range(min(len(free), draw(st.integers(0, 2))))}
        y = draw(st.floats(0, 700))
        text = " ".join(found[index].text for index in members) if kind == "table" else ""
        regions.append(Region(kind, Box(50, y, 300, y + 90), frozenset(members), text, caption=frozenset(caption)))
    return PageContent(WIDTH, HEIGHT, found), regions


def characters(text: str) -> Counter[str]:
    return Counter(character for character in text if not character.isspace() and character not in VARIABLE)


def shown(block: Block) -> str:
    if block.kind is BlockKind.FIGURE:
        return block.inside
    return block.text if block.kind in (BlockKind.CODE, BlockKind.TABLE) else unescape(block.text)


@given(pages())
def test_every_character_of_the_page_is_in_exactly_one_block(made: tuple[PageContent, list[Region]]):
    content, regions = made
    blocks = page_blocks(content, regions)
    given_text = characters("".join(line.text for line in content.lines))
    assert sum((characters(shown(block)) for block in blocks), Counter()) == given_text


@given(pages())
def test_boxes_are_relative_and_every_region_is_one_block(made: tuple[PageContent, list[Region]]):
    content, regions = made
    blocks = page_blocks(content, regions)
    for block in blocks:
        assert 0 <= block.box.x0 <= block.box.x1 <= 1
        assert 0 <= block.box.y0 <= block.box.y1 <= 1
    assert sum(block.kind is BlockKind.TABLE for block in blocks) == sum(region.kind == "table" for region in regions)
    assert sum(block.kind is BlockKind.FIGURE for block in blocks) == sum(region.kind == "figure" for region in regions)


def column(x: float, texts: list[str], top: float = 100.0) -> list[Line]:
    return [Line(text, Box(x, top + 14 * i, x + 200, top + 14 * i + 10), 10.0) for i, text in enumerate(texts)]


def test_paragraph_over_column_break_has_one_box_per_column():
    first = [
        "The water of the river rises in the night and falls in",
        "the day, as it has done for as long as anyone knows,",
    ]
    second = [
        "while the people who live beside it sleep and wake by",
        "its sound, and think nothing of it until it is gone.",
    ]
    filler = ["Every sentence of this column fills its line to the end." for _ in range(20)]
    left = column(50, [*filler, *first])
    right = column(310, [*second, *filler])
    blocks = page_blocks(PageContent(560, 800, (*left, *right)), [])
    joined = next(block for block in blocks if "as anyone knows, while the people" in block.text)
    boxes = [joined.box, *joined.continued]
    assert len(boxes) == 2
    assert all(box.width < 0.5 for box in boxes)
    assert boxes[0].x1 < boxes[1].x0


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("the water", "level", "the water level"),
        ("the archi-", "tecture of", "the architecture of"),
        ("the archi\u00ad", "tecture of", "the architecture of"),
        ("archi\u2010", "tecture", "architecture"),
        ("a self-", "locking nut", "a self-locking nut"),
        ("a non-", "trivial case", "a non-trivial case"),
        ("state-of-the-", "art", "state-of-the-art"),
        ("non-suc-", "cessive", "non-successive"),
        ("peer-to-", "peer", "peer-to-peer"),
        ("Anglo-", "Saxon", "Anglo-Saxon"),
        ("GPT-", "4", "GPT-4"),
        ("the paper-", "template.tex file", "the paper-template.tex file"),
        ("x -", "y", "x - y"),
        ("pages 12–", "14", "pages 12–14"),
        ("see https://example.org/", "path", "see https://example.org/path"),
        ("see https://data.example.", "org/path and", "see https://data.example.org/path and"),
        ("doi 10.5555/jss.", "v014.i06", "doi 10.5555/jss.v014.i06"),
        ("at www.example.org.", "they were", "at www.example.org. they were"),
        ("at www.example.org.", "i.e. here", "at www.example.org. i.e. here"),
        ("in usr/share/", "doc/git", "in usr/share/doc/git"),
        ("in /usr/share/", "directory. All", "in /usr/share/ directory. All"),
        ("either/", "or", "either/ or"),
        ("an x-", "value", "an x-value"),
        ("今日は", "天気", "今日は天気"),
        ("한국어", "문장", "한국어 문장"),
        ("", "alone", "alone"),
    ],
)
def test_lines_are_joined_as_they_are_read(first: str, second: str, joined: str):
    assert join(first, second) == joined


def test_the_page_itself_decides_about_a_hyphen():
    words = vocabulary(["the built-in test and the nonlinear case"])
    assert join("a built-", "in test", words) == "a built-in test"
    assert join("from end-", "to-end", frozenset()) == "from end-to-end"
    assert join("of DISCOV-", "ERYWORLD, the", vocabulary(["DISCOVERYWORLD: a world"])) == "of DISCOVERYWORLD, the"
    assert join("the GTX-", "TITAN", frozenset()) == "the GTX-TITAN"
    assert join("a non-", "linear one", words) == "a nonlinear one"
    assert join("an in-memory-", "test", words) == "an in-memory-test"
    words = vocabulary(["the experts of one domain", "Over the sea they come"])
    assert join("as domain-", "experts do", words) == "as domain-experts do"
    assert join("they over-", "come it", words) == "they overcome it"


@pytest.mark.parametrize(
    ("text", "scripts", "markdown"),
    [
        ("some 103 of CO2.", [(7, 8), (14, 15, True)], "some 10<sup>3</sup> of CO<sub>2</sub>."),
        ("1 A note.", [(0, 1)], "<sup>1</sup> A note."),
        ("• at x2 or y", [(6, 7)], "- at x<sup>2</sup> or y"),
        ("•2 of these", [(1, 2)], "- <sup>2</sup> of these"),
        ("a<b> and c1*, d2*", [(10, 12), (15, 17)], r"a\<b> and c<sup>1\*</sup>, d<sup>2\*</sup>"),
        ("a <sup>b</sup> c", [], r"a \<sup>b\</sup> c"),
    ],
)
def test_scripts_become_tags_that_every_markdown_may_have(text, scripts, markdown):
    line = Line(text, Box(50, 300, 200, 310), 10.0, scripts=tuple(Script(*script) for script in scripts))
    (block,) = page_blocks(PageContent(WIDTH, HEIGHT, (line,)), [])
    assert block.text == inert_markdown(block.text) == markdown


def test_scripts_stay_where_rows_and_words_are_joined():
    pieces = (("An un-", 50, 100, ()), ("likely x1", 50, 112, (Script(8, 9),)), ("y2", 96, 112, (Script(1, 2),)))
    found = tuple(Line(text, Box(x, y, x + 45, y + 10), 10.0, scripts=scripts) for text, x, y, scripts in pieces)
    (block,) = page_blocks(PageContent(WIDTH, HEIGHT, found), [])
    assert block.text == "An unlikely x<sup>1</sup>y<sup>2</sup>"


FACES = {"": {}, "b": {"bold": True}, "i": {"italic": True}, "bi": {"bold": True, "italic": True}}


def faced(*words: tuple[str, str], y: float = 300) -> Line:
    """A line of words, each with its face."""
    box = Box(50, y, 500, y + 10)
    return Line(" ".join(w for w, _ in words), box, 10.0, tuple(Word(w, box, **FACES[face]) for w, face in words))


def regular(y: float) -> Line:
    return line("Enough words in the regular face of the page, so that the others differ.", 50, y, width=450)


def emphasis(text: str) -> tuple[str, str]:
    """Return the text that Markdown shows, and a face for each of its characters."""
    (inline,) = [token for token in MarkdownIt("commonmark").parse(text) if token.type == "inline"]
    shown, faces, strong, em = "", "", 0, 0
    for token in inline.children or ():
        strong += {"strong_open": 1, "strong_close": -1}.get(token.type, 0)
        em += {"em_open": 1, "em_close": -1}.get(token.type, 0)
        content = " " if token.type in ("softbreak", "hardbreak") else token.content
        shown += content
        faces += " bix"[strong + 2 * em] * len(content)
    return shown, faces


def test_only_headings_of_mixed_fonts_mark_italics_with_stars():
    mixed = faced(("The", "b"), ("genus", "b"), ("Homo", "bi"))
    whole = replace(faced(("All", "bi"), ("italic", "bi"), ("words", "bi")), box=Box(50, 400, 300, 420), size=20.0)
    lines = [replace(mixed, box=Box(50, 300, 300, 320), size=20.0), whole, *(regular(500 + 12 * n) for n in range(8))]
    found = [block.text for block in page_blocks(page(lines), []) if block.kind is not BlockKind.TEXT]
    assert found == ["The genus *Homo*", "All italic words"]


def test_a_value_after_a_long_bold_label_is_no_heading():
    label = replace(faced(("Subject:", "b"), ("Meeting", ""), y=300), bold=True)
    heading = replace(faced(("Subject", "b"), ("matter", "b"), y=400), bold=True)
    lines = [*(regular(100 + 12 * n) for n in range(8)), label, *(regular(320 + 12 * n) for n in range(4)), heading]
    found = [
        (block.kind, block.text)
        for block in page_blocks(page([*lines, *(regular(430 + 12 * n) for n in range(4))]), [])
    ]
    assert (BlockKind.TEXT, "**Subject:** Meeting") in found
    assert (BlockKind.HEADING, "Subject matter") in found


@pytest.mark.parametrize(
    ("words", "markdown"),
    [
        ([("A", ""), ("bold", "b"), ("word,", "b"), ("here", "")], "A **bold word**, here"),
        ([("see", ""), ("(et", "i"), ("alia)", "i"), ("there", "")], "see *(et alia)* there"),
        ([("(Nature,", "i"), ("2011)", "")], "(*Nature*, 2011)"),
        ([("iff", "i"), ("(u,", "i"), ("v)", "")], "*iff* (u, v)"),
        ([("Note:", "bi"), ("it", ""), ("is", ""), ("so", "")], "***Note:*** it is so"),
        ([("a*b", ""), ("and", ""), ("bold*", "b"), ("text", "")], r"a\*b and **bold\*** text"),
        ([("the", ""), ("f", "i"), ("of", ""), ("x,", "i"), ("y", "i")], "the f of x, y"),
        ([("#", "b"), ("1", ""), ("of", "")], r"\# 1 of"),
        ([("这是", ""), ("重点。", "b"), ("内容", "")], "这是 **重点。** 内容"),
    ],
)
def test_bold_and_italic_words_have_stars(words, markdown):
    (block,) = page_blocks(PageContent(WIDTH, HEIGHT, (faced(*words), *map(regular, (500, 512, 524)))), [])[:1]
    assert block.text.removeprefix("- ") == inert_markdown(markdown)


@given(st.lists(st.tuples(st.text("ab,.)(*_重。", min_size=1, max_size=6), st.sampled_from(sorted(FACES))), min_size=1))
def test_emphasis_changes_no_character(words):
    assume("....." not in "".join(word for word, _ in words))  # leaders become three dots
    words = [("Begin", ""), *words]
    blocks = page_blocks(PageContent(WIDTH, HEIGHT, (faced(*words), *map(regular, (500, 512, 524)))), [])
    text = next(block.text for block in blocks if "Begin" in block.text)
    shown, faces = emphasis(text)
    assert shown == " ".join(word for word, _ in words)
    for (word, face), at in zip(words, accumulate((len(w) + 1 for w, _ in words), initial=0), strict=False):
        assert set(faces[at : at + len(word)]) <= {" ", {"": " ", "b": "b", "i": "i", "bi": "x"}[face]}


def test_emphasis_spans_line_breaks_but_all_bold_text_has_none():
    first = faced(("A", ""), ("rather", "b"), ("impor-", "b"))
    second = faced(("tant", "b"), ("thing", "b"), ("is", ""), ("said.", ""), y=312)
    rest = tuple(map(regular, (500, 512, 524)))
    (block, *_) = page_blocks(PageContent(WIDTH, HEIGHT, (first, second, *rest)), [])
    assert block.text == "A **rather important thing** is said."
    long = faced(*[(word, "b") for word in ("the", "whole", "of", "a", "paragraph", "is", "bold.")] * 5)
    assert "*" not in "".join(b.text for b in page_blocks(PageContent(WIDTH, HEIGHT, (long, *rest)), []))
    bold = replace(first, bold=True)
    assert "*" not in "".join(b.text for b in page_blocks(PageContent(WIDTH, HEIGHT, (bold,)), []))


def test_a_pdf_has_the_faces_of_its_fonts():
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate

    text = "The <b>general rule</b> of this section is <i>sine qua non</i>, and <b>H</b> is a gas. " * 2
    out = io.BytesIO()
    SimpleDocTemplate(out).build([Paragraph(text, getSampleStyleSheet()["Normal"])])
    with contextlib.closing(pypdfium2.PdfDocument(out.getvalue())) as pdf:
        content = from_wire(PageContent, to_wire(page_content(pdf[0])))
    (block,) = page_blocks(content, [])
    assert block.text.count("The **general rule** of this section is *sine qua non*, and H is a gas.") == 2


def linked(data: bytes) -> str:
    with contextlib.closing(pypdfium2.PdfDocument(data)) as pdf:
        content = from_wire(PageContent, to_wire(page_content(pdf[0])))
    return "\n\n".join(block.text for block in page_blocks(content, []))


@pytest.mark.parametrize(
    ("paragraph", "markdown"),
    [
        (
            'See <a href="https://example.org/a(b)?c=1&amp;d=2">the whole report</a>, please.',
            "See [the whole report](https://example.org/a%28b%29?c=1&d=2), please.",
        ),
        (
            'See <a href="https://example.org/"><b>the report</b> of [1]</a> now.',
            r"See **[the report](https://example.org/)** [of \[1\]](https://example.org/) now.",
        ),
        ('Write to <a href="mailto:a@example.org">a@example.org</a>.', "Write to a@example.org."),
        ('At <a href="https://example.org/x">example.org/x</a> or there.', "At example.org/x or there."),
        ('A <a href="file:///etc/passwd">local file</a> and text.', "A local file and text."),
        ('A <a href="javascript:alert(1)">script here</a> and text.', "A script here and text."),
    ],
)
def test_links_of_the_web_are_links_and_others_are_text(paragraph, markdown):
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate

    out = io.BytesIO()
    SimpleDocTemplate(out).build([Paragraph(paragraph, getSampleStyleSheet()["Normal"])])
    text = linked(out.getvalue())
    assert text == inert_markdown(text) == markdown


def test_a_link_over_two_lines_is_one():
    address = "https://example.org/"
    words = [[("see", 0), ("the", 1), ("impor-", 1)], [("tant", 1), ("thing", 1), ("there.", 0)]]
    found = []
    for row, parts in enumerate(words):
        box = Box(50, 300 + 12 * row, 500, 310 + 12 * row)
        own = tuple(Word(word, box, link=number) for word, number in parts)
        found.append(Line(" ".join(word for word, _ in parts), box, 10.0, own))
    (block,) = page_blocks(PageContent(WIDTH, HEIGHT, tuple(found), links=(address,)), [])
    assert block.text == f"see [the important thing]({address}) there."


def test_wide_gaps_of_a_row_are_spaces():
    cells = [Line(name, Box(x, 100, x + 60, 110), 10.0) for name, x in (("Name", 50), ("Value", 200))]
    (block,) = page_blocks(PageContent(WIDTH, HEIGHT, tuple(cells)), [])
    assert block.text == "Name   Value"


@pytest.mark.parametrize(
    "text",
    [
        *("a snake_case name and file_name.txt", "5 * 3 = 15", "Price: 3 < 4 & 5 > 2"),
        *("It is 1.5 m wide, not 2. So", "AT&T - well", "see [12] and (3)", "`lonely", "C# and #1"),
    ],
)
def test_ordinary_text_stays_as_it_is(text: str):
    assert escape(text) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("# not a heading", r"\# not a heading"),
        ("1. not a list", r"1\. not a list"),
        ("12) not a list", r"12\) not a list"),
        ("- not a list", r"\- not a list"),
        ("> not a quote", r"\> not a quote"),
        ("first\n+ second", "first\n\\+ second"),
        ("---", r"\---"),
        ("*this* is starred", r"\*this\* is starred"),
        ("__init__ runs", r"\_\_init__ runs"),
        ("`a` and `b`", r"\`a\` and \`b\`"),
        ("<b>bold</b>", r"\<b>bold\</b>"),
        ("a [link](target)", r"a \[link](target)"),
        ("![image](x)", r"!\[image](x)"),
        ("[1]: http://example.org", r"\[1]: http://example.org"),
        ("&amp; co", r"\&amp; co"),
        (r"a \* b", r"a \\* b"),
    ],
)
def test_what_markdown_would_read_is_escaped(text: str, escaped: str):
    assert escape(text) == escaped


@given(st.text(alphabet=st.sampled_from("ab1 #>-+*_`~<[](!)&;.:\\\n"), max_size=40))
def test_escaping_can_be_undone(text: str):
    assert unescape(escape(text)) == text


def test_table_of_contents_without_page_numbers_has_no_headings():
    names = ["1 Introduction", "2 Installation of the package", "2.1 Title", "2.2 Authors and institutions", "3 Lists"]
    rows = [line(name, 50 + 12 * (name[1] == "."), 140 + 14 * place) for place, name in enumerate(names)]
    below = [line("1 Introduction", 50, 260, size=14), *paragraph(prose(3), 50, 284, 400)]
    blocks = page_blocks(page([line("Contents", 50, 100, size=14), *rows, *below]), [])
    assert [block.text for block in blocks if block.kind is BlockKind.HEADING] == ["Contents", "1 Introduction"]
