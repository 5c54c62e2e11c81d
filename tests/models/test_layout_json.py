"""Layouts in JSON become blocks, whole, cut or broken as they may be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.engines import Completion, Finish
from llm_ocr.engines.vlm.retry import judge_page
from llm_ocr.models.parsers.layout_json import (
    MOST_UNREAD,
    parse_dots,
    parse_dots_layout_only,
    parse_json,
    parse_surya_layout,
)
from llm_ocr.models.profile import Frame, Parsed
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import Block, BlockKind, Box, Reason

WHOLE = Box(0, 0, 1, 1)
# 1654 x 2339 pixels (A4 at 200 dpi) are 1652 x 2352 for the model.
FRAME = Frame(1654, 2339)
PAGE = json.dumps(
    [
        {"bbox": [826, 40, 1600, 60], "category": "Page-header", "text": "The Harbour"},
        {"bbox": [98, 71, 1520, 140], "category": "Title", "text": "# Harbour Log"},
        {"bbox": [98, 150, 1520, 170], "category": "Section-header", "text": "## 1 Tides"},
        {"bbox": [98, 180, 1520, 900], "category": "Picture"},
        {"bbox": [98, 940, 1520, 1010], "category": "Caption", "text": "Figure 3. Tide gauge"},
        {"bbox": [98, 1020, 800, 1100], "category": "Text", "text": 'It said "high"\nat \\(t = 0\\), {or} [so].'},
        {"bbox": [98, 1110, 800, 1130], "category": "List-item", "text": "- the harbour"},
        {"bbox": [98, 1130, 800, 1150], "category": "List-item", "text": "- the river"},
        {"bbox": [98, 1160, 800, 1200], "category": "Formula", "text": "h = a \\cos t"},
        {"bbox": [98, 1210, 1500, 1500], "category": "Table", "text": "<table><tr><td>Place</td></tr></table>"},
        {"bbox": [98, 2200, 1500, 2240], "category": "Footnote", "text": "1 At noon."},
        {"bbox": [98, 2300, 1500, 2330], "category": "Page-footer", "text": "17"},
    ]
)
MARKDOWN = """# Harbour Log

## 1 Tides

Figure 3. Tide gauge

It said "high"
at \\(t = 0\\), {or} [so].

- the harbour
- the river

$$
h = a \\cos t
$$

<table><tr><td>Place</td></tr></table>

1 At noon."""


def piece(text: str | None = "words", category: str = "Text", bbox: object = (1, 1, 500, 500)) -> dict[str, object]:
    return {"bbox": bbox, "category": category, **({} if text is None else {"text": text})}


def read(*pieces: dict[str, object]) -> Parsed:
    return parse_json(json.dumps(pieces))


def only(text: str) -> Block:
    (block,) = parse_json(text).blocks
    return block


def test_a_page_becomes_its_markdown():
    parsed = parse_dots(PAGE, FRAME)
    assert blocks_to_markdown(parsed.blocks) == MARKDOWN
    assert parsed.lost == ()
    figure = parsed.blocks[3]
    assert (figure.kind, figure.label, figure.caption) == (BlockKind.FIGURE, "Picture", "Figure 3. Tide gauge")


def test_boxes_count_pixels_of_the_image_that_the_model_saw():
    box = parse_dots(PAGE, FRAME).blocks[0].box
    assert (box.x0, box.y0, box.x1, box.y1) == pytest.approx((826 / 1652, 40 / 2352, 1600 / 1652, 60 / 2352))


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{PAGE}\n```",
        f"```json\n{PAGE}",
        f'{{"layout": {PAGE}}}',
        f'{{"pages": [{{"page": 1, "elements": {PAGE}}}]}}',
        PAGE[1:-1],
        PAGE[1:-1].replace("}, {", "}\n{"),
        PAGE + "<|im_end|>",
        PAGE.replace(": ", ":\r\n  "),
    ],
    ids=["fence", "open fence", "in an object", "deep", "no list", "lines", "end token", "indented"],
)
def test_what_stands_around_the_list_makes_no_difference(text: str):
    parsed = parse_dots(text, FRAME)
    assert blocks_to_markdown(parsed.blocks) == MARKDOWN
    assert parsed.lost == ()


def test_words_around_the_json_are_left_out_and_named():
    parsed = parse_dots(f"Here is the layout:\n{PAGE}\nThat is all.", FRAME)
    assert blocks_to_markdown(parsed.blocks) == MARKDOWN
    assert parsed.lost == ("text outside of the JSON was left out",)


@pytest.mark.parametrize("text", ["# A page\n\nof words [1] and {2}.", "See [1].", "[Signature]"])
def test_an_answer_without_json_is_markdown(text: str):
    parsed = parse_dots(text, FRAME)
    assert blocks_to_markdown(parsed.blocks) == text
    assert parsed.blocks[0].box == WHOLE
    assert len(parsed.lost) == 1


def test_prose_page_that_shows_some_json_stays_prose():
    text = 'To ask for a page, send the following and wait for the answer of the server:\n\n{"text": "hello"}\n\nDone.'
    assert blocks_to_markdown(parse_dots(text, FRAME).blocks) == text


@pytest.mark.parametrize("text", ["[]", "{}", "```json\n[]\n```", "", '{"layout": []}'])
def test_an_empty_layout_is_an_empty_page(text: str):
    assert parse_dots(text, FRAME).blocks == ()


# --- cut answers


SHORT, REST = json.dumps(json.loads(PAGE)[:4]), json.dumps(json.loads(PAGE)[4:])


@pytest.mark.parametrize("page", [REST, f"```json\n{SHORT}", f'{{"layout": {SHORT}'], ids=["bare", "fence", "object"])
def test_a_cut_answer_keeps_all_blocks_before_the_cut(page: str):
    whole = parse_dots(page, FRAME).blocks
    for end in range(len(page)):
        blocks = parse_dots(page[:end], FRAME).blocks
        begun = page[:end].count('"bbox"')
        assert len(blocks) >= begun - 1, end
        kept = max(begun - 1, 0)
        for block, complete in zip(blocks[:kept], whole[:kept], strict=True):
            assert (block.kind, block.box, block.text) == (complete.kind, complete.box, complete.text), end
        assert not any(part in blocks_to_markdown(blocks) for part in ("bbox", "category", '"text')), end


def test_a_cut_table_is_closed():
    cut = json.dumps([piece("<table><tr><td>a</td><td>b</td></tr></table>", "Table")])
    assert only(cut[: cut.index("b</td>") + 1]).text == "<table><tr><td>a</td><td>b</td></tr></table>"


def test_a_last_block_without_words_is_lost_and_named():
    for end in ("", ', "category": "Text"', ', "category": "Text", "text": "'):
        parsed = parse_json(f'[{json.dumps(piece("a"))}, {{"bbox": [1, 2, 300, 400]{end}')
        assert [block.text for block in parsed.blocks] == ["a"]
        assert parsed.lost == ("the answer ends within a block",)


def test_a_last_picture_needs_no_words():
    parsed = parse_json('[{"bbox": [1, 2, 300, 400], "category": "Picture"')
    assert [block.kind for block in parsed.blocks] == [BlockKind.FIGURE]
    assert parse_json('[{"bbox": [1, 2, 300, 400], "category": "Pict').blocks == ()


def test_numbers_that_may_be_cut_are_no_box():
    assert parse_json('[{"category": "Picture", "bbox": [1, 2, 300, 40').blocks == ()


def test_an_answer_cut_before_its_first_block_says_so():
    for end in range(1, len('[{"bbox": [1, 2')):
        parsed = parse_json('[{"bbox": [1, 2'[:end])
        assert parsed.blocks == ()
        assert parsed.lost


# --- malformed answers


def test_latex_with_single_backslashes_keeps_them():
    latex = r"\alpha \(x\) \frac{1}{2} \beta \times \rho \nu = \theta \underline{b}"
    assert only(json.dumps([piece("TEXT", "Formula")]).replace("TEXT", latex)).text == latex


def test_latex_that_is_also_valid_json_keeps_its_backslashes():
    raw = r'[{"bbox": [1, 1, 9, 9], "category": "Formula", "text": "\frac{1}{2} \times \text{m}"}]'
    assert only(raw).text == "$$\n\\frac{1}{2} \\times \\text{m}\n$$"


def test_line_ends_stay_line_ends_beside_latex():
    raw = r'[{"bbox": [1, 1, 9, 9], "category": "Text", "text": "with \(x\)\nnot all\nu nas\n\tan \u00e9\ud83d\ude00"}]'
    assert only(raw).text == "with \\(x\\)\nnot all\nu nas\n\\tan é😀"


def test_well_escaped_latex_and_line_ends_stay_as_written():
    assert only(json.dumps([piece("$\\nu \\times 2$\ne poi\nu nas\tan")])).text == "$\\nu \\times 2$\ne poi\nu nas\tan"


def test_a_backslash_cut_at_the_end_leaves_nothing():
    for cut in ("\\", "\\u", "\\u00e"):
        assert only('[{"bbox": [1, 1, 9, 9], "category": "Text", "text": "caf' + cut).text == "caf"


@pytest.mark.parametrize(
    "said",
    [
        'He said "yes" twice',
        'a "b", c and "d"',
        '"all of it"',
        'ends in "quotes"',
        'the set {"x"} and more',
        'a "b": c',
    ],
)
def test_quotes_without_backslashes_belong_to_the_text(said: str):
    one, two = json.dumps(piece("first")), json.dumps(piece("last", bbox=[2, 2, 9, 9]))
    parsed = parse_json(f'[{one}, {{"bbox": [3, 3, 9, 9], "category": "Text", "text": "{said}"}}, {two}]')
    assert [block.text for block in parsed.blocks] == ["first", said, "last"]


@pytest.mark.parametrize(
    "between",
    ["} {", "}{", ", {", "", "},, {", "}], [{", "]}, {", "}; {", "}\n```\n```json\n{"],
    ids=["comma", "bare", "brace", "nothing", "two commas", "lists", "bracket", "semicolon", "fences"],
)
def test_blocks_are_told_apart_without_their_delimiters(between: str):
    one, two = json.dumps(piece("One.")), json.dumps(piece("Two.", bbox=[2, 2, 9, 9]))
    text = f"[{one[:-1]}{between}{two[1:]}]" if between else f"[{one[:-1]}, {two[1:]}]"
    assert [block.text for block in parse_json(text).blocks] == ["One.", "Two."]


def test_a_missing_brace_before_a_block_is_mended():
    text = f"[{json.dumps(piece('One.'))}, {json.dumps(piece('Two.', bbox=[2, 2, 9, 9]))[1:]}]"
    assert [block.text for block in parse_json(text).blocks] == ["One.", "Two."]


@pytest.mark.parametrize("bbox", [[1, 2, 3], [], None, "1 2 3", [1, 2, 3, "x"], [5, 5, 5, 5], {}, [1, 2, 3, 10**400]])
def test_unreadable_box_loses_the_box_and_not_the_text(bbox: object):
    parsed = read(piece("All is kept.", bbox=bbox), piece("Next."))
    assert [(block.text, block.box == WHOLE) for block in parsed.blocks] == [("All is kept.", True), ("Next.", False)]
    assert parsed.lost == ("Text: a box that cannot be read",)


def test_figure_without_box_is_named_as_lost_and_words_are_kept():
    parsed = read(piece(None, "Picture", [1, 2, 3]), piece("A chart", "Picture", None))
    assert [(block.kind, block.text) for block in parsed.blocks] == [(BlockKind.TEXT, "A chart")]
    assert parsed.lost == ("Picture: cannot be cut out without a box",) * 2


def test_what_a_model_says_of_a_figure_is_no_text_of_the_page():
    parsed = read(piece("A map of the valley", "Picture"))
    assert (parsed.blocks[0].text, parsed.blocks[0].described) == ("", "A map of the valley")
    assert blocks_to_markdown(parsed.blocks) == ""


@pytest.mark.parametrize(
    "behind",
    [
        '{"bbox": [3, 3, 9, 9], "category": "Text", "text": "the other half is mis',
        '{"bbox": [3, 3, 9, 9], "category": "Te',
        '{"bbox": [1, 2',
        f'{{"bbox": [3, 3, 9, 9], "category": "Code", "text": "f("x", {{"y": 1}})"}}, {json.dumps(piece("Lost."))}]',
    ],
)
def test_an_answer_that_lost_text_is_never_sound(behind: str):
    """The model has ended each by itself: it is no cut at the limit of tokens."""
    judged = judge_page(Completion(f"[{json.dumps(piece('Here.'))}, {behind}", Finish.STOP), parse_json)
    assert (judged.reason, judged.result[0].text) == (Reason.MALFORMED, "Here.")


# --- repetitions


def doubled(text: str, count: int, end: str = "]") -> Parsed:
    pieces = [json.dumps(piece(text, bbox=[1, number, 9, number + 5])) for number in range(count)]
    return parse_json(f"[{', '.join(pieces)}{end}")


def test_a_column_of_the_same_word_is_no_loop():
    assert len(doubled("Yes", 12).blocks) == 12
    assert doubled("Yes", 12).lost == ()


def test_same_text_five_times_in_a_cut_answer_is_a_named_loop():
    assert len(doubled("Yes", 4, end=", {").blocks) == 4
    parsed = doubled("Yes", 5, end=", {")
    assert [block.text for block in parsed.blocks] == ["Yes"]
    assert "4 blocks that repeat another were left out" in parsed.lost


def test_the_same_box_twice_in_a_cut_answer_is_a_loop_and_named():
    one, two = json.dumps(piece("One.")), json.dumps(piece("Two."))
    assert [block.text for block in parse_json(f"[{one}, {two}]").blocks] == ["One.", "Two."]
    cut = parse_json(f"[{one}, {two}, {{")
    assert [block.text for block in cut.blocks] == ["One."]
    assert cut.lost == ("the answer ends within a block", "1 blocks that repeat another were left out")


def test_a_fault_elsewhere_does_not_make_a_loop_of_texts():
    """A form has the same word in many places, and a table and its caption may have one box."""
    pieces = [piece("Yes", bbox=[1, at, 9, at + 5]) for at in range(6)] + [piece("Rye", "Table"), piece("Table 1")]
    for fault in (f'[{json.dumps(pieces)[1:-1]}, {{"text": "a "b" c"}}]', json.dumps(pieces)[:-1]):
        assert [block.text for block in parse_json(fault).blocks][:8] == ["Yes"] * 6 + ["Rye", "Table 1"]


def test_block_that_repeats_another_exactly_is_shown_once():
    parsed = read(piece("One."), piece("One."), piece("Two.", bbox=[3, 3, 9, 9]))
    assert [block.text for block in parsed.blocks] == ["One.", "Two."]
    assert parsed.lost == ("1 blocks that repeat another were left out",)


# --- other models and modes


def test_layout_without_text_gives_kinds_and_boxes():
    parsed = parse_dots_layout_only(
        '[{"bbox": [0, 0, 1652, 1176], "category": "Section-header"}, {"bbox": [1, 2, 3], "category": "Text"}]', FRAME
    )
    assert [(block.kind, block.box, block.text) for block in parsed.blocks] == [
        (BlockKind.HEADING, Box(0, 0, 1, 0.5), "")
    ]
    assert parsed.lost == ("Text: a box that cannot be read",)


def test_surya_layout_has_kinds_and_boxes_and_names_a_cut_block():
    parsed = parse_surya_layout(
        '[{"label":"Figure","bbox":"80 120 500 480","count":0},{"label":"Page-Footer","bbox":"1 990 9 999","count":12},'
        '{"label":"Tab'
    )
    assert [(block.kind, block.box) for block in parsed.blocks] == [
        (BlockKind.FIGURE, Box(0.08, 0.12, 0.5, 0.48)),
        (BlockKind.FOOTER, Box(0.001, 0.99, 0.009, 0.999)),
    ]
    assert parsed.lost == ("the answer ends within a block",)


def test_a_layout_without_text_of_a_page_of_words_is_empty():
    assert parse_surya_layout("There is a table on the page.").blocks == ()


def test_labels_that_nobody_knows_and_none_at_all_are_text():
    blocks = read(piece("a", "Marginalia"), {"bbox": [1, 1, 9, 9], "text": "# b"}).blocks
    assert [(block.kind, block.text) for block in blocks] == [(BlockKind.TEXT, "a"), (BlockKind.TITLE, "b")]


def test_a_broken_piece_of_most_of_the_answer_leaves_the_others():
    text = json.dumps([piece("first"), piece("long " * 50, bbox=[1, 11, 9, 19])]).replace("9, 19]", "9, 19]}]")
    parsed = parse_json(text)
    assert [block.text for block in parsed.blocks] == ["first"]
    assert MOST_UNREAD in parsed.lost
    answer = Completion(text.replace('"first"', '"first"}, {"text": "a"}, {"text": "b"}, {"text": "c"', 1), Finish.STOP)
    verdict = judge_page(answer, lambda text, _: parse_json(text), None)
    assert (verdict.reason, MOST_UNREAD in verdict.detail) == (Reason.MALFORMED, True)


@pytest.mark.parametrize("twice", [False, True], ids=["missing", "doubled"])
def test_a_wrong_mark_of_json_costs_no_text(twice: bool):
    text = json.dumps([piece(f"{word} of the page", bbox=[1, at, 9, at + 8]) for at, word in enumerate(("One", "Two"))])
    for at in (at for at, mark in enumerate(text) if mark in '[]{},:"'):
        broken = text[:at] + text[at] * 2 * twice + text[at + 1 :]
        shown = [block.text.removesuffix("}]").strip('"') for block in parse_json(broken).blocks]  # no or two ends
        if twice or not text[:at].endswith('"text": '):  # without it, the words may be keys
            assert shown == ["One of the page", "Two of the page"], broken


# --- anything

words = st.text(alphabet=st.characters(whitelist_categories=["L", "N"]), min_size=1, max_size=30)


@given(st.lists(words, min_size=1, max_size=6, unique=True), st.data())
def test_missing_character_anywhere_costs_at_most_one_block(said: list[str], data):
    pieces = [piece(f"{text}.", bbox=[1, 10 * at + 1, 9, 10 * at + 9]) for at, text in enumerate(said)]
    text = json.dumps(pieces)
    at = data.draw(st.integers(0, len(text) - 1))
    broken = text[:at] + text[at + 1 :]
    shown = "".join(block.text for block in parse_json(broken).blocks)
    missing = [word for word in said if word not in shown]
    assert len(missing) <= 1, broken


def test_layout_with_single_quotes_is_read():
    text = "[{'bbox': [98, 71, 1520, 140], 'category': 'Text', 'text': \"The captain's boat\"}]"
    assert [block.text for block in parse_dots(text, FRAME).blocks] == ["The captain's boat"]
    assert parse_dots(text[:-9], FRAME).lost


@pytest.mark.parametrize(
    "box",
    [
        "[100, 50, 900, 90]",
        '"100, 50, 900, 90"',
        '"100 50 900 90"',
        '"[100, 50, 900, 90]"',
        '["100", "50", 900, 90.0]',
        "[900, 90, 100, 50]",
        "[[100, 50], [900, 90]]",
        "[100, 50, 900, 50, 900, 90, 100, 90]",
        "[[100, 50], [900, 50], [900, 90], [100, 90]]",
        '{"x1": 100, "y1": 50, "x2": 900, "y2": 90}',
        '{"left": 100, "top": 50, "width": 800, "height": 40}',
        "[0.1, 0.05, 0.9, 0.09]",
    ],
)
def test_boxes_of_any_notation_are_read(box: str):
    [block] = parse_json(f'[{{"bbox": {box}, "category": "text", "text": "Rye is at nine."}}]').blocks
    assert (block.text, block.box) == ("Rye is at nine.", Box(0.1, 0.05, 0.9, 0.09))


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ('"text": ["rye", "oats"]', "rye\noats"),
        ('"text": {"de": "Roggen"}', "Roggen"),
        ('"text_content": "rye"', "rye"),
        ('"transcription": "rye"', "rye"),
        ('"items": [{"text": "rye"}, {"text": "oats"}]', "rye\n\noats"),
    ],
)
def test_texts_of_any_form_are_kept(text: str, markdown: str):
    parsed = parse_json(f'[{{"bbox": [100, 50, 900, 90], "category": "text", {text}}}]')
    assert (blocks_to_markdown(parsed.blocks), parsed.lost) == (markdown, ())
    assert {block.box for block in parsed.blocks} == {Box(0.1, 0.05, 0.9, 0.09)}


@pytest.mark.parametrize(
    "text",
    [
        '"\\\\begin{tabular}{lr} Rye & 9.10 \\\\\\\\ Oats & 6 \\\\end{tabular}"',
        '"<fcel>Rye<fcel>9.10<nl><fcel>Oats<fcel>6<nl>"',
        '[["Rye", "9.10"], ["Oats", 6]]',
    ],
)
def test_tables_of_any_form_become_html(text: str):
    [table] = parse_json(f'[{{"bbox": [100, 50, 900, 90], "category": "table", "text": {text}}}]').blocks
    assert table.text == "<table><tr><td>Rye</td><td>9.10</td></tr><tr><td>Oats</td><td>6</td></tr></table>"


def test_lists_and_strings_in_place_of_objects_are_read():
    rows = '[[[100, 50, 900, 90], "title", "Flour"], [[100, 120, 900, 200], "text", "Rye is at nine."]]'
    for answer in (rows, json.dumps(rows)):
        assert blocks_to_markdown(parse_json(answer).blocks) == "# Flour\n\nRye is at nine."


def test_deep_texts_raise_nothing():
    parse_json('[{"bbox": [1, 2, 3, 4], "text": ' + "[" * 50_000)
