"""Judge by its characters whether the text layer of a page is wrong. This costs almost nothing."""

import unicodedata

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
    accented = sum("\u00c0" <= c <= "\u00ff" for c in text)
    if accented >= least and accented > _ACCENTED * sum(map(str.isalpha, text)):
        return True  # Cyrillic, Greek, or Hebrew letters by the codes of a single-byte encoding
    letters = [c for c in unicodedata.normalize("NFD", text).lower() if c.isalpha()]
    latin = [c for c in letters if "a" <= c <= "z"]
    if len(latin) < least or 2 * len(latin) < len(letters):
        return False
    return sum(c in _COMMON for c in latin) < share * len(latin)


def meaningless(text: str) -> int:
    """Return the number of characters that no text has: control codes, and codes without a character."""
    return sum(c == "\ufffd" or unicodedata.category(c) in ("Cc", "Co", "Cn") for c in text)
