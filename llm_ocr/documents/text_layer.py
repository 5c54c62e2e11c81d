"""Judge by its characters whether the text layer of a page is wrong. This costs almost nothing."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

from llm_ocr.types import PageContent

#: Share of differing characters between text layer and OCR above which the layer is false (embedded_engine.md: false
#: layers score above 0.9, true layers 0.0).
LIE = 0.3
#: Share of unmapped characters from which a text layer is doubtful. Formulas of a true page cause up to 0.013.
_UNMAPPED = 0.02
#: Most frequent letters of languages in Latin script: 57 to 68 % of the letters on 60 pages, most of them English. The
#: same pages with every letter shifted by 1 to 25 have 46 % at most.
_COMMON = frozenset("aeinorst")
_COMMON_SHARE = 0.47
#: Minimum number of letters for statistics.
_ENOUGH_LETTERS = 60
#: Share of letters with accents that no language has: 0.35 are usual in Vietnamese.
_ACCENTED = 0.6
#: Minimum number of letters, and share of the common ones, of the text of one font.
_LETTERS_OF_FONT, _COMMON_OF_FONT = 20, 0.42
#: Letters of other scripts that look like Latin ones, which some fonts name in their place. Small Greek letters but one
#: are left out: they are variables.
_LATIN = "ABCEHIJKMOPSTXYaceijopsxyABEZHIKMNOPTYXo"
_ALIKE = "\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u0423"
_ALIKE += "\u0430\u0441\u0435\u0456\u0458\u043e\u0440\u0455\u0445\u0443"
_ALIKE += "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf"
#: Letters of each script by those of another one. In formulas, Latin letters follow Greek ones, and remain.
_TWINS: Mapping[str, Mapping[str, str]] = {
    "LATIN": dict(zip(_ALIKE, _LATIN, strict=True)),
    "CYRILLIC": dict(zip(_LATIN[:25], _ALIKE[:25], strict=True)),
}
_WORD = re.compile(r"[^\W\d_]+")


def suspicious(content: PageContent) -> bool:
    """Return whether a text layer looks wrong: many unmapped characters, or Latin letters of no language."""
    text = "".join(line.text for line in content.lines)
    if not text:
        return False
    if max(meaningless(text), content.unmapped) > _UNMAPPED * len(text):
        return True
    return has_odd_letters(text, _ENOUGH_LETTERS, _COMMON_SHARE)


def has_odd_letters(text: str, least: int = _LETTERS_OF_FONT, share: float = _COMMON_OF_FONT) -> bool:
    """Return whether a text with `least` Latin letters may be of no language: fewer than `share` are common letters.

    With the limits for the text of one font, 3 % of the fonts of true pages have such letters.
    """
    counts = Counter(text)
    accented = sum(count for c, count in counts.items() if "\u00c0" <= c <= "\u00ff")
    if accented >= least and accented > _ACCENTED * sum(count for c, count in counts.items() if c.isalpha()):
        return True  # Cyrillic, Greek, or Hebrew letters by the codes of a single-byte encoding
    counts = Counter(unicodedata.normalize("NFD", text).lower())
    latin = sum(count for c, count in counts.items() if "a" <= c <= "z")
    if latin < least or 2 * latin < sum(count for c, count in counts.items() if c.isalpha()):
        return False
    return sum(counts[c] for c in _COMMON) < share * latin


def meaningless(text: str) -> int:
    """Return the number of characters that no text has: control codes, and codes without a character."""
    strange = (c for c in {*text} if c == "\ufffd" or unicodedata.category(c) in ("Cc", "Co", "Cn"))
    return sum(map(text.count, strange))


def without_lookalikes(line: str) -> str:
    """Return a line whose words have letters of one script each, as they look; the result is as long as the line.

    A word of two scripts has that of the letters that no letter of the other script looks like. Without such letters,
    it has the script of most such letters of the line, as do other words of look-alikes then.
    """
    if line.isascii():
        return line
    words = [(found.start(), [*map(_script_of, found[0])], found[0]) for found in _WORD.finditer(line)]
    if not any("LATIN" in scripts and len({*scripts}) > 1 for _, scripts, _ in words):
        return line
    letters = [pair for _, scripts, word in words for pair in zip(scripts, word, strict=True)]
    clear = [script for script, c in letters if not any(c in twins for twins in _TWINS.values())]
    most = Counter(clear or [script for script, _ in letters]).most_common(1)[0][0]
    for at, scripts, word in words:
        others = {*scripts, most} - {"LATIN"}
        if len(others) > 1:
            continue
        pair = {"LATIN", *others}
        sure = {
            own for own, c in zip(scripts, word, strict=True) if not any(c in _TWINS.get(s, ()) for s in pair - {own})
        }
        target = sure or {most}
        twins = _TWINS.get(next(iter(target)), {}) if len(target) == 1 else {}
        line = line[:at] + "".join(twins.get(c, c) for c in word) + line[at + len(word) :]
    return line


def _script_of(letter: str) -> str:
    return unicodedata.name(letter, "?").split(" ", 1)[0]
