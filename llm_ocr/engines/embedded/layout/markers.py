"""What stands at the start of a row: list markers, section numbers, caption words, footnote marks."""

import re
from dataclasses import dataclass

_BULLETS = "•‣◦▪▫●○■□◆◇❖➢➤►▶▸✓✔✦★☐☑⁃∙·⦁\u2022\ufffd"
_BULLET = re.compile(rf"(?P<mark>[{_BULLETS}\ue000-\uf8ff])\s*(?=\S)|(?P<dash>[-–—*+o])\s+(?=\S)")
_ORDERED = re.compile(
    r"(?P<open>[(\[]?)(?P<value>\d{1,3}|[A-Za-z]|[ivxIVX]{2,5})(?P<close>[.)\]])(?!\d)\s+(?=[^\s])|(?P<circled>[①-⑳])\s*(?=\S)"
)
_DECIMAL = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})(\.?)\s+(?=[^\W\d_a-z]|[\"“‘(])")
_MONTH = re.compile(r"\d{1,2}\.?\s+(jan|feb|mar|mär|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])", re.IGNORECASE)
_LETTERED = re.compile(r"([A-Z](?:\.\d{1,2}){1,3})\.?\s+(?=[^\W\d_a-z])")
_ROMAN = re.compile(r"(?:[IVX]{1,5}|[A-Z])\.\s+(?=[^\W\d_a-z])")
_NAMED = re.compile(
    r"(chapter|part|section|appendix|annex|schedule|article|lesson|unit|kapitel|chapitre|capítulo|anhang|teil)"
    r"\s+([\divxlc]+|[a-z])\b",
    re.IGNORECASE,
)
_KEYWORD = re.compile(
    r"(?:abstract|acknowledgements|acknowledgement|acknowledgments|acknowledgment|appendix|appendices|background|"
    r"bibliography|conclusion|conclusions|contents|discussion|foreword|glossary|index|introduction|literature|"
    r"method|methods|methodology|preface|references|results|summary|zusammenfassung|einleitung|literatur|"
    r"inhalt|résumé|bibliographie|referencias|resumen|摘要|参考文献|目录|引言|结论|materials and methods|related work|"
    r"table of contents|executive summary|works cited|list of figures|list of tables|results and discussion|"
    r"future work|experimental results)",
    re.IGNORECASE,
)
_CAPTION = re.compile(
    r"(?:figure|fig|table|tab|scheme|listing|algorithm|plate|chart|exhibit|abbildung|abb|tabelle|figura|tabla|tableau|図|图|表)"
    r"\.?\s*(?:[A-Z]?\d+(?:[.\-]\d+)*[a-z]?|[IVXL]+|[A-Z](?=[.:]))\s*(?:[.:|–—]|\s[-–]\s|$)",
    re.IGNORECASE,
)
_FOOTNOTE = re.compile(
    r"(?:\d{1,2}|[*†‡§¶]{1,3}|[¹²³⁴-⁹⁰]{1,3}|\(\d{1,2}\)|\[\d{1,2}\]|\d{1,2}\))\s*(?=[^\W\d_]|[\"“‘(])"
    r"|(?:[a-z])\s+(?=[A-Z])"
)
_REFERENCE = re.compile(r"\[[\w+.\-]{1,12}\]\s+\S")


@dataclass(frozen=True, slots=True)
class Marker:
    """A list marker: `mark` in Markdown, `value` its place in the order (None for bullets), `rest` the text."""

    mark: str
    value: int | None
    rest: str
    certain: bool  # a bullet sign; dashes, letters and numbers also begin ordinary lines
    style: str = ""  # the same for all items of one list


_ROMANS = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


def roman(text: str) -> int | None:
    """The value of a roman numeral up to 399, else None."""
    digits = [_ROMANS.get(letter, 0) for letter in text.lower()]
    if not digits or 0 in digits:
        return None
    return sum(-a if a < b else a for a, b in zip(digits, [*digits[1:], 0], strict=True))


def _value(text: str) -> int | None:
    if text.isdigit():
        return int(text)
    if len(text) > 1:
        return roman(text)
    return ord(text.lower()) - ord("a") + 1


def parse_marker(text: str) -> Marker | None:
    """The list marker at the start of `text`, or None; a marker with nothing to read behind it is none."""
    bullet = _BULLET.match(text)
    found = bullet or _ORDERED.match(text)
    if found is None or not any(character.isalnum() for character in text[found.end() :]):
        return None
    return _bullet(bullet, text) if bullet else _ordered(found, text[found.end() :])


def _bullet(found: re.Match[str], text: str) -> Marker | None:
    if found["dash"] == "o" and not text[found.end()].isupper():
        return None
    return Marker("-", None, text[found.end() :], found["mark"] is not None, found[0].strip())


def _ordered(found: re.Match[str], rest: str) -> Marker | None:
    if found["circled"]:
        return Marker(f"- {found['circled']}", ord(found["circled"]) - ord("①") + 1, rest, True, "①")
    if found["open"] == "[" or found["close"] == "]":  # entries of a bibliography are paragraphs, not list items
        return None
    value, token = _value(found["value"]), found["value"]
    kind = "1" if token.isdigit() else ("a" if token.islower() else "A")
    plain = token.isdigit() and not found["open"]
    shown = f"{token}{found['close']}" if plain else f"- {found['open']}{token}{found['close']}"
    return Marker(shown, value, rest, False, f"{found['open']}{kind}{found['close']}")


def numbering(text: str) -> int:
    """The depth of the section number at the start of `text`: 1 for `2 Methods`, 2 for `2.1 Data`; 0 without one."""
    match = _DECIMAL.match(text) or _LETTERED.match(text)
    if match and not _MONTH.match(text):
        return match[1].count(".") + 1
    if _NAMED.match(text):
        return 1
    roman_match = _ROMAN.match(text)
    if roman_match:
        mark = roman_match[0].strip()[:-1]
        return 1 if len(mark) > 1 or mark in "IVX" else 2
    return 0


def is_keyword(text: str) -> bool:
    """Whether the text, a section number aside, is a usual name of a section."""
    match = _DECIMAL.match(text) or _ROMAN.match(text)
    bare = text[match.end() :] if match else text
    return _KEYWORD.fullmatch(bare.strip(" .:—-")) is not None


def is_caption(text: str) -> bool:
    """Whether the text begins as captions do: `Figure 3:`, `Table 2.`"""
    return _CAPTION.match(text) is not None


def is_footnote(text: str) -> bool:
    """Whether the text begins with a footnote mark."""
    return _FOOTNOTE.match(text) is not None


def is_reference(text: str) -> bool:
    """Whether the text begins as an entry of a bibliography: `[12] Name`."""
    return _REFERENCE.match(text) is not None
