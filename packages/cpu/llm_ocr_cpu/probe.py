"""Check whether a text layer is true by comparing a few of its lines with OCR of the page's image.

`script_supported` examines only the characters and costs almost nothing. `disagreement` requires the recognizer and
takes 55 ms of processor time, or 14 ms with the tiny recognizer.
"""

import unicodedata
from collections.abc import Iterable, Set
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from llm_ocr.documents.text_layer import meaningless
from llm_ocr.types import Box, Line, PageContent
from llm_ocr_cpu.ocr.languages import SCRIPTS

if TYPE_CHECKING:
    from llm_ocr_cpu.ocr.detect import Pixels
    from llm_ocr_cpu.ocr.recognise import Reader


#: Minimum share of a text's letters in those scripts.
_KNOWN = 0.8

#: Share of unmapped characters from which only the lines with such characters are judged. A page can be true in one
#: font and false in another.
_MANY_UNMAPPED = 0.05

#: Number and length of sample lines: enough letters to compare at low cost. Older OCR is wrong in some places of a
#: page and right in others, so that more lines are compared.
_SAMPLES, _SCAN_SAMPLES = 3, 24
_LEAST_LETTERS, _MOST_LETTERS = 6, 20
#: Share of a line's height added above and below: the recognizer was trained on crops with a margin.
_ROOM = 0.12
#: Minimum confidence of a reading that judges older OCR: an uncertain reading is no better.
_CONFIDENT = 0.9
#: Range of pixel values (of 255) below which a line is not drawn.
_CONTRAST = 24
#: Height in pixels below which OCR is too unreliable to reject the text layer.
LEAST_HEIGHT = 9.0


def script_supported(text: str, scripts: Set[str] = SCRIPTS) -> bool:
    """Return whether the recognizer supports the script of most letters of `text`; True for text without letters."""
    letters = [c for c in text if c.isalpha()]
    known = sum(unicodedata.name(c, "?").split(" ", 1)[0] in scripts for c in letters)
    return known >= _KNOWN * len(letters)


def disagreement(image: "Pixels", content: PageContent, reader: "Reader", *, scan: bool) -> float | None:
    """Return the edit distance between sample lines and their OCR, 0..1; None if unknown.

    Args:
        image: Whole page, height x width x 3, RGB.
        content: Content with the text layer.
        reader: Line recognizer.
        scan: The layer is older OCR: return the mean over any lines that are read with confidence. Otherwise return
            the median over the lines that are easiest to compare.
    """
    if not script_supported("".join(line.text for line in content.lines), reader.scripts):
        return None
    across, down = image.shape[1] / content.width, image.shape[0] / content.height
    if content.undrawn or content.with_invisible:  # lines that the picture lacks cannot be compared
        drawn = tuple(line for line in content.lines if _is_drawn(image, line.box, across, down))
        content = replace(content, lines=drawn)
    errors = []
    for box, text in samples(content, LEAST_HEIGHT / down, reader.scripts, scan=scan):
        room = _ROOM * box.height
        x0, x1 = max(0, round((box.x0 - room) * across)), round((box.x1 + room) * across)
        y0, y1 = max(0, round((box.y0 - room) * down)), round((box.y1 + room) * down)
        reading = reader.read(image[y0:y1, x0:x1])
        errors.append((difference(text, reading.logical), reading.confidence))
    if not errors:
        return None
    if not scan:
        return median(error for error, _ in errors)
    return fmean([error for error, confidence in errors if confidence >= _CONFIDENT] or [error for error, _ in errors])


def _is_drawn(image: "Pixels", box: Box, across: float, down: float) -> bool:
    part = image[max(0, int(box.y0 * down)) : int(box.y1 * down), max(0, int(box.x0 * across)) : int(box.x1 * across)]
    return part.size > 0 and int(part.max()) - int(part.min()) >= _CONTRAST


def samples(
    content: PageContent, least_height: float, scripts: Set[str] = SCRIPTS, *, scan: bool = False
) -> list[tuple[Box, str]]:
    """Return pieces of lines, spread over the page, with their boxes in page units: three, or 24 of a scan."""
    fit = sorted(
        (line for line in content.lines if _fit(line, content, least_height, scripts)), key=lambda line: line.box.y0
    )
    doubtful = [line for line in fit if meaningless(line.text)]
    if not scan and sum(meaningless(line.text) for line in doubtful) > _MANY_UNMAPPED * sum(
        len(line.text) for line in fit
    ):
        fit = doubtful
    chosen = []
    count = _SCAN_SAMPLES if scan else _SAMPLES
    for index in range(count):
        part = fit[len(fit) * index // count : len(fit) * (index + 1) // count]
        if part:
            chosen.append(_first_words(part[len(part) // 2] if scan else max(part, key=_worth)))
    return chosen


def _fit(line: Line, content: PageContent, least_height: float, scripts: Set[str]) -> bool:
    box = line.box
    inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= content.width and box.y1 <= content.height
    lying = box.width > 2 * box.height and box.height >= least_height
    return (
        inside and lying and len(line.text.replace(" ", "")) >= _LEAST_LETTERS and script_supported(line.text, scripts)
    )


def _worth(line: Line) -> float:
    """Return a line's value as a sample: letters count more than digits and signs, up to the sample length."""
    text = line.text[:_MOST_LETTERS]
    return sum(1.0 if c.isalpha() or c == "\ufffd" else 0.2 for c in text)


def _first_words(line: Line) -> tuple[Box, str]:
    """Return the first words of a line, or its first part without word boundaries."""
    box: Box | None = None
    text = ""
    for word in line.words:
        if box is not None and len(text) + len(word.text) > _MOST_LETTERS:
            break
        box = box.union(word.box) if box else word.box
        text += word.text
    if box is not None and len(text) <= 2 * _MOST_LETTERS:
        return Box(box.x0, line.box.y0, box.x1, line.box.y1), text
    share = min(1.0, _MOST_LETTERS / len(line.text))
    cut = line.box.x0 + share * line.box.width
    return Box(line.box.x0, line.box.y0, cut, line.box.y1), line.text[:_MOST_LETTERS]


def difference(layer: str, seen: str) -> float:
    """Return the edit distance divided by the longer length, of letters and digits only; 1 if only one side has any."""
    expected, found = _plain(layer), _plain(seen)
    longest = max(len(expected), len(found))
    return edit_distance(expected, found) / longest if longest else 0.0


def _plain(text: str) -> str:
    return "".join(_kept(unicodedata.normalize("NFKD", text).casefold()))


def _kept(characters: Iterable[str]) -> Iterable[str]:
    return (c for c in characters if c.isalnum() or meaningless(c))


def edit_distance(one: str, other: str) -> int:
    """Return the Levenshtein distance: the minimum number of insertions, deletions, and replacements."""
    before = list(range(len(other) + 1))
    for row, character in enumerate(one, 1):
        now = [row]
        for column, against in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (character != against)))
        before = now
    return before[-1]
