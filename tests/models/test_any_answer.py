"""Whatever a model answers: parsers return, soon, and with boxes on the page."""

import json
import re
from collections.abc import Callable

import pytest
from any_answers import FRAMES, PIECES, faults_of, pieces_for, words_of
from family_answers import SENTENCE, TITLE, answer_of
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.models.answers import read_class, read_parse
from llm_ocr.models.grounding import parse_grounding
from llm_ocr.models.parsers import PARSERS as NAMED
from llm_ocr.models.plain import parse_plain
from llm_ocr.models.profile import Frame, Profile
from llm_ocr.models.registry import PROFILES
from llm_ocr.models.repetition import RepetitionWatch, sound_length
from llm_ocr.results.markdown import blocks_to_markdown

PARSERS = {name: one.parse for name, one in NAMED.items()}
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
def test_a_number_of_more_digits_than_python_converts_is_read_over(name: str):
    for piece in (*pieces_for(name), "&#1;", "&#x1;"):
        text = re.sub(r"\d+", "9" * 5000, piece) + "\n\nwords"
        assert faults_of(text, PARSERS[name](text, PAGE)) == []


@pytest.mark.parametrize("profile", FAMILIES, ids=lambda profile: profile.name)
def test_a_cut_answer_keeps_every_sentence_before_the_cut(profile: Profile):
    """Wherever it is cut: what was whole before is on the page."""
    answer, parse = answer_of(profile), profile.parsers.get(profile.mode) or profile.parsers[""]
    for sentence in (TITLE, SENTENCE):
        assert sentence in answer
        for cut in range(answer.index(sentence) + len(sentence), len(answer)):
            parsed = parse(answer[:cut], PAGE)
            assert faults_of(answer[:cut], parsed) == []
            assert words_of(sentence) in words_of(blocks_to_markdown(parsed.blocks, furniture=True)), answer[:cut]


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
    *(
        "<|ref|>",
        "<|det|>",
        "[[",
        "[",
        "<table>",
        "<table</table",
        "\\[x\n",
        "$$ a\n\n",
        "\\end{x}\\begin{align}\n",
        "```x\n",
    ),
    *(
        "<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4], ",
        "text[[1, 2\n",
        "  - a\n",
        '{"a":',
        "</s>",
        " \n",
        "[[1,2,3,4],[",
        "|a\n|-\n",
    ),
    "<|ref|>image<|/ref|><|det|>[[1,2,3,4]]<|/det|>\n<|ref|>image_caption<|/ref|><|det|>[[1,2,3,5]]<|/det|>x\n",
]


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
