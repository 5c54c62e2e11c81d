"""The laws of all parsers: any answer is read, in linear time, into sound blocks; cut answers keep their words."""

import itertools
import json
import re
from collections.abc import Callable

import pytest
from any_answers import FRAMES, PIECES, faults_of, pieces_for, words_of
from family_answers import SENTENCE, TITLE, answer_of
from hypothesis import example, given
from hypothesis import strategies as st

from llm_ocr.models.parsers import PARSERS
from llm_ocr.models.parsers.figure_answers import read_class, read_parse
from llm_ocr.models.parsers.html import html_to_markdown
from llm_ocr.models.parsers.markers import parse_grounding
from llm_ocr.models.parsers.otsl import otsl_to_html
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.parsers.repetition import RepetitionWatch, sound_length
from llm_ocr.models.profile import Frame, Profile
from llm_ocr.models.registry import PROFILES
from llm_ocr.results.markdown import blocks_to_markdown

MEBIBYTE = 1 << 20
PAGE = Frame(1654, 2339)
#: One profile for each pair of an answer and the parser that reads it.
FAMILIES = list(
    {
        (answer_of(one), one.parsers.get(one.mode) or one.parsers[""]): one
        for one in PROFILES
        if one.mode != "layout-only"
    }.values()
)
parts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5)
answers = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.tuples(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), st.integers(1, 60)).map(
        lambda p: p[0] * p[1]
    ),
)


@pytest.mark.parametrize("name", PARSERS)
@given(st.data(), st.sampled_from(FRAMES))
def test_parsers_never_raise_and_what_they_give_is_sound(name: str, data: st.DataObject, frame: Frame):
    own = st.lists(st.sampled_from(pieces_for(name)), max_size=40).map("".join)
    text = data.draw(st.one_of(own, own, answers))
    parsed = PARSERS[name](text, frame)
    assert faults_of(text, parsed) == []
    assert PARSERS[name](text, frame) == parsed


@pytest.mark.parametrize("name", PARSERS)
def test_number_with_too_many_digits_for_python_is_tolerated(name: str):
    for piece in (*pieces_for(name), "&#1;", "&#x1;"):
        text = re.sub(r"\d+", "9" * 5000, piece) + "\n\nwords"
        assert faults_of(text, PARSERS[name](text, PAGE)) == []


@pytest.mark.parametrize("profile", FAMILIES, ids=lambda profile: profile.name)
def test_a_cut_answer_keeps_every_sentence_before_the_cut(profile: Profile):
    """Wherever it is cut: what was whole before is on the page."""
    answer, parse = answer_of(profile), profile.parsers.get(profile.mode) or profile.parsers[""]
    assert SENTENCE in answer
    for cut in range(answer.index(TITLE) + len(TITLE), len(answer)):
        parsed = parse(answer[:cut], PAGE)
        assert faults_of(answer[:cut], parsed) == []
        shown = words_of(blocks_to_markdown(parsed.blocks, furniture=True))
        for sentence in (TITLE, SENTENCE):
            assert words_of(sentence) in shown or sentence not in answer[:cut], answer[:cut]


@pytest.mark.parametrize("profile", FAMILIES, ids=lambda profile: profile.name)
@given(st.data())
def test_a_loop_at_the_end_of_an_answer_costs_nothing_before_it(profile: Profile, data: st.DataObject):
    answer, parse = answer_of(profile), profile.parsers.get(profile.mode) or profile.parsers[""]
    start = data.draw(st.integers(answer.index(SENTENCE) + len(SENTENCE), len(answer) - 1))
    parsed = parse(answer + answer[start:] * data.draw(st.integers(2, 60)), PAGE)
    assert words_of(SENTENCE) in words_of(blocks_to_markdown(parsed.blocks, furniture=True))


@given(answers)
def test_answers_about_figures_are_read_or_complained_about(text: str):
    data, complaint = read_parse(text)
    assert (data is None) == bool(complaint)
    if data is not None:
        assert json.loads(data)
        data.encode()
    assert read_class(text, ("table", "image")) in ("table", "image", None)


@given(answers, st.integers(1, 200))
def test_the_watch_takes_pieces_of_any_size(text: str, size: int):
    watch = RepetitionWatch()
    for at in range(0, len(text), size):
        watch.feed(text[at : at + size])
    sound = sound_length(text)
    assert sound is None or 0 <= sound < len(text)


@example(["<math display='block'>"] * 3 + ["<|ref|>"], [], 253)
@given(parts, st.lists(st.sampled_from(PIECES), max_size=20), st.integers(1, 300))
def test_what_the_watch_cuts_is_found_to_be_a_loop_afterwards(unit: list[str], before: list[str], size: int):
    text = "".join(before) + "".join(unit) * (14_000 // len("".join(unit)) + 3)
    watch = RepetitionWatch()
    for at in range(0, len(text), size):
        if watch.feed(text[at : at + size]):
            assert sound_length(text[: at + size]) is not None
            break


@given(st.text(alphabet=st.characters(whitelist_categories=["L", "N"]), min_size=1, max_size=60))
def test_words_are_never_lost(words: str):
    text = f"<|ref|>text<|/ref|><|det|>[[1, 2, 30, 40]]<|/det|>\n{words}"
    assert words in blocks_to_markdown(parse_grounding(text).blocks)
    assert words in blocks_to_markdown(parse_grounding(text.replace("[[1, 2", "[[1")).blocks)
    assert words in blocks_to_markdown(parse_plain(words).blocks)


def watch_whole(text: str) -> None:
    watch = RepetitionWatch()
    for at in range(0, len(text), 64):
        watch.feed(text[at : at + 64])


READERS: dict[str, Callable[[str], object]] = {
    **{name: lambda text, parse=parse: parse(text, PAGE) for name, parse in PARSERS.items()},
    "parse": read_parse,
    "watch": watch_whole,
    "sound": sound_length,
}
HARD = [
    "<|ref|>", "<|det|>", "[[", "[", "<table>", "<table</table", "\\[x\n", "$$ a\n\n", "\\end{x}\\begin{align}\n",
    "```x\n", "<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4], ", "text[[1, 2\n", "  - a\n", '{"a":', "</s>", " \n",
    "[[1,2,3,4],[", "|a\n|-\n",
    "<|ref|>image<|/ref|><|det|>[[1,2,3,4]]<|/det|>\n<|ref|>image_caption<|/ref|><|det|>[[1,2,3,5]]<|/det|>x\n",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(600)  # on a busy machine; a quadratic one takes hours for a mebibyte
@pytest.mark.parametrize("reader", READERS)
def test_a_mebibyte_of_anything_is_read_in_linear_time(reader: str):
    for unit in HARD:
        READERS[reader](unit * (MEBIBYTE // len(unit)))


@pytest.mark.long
@pytest.mark.timeout(600)  # on a busy machine; a quadratic one takes hours
@pytest.mark.parametrize("reader", READERS)
def test_much_of_each_piece_of_any_format_is_read_in_linear_time(reader: str):
    for unit in PIECES:
        READERS[reader](f"words {unit}" * (MEBIBYTE // 16 // (6 + len(unit))))
        READERS[reader](unit * (MEBIBYTE // 16 // len(unit)))


#: Characters of an answer that is read in a second, or in hours by a quadratic parser.
LENGTH = 1 << 17
DIV = '<div data-bbox="1 2 3 4" data-label="Text">'
JSON = [
    "[", "{", "}", '"', "\\", ":", ",", '{"a":', '[{"a":"b"', '{"bbox":[1,2,3,4],"text":"x"},', '"a":', '{"', '"}, {"',
    '{"a":"x" y" {"b":[', '{"bbox":[1,2,3,4],"category":"Picture"},', '"    ,   ', '"x"} ', "[1] ", '{"text":"\\t',
    " \n",
]  # fmt: skip
HTML = [
    "<", ">", "&", "&#9", "<!--", "<!d ", '<a "', '<a "<a "', "<a '\"", '<a ""<a "', '<p x="">', '<img alt="x', "</",
    "</p>", "<div>", "</div>", DIV, f"{DIV}x</div>y", f"{DIV}<table>", "<ul><li>a", "<li>", "<table><tr><td>a", "<td>",
    "<tr>", "<b>", "<b> ", "<p><b>a", "<math>", "<math", "</math>", "<chem>x", "<code>a\n", "<pre>", "<h1>a", "<br>",
    "#\n", "`", "a ", "  ", "\n", "<sup>", '<a href="http://a">x', '<p data-bbox="1 2 3 4">x',
    '<img data-bbox="1 2 3 4">', "<hr>",
]  # fmt: skip
TAGS = [
    "<fcel>", "<lcel>", "<ucel><nl>", "<fcel>a<nl>", "<fcel><lcel><nl><ucel><xcel><nl>", "<nl>", "<fcel>a<ucel><nl>",
    "<text>", "</text>", "<caption>", "<picture><caption>", "<otsl>", "<unordered_list>", "<list_item>a", "<loc_1>",
    "<inline>", "<formula>", "<_a_>", "<picture><otsl><fcel>a", "| a ", "|a\n", "$", "$$ a ", "<", "<a",
]  # fmt: skip
MARKS = [
    "![", "![text+](1,2,30,40) a-", "![table+](1,2,3,4)<table><tr><td>a</td></tr></table>", "![a[b]", "](a.png)",
    '<img src="images/bbox_', "<img src='images/bbox_1_2_3_4.jpg'>\n", "<im",
    "![image](1,2,3,4)x\n![caption](1,2,3,4)y\n", "![image](i.png)1,2,3,4", "<!-- Table (1,2,3,4) -->\n", "<!-- a(",
    "\\begin{tabular}", "\\begin{tabular}{c}a&b\\\\\\end{tabular}\n", "\\end{tabular}\\begin{table}", "\\$x",
    "<|det|>text                       ", "text [1,2,3,4]\n", "<|box_start|>1 2 3", "<x_0.1><y_0.1>a", "<class_Text>",
]  # fmt: skip
TABULAR = ["{", "$", "\\(", "a&", "\\\\", "\\multirow{2}{*}{a", "\\textbf{a}", "}"]
HEADS = ["![", "](a.png)", "![a[b]", "![x](page_1_2_3_4.png)\n", "is_table: true\n", "---\n", "]]("]
PLAIN = ["<img>", "</img>", "<img>a</img>", "<img>a\n", "a b c ", "same words, "]
HEAD = "---\nprimary_language: en\nis_rotation_valid: True\nrotation_correction: 0\n---\n"
MARKED = ("lighton", "lighton-2", "ovis", "qwen-markdown", "unlimited", "mineru-layout", "nemotron")
#: The parsers that read answers of each notation, and what such an answer begins with.
NOTATIONS: list[tuple[tuple[str, ...], tuple[str, ...], list[str]]] = [
    (("dots", "surya-layout"), ("", f'[{{"text":"{DIV}<text>'), JSON),
    (("chandra", "qwen-html", "HTML to Markdown"), ("", f'[{{"text":"{DIV}<text>'), HTML),
    (("doctags", "otsl", "paddle-chart", "formula"), ("", f'[{{"text":"{DIV}<text>'), TAGS),
    (("wide table",), ("<fcel>" * 10_000 + "<nl>",), TAGS),
    (MARKED, ("",), MARKS),
    (
        MARKED,
        ("\\begin{tabular}{c}",),
        TABULAR,
    ),
    (("front-matter",), ("", HEAD), HEADS),
    (("nanonets", "glm", "hunyuan"), ("", "```md\n```\nx\n"), [*PLAIN, "```md\n"]),
]
STRUCTURED: dict[str, Callable[[str], object]] = {
    **READERS,
    "HTML to Markdown": html_to_markdown,
    "wide table": otsl_to_html,
}


@pytest.mark.slow
@pytest.mark.timeout(600)  # on a busy machine; a quadratic one takes hours
@pytest.mark.parametrize("name", dict.fromkeys(name for names, _, _ in NOTATIONS for name in names))
def test_a_long_answer_of_anything_is_read_in_linear_time(name: str):
    for names, starts, units in NOTATIONS:
        for start, unit in itertools.product(starts, units if name in names else ()):
            STRUCTURED[name](start + unit * (LENGTH // len(unit)))
