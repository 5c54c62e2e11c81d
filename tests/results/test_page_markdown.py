"""Blocks become Markdown that a CommonMark parser reads as what they are."""

from dataclasses import replace
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import ANY_TEXT, failed, record
from markdown_it import MarkdownIt

from llm_ocr.results.dataset import page_notes
from llm_ocr.results.documents import document_markdown, figure_file, markdown_file
from llm_ocr.results.markdown import blocks_to_markdown, without_web_links
from llm_ocr.types import FURNITURE, Block, BlockKind, Box, Reason

BOX = Box(0, 0, 1, 1)


KINDS = BlockKind


def block(kind: BlockKind, text: str = "", **rest) -> Block:
    return Block(kind, BOX, text, **rest)


def items(*texts: str | tuple[int, str]) -> list[Block]:
    pairs = [text if isinstance(text, tuple) else (0, text) for text in texts]
    return [block(KINDS.LIST_ITEM, text, level=level) for level, text in pairs]


def html(blocks: list[Block]) -> str:
    return MarkdownIt("commonmark").enable("table").render(blocks_to_markdown(blocks))


def test_headings_follow_their_levels():
    blocks = [
        block(KINDS.TITLE, "On\nlines"),
        *(block(KINDS.HEADING, f"level {n}", level=n) for n in (0, 1, 2, 5, 9)),
    ]
    assert blocks_to_markdown(blocks).split("\n\n") == [
        *("# On lines", "## level 0", "## level 1", "### level 2", "###### level 5", "###### level 9"),
    ]


def test_heading_marks_are_neither_doubled_nor_lost():
    assert blocks_to_markdown([block(KINDS.HEADING, "### Results", level=1)]) == "## Results"
    assert "<h2>Issue #</h2>" in html([block(KINDS.HEADING, "Issue #", level=1)])
    assert blocks_to_markdown([block(KINDS.HEADING, "#1 in the list", level=1)]) == "## #1 in the list"


def test_furniture_stays_out():
    assert blocks_to_markdown([block(kind, "Page 3 of 9") for kind in FURNITURE]) == ""


def test_furniture_stands_where_it_is_when_it_is_wanted():
    blocks = [block(KINDS.HEADER, "The Arlen"), block(KINDS.TEXT, "Text."), block(KINDS.PAGE_NUMBER, "7")]
    assert blocks_to_markdown(blocks, furniture=True) == "The Arlen\n\nText.\n\n7"


def test_list_items_follow_each_other_without_blank_lines():
    blocks = [block(KINDS.TEXT, "We need:"), *items("- salt", "- oil"), block(KINDS.TEXT, "Then cook.")]
    assert blocks_to_markdown(blocks) == "We need:\n\n- salt\n- oil\n\nThen cook."


@pytest.mark.parametrize("marker", ["-", "1.", "10.", "3)", "*"])
def test_nested_lists_stay_nested_under_any_marker(marker):
    shown = html(items(f"{marker} outer", (1, "- inner"), (2, "1. innermost"), (1, "- inner again")))
    outer, inner, innermost = (shown.index(word) for word in ("outer", "inner\n", "innermost"))
    assert outer < inner < innermost
    assert shown.count("<ul>") == (2 if marker in "-*" else 1)
    assert shown.count("<li>") == 4
    assert "<code>" not in shown


def test_a_level_without_its_parents_is_no_code():
    shown = html([*items((3, "- deep")), block(KINDS.TEXT, "between"), *items((2, "- also deep"))])
    assert "<code>" not in shown
    assert shown.count("<li>") == 2


def test_items_keep_their_lines_and_get_a_missing_marker():
    blocks = items("- first\nsecond line\n\nsecond paragraph", "(a) no marker", "1.5 apples", "-")
    assert blocks_to_markdown(blocks) == "- first\n  second line\n\n  second paragraph\n- (a) no marker\n- 1.5 apples"


def test_tables_stand_between_blank_lines_as_they_are():
    pipe = "| a | b |\n| --- | --- |\n| 1 | 2 |"
    spans = '<table><tr><td colspan="2">x</td></tr></table>'
    blocks = [
        block(KINDS.TEXT, "Before"),
        block(KINDS.TABLE, pipe),
        block(KINDS.TABLE, spans),
        block(KINDS.TEXT, "After"),
    ]
    assert blocks_to_markdown(blocks) == f"Before\n\n{pipe}\n\n{spans}\n\nAfter"
    assert html(blocks).count("<table>") == 2


@pytest.mark.parametrize(
    "text", ["x = 1\n\n\n\ny = 2", "```\nin a fence\n```", "a ```` b", "~~~", "# no heading", "```"]
)
def test_code_comes_out_as_it_went_in_and_is_fenced_once(text):
    shown = MarkdownIt("commonmark").parse(blocks_to_markdown([block(KINDS.CODE, text), block(KINDS.TEXT, "after")]))
    inner = "in a fence" if "in a fence" in text else text
    assert [token.content for token in shown if token.type == "fence"] == [inner + "\n"]
    assert shown[-2].content == "after"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- cut off here",
        "before\n  <!-- cut off\nhere",
        "<!-- ended --> and\n<!-- not cut off here",
        "- <!-- cut off here",
        "<!-- cut off\n```\nhere",
    ],
)
@pytest.mark.parametrize("kind", [KINDS.TEXT, KINDS.LIST_ITEM])
def test_a_comment_that_was_cut_off_hides_nothing(text, kind):
    shown = MarkdownIt("commonmark").parse(blocks_to_markdown([block(kind, text), block(KINDS.TEXT, "The end.")]))
    assert not [token for token in shown if token.type == "html_block" and "here" in token.content]
    assert shown[-2].content == "The end."


@pytest.mark.parametrize("text", ["a <!-- b", "<!-- note -->", "<!-- a\n\nb -->", "```\n<!-- code\n```", "<!-->"])
def test_other_comments_stay_as_they_are(text):
    assert blocks_to_markdown([block(KINDS.TEXT, text)]) == text


def test_a_fence_that_was_cut_off_does_not_swallow_the_page():
    shown = html([block(KINDS.TEXT, "```python\nprint("), block(KINDS.HEADING, "Next", level=1)])
    assert "<h2>Next</h2>" in shown


def test_formulas_are_set_only_when_they_are_latex():
    assert blocks_to_markdown([block(KINDS.FORMULA, "E = mc²", label="formula")]) == "E = mc²"
    assert blocks_to_markdown([block(KINDS.FORMULA, "E = mc^2", label="LaTeX")]) == "$$\nE = mc^2\n$$"
    assert blocks_to_markdown([block(KINDS.FORMULA, "$$E$$", label="latex")]) == "$$E$$"


def test_figures_are_links_and_their_captions_paragraphs():
    blocks = [block(KINDS.FIGURE, figure_id="d0-p00001-f01", caption="Fig. 1"), block(KINDS.CAPTION, "Fig. 1")]
    assert blocks_to_markdown(blocks) == "![d0-p00001-f01](figure:d0-p00001-f01)\n\nFig. 1"


def test_a_figure_without_a_crop_leaves_the_text_inside_it():
    assert blocks_to_markdown([block(KINDS.FIGURE, inside="2019\n2020")]) == "2019\n2020"


@given(st.text(min_size=1))
def test_any_figure_id_makes_one_image(figure):
    from urllib.parse import unquote

    from llm_ocr.results.markdown import IMAGE, target_id

    text = blocks_to_markdown([block(KINDS.FIGURE, figure_id=figure)])
    [image] = IMAGE.finditer(text)
    assert target_id(image["target"]) == figure
    tokens = [token for line in MarkdownIt("commonmark").parse(text) for token in line.children or ()]
    assert [token.type for token in tokens] == ["image"]
    assert unquote(str(tokens[0].attrs["src"])) == f"figure:{figure}"


def test_more_than_two_newlines_collapse():
    assert blocks_to_markdown([block(KINDS.TEXT, "a\n\n\n\nb \n \n\n"), block(KINDS.TEXT, "\n\nc")]) == "a\n\nb\n\nc"


BLOCKS = st.lists(
    st.builds(
        Block,
        st.sampled_from(BlockKind),
        st.just(BOX),
        ANY_TEXT | st.text("-*#`~ \n1.)$a|<", max_size=30),
        label=st.sampled_from(["", "latex"]),
        level=st.integers(-1, 8),
        figure_id=st.sampled_from(["", "d-f01"]),
    ),
    max_size=6,
)


@given(BLOCKS)
def test_any_blocks_give_clean_markdown_that_stays_as_it_is(blocks):
    text = blocks_to_markdown(blocks)
    text.encode()
    assert "\0" not in text
    own = text.replace("](figure:", "](")  # in a text, such a link is one that the page prints
    assert blocks_to_markdown([block(KINDS.TEXT, own)]) == own


TALL = Box(0.1, 0.1, 0.9, 0.8)


WHOLE = Box(0, 0, 1, 1)


CELLS = "<table><tr><td>Hollow Bridge</td><td>412</td></tr></table>"


def notes(*blocks: Block, **changes):
    return page_notes(record(blocks=tuple(blocks), **changes))


def noted(kind: BlockKind, box: Box, text: str = "", label: str = "") -> Block:
    return Block(kind, box, text, label)


def test_the_models_word_counts():
    said = {
        "primary_language": "de",
        "is_rotation_valid": True,
        "rotation_correction": 0,
        "is_table": True,
        "is_diagram": False,
    }
    shown = notes(noted(BlockKind.TEXT, TALL, "Only text."), notes=said, rotation=90)
    assert shown == {**said, "rotation": 90, "is_fallback": False}


def test_what_nobody_said_is_not_known():
    shown = notes(noted(BlockKind.TEXT, TALL, "Only text."))
    assert (shown["primary_language"], shown["is_rotation_valid"], shown["rotation_correction"]) == (None, None, None)
    assert (shown["is_table"], shown["is_diagram"], shown["rotation"]) == (False, False, 0)


@pytest.mark.parametrize("box", [TALL, WHOLE])
def test_a_page_of_tables_has_more_than_half_of_its_text_in_them(box):
    table = noted(BlockKind.TABLE, box, CELLS * 3)
    assert notes(table, noted(BlockKind.TEXT, box, "Levels of the river."))["is_table"] is True
    assert notes(table, noted(BlockKind.TEXT, box, "Levels of the river. " * 9))["is_table"] is False


def test_a_page_of_diagrams_shows_charts_on_more_than_half_of_it():
    line = noted(BlockKind.TEXT, Box(0.1, 0.9, 0.9, 0.95), "Figure 1: levels.")
    for label, expected in (("chart", True), ("Diagram", True), ("image", False)):
        assert notes(noted(BlockKind.FIGURE, TALL, label=label), line)["is_diagram"] is expected
    small = noted(BlockKind.FIGURE, Box(0.1, 0.1, 0.3, 0.2), label="chart")
    assert notes(small, noted(BlockKind.TEXT, WHOLE, "Text without a place."))["is_diagram"] is False
    assert notes(replace(small, box=TALL), noted(BlockKind.TEXT, WHOLE, "Words."))["is_diagram"] is True


def test_failed_page_has_no_kind_and_blank_page_is_neither():
    shown = page_notes(failed())
    assert (shown["is_table"], shown["is_diagram"], shown["is_fallback"]) == (None, None, False)
    assert notes(blank=True)["is_table"] is False


@pytest.mark.parametrize(
    ("source", "attempts", "expected"),
    [
        ("text-layer", ({"status": "failed", "server": "http://a"}, {"status": "ok", "source": "text-layer"}), True),
        ("ocr", ({"status": "failed", "server": ""},), True),
        ("text-layer", ({"status": "ok", "source": "text-layer"},), False),  # of the embedded engine
        ("model", ({"status": "failed", "server": "a"}, {"status": "ok", "server": "a"}), False),
    ],
)
def test_fallback_page_is_read_by_another_reader_than_the_model(source, attempts, expected):
    page = record(text_source=source, attempts=attempts)
    assert page.is_fallback is expected
    assert page_notes(page)["is_fallback"] is expected


DOCUMENT = "0123456789abcdef"


def test_pages_stand_in_order_behind_their_markers():
    pages = [(record(2, figures=0), "two"), (record(1, figures=0), "one\n")]
    assert document_markdown(pages, "a.pdf") == "<!-- page 1 -->\n\none\n\n<!-- page 2 -->\n\ntwo\n"


def test_markers_can_be_off_but_a_failed_page_stays_visible():
    pages = [
        (record(1, figures=0), "one"),
        (failed(2, document=DOCUMENT, reason=Reason.RENDER_TIMEOUT), ""),
        (record(3, figures=0), ""),
    ]
    gap = "<!-- page 2 failed: render timeout -->"
    assert document_markdown(pages, "a.pdf", page_markers=False) == f"one\n\n{gap}\n"
    assert document_markdown(pages, "a.pdf") == f"<!-- page 1 -->\n\none\n\n{gap}\n\n<!-- page 3 -->\n"


def test_a_document_that_could_not_be_opened_says_why():
    assert document_markdown([(failed(), "")], "b.pdf") == "<!-- document failed: encrypted -->\n"


def test_markers_are_not_seen_when_the_text_is_rendered():
    text = document_markdown([(record(1, figures=0), "one"), (failed(2, document=DOCUMENT), "")], "a.pdf")
    kinds = [token.type for token in MarkdownIt("commonmark").parse(text)]
    assert kinds.count("html_block") == 2
    assert kinds.count("inline") == 1


def test_figure_links_lead_to_the_files_beside_the_text():
    page = record(1)
    figure = page.figures[0]
    name = "reports/über #1 (50%) x.pdf"
    text = document_markdown([(page, page.markdown)], name)
    [image] = [t for token in MarkdownIt("commonmark").parse(text) for t in token.children or () if t.type == "image"]
    folder = markdown_file(name).rpartition("/")[0]
    assert f"{folder}/{unquote(str(image.attrs['src']))}" == figure_file(name, figure)
    assert figure_file(name, figure) == f"documents/{name}.figures/{figure.id}.png"


def test_links_to_unknown_figures_and_links_in_code_stay():
    page = record(1)
    link = f"![x](figure:{page.figures[0].id})"
    text = document_markdown([(page, f"![y](figure:other)\n\n```\n{link}\n```")], "a.pdf", page_markers=False)
    assert text == f"![y](figure:other)\n\n```\n{link}\n```\n"


def test_links_to_the_web_can_be_replaced_by_their_texts():
    text = r"See **[the report](https://a.org/%28b%29)** of [\[1\]](mailto:a@b.c), ![x](figure:y), [z](#z)."
    assert without_web_links(text) == r"See **the report** of \[1\], ![x](figure:y), [z](#z)."
    code = "```\n[a](https://b.c)\n```"
    assert without_web_links(code) == code


# Without page markers, a text that continues on the next page is whole.

BEGIN = "The committee met on Monday and decided that the"
REST = "proposal of the board shall be accepted."
TABLE = "| Name | Sum |\n| --- | --- |\n| A | 1 |"


def pages_of(*pages: list[Block]):
    records = [record(number, figures=0, blocks=tuple(blocks)) for number, blocks in enumerate(pages, 1)]
    return [(page, blocks_to_markdown(page.blocks)) for page in records]


def whole(*pages: list[Block]) -> str:
    return document_markdown(pages_of(*pages), "a.pdf", page_markers=False)


def test_a_paragraph_goes_on_over_pages_notes_and_figures():
    first = [block(KINDS.TEXT, BEGIN), block(KINDS.FOOTNOTE, "1 A note."), block(KINDS.PAGE_NUMBER, "1")]
    figure = [block(KINDS.FIGURE, inside="2019"), block(KINDS.CAPTION, "Figure 1: Sums.")]
    last = [*figure, block(KINDS.TEXT, REST), block(KINDS.TEXT, "A new one.")]
    expected = f"{BEGIN} {REST}\n\n1 A note.\n\n2019\n\nFigure 1: Sums.\n\nA new one.\n"
    assert whole(first, last) == expected
    assert whole(first, figure, last[2:]) == expected
    marked = document_markdown(pages_of(first, last), "a.pdf")
    assert f"{BEGIN}\n\n1 A note." in marked and f"\n\n{REST}\n\nA new one." in marked


def test_a_paragraph_of_three_pages_is_one():
    between = "amendments of last year, which nobody had read, and the"
    assert whole(*([block(KINDS.TEXT, text)] for text in (BEGIN, between, REST))) == f"{BEGIN} {between} {REST}\n"


def test_a_word_that_is_hyphenated_at_the_end_of_a_page_is_whole():
    assert whole([block(KINDS.TEXT, f"{BEGIN} pro-")], [block(KINDS.TEXT, REST[3:])]) == f"{BEGIN} {REST}\n"
    compound = whole([block(KINDS.TEXT, f"{BEGIN} self-")], [block(KINDS.TEXT, "evident truth.")])
    assert compound == f"{BEGIN} self-evident truth.\n"


def test_the_last_item_of_a_list_goes_on():
    first = [*items("One.", f"{BEGIN} second"), block(KINDS.FOOTNOTE, "1 A note.")]
    assert whole(first, [block(KINDS.TEXT, REST)]) == f"- One.\n- {BEGIN} second {REST}\n\n1 A note.\n"


def test_chinese_text_goes_on_without_a_space():
    first, rest = (
        "委员会星期一开会并决定接受理事会提出的关于明年预算的",
        "建议并且在下一次会议上讨论其余的问题和各种其他事项。",
    )
    assert whole([block(KINDS.TEXT, first)], [block(KINDS.TEXT, rest)]) == f"{first}{rest}\n"


@pytest.mark.parametrize(
    ("last", "first"),
    [
        (block(KINDS.TEXT, f"{BEGIN} end."), block(KINDS.TEXT, REST)),
        (block(KINDS.TEXT, f"{BEGIN} end.”<sup>3</sup>"), block(KINDS.TEXT, REST)),
        (block(KINDS.TEXT, BEGIN), block(KINDS.TEXT, "Proposal of the board.")),
        (block(KINDS.TEXT, BEGIN), block(KINDS.TEXT, "a) the proposal of the board")),
        (block(KINDS.TEXT, BEGIN), block(KINDS.HEADING, "proposal of the board", level=1)),
        (block(KINDS.HEADING, BEGIN, level=1), block(KINDS.TEXT, REST)),
        (block(KINDS.CODE, BEGIN), block(KINDS.TEXT, REST)),
        (block(KINDS.TEXT, "Name"), block(KINDS.TEXT, REST)),
    ],
)
def test_other_texts_stay_apart(last, first):
    pages = pages_of([last], [first])
    assert document_markdown(pages, "a.pdf", page_markers=False) == "\n\n".join(text for _, text in pages) + "\n"


def test_texts_stay_apart_across_missing_failed_or_changed_pages():
    (one, begin), (_, rest) = pages_of([block(KINDS.TEXT, BEGIN)], [block(KINDS.TEXT, REST)])
    third = record(3, figures=0, blocks=(block(KINDS.TEXT, REST),))
    gap = (failed(2, document=DOCUMENT, reason=Reason.RENDER_TIMEOUT), "")
    assert document_markdown([(one, begin), (third, rest)], "a", page_markers=False) == f"{BEGIN}\n\n{REST}\n"
    text = document_markdown([(one, begin), gap, (third, rest)], "a", page_markers=False)
    assert text == f"{BEGIN}\n\n<!-- page 2 failed: render timeout -->\n\n{REST}\n"
    second = replace(third, page_number=2)
    changed = document_markdown([(one, begin), (second, f"{REST} {REST}")], "a", page_markers=False)
    assert changed == f"{BEGIN}\n\n{REST} {REST}\n"


def test_a_table_goes_on_without_its_repeated_header():
    again = TABLE.replace("| A | 1 |", "| B | 2 |")
    assert whole([block(KINDS.TABLE, TABLE)], [block(KINDS.TABLE, again)]) == f"{TABLE}\n| B | 2 |\n"
    rows = "| B | 2 |\n| --- | --- |\n| C | 3 |"
    assert whole([block(KINDS.TABLE, TABLE)], [block(KINDS.TABLE, rows)]) == f"{TABLE}\n| B | 2 |\n| C | 3 |\n"
    head = '<table>\n<tr><th colspan="2">Sums</th></tr>\n'
    one, other = f"{head}<tr><td>A</td><td>1</td></tr>\n</table>", f"{head}<tr><td>B</td><td>2</td></tr>\n</table>"
    joined = f"{head}<tr><td>A</td><td>1</td></tr>\n<tr><td>B</td><td>2</td></tr>\n</table>\n"
    assert whole([block(KINDS.TABLE, one)], [block(KINDS.TABLE, other)]) == joined


def test_tables_with_other_columns_or_a_caption_stay_apart():
    other = "| Name | Year |\n| --- | --- |\n| B | 2 |"
    three = "| A | B | C |\n| --- | --- | --- |\n| 1 | 2 | 3 |"
    for table in (other, three):
        assert whole([block(KINDS.TABLE, TABLE)], [block(KINDS.TABLE, table)]) == f"{TABLE}\n\n{table}\n"
    caption = block(KINDS.CAPTION, "Table 2: Others.")
    assert whole([block(KINDS.TABLE, TABLE)], [caption, block(KINDS.TABLE, TABLE)]).count("| Name |") == 2
