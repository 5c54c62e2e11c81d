"""Read words of a text layer by OCR if their fonts have no Unicode mapping for some glyphs, or a wrong one."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from llm_ocr.documents.text_layer import has_odd_letters
from llm_ocr.types import Line, PageContent, Script, Word
from llm_ocr_cpu.ocr.languages import UNKNOWN
from llm_ocr_cpu.probe import LEAST_HEIGHT, difference, edit_distance, script_supported

if TYPE_CHECKING:
    from llm_ocr_cpu.ocr.detect import Pixels
    from llm_ocr_cpu.ocr.recognise import Reader


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


#: Signs that some fonts have in place of ligatures.
_SIGNS = r"""!"#$%&*+<=>@\\^_|~"""
_WITHIN = re.compile(f"(?<=[a-z])[{_SIGNS}](?=[a-z])")
_BESIDE = re.compile(f"(?<=[a-z])[{_SIGNS}]|[{_SIGNS}](?=[a-z])")
#: Fewest occurrences of a sign within words from which signs are also doubtful at the starts and ends of words.
_OFTEN = 2
#: Fonts that are compared with the image, words of each, and fewest letters and digits of such a word, of a word with
#: digits, and of all.
_FONTS, _WORDS, _LEAST_CHARACTERS, _LEAST_WITH_DIGITS, _LEAST_IN_ALL = 4, 3, 3, 2, 4
#: Letters that OCR confuses with digits.
_ALIKE = str.maketrans("OolI", "0011")
#: Characters of a word that are enough for a comparison.
_LONG = 8
#: Difference of a word without digits and its reading if the font names its glyphs wrongly, and least confidence of a
#: reading.
_LIE, _CERTAIN = 0.5, 0.9
#: Largest share of letters in a font for numbers or signs, and fewest characters of odd words that are no language.
_FEW_LETTERS, _LEAST_ODD = 0.2, 12


def with_doubtful_signs(content: PageContent) -> PageContent:
    """Return the content with signs within words marked as doubtful, as in `di!culties`, except in programs."""
    words = [word for line in content.lines if not line.mono for word in line.words]
    counts = Counter(sign for word in words for sign in _WITHIN.findall(word.text))
    if not counts:
        return content
    often = {sign for sign, count in counts.items() if count >= _OFTEN}

    def marked(word: Word) -> Word:
        places = {found.start() for found in _WITHIN.finditer(word.text)}
        if often:  # the signs of the other ligatures of the font may only be at the starts of words
            beside = _BESIDE.finditer(word.text)
            places |= {found.start() for found in beside if found[0] in often or found.start() == 0}
        return replace(word, doubtful=tuple(sorted(places.union(word.doubtful)))) if places else word

    return _changed(content, lambda line, word: word if line.mono else marked(word))


def fonts_to_check(content: PageContent, *, probed: bool) -> dict[int, bool]:
    """Return the fonts whose words are to be compared with the image, and whether only those with digits are.

    On a page that is probed, these are the most frequent fonts. On other pages, the words without digits are compared
    of fonts with letters of no language, and of fonts for numbers or signs alone: those words show a wrong font, but no
    number does.
    """
    joined = {font: "".join(words) for font, words in _texts_of_fonts(content).items()}
    whole = [font for font, text in joined.items() if probed or _is_doubtful(text)]
    whole = sorted(whole, key=lambda font: -len(joined[font]))[:_FONTS]
    counts = {font: sum(map(str.isdigit, text)) for font, text in joined.items()}
    numbers = sorted((font for font in counts if counts[font] >= _LEAST_IN_ALL), key=lambda font: -counts[font])
    return dict.fromkeys(numbers[:_FONTS], True) | dict.fromkeys(whole, False)


def _texts_of_fonts(content: PageContent) -> dict[int, list[str]]:
    texts: defaultdict[int, list[str]] = defaultdict(list)
    for line in content.lines:
        for word in line.words:
            texts[word.font].append(word.text)
    texts.pop(0, None)
    return texts


def _is_doubtful(text: str) -> bool:
    letters, signs = sum(map(str.isalpha, text)), {c for c in text if c.isascii() and not c.isalnum()}
    has_no_letters = len(text) >= _LEAST_IN_ALL and letters < _FEW_LETTERS * len(text)
    return has_odd_letters(text) or (has_no_letters and (_has_digits(text) or len(signs) >= _LEAST_IN_ALL))


def _has_digits(text: str) -> bool:
    return any(map(str.isdigit, text))


def with_lies_marked(
    image: "Pixels", content: PageContent, reader: "Reader", fonts: Mapping[int, bool]
) -> tuple[PageContent, frozenset[tuple[int, bool]]]:
    """Return the content with all words doubtful whose font names its glyphs wrongly, and these fonts.

    The words with digits of a font, marked by True, may be wrong alone.
    """
    texts = _texts_of_fonts(content)
    lying: set[tuple[int, bool]] = set()
    for font, numbers_only in fonts.items():
        odd = has_odd_letters("".join(texts[font]))
        if not numbers_only and _lies(image, content, reader, font, digits=False, odd=odd):
            lying |= {(font, False), (font, True)}
        elif _lies(image, content, reader, font, digits=True, odd=odd):
            lying.add((font, True))
    if not lying:
        return content, frozenset()

    def marked(word: Word) -> Word:
        wrong = (word.font, _has_digits(word.text)) in lying
        return replace(word, doubtful=tuple(range(len(word.text)))) if wrong else word

    return _changed(content, lambda _, word: marked(word)), frozenset(lying)


def _lies(image: "Pixels", content: PageContent, reader: "Reader", font: int, *, digits: bool, odd: bool) -> bool:
    """Return whether no sample word of a font, with or without digits, agrees with its reading.

    Some readings must be certain, unless the letters are `odd`: OCR does not know the script of the true ones.
    """
    places: dict[str, tuple[Line, int]] = {}
    lowest = LEAST_HEIGHT * content.height / image.shape[0]
    least = _LEAST_WITH_DIGITS if digits else _LEAST_CHARACTERS
    for line in content.lines:
        for place, word in enumerate(line.words):
            text = word.text
            horizontal = not line.stacked and line.box.width > line.box.height >= lowest
            if word.font != font or word.doubtful or not horizontal or not script_supported(text, reader.scripts):
                continue
            signs = sum(map(str.isalnum, text)) or (len(text) if text.isascii() else 0)
            if signs >= least and _has_digits(text) == digits:
                places.setdefault(text, (line, place))
    # Longer words take more time and are no better samples.
    samples = sorted(places, key=lambda text: (len(text) > _LONG, -len(text)))[:_WORDS]
    wrong = compared = 0
    for text in samples:
        reading = reader.read(_cut_out(image, content, *places[text]))
        seen = "".join(reading.logical.split())
        # Of several numbers, all of which differ, a digit each is enough; of one number, it may be misread.
        other = edit_distance(*("".join(filter(str.isdigit, one.translate(_ALIKE))) for one in (text, seen)))
        if other <= (len(samples) == 1) if digits else difference(text, seen) <= _LIE:
            return False
        if not odd and (not seen or abs(len(text) - len(seen)) > 1 + len(text) // 8):
            return False
        wrong += len(text) if reading.confidence >= _CERTAIN else 0
        compared += len(text)
    return wrong >= _LEAST_IN_ALL or (odd and compared >= _LEAST_ODD)


def _cut_out(image: "Pixels", content: PageContent, line: Line, place: int) -> "Pixels":
    across, down = image.shape[1] / content.width, image.shape[0] / content.height
    x0, y0, x1, y1 = _with_room(line, place)
    return image[max(0, round(y0 * down)) : round(y1 * down), max(0, round(x0 * across)) : round(x1 * across)]


def _changed(content: PageContent, change: Callable[[Line, Word], Word]) -> PageContent:
    lines = tuple(replace(line, words=tuple(change(line, word) for word in line.words)) for line in content.lines)
    return replace(content, lines=lines)


def doubtful_words(content: PageContent) -> list[tuple[int, int]]:
    """Return the indices of lines and words to read again; a list marker without a meaning is not among them."""
    return [
        (number, place)
        for number, line in enumerate(content.lines)
        for place, word in enumerate(line.words)
        if word.doubtful and (place > 0 or len(word.text) > 1) and line.box.height < 2 * line.size
    ]


def reread(image: "Pixels", content: PageContent, reader: "Reader", fonts: Mapping[int, bool]) -> PageContent:
    """Return the content with the readings of doubtful words; a word without a fitting reading stays as it is.

    A word that occurs several times is read once. Without a reading, a word of a wrong font becomes `UNKNOWN`.

    Args:
        image: Whole page, height x width x 3, RGB.
        content: Content with the text layer.
        reader: Line recognizer.
        fonts: Fonts of which some words are compared with the image first; see `fonts_to_check`.
    """
    content, lying = with_lies_marked(image, content, reader, fonts)
    lines = list(content.lines)
    texts: dict[tuple[str, tuple[int, ...], bool], str] = {}
    for number, place in doubtful_words(content):
        line = lines[number]
        word = line.words[place]
        form = (word.text, word.doubtful, line.bold)
        if form not in texts:
            if len(texts) == _MOST_READINGS or not script_supported(word.text, reader.scripts):
                continue
            reading = reader.read(_cut_out(image, content, line, place))
            sure = reading.confidence >= (_SURE_ALONE if len(word.doubtful) == len(word.text) else _SURE)
            texts[form] = corrected(word, "".join(reading.logical.split())) if sure else ""
        if texts[form]:
            lines[number] = _with_word(line, place, texts[form])
    for number, line in enumerate(lines if lying else ()):
        for place, word in enumerate(line.words):
            if (word.font, _has_digits(word.text)) in lying and word.doubtful:
                lines[number] = _with_word(lines[number], place, UNKNOWN * len(word.text))
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
