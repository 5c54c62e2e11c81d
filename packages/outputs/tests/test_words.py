"""Places of words: the stored text, word by word, on the lines that were found on the page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.types import Block, BlockKind, Box, Line, OcrLine, OcrText, PageContent, Span, Word
from llm_ocr_outputs.words import block_text, formula_text, found_by_ocr, found_in_layer, placed_words

PAGE = Box(0, 0, 1, 1)


def layer(*lines, width=100, height=100):
    """Return a page of `width` x `height` with words 2 units wide per letter, and a height of 3 units."""
    made = []
    for text, x, y in lines:
        words, at = [], x
        for word in text.split():
            words.append(Word(word, Box(at, y, at + 2 * len(word), y + 3)))
            at += 2 * len(word) + 1
        made.append(Line(text, Box(x, y, at - 1, y + 3), 3, tuple(words)))
    return found_in_layer(PageContent(width, height, tuple(made)))


def text(words, box=PAGE, kind=BlockKind.TEXT, **more):
    return Block(kind, box, words, **more)


def words_of(blocks):
    return [word for block in blocks for line in block.lines for word in line.words]


def texts_of(blocks):
    return [word.text for word in words_of(blocks)]


def place(blocks, word):
    return next(one for one in words_of(blocks) if one.text == word)


def test_a_word_has_the_box_of_the_same_word_on_the_page():
    found = layer(("The quick brown fox", 10, 10), ("jumps over the lazy dog", 10, 20))
    blocks = placed_words([text("The **quick** brown fox\njumps over the *lazy* dog")], found)
    assert texts_of(blocks) == ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]
    assert place(blocks, "lazy").box == Box(0.37, 0.2, 0.45, 0.23)
    assert all(word.aligned for word in words_of(blocks))
    assert [len(line.words) for line in blocks[0].lines] == [4, 5]


def test_columns_in_another_order_keep_their_words():
    left = [("one small river", 5, 10), ("runs past the", 5, 20), ("old stone mill", 5, 30)]
    right = [("two large ships", 55, 10), ("carry iron ore", 55, 20), ("to other ports", 55, 30)]
    across = layer(*[line for pair in zip(left, right, strict=True) for line in pair])
    blocks = placed_words([text("\n".join(line[0] for line in side)) for side in (left, right)], across)
    assert place(blocks, "stone").box.x0 < 0.5 < place(blocks, "two").box.x0
    assert [word.box.y0 for word in words_of(blocks[1:])] == pytest.approx([0.1] * 3 + [0.2] * 3 + [0.3] * 3)


def test_repeated_text_is_placed_in_its_own_block():
    heading, footer = Box(0, 0.05, 1, 0.15), Box(0, 0.85, 1, 0.95)
    found = layer(("Annual report of the works", 10, 90), ("Annual report of the works", 10, 10))
    blocks = placed_words([text("Annual report of the works", box) for box in (heading, footer)], found)
    assert [block.lines[0].box.y0 for block in blocks] == [0.1, 0.9]


def test_a_broken_word_has_a_part_on_each_line():
    found = layer(("an inter-", 10, 10), ("national affair", 10, 20))
    blocks = placed_words([text("an international affair")], found)
    first, second = place(blocks, "inter"), place(blocks, "national")
    assert (first.continues, second.continues) == (True, False)
    assert first.box.y0 == pytest.approx(0.1) and second.box.y0 == pytest.approx(0.2)


def test_a_misread_word_has_the_room_between_its_neighbors():
    found = layer(("the total amonnl is payable today", 10, 10))
    blocks = placed_words([text("the total amount is payable today")], found)
    word = place(blocks, "amount")
    assert not word.aligned
    assert word.box == Box(0.28, 0.1, 0.4, 0.13)


def test_cells_of_a_table_have_the_places_of_their_columns():
    found = layer(("tin", 10, 10), ("zinc", 10, 20), ("7", 50, 10), ("12", 50, 20), ("7", 80, 10), ("7", 80, 20))
    table = "| tin | 7 | 7 |\n|---|---|---|\n| zinc | 12 | 7 |"
    blocks = placed_words([text(table, Box(0.05, 0.05, 0.95, 0.3), BlockKind.TABLE)], found)
    assert [(word.text, word.box.x0, word.box.y0) for word in words_of(blocks)] == [
        *(("tin", 0.1, 0.1), ("7", 0.5, 0.1), ("7", 0.8, 0.1)),
        *(("zinc", 0.1, 0.2), ("12", 0.5, 0.2), ("7", 0.8, 0.2)),
    ]


def test_numbers_that_ocr_joined_are_placed_apart():
    # OCR left out the spaces in numbers, and the digits of a row are also those of other rows.
    rows = [["8 942", "1 264"], ["7 606", "8 301"], ["1 330", "7 942"]]
    found = layer(*((row[n].replace(" ", ""), x, 10 * y) for n, x in ((0, 20), (1, 60)) for y, row in enumerate(rows)))
    (table,) = placed_words([text("\n\n".join(map(" ".join, rows)), Box(0, 0, 0.9, 0.4), BlockKind.TABLE)], found)
    places = [(word.text, round(word.box.x0, 2), word.box.y0) for word in words_of([table])]
    assert places == [
        (part, pytest.approx(x + 0.02 * at, abs=0.005), pytest.approx(0.1 * y))
        for y, row in enumerate(rows)
        for cell, x in zip(row, (0.2, 0.6), strict=True)
        for part, at in zip(cell.split(), (0, 1), strict=True)
    ]


def test_a_table_without_a_box_is_read_by_rows():
    names = ["potassium carbonate", "sodium bicarbonate", "magnesium sulfate"]
    first = [(name, 10, 10 * n) for n, name in enumerate(names, 1)]
    second, third = (
        [(text, x, 10 * n) for n, text in enumerate(column, 1)] for x, column in ((60, "778"), (80, "787"))
    )
    found = layer(*first, *second, *third)  # column by column
    rows = "\n".join(f"| {name} | {a} | {b} |" for name, a, b in zip(names, "778", "787", strict=True))
    blocks = placed_words([text(f"| salt | a | b |\n|---|---|---|\n{rows}", kind=BlockKind.TABLE)], found)
    numbers = [(word.text, word.box.x0, word.box.y0) for word in words_of(blocks) if word.text.isdigit()]
    assert numbers == [
        *(("7", 0.6, 0.1), ("7", 0.8, 0.1), ("7", 0.6, 0.2)),
        *(("8", 0.8, 0.2), ("8", 0.6, 0.3), ("7", 0.8, 0.3)),
    ]


def test_text_of_right_to_left_lines_is_placed_from_the_right():
    words = ["שלום", "עולם", "יפה"]
    line = OcrLine(" ".join(words), Box(0.2, 0.1, 0.8, 0.15), 0.9)
    blocks = placed_words([text(" ".join(words))], found_by_ocr(OcrText((line,), frozenset()), 1.0))
    assert blocks[0].lines[0].direction == "left"
    starts = [word.box.x1 for word in words_of(blocks)]
    assert starts == sorted(starts, reverse=True) and starts[0] == pytest.approx(0.8)


def test_stacked_columns_divide_a_sentence_without_spaces():
    columns = [("縦書きの日本語文章です", 80), ("次の行もここに続きます", 70)]
    lines = tuple(
        Line(words, Box(x, 10, x + 5, 90), 5, (Word(words, Box(x, 10, x + 5, 90)),), stacked=True)
        for words, x in columns
    )
    blocks = placed_words([text("".join(words for words, _ in columns))], found_in_layer(PageContent(100, 100, lines)))
    assert texts_of(blocks) == [words for words, _ in columns]
    assert {line.direction for line in blocks[0].lines} == {"down"}
    assert [word.continues for word in words_of(blocks)] == [True, False]


def test_a_block_without_found_text_fills_its_box():
    box = Box(0.2, 0.4, 0.8, 0.6)
    blocks = placed_words([text("one two three four five six seven eight " * 6, box)], [], aspect=0.7)
    assert len(blocks[0].lines) > 1
    for word in words_of(blocks):
        assert box.x0 <= word.box.x0 < word.box.x1 <= box.x1 + 1e-9 and not word.aligned
        assert box.y0 <= word.box.y0 < word.box.y1 <= box.y1 + 1e-9


def test_lines_that_ocr_cannot_read_are_places():
    box = Box(0.1, 0.1, 0.9, 0.4)
    unread = tuple(OcrLine("\ufffd" * 20, Box(0.1, y, 0.9, y + 0.05), 0.0) for y in (0.1, 0.2, 0.3))
    blocks = placed_words(
        [text("Καλημέρα κόσμε του ελληνικού κειμένου εδώ", box)], found_by_ocr(OcrText(unread, frozenset()), 1)
    )
    assert {line.box.y0 for line in blocks[0].lines} == {0.1, 0.2, 0.3}


def test_a_page_without_boxes_and_lines_is_the_box():
    blocks = placed_words([text("alone on the page")], [])
    assert texts_of(blocks) == ["alone", "on", "the", "page"]
    assert all(word.box.area > 0 for word in words_of(blocks))


def test_unsupported_words_are_marked_and_no_others():
    block = text("the *old* price was 42 dollars")
    start = block.text.index("42")
    blocks = placed_words([block], [], unsupported=[Span(0, start, start + 2)])
    assert [word.text for word in words_of(blocks) if word.unsupported] == ["42"]


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (text("Two", kind=BlockKind.HEADING, level=2), "Two"),
        (text("a [link](https://example.org) and `code`"), "a link and code"),
        (text("<table><tr><td>a</td><td>b<br>c</td></tr></table>", kind=BlockKind.TABLE), "a b c"),
        (text(r"\frac{a}{\alpha} \leq \sin x", kind=BlockKind.FORMULA, label="latex"), "a α ≤ sin x"),
        (text("", kind=BlockKind.FIGURE, inside="axis <1>", described="a chart"), "axis <1>"),
        (text("if a < b:\n    # no heading", kind=BlockKind.CODE), "if a < b: # no heading"),
        (text("7", kind=BlockKind.PAGE_NUMBER), "7"),
    ],
)
def test_the_text_of_a_block_has_no_marks(block, shown):
    assert block_text(block) == shown


def test_greek_letters_of_formulas_are_letters():
    assert formula_text(r"\Delta E = \hbar\omega_{0}^{2}") == "Δ E = ω02"


WORDS = st.lists(st.sampled_from(["gold", "tin", "42", "—", "été", "שלום", "金属", "a-b", "|", "**b**"]), max_size=30)
BOXES = st.sampled_from([PAGE, Box(0.1, 0.1, 0.5, 0.3), Box(0.5, 0.6, 0.9, 0.9), Box(0.3, 0.3, 0.3, 0.3)])


@given(st.lists(st.tuples(WORDS, BOXES, st.sampled_from(BlockKind)), max_size=4), st.lists(WORDS, max_size=6))
def test_no_word_is_lost_or_leaves_the_page(blocks, lines):
    made = [text(" ".join(words), box, kind) for words, box, kind in blocks]
    found = layer(*((" ".join(words), 10, 10 * n) for n, words in enumerate(lines)), width=200)
    placed = placed_words(made, found)
    assert [one.block for one in placed] == made
    for block, one in zip(made, placed, strict=True):
        assert "".join(texts_of([one])) == "".join(block_text(block).split())
    for word in words_of(placed):
        assert 0 <= word.box.x0 <= word.box.x1 <= 1 and 0 <= word.box.y0 <= word.box.y1 <= 1
