"""Read the glyphs of TeX's mathematical fonts, which have no names in Unicode and hang below their baseline."""

import re
import unicodedata
from functools import lru_cache

#: Encodings of TeX's mathematical fonts: large symbols (OMX), symbols (OMS), italic, double-struck, Fraktur letters.
LARGE, SYMBOLS, LETTERS, DOUBLE, FRAKTUR = "large", "symbols", "letters", "double", "fraktur"
_FAMILIES = {
    LARGE: re.compile(r"(cmex|euex|lmex)\d+|lmmathextension\d+-", re.IGNORECASE),
    SYMBOLS: re.compile(r"(cmsy|cmbsy|eusm|eusb|rsfs|lmsy)\d+|lmmathsymbols\d+-", re.IGNORECASE),
    LETTERS: re.compile(
        r"(cmmi|cmmib|eurm|txmi|pxmi|newtxmi|newpxmi|lmmi)\d*(-|$)|(cmmib?|eurm)\d+|lmmathitalic\d+-", re.I
    ),
    DOUBLE: re.compile(r"(msbm|bbm)\d+", re.IGNORECASE),
    FRAKTUR: re.compile(r"(eufm|eufb)\d+", re.IGNORECASE),
}
#: Height of the mathematical axis above the baseline in font sizes (cmsy10: 0.25). Large symbols are centered on it.
AXIS = 0.25
ROOT = ord("√")
#: Character of a piece of a tall brace that belongs to either side, and to no other sign.
_EXTENSION = "\u23aa"
#: Encoding OMX from code 0 (The TeXbook, appendix F). A tall sign consists of several pieces of one character.
_OMX = (
    "()[]⌊⌋⌈⌉{}⟨⟩|‖/\\"
    "()()[]⌊⌋⌈⌉{}⟨⟩/\\"
    "()[]⌊⌋⌈⌉{}⟨⟩/\\/\\"
    f"()[][][]{{}}{{}}{{}}{_EXTENSION}|"
    "()()⟨⟩⊔⊔∮∮⊙⊙⊕⊕⊗⊗"
    "∑∏∫⋃⋂⊎⋀⋁∑∏∫⋃⋂⊎⋀⋁"
    "∐∐ˆˆˆ˜˜˜[]⌊⌋⌈⌉{}"
    "√√√√√√√‖↑↓\ufffd\ufffd\ufffd\ufffd⇑⇓"
)
#: Code points for private use of pieces of tall delimiters from U+F8EB, by Adobe's glyph names such as `braceleftmid`.
_PIECES = f"((([[[{{{{{{{_EXTENSION}\ufffd)))]]]}}}}}}"
_STYLES = {SYMBOLS: "SCRIPT", DOUBLE: "DOUBLE-STRUCK", FRAKTUR: "FRAKTUR"}
#: Letters that Unicode has outside of the block of mathematical letters.
_OTHER_BLOCK = {"DOUBLE-STRUCK": "DOUBLE-STRUCK", "SCRIPT": "SCRIPT", "FRAKTUR": "BLACK-LETTER"}


@lru_cache(maxsize=1024)
def family_of(font: str) -> str:
    """Return the encoding of a font by its name, such as `ABCDEF+CMEX10`; "" for a font of text."""
    name = font.partition("+")[2] or font
    return next((family for family, pattern in _FAMILIES.items() if pattern.match(name)), "")


@lru_cache(maxsize=1024)
def symbol(family: str, code: int, *, named: bool) -> int:
    """Return the code point of a glyph.

    Args:
        family: Result of `family_of`.
        code: Code point from pdfium, which is the code in the font for a glyph without a known name.
        named: Whether the font names the glyph.
    """
    if family == LARGE:
        if 0xF8EB <= code < 0xF8EB + len(_PIECES):
            return ord(_PIECES[code - 0xF8EB])
        return ord(_OMX[code]) if code < len(_OMX) and (not named or code == 0) else code
    letter, style = chr(code), _STYLES.get(family, "")
    if not style or not ("A" <= letter <= "Z" or (family == FRAKTUR and "a" <= letter <= "z")):
        return code
    case = "CAPITAL" if letter.isupper() else "SMALL"
    for name in (
        f"MATHEMATICAL {style} {case} {letter.upper()}",
        f"{_OTHER_BLOCK[style]} {case} {letter.upper()}",
    ):
        try:
            return ord(unicodedata.lookup(name))
        except KeyError:
            continue
    return code


def is_extension(code: int) -> bool:
    """Return whether the code point is a piece of a brace of either side."""
    return code == ord(_EXTENSION)
