"""Passages: where documents are cut, and that nothing is lost."""

import re
from dataclasses import replace
from itertools import chain, pairwise

import pytest
from chunk_pages import block, chunks, page, texts
from hypothesis import given
from hypothesis import strategies as st
from made import ANY_TEXT, picture, record

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.results.schema import box_value
from llm_ocr.types import FURNITURE, BlockKind, Box, Figure, FigureRecord, Status
from llm_ocr_outputs.exports.chunk_text import sentences, split_table, words
from llm_ocr_outputs.exports.chunks import document_parts

BOX = Box(0.1, 0.1, 0.9, 0.2)


LOREM = "The river rose in the night. Nobody saw it. The farms were told at dawn, and the board was chalked."


def test_headings_begin_passages_and_stay_with_what_follows():
    long = " ".join([LOREM] * 3)
    found = chunks(
        page(1, block("title", "Rivers"), block("text", long), block("heading", "Floods", 1), block("text", long)),
        size=600,
    )
    assert [chunk.text.split("\n")[0] for chunk in found] == ["# Rivers", "## Floods"]
    assert [chunk.heading_path for chunk in found] == [["Rivers"], ["Rivers", "Floods"]]
    assert [chunk.index for chunk in found] == [0, 1]


def test_small_sections_of_one_parent_share_a_passage():
    rows = page(
        1, block("heading", "A", 1), block("text", "one"), block("heading", "B", 1), block("text", "two"),
        block("heading", "C", 2), block("text", "three"), block("heading", "D", 1), block("text", "four"),
    )  # fmt: skip
    found = chunks(rows)
    assert [chunk.text for chunk in found] == ["## A\n\none\n\n## B\n\ntwo\n\n### C\n\nthree", "## D\n\nfour"]
    assert [chunk.heading_path for chunk in found] == [[], ["D"]]


def test_a_heading_is_never_the_last_of_a_passage():
    rows = page(1, block("text", "x" * 80), block("heading", "Next", 1), block("text", "y" * 80))
    assert texts(rows, size=100) == ["x" * 80, f"## Next\n\n{'y' * 80}"]


def test_paragraphs_stay_whole_or_are_cut_between_sentences():
    rows = page(1, block("text", LOREM), block("text", " ".join([LOREM] * 4)))
    found = texts(rows, size=150)
    assert found[0].startswith(LOREM + "\n\nThe river rose")
    assert all(text.endswith(".") for text in found)
    assert " ".join(" ".join(found).split()) == " ".join([LOREM] * 5)


def test_sentence_over_the_limit_is_cut_between_words_only():
    long = "x" * 130
    found = texts(page(1, block("text", f"one two {'three ' * 30}{long} four")), size=100)
    assert long in found
    assert all(len(text) <= 100 for text in found if text != long)


def test_lists_are_cut_by_item_and_keep_what_introduces_them():
    items = [block("list_item", f"- item {number} " + "word " * 10) for number in range(6)]
    found = texts(page(1, block("text", "x" * 130), block("text", "These are the rules:"), *items), size=200)
    assert found[1].startswith("These are the rules:\n\n- item 0")
    assert all(text.count("- item") == text.count("word") / 10 for text in found)


def test_table_is_cut_between_rows_and_keeps_caption_and_headers():
    lines = ["| name | level |", "| --- | --- |", *(f"| gauge {n} | {n}.00 m |" for n in range(40))]
    rows = page(1, block("text", LOREM), block("caption", "Table 1: Levels."), block("table", "\n".join(lines)))
    found = texts(rows, size=300)
    assert found[1].startswith("Table 1: Levels.\n\n| name | level |")
    tables = [text[text.index("| name") :].split("\n") for text in found[1:]]
    assert all(table[:2] == lines[:2] for table in tables)
    assert [row for table in tables for row in table[2:]] == lines[2:]
    assert all(len(text) <= 300 for text in found)


def test_a_table_in_html_is_cut_into_tables_and_no_row_is_lost():
    head = "<thead><tr><th>name</th><th>level</th></tr></thead>"
    cells = [f"<tr><td>gauge {n}</td><td><b>{n}</b></td></tr>" for n in range(30)]
    whole = f'<table border="1"><caption>Levels</caption>{head}<tbody>{"".join(cells)}</tbody></table>'
    parts = split_table(whole, 300, 300, len)
    assert all(part.startswith('<table border="1">') and part.endswith("</table>") for part in parts)
    assert all(part.count("<tr><th>name") == 1 and len(part) <= 300 for part in parts)
    assert [row for part in parts for row in re.findall("<tr><td>.*?</tr>", part)] == cells
    assert sum("Levels" in part for part in parts) == 1


def test_rows_that_share_a_cell_stay_together():
    rows = "".join(f'<tr><td rowspan="2">g{n}</td><td>a{n}</td></tr><tr><td>b{n}</td></tr>' for n in range(20))
    parts = split_table(f"<table>{rows}</table>", 250, 250, len)
    heads = [re.findall(r"g(\d+)", part) for part in parts]
    assert len(parts) > 2 and list(chain.from_iterable(heads)) == [str(n) for n in range(20)]
    assert heads == [re.findall(r"b(\d+)", part) for part in parts]


def test_large_rows_sharing_a_cell_are_split_and_none_is_lost():
    rows = '<tr><td rowspan="30">all</td><td>a0</td></tr>' + "".join(f"<tr><td>a{n}</td></tr>" for n in range(1, 30))
    parts = split_table(f"<table>{rows}</table>", 250, 250, len)
    assert all(len(part) <= 250 for part in parts)
    assert [row for part in parts for row in re.findall(r"a(\d+)", part)] == [str(n) for n in range(30)]


def test_a_row_beyond_the_limit_is_a_passage_of_its_own():
    lines = ["| a |", "| --- |", "| small |", f"| {'x ' * 200}|", "| last |"]
    found = texts(page(1, block("table", "\n".join(lines))), size=100)
    assert [line for text in found for line in text.split("\n") if line not in lines[:2]] == lines[2:]
    assert sum(len(text) > 100 for text in found) == 1


def test_code_is_cut_between_lines_and_fenced_again():
    code = "\n".join(f"call({number})  # {'x' * 20}" for number in range(20))
    found = texts(page(1, block("code", code)), size=200)
    assert all(text.startswith("```\ncall") and text.endswith("\n```") for text in found)
    assert "\n".join(text.removeprefix("```\n").removesuffix("\n```") for text in found) == code


def figure_page(described="A map of the river.", caption="Figure 1: The river."):
    figure = Figure("doc-p00001-f01", "image", BOX, picture(), caption)
    blocks = (
        block("text", LOREM), block("figure", "", figure_id=figure.id, caption=caption), block("caption", caption)
    )  # fmt: skip
    row = page(1, *blocks)
    told = FigureRecord(figure.id, "doc-p00001", "doc", Status.OK, "describe", description=described)
    return DatasetRow(replace(row.record, figures=(figure,)), row.final_markdown, {figure.id: told})


def test_figure_stays_with_description_and_caption_and_is_named():
    first, second = chunks(figure_page(), size=110)
    assert first.figures == []
    assert second.text == "[Figure: A map of the river.]\n\nFigure 1: The river."
    assert second.kinds == ["figure", "caption"]
    (figure,) = second.figures
    assert (figure["id"], figure["description"]) == ("doc-p00001-f01", "A map of the river.")
    assert figure["image"] == "documents/a.pdf.figures/doc-p00001-f01.png"


@pytest.mark.parametrize("told", ["Figure 1: the river", "The river.", LOREM])
def test_description_repeating_caption_or_page_is_left_out(told):
    (found,) = chunks(figure_page(told))
    assert found.text == f"{LOREM}\n\nFigure 1: The river."


def test_a_figure_of_which_nothing_is_known_is_still_named():
    (found,) = chunks(figure_page("", ""))
    assert found.text == LOREM
    assert [figure["id"] for figure in found.figures] == ["doc-p00001-f01"]


def test_furniture_and_failed_pages_are_left_out():
    rows = (
        page(1, block("header", "HEAD"), block("text", "body"), block("page_number", "1")),
        DatasetRow(record(2, status=Status.FAILED, blocks=(), markdown=""), ""),
        DatasetRow(record(None, status=Status.FAILED, blocks=(), markdown="", figures=0), ""),
    )
    assert texts(*rows) == ["body"]


def test_a_paragraph_that_goes_on_over_the_page_is_joined():
    first = page(1, block("text", "The board was read at seven in the morn-"), block("footnote", "1 Mostly."))
    second = page(2, block("header", "HEAD"), block("text", "ing and seven in the evening."), block("text", "Then."))
    (found,) = chunks(first, second)
    assert found.text.startswith("The board was read at seven in the morning and seven in the evening.\n\n1 Mostly.")
    assert (found.page_first, found.page_last) == (1, 2)
    assert {box["page"] for box in found.boxes} == {1, 2}


@pytest.mark.parametrize(
    ("end", "begin", "number"), [("It ends.", "it goes", 2), ("no end", "Capital", 2), ("no end", "it goes", 3)]
)
def test_other_paragraphs_are_not_joined(end, begin, number):
    rows = page(1, block("text", end)), page(number, block("text", begin))
    assert texts(*rows) == [f"{end}\n\n{begin}"]


def test_boxes_come_from_blocks_and_only_if_the_model_gave_them():
    known, whole = Box(0.1, 0.3, 0.5, 0.4), Box(0, 0, 1, 1)
    (found,) = chunks(page(3, block("text", "one", box=known), block("text", "two", box=whole)))
    assert found.boxes == [{"page": 3, **box_value(known)}]


def test_sentences_of_previous_passage_repeat_within_a_section():
    rows = page(1, block("heading", "Floods", 1), block("text", " ".join(f"Sentence {n} is here." for n in range(30))))
    found = chunks(rows, size=120, overlap=50)
    assert len(found) > 3
    for before, after in pairwise(found):
        assert after.overlap > 0
        assert before.text.endswith(after.text[: after.overlap].rstrip())
        assert after.text.startswith("Sentence")
    assert all(chunk.size <= 120 for chunk in found)


def test_nothing_is_repeated_over_a_heading_or_after_a_table():
    long = " ".join([LOREM] * 2)
    section = block("heading", "B", 1), block("text", long), block("table", "| a |\n| - |"), block("text", long)
    found = chunks(page(1, block("text", long), *section), size=220, overlap=100)
    assert [chunk.kinds for chunk in found] == [["text"], ["heading", "text", "table"], ["text"]]
    assert all(chunk.overlap == 0 for chunk in found)


def test_markdown_is_used_where_a_page_has_no_text_blocks():
    figure = Figure("doc-p00001-f01", "image", BOX, picture(), "")
    markdown = "# Rivers\n\nBody.\n\n| a |\n| --- |\n| 1 |\n\n![x](figure:doc-p00001-f01)"
    row = page(1, block("figure", "", figure_id=figure.id), markdown=markdown)
    told = FigureRecord(figure.id, "doc-p00001", "doc", Status.OK, "describe", description="A map.")
    (found,) = chunks(DatasetRow(replace(row.record, figures=(figure,)), markdown, {figure.id: told}))
    assert found.text == "# Rivers\n\nBody.\n\n| a |\n| --- |\n| 1 |\n\n[Figure: A map.]"
    assert found.kinds == ["title", "text", "table", "figure"]
    assert found.boxes == [{"page": 1, **box_value(BOX)}]


def test_what_a_stage_of_the_user_made_of_the_text_counts():
    assert texts(page(1, block("text", "old words"), markdown="new words")) == ["new words"]


def test_ids_stay_with_what_is_said():
    one, two = block("text", "a" * 90), block("text", "b" * 90)
    before = {chunk.text: chunk.id for chunk in chunks(page(1, one, two), size=100)}
    after = {chunk.text: chunk.id for chunk in chunks(page(1, block("text", "c" * 90), one, two), size=100)}
    assert before.items() < after.items()
    same = chunks(page(1, one, one), size=100)
    assert len({chunk.id for chunk in same}) == 2


def test_scripts_without_spaces_are_cut_between_characters():
    found = texts(page(1, block("text", "川は夜に増水した" * 40)), size=100)
    assert "".join(found) == "川は夜に増水した" * 40
    assert max(map(len, found)) == 100


WORDS = st.text("abcdefgh .!?:é川|<>#*\n", min_size=1, max_size=120)


PROSE_KINDS = ["title", "heading", "text", "list_item", "footnote", "formula", "code", "header", "page_number"]


BLOCKS = st.builds(block, st.sampled_from(PROSE_KINDS), WORDS, st.integers(0, 3))


TABLES = st.integers(1, 12).flatmap(
    lambda count: st.just("\n".join(["| a | b |", "| --- | --- |", *(f"| row{n} | {'x' * n} |" for n in range(count))]))
)


SOME_BLOCKS = st.one_of(BLOCKS, st.builds(block, st.just("table"), TABLES), st.builds(block, st.just("caption"), WORDS))


PAGES = st.lists(st.lists(SOME_BLOCKS, max_size=6), min_size=1, max_size=3)


LIMITS = st.tuples(st.integers(40, 400), st.integers(0, 40))


def marks(text):
    """What must not be lost: all but white space, fences, and the hyphens of lists and of words that go on."""
    return [mark for mark in text if not (mark.isspace() or mark in "`-")]


def is_one_thing(text):
    """A word, in a fence perhaps, or a row, of which a header is one with the rule below it."""
    body = text.removeprefix("```\n").removesuffix("\n```").removesuffix("\n| --- | --- |")
    return len(body.split()) == 1 or (body.startswith("|") and "\n" not in body)


def rows_of(pages):
    return [page(number, *blocks) for number, blocks in enumerate(pages, 1)]


@given(st.lists(st.lists(BLOCKS, max_size=6), min_size=1, max_size=3))
def test_every_character_that_is_no_furniture_is_in_a_part(pages):
    kept = [[one for one in blocks if one.kind not in FURNITURE] for blocks in pages]
    whole = "\n".join(blocks_to_markdown([one]) for blocks in kept for one in blocks)
    parts = document_parts(rows_of(pages), "a.pdf")
    assert sorted(marks("".join(part.text for part in parts))) == sorted(marks(whole))


@given(st.lists(st.lists(BLOCKS, max_size=6), min_size=1, max_size=3), LIMITS)
def test_every_character_is_in_a_passage_in_order_and_once(pages, limits):
    rows = rows_of(pages)
    whole = "".join(part.text for part in document_parts(rows, "a.pdf"))
    found = chunks(*rows, size=limits[0], overlap=limits[1])
    assert marks("".join(chunk.text[chunk.overlap :] for chunk in found)) == marks(whole)


@given(PAGES, LIMITS)
def test_passages_keep_limits_table_rows_and_ids(pages, limits):
    found, again = (chunks(*rows_of(pages), size=limits[0], overlap=limits[1]) for _ in range(2))
    assert found == again and len({chunk.id for chunk in found}) == len(found)
    for chunk in found:
        assert chunk.size == len(chunk.text)
        assert chunk.size <= limits[0] or is_one_thing(chunk.text)
    tables = [one.text for blocks in pages for one in blocks if one.kind is BlockKind.TABLE]
    lines = [line for chunk in found for line in chunk.text.split("\n") if line.startswith("| row")]
    assert lines == [line for table in tables for line in table.split("\n")[2:]]


@given(PAGES, st.integers(12, 60))
def test_sizes_are_those_of_any_measure(pages, size):
    def measure(text):
        return len(re.findall(r"\w{1,3}|[^\w\s]", text)) + text.count("\n\n")

    for chunk in chunks(*rows_of(pages), size=size, measure=measure):
        assert chunk.size == measure(chunk.text)
        if chunk.size > size:
            assert is_one_thing(chunk.text)


@pytest.mark.parametrize(
    "parts",
    [
        ["It rose. ", "Nobody saw it! ", "Why? ", '"So." ', "End"],
        ["See Fig. 3 and Dr. Vik, e.g. Table 2. ", "Next one."],
        ["The level was 1.80 m. ", "It fell."],
        ["At 10 p.m. it rained. ", "Then not."],
        ["Er kam z.B. Montag. ", "Dann ging er."],
        ["川は増水した。", "誰も見なかった！", "本当？"],
        ["هل جاء؟ ", "نعم."],
        ["नदी बढ़ी। ", "किसी ने नहीं देखा।"],
        ["It rose.<sup>1, 2</sup> ", "It fell.<sup>3</sup>"],
        ["... and so on . . . . 4"],
    ],
)
def test_sentences_are_parted_where_they_end(parts):
    assert list(sentences("".join(parts))) == parts


@given(ANY_TEXT)
def test_nothing_is_lost(text):
    assert "".join(sentences(text)) == text
    assert "".join(words(text)) == text


@given(st.text("ab 川\n", max_size=80))
def test_words_hold_no_white_space_within(text):
    assert all(len(word.split()) <= 1 for word in words(text))


def test_long_texts_of_one_mark_take_no_longer_than_others():
    for text in ("." * 200_000, ". " * 100_000, "a" * 200_000, " " * 200_000):
        assert "".join(sentences(text)) == text
        assert "".join(words(text)) == text
