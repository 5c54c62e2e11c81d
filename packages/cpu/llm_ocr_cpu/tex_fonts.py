"""Map the glyphs of TeX's fonts to Unicode. Large symbols hang below their baseline in these fonts."""

import re
import unicodedata
from functools import lru_cache

#: Encodings of TeX's mathematical fonts: large symbols (OMX), symbols (OMS), italic, double-struck, Fraktur letters.
LARGE, SYMBOLS, LETTERS, DOUBLE, FRAKTUR = "large", "symbols", "letters", "double", "fraktur"
AMS = "ams"  # the first of AMS's fonts of symbols, with the bullets of slides
QUOTES = "quotes"  # LaTeX's font of symbols, whose arrow heads in pairs are quotation marks
_FAMILIES = {
    LARGE: re.compile(r"(cmex|euex|lmex)\d+|lmmathextension\d+-|[tp]xexs?$|mathdesign-.*-extension-", re.I),
    SYMBOLS: re.compile(
        r"(cmsy|cmbsy|eusm|eusb|rsfs|lmsy)\d+|lmmathsymbols\d+-|[tp]xsys?$|mathdesign-.*-symbol-", re.I
    ),
    LETTERS: re.compile(
        r"(cmmi|cmmib|eurm|txmi|pxmi|newtxmi|newpxmi|lmmi)\d*(-|$)|(cmmib?|eurm)\d+|lmmathitalic\d+-"
        r"|mathdesign-.*-mathitalic-",
        re.I,
    ),
    AMS: re.compile(r"msam\d+|[tp]xsya$", re.IGNORECASE),
    QUOTES: re.compile(r"lasyb?\d+", re.IGNORECASE),
    DOUBLE: re.compile(r"(msbm|bbm)\d+|[tp]xsyb$", re.IGNORECASE),
    FRAKTUR: re.compile(r"(eufm|eufb)\d+", re.IGNORECASE),
}
#: Height of the mathematical axis above the baseline in font sizes (cmsy10: 0.25). Large symbols are centered on it.
AXIS = 0.25
#: A text font in TeX's oldest encoding (OT1). `pdf_glyphs` detects such fonts by their letters, not by their names.
TEXT = "text"
ROOT = ord("√")
#: Middle piece of a tall brace. Opening and closing braces share this piece; no other sign has it.
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
#: Encodings OMS and OML from code 0 (The TeXbook, appendix F), for fonts that do not name their glyphs. Old-style
#: digits become usual digits.
_OMS = (
    "−·×∗÷⋄±∓⊕⊖⊗⊘⊙\u20dd∘•≍≡⊆⊇≤≥≼≽∼≈⊂⊃≪≫≺≻←→↑↓↔↗↘≃⇐⇒⇑⇓⇔↖↙∝′∞∈∋△▽\u0338↦∀∃¬∅ℜℑ⊤⊥"
    "ℵABCDEFGHIJKLMNOPQRSTUVWXYZ∪∩⊎∧∨⊢⊣⌊⌋⌈⌉{}⟨⟩|‖↕⇕\\≀√∐∇∫⊔⊓⊑⊒§†‡¶♣♢♡♠"
)
_OML = (
    "ΓΔΘΛΞΠΣΥΦΨΩαβγδϵζηθικλμνξπρστυϕχψωεϑϖϱςφ↼↽⇀⇁\ufffd\ufffd▷◁0123456789.,</>⋆"
    "∂ABCDEFGHIJKLMNOPQRSTUVWXYZ♭♮♯⌣⌢ℓabcdefghijklmnopqrstuvwxyzıȷ℘\u20d7\ufffd"
)
#: Encoding of msam from code 0 (amsfonts).
_MSAM = (
    "⊡⊞⊠□■·◊⧫↻↺⇌⇋⊟⊩⊪⊨↠↞⇇⇉⇈⇊↾⇂↿⇃↣↢⇆⇄↰↱"
    "⇝↭↫↬≗≿≳⪆⊸∴∵≑≜≾≲⪅⪕⪖⋞⋟≼≦⩽≶‵\ufffd≓≒≽≧⩾≷"
    "⊏⊐⊳⊲⊵⊴★≬▼▶◀\ufffd\ufffd△▲▽≖⋚⋛⪋⪌¥⇛⇚✓⊻⊼⩞∠∡∢∝"
    "⌣⌢⋐⋑⋓⋒⋏⋎⋋⋌⫅⫆≏≎⋘⋙⌜⌝®Ⓢ⋔∔∽⋍⌞⌟✠∁⊺⊚⊛⊝"
)
#: Encoding OT1 where it differs from ASCII (The TeXbook, appendix F).
_OT1 = {
    **dict(enumerate("ΓΔΘΛΞΠΣΥΦΨΩ")),
    **dict(enumerate("ﬀﬁﬂﬃﬄıȷ\u0060´ˇ˘¯˚¸ßæœøÆŒØ", 11)),
    **{0x22: "”", 0x3C: "¡", 0x3E: "¿", 0x5C: "“", 0x5E: "ˆ", 0x5F: "˙", 0x60: "‘", 0x7B: "–", 0x7C: "—"},
    **{0x27: "’", 0x7D: "˝", 0x7E: "˜", 0x7F: "¨"},
}
#: Code points for private use of pieces of tall delimiters from U+F8EB, by Adobe's glyph names such as `braceleftmid`.
_PIECES = f"((([[[{{{{{{{_EXTENSION}\ufffd)))]]]}}}}}}"
_TABLES = {SYMBOLS: _OMS, LETTERS: _OML, AMS: _MSAM}
#: Quotation marks by their code, and by the code point that pdfium takes from the glyph's name (a40 and a41).
_QUOTES = {0x28: "«", 0x29: "»", 0x272D: "«", 0x272E: "»"}
_STYLES = {SYMBOLS: "SCRIPT", DOUBLE: "DOUBLE-STRUCK", FRAKTUR: "FRAKTUR"}
#: Style in the names of letters outside of the block of mathematical letters, such as `DOUBLE-STRUCK CAPITAL R`.
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
        family: Result of `family_of`, or `TEXT`.
        code: Code point from pdfium, which is the code in the font for a glyph without a known name.
        named: Whether the font names the glyph.

    Returns:
        The code point: `code` if the tables lack the glyph, U+FFFD for a glyph without a character.
    """
    if family == LARGE:
        if 0xF8EB <= code < 0xF8EB + len(_PIECES):
            return ord(_PIECES[code - 0xF8EB])
        return ord(_OMX[code]) if code < len(_OMX) and (not named or code == 0) else code
    table = _TABLES.get(family, "")
    if not named and code < len(table) and (family == AMS or not "A" <= chr(code) <= "Z"):
        return ord(table[code])
    if family == QUOTES:
        return ord(_QUOTES.get(code, chr(code)))
    if family == TEXT:
        return ord(_OT1.get(code, chr(code)))
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
