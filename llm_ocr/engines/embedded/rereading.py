"""Read words of a text layer by OCR if their fonts have no Unicode mapping for some glyphs."""

import re
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from llm_ocr.engines.embedded.probe import script_supported
from llm_ocr.types import Line, PageContent, Script, Word

if TYPE_CHECKING:
    from llm_ocr.engines.embedded.ocr.detect import Pixels
    from llm_ocr.engines.embedded.ocr.recognise import Reader


#: Limit of readings, which take 3 s of processor time. A font that does not name a frequent letter needs 120 on a page.
_MOST_READINGS = 150
#: Share of a line's height added on all sides: the recognizer was trained on crops with a margin.
_ROOM = 0.12
#: Minimum confidence of a reading; words without any trusted character need the second value.
_SURE, _SURE_ALONE = 0.8, 0.9
#: Number of characters that OCR may read for one glyph, such as a ligature.
_MOST_LETTERS = 3
#: Limit of trusted and doubtful parts of a word, which bounds the steps of the comparison.
_MOST_RUNS = 9


def doubtful_words(content: PageContent) -> list[tuple[int, int]]:
    """Return the indices of lines and words to read again; a list marker without a meaning is not among them."""
    return [
        (number, place)
        for number, line in enumerate(content.lines)
        for place, word in enumerate(line.words)
        if word.doubtful and (place > 0 or len(word.text) > 1) and line.box.height < 2 * line.size
    ]


def reread(image: "Pixels", content: PageContent, reader: "Reader") -> PageContent:
    """Return the content with the readings of doubtful words; a word without a fitting reading stays as it is.

    A word that occurs several times is read once.

    Args:
        image: Whole page, height x width x 3, RGB.
        content: Content with the text layer.
        reader: Line recognizer.
    """
    across, down = image.shape[1] / content.width, image.shape[0] / content.height
    lines = list(content.lines)
    texts: dict[tuple[str, tuple[int, ...], bool], str] = {}
    for number, place in doubtful_words(content):
        line = lines[number]
        word = line.words[place]
        form = (word.text, word.doubtful, line.bold)
        if form not in texts:
            if len(texts) == _MOST_READINGS or not script_supported(word.text, reader.scripts):
                continue
            x0, y0, x1, y1 = _with_room(line, place)
            top, left = max(0, round(y0 * down)), max(0, round(x0 * across))
            reading = reader.read(image[top : round(y1 * down), left : round(x1 * across)])
            sure = reading.confidence >= (_SURE_ALONE if len(word.doubtful) == len(word.text) else _SURE)
            texts[form] = corrected(word, "".join(reading.logical.split())) if sure else ""
        if texts[form]:
            lines[number] = _with_word(line, place, texts[form])
    return replace(content, lines=tuple(lines))


def _with_room(line: Line, place: int) -> tuple[float, float, float, float]:
    """Return the sides of the word's crop; its margin excludes the adjacent words."""
    box, room = line.words[place].box, _ROOM * line.box.height
    ends = [word.box.x1 for word in line.words if word.box.x1 <= box.x0]
    starts = [word.box.x0 for word in line.words if word.box.x0 >= box.x1]
    x0 = max([box.x0 - room, *((end + box.x0) / 2 for end in ends)])
    x1 = min([box.x1 + room, *((start + box.x1) / 2 for start in starts)])
    return x0, box.y0 - room, x1, box.y1 + room


def corrected(word: Word, reading: str) -> str:
    """Return the word with the reading of its doubtful characters; "" if the reading does not fit the others.

    OCR may confuse characters that the text layer has right. These remain, and one of five may differ in the reading.
    """
    runs = [
        (doubtful, "".join(word.text[place] for place in places))
        for doubtful, places in groupby(range(len(word.text)), key=word.doubtful.__contains__)
    ]
    if len(runs) > _MOST_RUNS:
        return ""
    for any_character in ("", r"\S"):
        parts = [
            rf"(\S{{1,{_MOST_LETTERS * len(run)}}}?)" if doubtful else f"({any_character * len(run) or re.escape(run)})"
            for doubtful, run in runs
        ]
        found = re.fullmatch("".join(parts), reading)
        if found:
            pairs = list(zip(runs, found.groups(), strict=True))
            same = [a == b for (doubtful, run), read in pairs if not doubtful for a, b in zip(run, read, strict=True)]
            if 5 * sum(same) >= 4 * len(same):
                return "".join(read if doubtful else run for (doubtful, run), read in pairs)
    return ""


def _with_word(line: Line, place: int, text: str) -> Line:
    """Return the line with another text of one word. Scripts move with their characters."""
    words = list(line.words)
    start = sum(len(word.text) + 1 for word in words[:place])
    end = start + len(words[place].text)
    if line.text != " ".join(word.text for word in words):
        return line
    words[place] = replace(words[place], text=text, doubtful=())
    longer = len(text) - (end - start)

    def moved(at: int) -> int:
        return at + longer if at >= end else min(at, start + len(text))

    scripts = tuple(Script(moved(script.start), moved(script.end), script.lowered) for script in line.scripts)
    return replace(line, text=" ".join(word.text for word in words), words=tuple(words), scripts=scripts)
