"""Loops are cut, pages that repeat themselves by right are not."""

import random

import pytest

from llm_ocr.models.parsers.repetition import RepetitionWatch, sound_length

TEXT = "the harbour was quiet when rain fell on hills and rivers so nobody saw how high water rose that night"
WORDS = TEXT.split()
SOURCE = random.Random(5)


def prose(words: int) -> str:
    return " ".join(SOURCE.choice(WORDS) for _ in range(words)) + ".\n\n"


def grounded(text: str, number: int, label: str = "text") -> str:
    y = 20 + number * 7 % 900
    return f"<|ref|>{label}<|/ref|><|det|>[[{100 + number % 3}, {y}, 900, {y + 9}]]<|/det|>\n{text}\n\n"


BEFORE = prose(250)
PARAGRAPH = prose(120)
LOOPS = {
    "a word": "and so on " * 500,
    "a sentence": "This sentence comes back again and again. " * 100,
    "a paragraph": PARAGRAPH * 14,
    "a line": "Total of all accounts at the end of the year\n" * 100,
    "Chinese": "合同编号" * 500,
    "a paragraph whose boxes go on": "".join(grounded("The same paragraph once more.", n) for n in range(120)),
    "stripped tags": "".join(f"text[[{n}, {n}, 900, {n + 9}]]\nThe same words once more.\n\n" for n in range(120)),
    "LightOn's blocks": "".join(
        f"![text]({n},{n},900,{n + 9}) The same words once more, and once more.\n" for n in range(120)
    ),
    "blocks in JSON": "".join(
        f'{{"bbox": [{n}, {n}, 900, {n + 9}], "category": "Text", "text": "The same words once more."}},'
        for n in range(120)
    ),
    "blocks in HTML": "".join(
        f'<div data-bbox="{n} {n} 900 {n + 9}" data-label="Text"><p>The same words once more.</p></div>'
        for n in range(120)
    ),
    "lines with others between": "".join(
        f"noise {n}\n" if n % 7 == 6 else "The very same line of text stands here\n" for n in range(200)
    ),
    "one letter": "k  " * 420,
    "one letter a line": "W\n" * 800,
    "a kana": "ぬ" * 750,
    "two lines in any order": "".join(
        SOURCE.choice(["Approved by the board\n", "Sent to the archive\n"]) for _ in range(250)
    ),
    "variants of a line in any order": "".join(
        SOURCE.choice(["Marlo Chandlery\n\n", "Marla Chandlery\n\n", "MarloChandlery\n\n", "Merlo Chandlery\n\n"])
        for _ in range(280)
    ),
    "counting": "\n".join(map(str, range(3, 1500))),
    "counted items": "".join(f"Item {n} of the list of the harbour\n" for n in range(1, 400)),
    "a row of a table": "<table>" + "<tr><td>Revenue of the company</td><td>12</td></tr>" * 200,
    "empty cells": "<table><tr>" + "<td></td>" * 2500,
    "rows of empty cells": "<table>" + ("<tr>" + "<td></td>" * 41 + "</tr>\n") * 60,
    "a rule of a pipe table": "| a |\n|" + "---|" * 6000,
    "digits": "0" * 9000,
    "dots": "Contents " + "." * 9000,
}
RIGHT = {
    "an empty form table": "<table>" + ("<tr>" + "<td></td>" * 20 + "</tr>\n") * 50 + "</table>",
    "a table of zeros": "<table>" + ("<tr><td>Row</td>" + "<td>0.00</td>" * 8 + "</tr>") * 50 + "</table>",
    "a table of No": "<table>" + "<tr><td>No</td><td>No</td><td>N/A</td></tr>" * 60 + "</table>",
    "a pipe table of zeros": "| a | b |\n" + "|---" * 60 + "|\n" + ("| 0 " * 20 + "|\n") * 60,
    "a table of contents": "\n".join(f"{n}. About {WORDS[n % 20]} {'. ' * 70}{n * 3}" for n in range(60)),
    "contents with solid leaders": "\n".join(f"Chapter {n} {'.' * 120} {n * 3}" for n in range(60)),
    "lines to write on": ("_" * 90 + "\n") * 50,
    "a list to sign": ("Name: " + "_" * 50 + " Date: " + "_" * 20 + "\n") * 40,
    "answers of one word": "\n".join(["Yes"] * 120),
    "a song with one line": "Heave ho, and round she goes,\n" * 12,
    "a song without words": "la la la la la la, la la la.\n" * 20,
    "a sound": "波の音は" + "ざ" * 60,
    "answers of a survey": "\n".join(SOURCE.choice(["Agree", "Disagree", "Neutral", "No answer"]) for _ in range(120)),
    "a plan of seats": ("o  " * 10 + "\n") * 20,
    "numbers of seats": "\n".join(" ".join(map(str, range(row * 20 + 1, row * 20 + 21))) for row in range(15)),
    "a numbered list": "\n".join(f"{n}. {WORDS[n % 19]} {WORDS[n * 7 % 20]} {n * n}" for n in range(1, 200)),
    "columns of zeros": ("0 " * 10 + "\n") * 80,
    "a matrix of zeros": "\\[\\begin{array}{cccc}" + " 0 & 0 & 0 & 0 \\\\" * 60 + "\\end{array}\\]",
    "a page of icons": "".join(grounded("", n, "image") for n in range(150)),
    "a page of icons without marks": "".join(f"image[[{n}, {n}, {n + 9}, {n + 9}]]\n\n" for n in range(150)),
    "a page of icons by LightOn": "".join(f"![image]({n},{n},{n + 9},{n + 9})\n" for n in range(150)),
    "a page of icons in JSON": "["
    + ",".join(f'{{"bbox": [{n}, {n}, {n + 9}, {n + 9}], "category": "Picture"}}' for n in range(150)),
    "a page of icons in HTML": "".join(
        f'<div data-bbox="{n} {n} {n + 9} {n + 9}" data-label="Image"><img alt=""/></div>' for n in range(90)
    ),
    "links": "".join(
        f"[PDF](https://example.org/{prose(4).split('.')[0].replace(' ', '-')}/{n}.pdf)\n" for n in range(90)
    ),
    "a refrain": "\n\n".join(f"{prose(40)}{'Row, row, row your boat gently down the stream. ' * 3}" for _ in range(6)),
    "a log": "\n".join(
        f"2024-03-{n % 28 + 1:02d} 12:{n % 60:02d} connection to host 10.0.0.{n} refused" for n in range(90)
    ),
    "labels of one address": "Mrs. A. Miller, 12 Harbour Street, Rivertown\n" * 14,
    "prose": prose(3000),
}


def cut_after(text: str, size: int = 31) -> int | None:
    """How many characters the watch let pass."""
    watch = RepetitionWatch()
    for at in range(0, len(text), size):
        if watch.feed(text[at : at + size]):
            return at
    return None


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_cut_while_it_streams(name: str):
    text = BEFORE + LOOPS[name]
    seen = cut_after(text)
    assert seen is not None
    assert seen > len(BEFORE) + 400, "several hundred characters may repeat by right"


@pytest.mark.parametrize("name", LOOPS)
def test_text_before_a_loop_and_its_first_round_are_kept(name: str):
    text = BEFORE + LOOPS[name]
    sound = sound_length(text)
    assert sound is not None
    assert len(BEFORE) <= sound <= len(BEFORE) + len(PARAGRAPH) + 40


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("before", ["", BEFORE])
def test_pages_that_repeat_by_right_pass(name: str, before: str):
    text = before + RIGHT[name]
    assert cut_after(text) is None
    assert cut_after(text, 700) is None
    assert sound_length(text) is None


def test_a_loop_in_the_middle_does_not_count_afterwards():
    assert sound_length(BEFORE + "again and again " * 100 + PARAGRAPH) is None


def test_an_end_token_behind_a_loop_makes_no_difference():
    text = BEFORE + LOOPS["a sentence"].rstrip()
    assert sound_length(text + "<｜end▁of▁sentence｜>\n") == sound_length(text)


def test_endless_white_space_is_a_loop():
    text = BEFORE + " \n" * 5000
    assert cut_after(text) is not None
    assert sound_length(text) == len(BEFORE.rstrip())


def test_a_loop_may_be_the_whole_answer():
    assert sound_length("and so on " * 300) == len("and so on ")
    assert sound_length("") is None


def test_once_cut_it_stays_cut():
    watch = RepetitionWatch()
    assert watch.feed("and so on " * 300)
    assert watch.feed("something else")


def test_the_watch_keeps_a_bounded_part_of_the_answer():
    watch = RepetitionWatch()
    for _ in range(200):
        assert not watch.feed(prose(200))
    assert len(watch._text) < 20_000


def test_other_lines_after_a_repeated_line_are_no_fault():
    other = "".join(f"Ship {number} took timber to the harbor\n" for number in range(40))
    assert sound_length("the same\n" * 200 + other) is None
