"""Answers with boxes become the blocks that the page shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.models.parsers.coordinates import (
    Scale,
    dots_size,
    from_500,
    from_1000,
    from_1024,
    from_bins,
    from_canvas,
    from_fractions,
    from_pixel_sizes,
    from_resized,
)
from llm_ocr.models.parsers.markers import parse_grounding, parse_spotting
from llm_ocr.models.profile import NO_FRAME, Frame
from llm_ocr.models.registry import find_profile
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import Block, BlockKind, Box

WHOLE = Box(0, 0, 1, 1)


PAGE = """<|ref|>title<|/ref|><|det|>[[100, 40, 900, 80]]<|/det|>
# A Study of Tides

<|ref|>sub_title<|/ref|><|det|>[[71, 88, 402, 110]]<|/det|>
### 2.1 Methods ###

<|ref|>text<|/ref|><|det|>[[71, 120, 480, 400], [520, 88, 930, 200]]<|/det|>
Gauges stood at three places, with \\(a \\coloneqq b\\):
- the harbour
- the river
  - its mouth

They were read each hour.

<|ref|>equation<|/ref|><|det|>[[118, 410, 480, 430]]<|/det|>
\\[ h = a \\cos t \\]

<|ref|>image<|/ref|><|det|>[[131, 620, 863, 840]]<|/det|>
<|ref|>image_caption<|/ref|><|det|>[[115, 853, 883, 887]]<|/det|>
<center>Figure 1: The gauges. </center>

<|ref|>table_caption<|/ref|><|det|>[[115, 890, 883, 900]]<|/det|>
Table 1: Heights

<|ref|>table<|/ref|><|det|>[[115, 901, 883, 950]]<|/det|>
<table><tr><td>Place</td><td>m</td></tr><tr><td>Harbour</td><td>1.2</td></tr></table>

<|ref|>footer<|/ref|><|det|>[[480, 970, 520, 990]]<|/det|>
17
"""


MARKDOWN = """# A Study of Tides

### 2.1 Methods

Gauges stood at three places, with \\(a := b\\):

- the harbour
- the river
  - its mouth

They were read each hour.

\\[ h = a \\cos t \\]

Figure 1: The gauges.

Table 1: Heights

<table><tr><td>Place</td><td>m</td></tr><tr><td>Harbour</td><td>1.2</td></tr></table>"""


MARKS = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>")


def tag(label: str, box: str, text: str = "") -> str:
    return f"<|ref|>{label}<|/ref|><|det|>{box}<|/det|>\n{text}\n\n"


def stripped(text: str) -> str:
    for mark in MARKS:
        text = text.replace(mark, "")
    return text


def only(text: str) -> Block:
    (block,) = parse_grounding(text).blocks
    return block


@pytest.mark.parametrize("text", [PAGE, stripped(PAGE), PAGE + "<｜end▁of▁sentence｜>", PAGE.replace("\n", "\r\n")])
def test_page_becomes_markdown_with_or_without_special_tokens(text: str):
    parsed = parse_grounding(text)
    assert blocks_to_markdown(parsed.blocks) == MARKDOWN
    assert parsed.lost == ()


def test_every_tag_is_a_block_of_its_kind_in_order():
    kinds = [block.kind.value for block in parse_grounding(PAGE).blocks]
    listed = ["text", "list_item", "list_item", "list_item", "text"]
    assert kinds == ["title", "heading", *listed, "formula", "figure", "caption", "caption", "table", "footer"]


def test_boxes_are_relative_to_999():
    assert only(tag("text", "[[0, 0, 999, 999]]", "x")).box == WHOLE
    box = only(tag("text", "[[111, 222, 333, 444]]", "x")).box
    assert (box.x0, box.y0, box.x1, box.y1) == pytest.approx((1 / 9, 2 / 9, 1 / 3, 4 / 9))


def test_text_with_several_boxes_goes_on_in_the_others():
    block = only(tag("text", "[[0, 0, 333, 999], [333, 0, 666, 999], [666, 0, 999, 999]]", "x"))
    assert [round(box.x0, 3) for box in (block.box, *block.continued)] == [0, 0.333, 0.667]


def test_a_figure_with_several_boxes_is_one_block_for_each():
    blocks = parse_grounding(tag("image", "[[0, 0, 100, 100], [200, 0, 300, 100]]")).blocks
    assert [block.kind for block in blocks] == [BlockKind.FIGURE] * 2
    assert blocks[0].box.x1 < blocks[1].box.x0


@pytest.mark.parametrize("box", ["[[1180, 300, 460, 330]]", "[[100, 300, 400, 1414]]", "[[-200, 300, 400, 330]]"])
def test_a_box_beyond_the_grid_is_not_believed(box: str):
    parsed = parse_grounding(tag("equation", box, r"\[a = b\]"))
    assert [block.box for block in parsed.blocks] == [WHOLE]
    assert parsed.lost == ("equation: a box that cannot be read",)


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("captions", [1, 2])
def test_a_table_behind_its_caption_keeps_its_own_box(marks: bool, captions: int):
    table = "<table><tr><td>Elder</td><td>38.2</td></tr></table>"
    caption = tag("table_caption", "[[90, 180, 900, 215]]", f"Table 4. Weight of hives.\n\n{table}")
    page = tag("table", "[[90, 230, 900, 420]]").rstrip() + "\n" + caption
    page += page.replace("[[90,", "[[91,") * (captions - 1)
    page += tag("text", "[[90, 500, 900, 600]]", "The end.")
    blocks = parse_grounding(page if marks else stripped(page)).blocks
    assert [block.kind.value for block in blocks] == ["caption", "table"] * captions + ["text"]
    assert (blocks[1].text, round(blocks[1].box.y1, 2)) == (table, 0.42)
    assert blocks[0].text == "Table 4. Weight of hives."


def test_a_table_in_a_caption_without_a_marker_stays_a_table():
    table = "<table><tr><td>Elder</td></tr></table>"
    blocks = parse_grounding(tag("table_caption", "[[90, 180, 900, 215]]", f"Table 4.\n\n{table}")).blocks
    assert [(block.kind, block.text) for block in blocks] == [(BlockKind.CAPTION, "Table 4."), (BlockKind.TABLE, table)]


def test_entities_escaped_twice_are_decoded_once():
    table = tag("table", "[[1, 1, 9, 9]]", "<table><tr><td>d &amp;gt; 4, R &amp;amp; D, a &amp; b</td></tr></table>")
    code = tag("code", "[[1, 1, 9, 9]]", "```\n&amp;gt;\n```")
    assert [block.text for block in parse_grounding(table + code).blocks] == [
        "<table><tr><td>d &gt; 4, R &amp; D, a &amp; b</td></tr></table>",
        "```\n&amp;gt;\n```",
    ]


def test_a_line_of_text_with_one_hash_is_no_title():
    assert blocks_to_markdown(parse_grounding(tag("text", "[[1, 1, 9, 9]]", "# Settings:")).blocks) == r"\# Settings:"


@pytest.mark.parametrize("box", ["[[1, 2, 3]]", "[[]]", "", "[[5, 5, 5, 5]]", "[[a, b, c, d]]", "[[1, 2, 3, 9e9999]]"])
def test_unreadable_box_loses_the_box_and_not_the_text(box: str):
    parsed = parse_grounding(tag("text", box, "All is kept.") + tag("text", "[[1, 1, 9, 9]]", "Next."))
    assert [block.text for block in parsed.blocks] == ["All is kept.", "Next."]
    assert parsed.blocks[0].box == WHOLE
    assert parsed.lost == ("text: a box that cannot be read",)


def test_one_bad_box_among_good_ones_is_left_out():
    parsed = parse_grounding(tag("image", "[[1, 1, 9, 9], [1, 2], [20, 20, 90, 90]]"))
    assert len(parsed.blocks) == 2
    assert len(parsed.lost) == 1


def test_a_figure_without_a_box_is_named_as_lost():
    parsed = parse_grounding(tag("image", "[[1, 2]]") + tag("text", "[[1, 1, 9, 9]]", "x"))
    assert [block.text for block in parsed.blocks] == ["x"]
    assert "image: cannot be cut out without a box" in parsed.lost


@pytest.mark.parametrize("name", ["deepseek-ocr", "deepseek-ocr-2"])
def test_answer_to_free_ocr_is_published_without_tags(name: str):
    parse = find_profile(name).parsers[""]
    assert parse(PAGE, NO_FRAME) == parse_grounding(PAGE)
    manual = "# Tags\n\nA label is between `<|ref|>` and `<|/ref|>`."
    assert blocks_to_markdown(parse(manual, NO_FRAME).blocks) == manual


@pytest.mark.parametrize("page", [PAGE, stripped(PAGE)])
def test_talk_before_tags_is_no_text_of_the_page(page: str):
    assert parse_grounding(f"Here is the markdown:\n\n{page}") == parse_grounding(page)
    for words in ("Here is the markdown:\n\nNothing.", "Note: The transcription above follows the layout of 1820."):
        assert only(tag("text", "[[1, 1, 9, 9]]", words)).text == words


def test_text_without_any_tag_is_kept_and_named():
    parsed = parse_grounding("# Title\n\nSome words.")
    assert blocks_to_markdown(parsed.blocks) == "# Title\n\nSome words."
    assert {(block.box.x0, block.box.y1) for block in parsed.blocks} == {(0, 1)}
    assert len(parsed.lost) == 1


def test_an_empty_answer_gives_nothing_and_complains_of_nothing():
    for text in ("", " \n", "<｜end▁of▁sentence｜>"):
        assert parse_grounding(text) == parse_grounding("")
    assert parse_grounding("").blocks == () == parse_grounding("").lost


@pytest.mark.parametrize("text", [PAGE, stripped(PAGE)])
def test_a_cut_answer_shows_no_part_of_a_tag(text: str):
    for end in range(len(text)):
        markdown = blocks_to_markdown(parse_grounding(text[:end]).blocks)
        assert not any(part in markdown for part in ("<|", "|>", "[[", "ref|", "det|")), end
        assert not f"\n{markdown}".endswith("\n<"), end


def test_a_table_that_was_cut_is_closed():
    block = only(tag("table", "[[1, 1, 9, 9]]", "<table><tr><td>a</td><td>b</t"))
    assert block.text == "<table><tr><td>a</td><td>b</td></tr></table>"


@pytest.mark.parametrize(
    ("label", "text", "line"),
    [
        ("title", "# One", "# One"),
        ("title", "One", "# One"),
        ("title", "## One", "## One"),
        ("sub_title", "## Two", "## Two"),
        ("sub_title", "#### Four", "#### Four"),
        ("sub_title", "None", "## None"),
        ("Sub-Title", "# One", "## One"),
        ("section_header_level_2", "Two", "### Two"),
        ("text", "## Alone", "## Alone"),
    ],
)
def test_headings_have_one_set_of_marks(label: str, text: str, line: str):
    assert blocks_to_markdown(parse_grounding(tag(label, "[[1, 1, 9, 9]]", text)).blocks) == line


def test_comments_of_a_program_in_a_text_are_no_headings():
    blocks = parse_grounding(tag("text", "[[1, 1, 9, 9]]", "# set up\nimport os\n# run\nos.fork()")).blocks
    assert blocks_to_markdown(blocks) == "\\# set up\nimport os\n\\# run\nos.fork()"


def test_a_formula_without_marks_gets_them():
    assert only(tag("equation", "[[1, 1, 9, 9]]", "x = \\frac{a}{b}")).text == "$$\nx = \\frac{a}{b}\n$$"
    assert only(tag("equation", "[[1, 1, 9, 9]]", "\\[x\\]")).text == "\\[x\\]"


def test_a_caption_goes_to_the_nearest_figure_and_stays_a_block():
    blocks = parse_grounding(
        tag("image", "[[0, 0, 400, 300]]")
        + tag("image", "[[600, 0, 999, 300]]")
        + tag("image_caption", "[[600, 310, 999, 330]]", "<center>Right</center>")
        + tag("image_caption", "[[0, 310, 400, 330]]", "<center>Left\nside</center>")
    ).blocks
    assert [block.caption for block in blocks] == ["Left side", "Right", "", ""]
    assert [block.text for block in blocks[2:]] == ["Right", "Left side"]


def test_a_caption_of_a_table_is_no_figures():
    blocks = parse_grounding(
        tag("image", "[[0, 0, 400, 300]]") + tag("table_caption", "[[0, 310, 400, 330]]", "Table 1")
    ).blocks
    assert blocks[0].caption == ""


def test_labels_that_nobody_knows_are_text():
    assert only(tag("marginalia", "[[1, 1, 9, 9]]", "x")).kind is BlockKind.TEXT
    blocks = parse_grounding("text[[1, 1, 9, 9]]\na\n\nmarginalia[[1, 1, 9, 9]]\nb").blocks
    assert [(block.label, block.text) for block in blocks] == [("text", "a"), ("marginalia", "b")]


def test_a_line_of_the_page_that_looks_like_a_stripped_tag_stays():
    text = "See the work of\nSmith[[1, 2, 3, 4]]\nand others."
    assert blocks_to_markdown(parse_grounding(text).blocks) == text


def test_text_within_broken_tags_is_kept():
    long = "A whole paragraph that stands where a label should stand, since the model forgot to end the mark. " * 2
    for text in (f"<|ref|>{long}", f"<|ref|>{long}<|/ref|>", f"<|det|>[[1, 1, 9, 9]] {long}", f"<|/ref|>{long}"):
        assert " ".join(blocks_to_markdown(parse_grounding(text).blocks).split()) == long.strip()


def test_spotting_reads_lines_where_labels_stand():
    parsed = parse_spotting(tag("EXIT", "[[1, 1, 9, 9]]") + tag("Open daily", "[[1, 20, 9, 29]]"))
    assert [(block.kind, block.text) for block in parsed.blocks] == [
        (BlockKind.TEXT, "EXIT"),
        (BlockKind.TEXT, "Open daily"),
    ]
    assert parsed.blocks[0].box.y1 == pytest.approx(9 / 999)


A4 = Frame(1654, 2339)  # 200 dpi


SCALES: dict[str, tuple[Scale, tuple[float, float, float, float]]] = {
    "0-999": (from_bins, (0, 0, 999, 999)),
    "0-1000": (from_1000, (0, 0, 1000, 1000)),
    "0-1024": (from_1024, (0, 0, 1024, 1024)),
    "0-500": (from_500, (0, 0, 500, 500)),
    "fractions": (from_fractions, (0, 0, 1, 1)),
    "x y w h": (from_pixel_sizes(A4), (0, 0, 1654, 2339)),
    "resized": (from_resized(A4), (0, 0, 1652, 2352)),
    "canvas": (from_canvas(A4), (108 / 1664, 0, (108 + 1448) / 1664, 1)),
}


@pytest.mark.parametrize("name", SCALES)
def test_the_whole_picture_is_the_whole_page(name: str):
    scale, whole = SCALES[name]
    box = scale(*whole)
    assert box is not None
    assert (box.x0, box.y0, box.x1, box.y1) == pytest.approx((0, 0, 1, 1), abs=1e-9)


@pytest.mark.parametrize("name", SCALES)
@given(numbers=st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 4))
def test_any_numbers_are_a_box_on_the_page_or_none(name: str, numbers: tuple[float, float, float, float]):
    box = SCALES[name][0](*numbers)
    assert box is None or (0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1)


def test_boxes_are_clipped_and_corners_put_in_order():
    assert from_1000(500, 700, -3, 1020) == Box(0, 0.7, 0.5, 1)


@pytest.mark.parametrize("numbers", [(5, 5, 5, 9), (5, 5, 9, 5), (1000, 0, 1200, 9), (-9, 0, -1, 9)])
def test_a_box_without_an_area_on_the_page_is_none(numbers: tuple[float, float, float, float]):
    assert from_1000(*numbers) is None


@pytest.mark.parametrize("make", [from_pixel_sizes, from_resized, from_canvas])
def test_pixels_of_an_unknown_image_are_no_box(make):
    assert make(NO_FRAME)(0, 0, 9, 9) is None


def test_a_place_and_a_size_in_pixels():
    assert from_pixel_sizes(Frame(1000, 2000))(100, 200, 500, 800) == Box(0.1, 0.1, 0.6, 0.5)
    assert from_pixel_sizes(Frame(1000, 2000))(100, 200, -50, 800) is None


@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((1654, 2339), (1652, 2352)),  # nearest multiples of 28
        ((1680, 2352), (1680, 2352)),  # as it is
        ((42, 42), (56, 56)),  # 1.5 and 2.5 times 28 go to the even one ...
        ((70, 70), (56, 56)),
        ((28, 28), (56, 56)),  # at least 3136 pixels
        ((1, 1), (56, 56)),
        ((10, 400), (28, 392)),
        ((3360, 3360), (3360, 3360)),  # 11,289,600 pixels: the most
        ((3361, 3361), (3360, 3360)),
        ((4000, 6000), (2716, 4088)),
        ((0, 5), (0, 0)),
    ],
)
def test_the_size_that_dots_sees(size: tuple[int, int], resized: tuple[int, int]):
    assert dots_size(*size) == resized


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_dots_image_sides_divide_by_28_and_area_is_in_limits(width: int, height: int):
    across, down = dots_size(width, height)
    assert across % 28 == down % 28 == 0
    assert 3136 <= across * down <= 11_289_600 or min(across, down) == 28


def test_the_canvas_makes_smaller_and_never_larger():
    # 1000 x 1000 stays as it is in the middle: (1664 - 1000) / 2 at the left, (2048 - 1000) / 2 above.
    small = from_canvas(Frame(1000, 1000))(332 / 1664, 524 / 2048, 832 / 1664, 1024 / 2048)
    assert small == Box(0, 0, 0.5, 0.5)
    # 3328 x 2048 becomes 1664 x 1024, with 512 above and below.
    wide = from_canvas(Frame(3328, 2048))(0, 0.25, 0.5, 0.5)
    assert wide == Box(0, 0, 0.5, 0.5)


def test_what_lies_in_the_margin_of_the_canvas_is_clipped():
    scale = from_canvas(Frame(1000, 1000))
    assert scale(0, 0, 1, 1) == WHOLE
    assert scale(0, 0, 0.1, 0.1) is None


def test_copy_of_a_piece_is_left_out():
    piece = tag("text", "[[90, 180, 900, 215]]", "High water at six.")
    parsed = parse_grounding(piece * 3 + tag("text", "[[90, 280, 900, 315]]", "High water at six."))
    assert [block.text for block in parsed.blocks] == ["High water at six."] * 2
    assert parsed.lost == ("2 blocks that repeat another were left out",)


def test_items_of_a_list_without_line_ends_are_apart():
    parsed = parse_grounding(
        tag("text", "[[90, 180, 900, 215]]", "- Boats leave early- The pilot waits.- All is well-known")
    )
    assert [block.text for block in parsed.blocks] == [
        "- Boats leave early",
        "- The pilot waits.",
        "- All is well-known",
    ]
