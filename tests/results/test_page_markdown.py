"""Blocks become Markdown that a CommonMark parser reads as what they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import ANY_TEXT
from markdown_it import MarkdownIt

from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import FURNITURE, Block, BlockKind, Box

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
        "# On lines",
        "## level 0",
        "## level 1",
        "### level 2",
        "###### level 5",
        "###### level 9",
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


def test_items_keep_their_own_lines_and_get_a_marker_if_they_have_none():
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
    assert blocks_to_markdown([block(KINDS.TEXT, text)]) == text
