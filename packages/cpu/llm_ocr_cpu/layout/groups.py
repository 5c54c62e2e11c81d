"""Group rows into paragraphs, list items, headings, and code."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from statistics import median

from llm_ocr.results.joining import is_cjk
from llm_ocr_cpu.layout.measures import Measures
from llm_ocr_cpu.layout.rows import Row, has_drop_capital

# Beginnings of rows: list markers, section numbers, caption words, footnote marks.


#: Bullets with a meaning, which Markdown keeps: signs of forms and of lists of what is done.
_CHECK_BOXES = "☐☑☒□❏❐❑❒✓✔✕✖✗✘"
_BULLETS = f"•‣◦▪▫●○■◆◇❖➢➤►▶▸✦★⁃∙·⦁{_CHECK_BOXES}"
_BULLET = re.compile(rf"(?P<mark>[{_BULLETS}\ue000-\uf8ff]|\ufffd(?!.*\ufffd))\s*(?=\S)|(?P<dash>[-–—*+o])\s+(?=\S)")
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
_BARE_CAPTION = re.compile(
    r"(?:Figure|Fig\.|FIGURE|Table|TABLE|Algorithm|Listing|Scheme)\s+\d+(?:\.\d+)*\s+[A-Z][\w-]*\s+[a-z]"
)
_FOOTNOTE = re.compile(
    r"(?:\d{1,2}|[*†‡¶]{1,3}|[¹²³⁴-⁹⁰]{1,3}|\(\d{1,2}\)|\[\d{1,2}\]|\d{1,2}\))\s*(?=[^\W\d_]|[\"“‘(「『])"
    r"|(?:[a-z])\s+(?=[A-Z])"
)
_HOUSE_NUMBER = re.compile(r"\d{1,5}[a-z]?,? [^\W\d]")
_ENTRY = re.compile(r"(?:(?:[.․…·]\s?){4,}|(?:\s[.·]){2,})\s*[\w.–-]{1,8}(?:, ?[\d–-]{1,8})*$")
_FIELD = re.compile(r"[^\W\d_a-z][\w .’'/-]{1,24}:\s+\S|\d{1,2}[:.]\d\d\s")
_TIME = re.compile(r"\d{1,2}[:.]\d\d\s*(?:[-–]|[ap]\.?m)")
_REFERENCE = re.compile(r"\[[\w+.\-]{1,12}\]\s+\S")


@dataclass(frozen=True, slots=True)
class Marker:
    """List marker: `mark` in Markdown, `value` in the order (None for bullets), `rest` of the text."""

    mark: str
    value: int | None
    rest: str
    certain: bool  # a bullet sign; dashes, letters, and numbers also begin ordinary lines
    style: str = ""  # the same for all items of one list


_ROMANS = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


def roman(text: str) -> int | None:
    """Return the value of a Roman numeral up to 399, otherwise None."""
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
    """Return the list marker at the start of `text`; None without a marker, or without text after it."""
    bullet = _BULLET.match(text)
    found = bullet or _ORDERED.match(text)
    if found is None or not any(character.isalnum() for character in text[found.end() :]):
        return None
    return _bullet(bullet, text) if bullet else _ordered(found, text[found.end() :])


def has_bullet(text: str) -> bool:
    """Return whether the text begins with a sign that only begins list items."""
    marker = parse_marker(text)
    return marker is not None and marker.certain


def _bullet(found: re.Match[str], text: str) -> Marker | None:
    if found["dash"] == "o" and not text[found.end()].isupper():
        return None
    mark = found["mark"]
    shown = f"- {mark}" if mark and mark in _CHECK_BOXES else "-"
    return Marker(shown, None, text[found.end() :], mark is not None, found[0].strip())


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
    """Return the depth of the leading section number: 1 for `2 Methods`, 2 for `2.1 Data`, 0 without a number."""
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
    """Return whether the text without its section number is a usual name of a section."""
    match = _DECIMAL.match(text) or _ROMAN.match(text)
    bare = text[match.end() :] if match else text
    return _KEYWORD.fullmatch(bare.strip(" .:—-")) is not None


def is_caption(text: str) -> bool:
    """Return whether the text begins like a caption, such as `Figure 3:`, `Table 2.`, or `Table 2 Results of`."""
    return _CAPTION.match(text) is not None or _BARE_CAPTION.match(text) is not None


def is_footnote(text: str) -> bool:
    """Return whether the text begins with a footnote mark."""
    return _FOOTNOTE.match(text) is not None


def is_reference(text: str) -> bool:
    """Return whether the text begins like an entry of a bibliography: `[12] Name`."""
    return _REFERENCE.match(text) is not None


def is_time(text: str) -> bool:
    """Return whether the text begins with a time, as in an agenda: `9:30 - 10:00`, `10.15 am`."""
    return _TIME.match(text) is not None


def is_capitals(text: str) -> bool:
    """Return whether the text is in capitals; a text in a script without capitals is not, even with a Latin letter."""
    return text.isupper() and 2 * sum(map(str.isupper, text)) > sum(map(str.isalpha, text))


def is_contents_entry(text: str) -> bool:
    """Return whether the text ends like an entry of a table of contents or an index: leader dots and page numbers."""
    return _ENTRY.search(text) is not None


# Margins of a stretch of rows, and the meaning of rows that do not reach them.


#: Minimum difference of two margins in font heights.
_INDENT = 0.6
_INDENT_NOISY = 0.9
#: Narrowest indent of a scan in font sizes, and the range of the rows' starts at one margin, if both are steady.
_NARROWEST, _STEADY = 0.5, 0.25
_DEEPEST_INDENT = 6.0
#: Number of rows that determine a column's width, and maximum rows of an address.
_TELLING, _LONGEST_ADDRESS = 5, 8
#: Largest width of an address relative to the column, and in letter sizes.
_SHORT_ROWS, _NARROW_ADDRESS = 0.6, 12


@dataclass(frozen=True, slots=True)
class Margins:
    """Margins of rows with the same style, mirrored for right-to-left pages. `left` is the start of most rows."""

    left: float
    right: float
    centred: bool
    hanging: bool  # first lines extend to the left, the others are indented
    indent: float  # minimum difference, page units
    rtl: bool
    heading: bool = False  # large or bold: rows of one title, not sentences

    def start(self, row: Row) -> float:
        """Return the beginning of the row, increasing in reading direction."""
        return -row.x1 if self.rtl else row.x0

    def end(self, row: Row) -> float:
        """Return the end of the row, increasing in reading direction."""
        return -row.x0 if self.rtl else row.x1

    def is_short(self, before: Row, row: Row) -> bool:
        """Return whether the first word of `row` would have fit at the end of `before`: a deliberate line break."""
        words = row.lines[0].words
        if is_cjk(row.text[:1]):  # lines break between any two characters
            width = row.size
        elif words:
            width = words[0].box.width
        else:
            text = row.lines[0].text
            width = len(text.split(maxsplit=1)[0] if text.strip() else "") / max(len(text), 1) * row.lines[0].box.width
        room = (self.right - self.left) - (before.x1 - before.x0) if self.centred else self.right - self.end(before)
        return room > width + 0.3 * row.size + self.indent * 0.7

    def begins_paragraph(self, before: Row, row: Row, first: Row) -> bool:
        """Return whether the indentation separates `row` from `before`; `first` is the first row of the group."""
        if self.centred or self.heading:
            return False
        shift = self.start(row) - self.start(before)
        if self.hanging:
            whole = before is first and ends_sentence(before.text) and not self.is_inset(before)
            return shift < -self.indent or (whole and not self.is_inset(row))
        if shift > self.indent:
            shallow = self.start(row) - self.left < _DEEPEST_INDENT * row.size or before is first
            return shallow and not is_reference(first.text)
        return shift < -self.indent and before is not first and not has_drop_capital(first)

    def is_inset(self, row: Row) -> bool:
        """Return whether the row begins inside of the margin."""
        return self.start(row) - self.left > self.indent

    def is_flush_end(self, rows: Sequence[Row]) -> bool:
        """Return whether rows of different widths end at one place, as a sender's address on the right does."""
        starts, ends = [self.start(row) for row in rows], [self.end(row) for row in rows]
        return max(ends) - min(ends) < 0.2 * rows[0].size and max(starts) - min(starts) > 3 * self.indent

    def stands_over(self, before: Row, row: Row, short: bool) -> bool:
        """Return whether `before` is a separate short line above a paragraph that fills the column."""
        width = self.right - self.left
        full = self.right - self.end(row) < 0.12 * width
        flush = self.start(before) - self.left < 3 * self.indent
        alone = before.cells == 1 and self.end(before) - self.left < 0.6 * width
        return short and full and flush and alone and not self.centred

    def leaves_item(self, first: Row, before: Row, row: Row, several: bool, short: bool) -> bool:
        """Return whether `row` is outside the list item that `first` began."""
        inset = self.start(row) - self.start(first)
        if inset < -self.indent:  # only the first row of an item may be indented: then its text goes on at the margin
            flush = several and abs(self.start(row) - self.start(before)) < self.indent
            same = goes_on(before.text, row.text) or (flush and not ends_sentence(before.text))
            return short or not same or parse_marker(row.text) is not None
        if inset > self.indent:  # indented below the item's text
            return several and self.start(row) - self.start(before) > 1.5 * self.indent and short
        return (several and self.start(before) - self.start(first) > self.indent) or short


def _clusters(starts: Sequence[float], width: float) -> list[tuple[float, int]]:
    """Return margins that rows share, with the number of rows at each, leftmost first."""
    found: list[tuple[float, int]] = []
    for start in sorted(starts):
        if found and start - found[-1][0] < width:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((start, 1))
    return found


def _is_centred(rows: Sequence[Row], indent: float) -> bool:
    if len(rows) < 2:
        return False
    middles = [(row.x0 + row.x1) / 2 for row in rows]
    starts = [row.x0 for row in rows]
    ends = [row.x1 for row in rows]
    if max(middles) - min(middles) > 1.2 * indent:
        return False
    apart = sum(abs(a - b) > indent for a, b in pairwise(starts))
    return apart >= max(1, (len(rows) - 1) // 2) and max(ends) - min(ends) > indent


def column_edge(rows: Sequence[Row], measures: Measures) -> float:
    """Return the end of the column's full rows in reading direction; minus infinity for too few rows."""
    ends = sorted(-row.x0 if measures.rtl else row.x1 for row in rows)
    return ends[len(ends) * 4 // 5] if len(ends) >= _TELLING else -inf


def _right(rows: Sequence[Row], starts: Sequence[float], ends: Sequence[float], edge: float) -> float:
    """Return the right margin: that of the rows, or of the column for rows that look like an address."""
    right, left = max(ends), min(starts)
    if len(rows) <= _LONGEST_ADDRESS and not any(row.text[:1].islower() for row in rows) and not rows[0].bold:
        return max(right, edge)
    if right > left + 0.65 * (edge - left) or len(rows) > _LONGEST_ADDRESS:
        return right
    running = sum(row.text[:1].islower() for row in rows[1:])
    return right if 2 * running >= len(rows) - 1 else edge


def find_margins(rows: Sequence[Row], measures: Measures, edge: float = -inf) -> Margins:
    """Return the margins of consecutive rows at the usual distance; `edge` is that of their column."""
    size = rows[0].size
    indent = (_INDENT_NOISY if measures.noisy else _INDENT) * size
    rtl = measures.rtl
    starts = [-row.x1 if rtl else row.x0 for row in rows]
    ends = [-row.x0 if rtl else row.x1 for row in rows]
    if measures.noisy:
        indent = min(indent, _narrow_indent(starts, size))
    large = size > 1.14 * measures.body or (not measures.bold and all(row.bold for row in rows))
    heading = len(rows) < 6 and large
    if _is_centred(rows, indent):
        return Margins(min(starts), max(ends), True, False, indent, rtl, heading)
    left = max(_clusters(starts, indent), key=lambda cluster: cluster[1])[0]
    right = _right(rows, starts, ends, edge)
    margins = Margins(left, right, False, False, indent, rtl, heading)
    return replace(margins, hanging=True, left=min(starts)) if _is_hanging(rows, starts, margins) else margins


def _narrow_indent(starts: Sequence[float], size: float) -> float:
    """Return half the distance of two margins if the rows of a scan keep to them exactly; infinity otherwise.

    Small print such as dictionaries has indents below the limit that unsteady margins of scans need.
    """
    low, high = min(starts), max(starts)
    if len(starts) < _TELLING or not _NARROWEST * size < high - low <= 2 * _INDENT_NOISY * size:
        return inf
    middle = (low + high) / 2
    sides = [start for start in starts if start < middle], [start for start in starts if start >= middle]
    steady = all(max(side) - min(side) < _STEADY * size for side in sides)
    return (high - low) / 2 if steady and 5 * min(map(len, sides)) >= len(starts) else inf


def _is_hanging(rows: Sequence[Row], starts: Sequence[float], margins: Margins) -> bool:
    """Return whether first lines are outdented: rows before outdented rows end a text, before indented rows not."""
    inwards = [0, 0]
    outwards = [0, 0]
    for index in range(1, len(rows)):
        shift = starts[index] - starts[index - 1]
        if abs(shift) < margins.indent or abs(shift) > _DEEPEST_INDENT * rows[0].size:
            continue
        before = rows[index - 1]
        ended = margins.is_short(before, rows[index]) or before.text.endswith((".", "!", "?", "。", ":"))
        counted = inwards if shift > 0 else outwards
        counted[0] += ended
        counted[1] += 1
    share_in = inwards[0] / inwards[1] if inwards[1] else None
    share_out = outwards[0] / outwards[1] if outwards[1] else None
    if share_in is None:
        return (share_out or 0.0) > 0.5 and starts[0] < margins.left + margins.indent and outwards[1] > 1
    if share_out is None:
        return share_in < 0.5 and starts[0] <= min(starts) + margins.indent
    return share_in < share_out


# Groups of a column's rows: paragraphs, list items, headings, and runs of code; classified later. The first pass splits
# rows where they look different (distance, size, face). The second pass finds the beginnings of paragraphs in each
# stretch, by margins and short rows.


_SENTENCE_END = tuple('.!?。！？…:;"”’»)]؟۔')
_OPEN_ADDRESS = re.compile(r"(?:https?://|www\.)\S*$")
_ADDRESS = re.compile(r"https?:|^//\w|\bwww\.|(?<![\w\\])[\w.+-]+@\w|\bdoi\b")
_ADDRESS_END = re.compile(r"[\w./:?=&%-]{4,}")
_CONTINUES = tuple("-,\u00ad\u2010–")


@dataclass(slots=True)
class Group:
    """Rows that are read together. `breaks[i]`: row i begins on a new line (False for the first)."""

    rows: list[Row]
    breaks: list[bool] = field(default_factory=list)
    marker: Marker | None = None
    code: bool = False
    gap: float = 0.0  # to the row above in the column, page units; large for the first

    @property
    def size(self) -> float:
        return max(self.rows, key=lambda row: len(row.text)).size

    @property
    def bold(self) -> bool:
        return all(row.bold for row in self.rows)

    @property
    def first(self) -> Row:
        return self.rows[0]

    @property
    def length(self) -> int:
        return sum(len(row.text) for row in self.rows)


def ends_sentence(text: str) -> bool:
    """Return whether the text may end a paragraph."""
    return text.endswith(_SENTENCE_END)


def goes_on(before: str, after: str) -> bool:
    """Return whether the words show that `after` continues the sentence of `before`."""
    if after[:1].islower() and (not ends_sentence(before) or _OPEN_ADDRESS.search(before)):
        return True
    if before.endswith("/") and _OPEN_ADDRESS.search(before) and _ADDRESS_END.fullmatch(after):
        return True
    return before.endswith(_CONTINUES)


def may_go_on(before: str, after: str) -> bool:
    """Return whether `goes_on` holds, or the script has no lower case to decide."""
    first = after[:1]
    caseless = first.isalpha() and first.lower() == first.upper()
    return goes_on(before, after) or (caseless and not ends_sentence(before))


#: Distance of the rows of a scan, as a factor of the usual one, above which they are apart.
_TOLERANCE = 1.32


def _step(rows: Sequence[Row], measures: Measures) -> float:
    """Return the usual distance between the centers of the column's rows, as a factor of their size."""
    steps = [
        (lower.middle - upper.middle) / upper.size
        for upper, lower in pairwise(rows)
        if max(upper.size, lower.size) < 1.2 * min(upper.size, lower.size)
    ]
    steps = sorted(step for step in steps if 0.5 < step < 3.2)
    if len(steps) < 5:
        return measures.leading
    return max(steps[len(steps) * 2 // 5], 0.7)


def _looks_apart(before: Row, row: Row, step: float, measures: Measures) -> bool:
    """Return whether distance, size, or face separate two rows."""
    numbered = _is_line_number(before, row) or _is_line_number(row, before)
    size = max(max(before.size, row.size) if numbered else min(before.size, row.size), 0.1)
    distance = (row.middle - before.middle) / size
    white = (row.y0 - before.y1) / size
    large = size > 1.14 * measures.body and max(before.size, row.size) < 1.05 * size
    tolerance = 1.6 if large else _TOLERANCE if measures.noisy else 1.27
    if distance > tolerance * step and white > step - 1.0 + 0.12:
        return True
    if numbered or (is_contents_entry(before.text) and is_contents_entry(row.text)):
        return False
    full = goes_on(before.text, row.text)
    if (
        measures.noisy
        and size > 0.9 * measures.body
        and before.size > 1.22 * row.size
        and before.x1 - before.x0 < 26 * size
    ):
        return not full
    one, other = before.size, row.size
    if not (before.bold and row.bold):  # two rows of one heading may have different sizes on a scan
        one, other = measures.settled(one), measures.settled(other)
    if max(one, other) > (1.25 if full else 1.0) * measures.slack * min(one, other):
        return True
    return (not full or _is_display(before, row, size, measures)) and _face_changes(before, row, measures)


def _is_display(before: Row, row: Row, size: float, measures: Measures) -> bool:
    """Return whether one of the rows is of a program within a sentence, which has an indent of its own."""
    if before.mono == row.mono or measures.noisy or abs(row.x0 - before.x0) <= size:
        return False
    return row.x0 < before.x0 or parse_marker(before.text) is None  # or it continues a list item


def _is_line_number(row: Row, other: Row) -> bool:
    """Return whether the row is the number of an empty line of a program."""
    return row.text.isdecimal() and other.mono and abs(row.x0 - other.x0) < other.size


def _is_web_address(before: Row, row: Row) -> bool:
    """Return whether the monospaced one of two rows is an address in a text, or its end on the next line."""
    if _ADDRESS.search(row.text if row.mono else before.text):
        return True
    is_open = not ends_sentence(before.text) or _OPEN_ADDRESS.search(before.text) is not None
    return row.mono and is_open and _ADDRESS_END.fullmatch(row.text) is not None


def _face_changes(before: Row, row: Row, measures: Measures) -> bool:
    if before.mono != row.mono and not _is_web_address(before, row):
        return True
    shorter, longer = sorted((before.x1 - before.x0, row.x1 - row.x0))
    if before.bold != row.bold:  # OCR takes a heavy text line for bold: a heading is shorter than the text
        return not measures.noisy or shorter < 0.8 * longer
    return before.italic and not row.italic and before.x1 < row.x1 - 3 * row.size


def _stretches(rows: Sequence[Row], measures: Measures) -> list[list[Row]]:
    step = _step(rows, measures)
    found: list[list[Row]] = [[rows[0]]]
    for before, row in pairwise(rows):
        entries = is_contents_entry(before.text) and is_contents_entry(row.text)
        other = min(before.tag, row.tag) >= 0 and before.tag != row.tag
        if (other and not entries) or _looks_apart(before, row, step, measures):
            found.append([row])
        else:
            found[-1].append(row)
    return found


def is_sure_heading(row: Row) -> bool:
    """Return whether the words alone make a heading: a section number or a usual name, short, not a sentence."""
    text = row.text
    if len(text) > 90 or row.cells > 2 or "\t" in text[12:]:
        return False
    if is_keyword(text):
        return True
    return numbering(text) > 0 and not text.endswith((".", ",", ";", ":")) and len(text.split()) > 1


#: Largest ratio of the sizes of an item and the item above it on a slide.
_SMALLER = 0.93


def _starts_item(row: Row, before: Row | None, open_item: Group | None, short: bool) -> Marker | None:
    """Return the marker of a list item that begins here, unless the row is the middle of a sentence."""
    marker = parse_marker(row.text)
    if marker is None or marker.certain or before is None:
        return marker
    previous = open_item.marker if open_item else None
    if previous and marker.style == previous.style and marker.value in (None, (previous.value or 0) + 1):
        return marker
    if marker.value is None and previous and row.size < _SMALLER * before.size:
        return marker
    if marker.value is not None and marker.value > 1 and not (short and ends_sentence(before.text)):
        return None
    return marker if short or ends_sentence(before.text) else None


def _starts_own(row: Row, before: Row, margins: Margins) -> bool:
    """Return whether the first words open a paragraph: a caption, a bibliography entry, a numbered heading."""
    if is_caption(row.text) and (ends_sentence(before.text) or margins.is_short(before, row)):
        return True
    if is_reference(row.text) and row.x0 <= margins.left + 0.5 * row.size and not before.text.endswith(","):
        return True
    return is_sure_heading(row) and margins.is_short(before, row) and (row.bold or not goes_on(before.text, row.text))


def _is_address(rows: Sequence[Row], margins: Margins) -> bool:
    """Return whether a few short rows have a house number or postal code: `5 Park View` is no section here."""
    if not 2 < len(rows) <= _LONGEST_ADDRESS or any(row.bold or row.cells > 1 for row in rows):
        return False
    numbered = sum(_HOUSE_NUMBER.match(row.text) is not None for row in rows)
    if not 0 < numbered <= 2 or any(parse_marker(row.text) for row in rows):
        return False
    width = max(row.x1 - row.x0 for row in rows)
    narrow = width < _NARROW_ADDRESS * rows[0].size and not any(row.text[:1].islower() for row in rows)
    return narrow or width < _SHORT_ROWS * (margins.right - margins.left) or margins.is_flush_end(rows)


#: Page numbers at the end of an index entry, and a reference to another entry; least number of rows of an index, and
#: least share of rows with either.
_INDEX_PAGES = re.compile(r"(?:[,\s]\d{1,4}|[,.] ?[ivxl]{1,6})(?:[-–]\d{1,4})?$")
_INDEX_REFERENCE = re.compile(r"(?:^|, )see (?:also )?\w")
_INDEX_ROWS, _INDEX_SHARE = 5, 0.4


def _index_breaks(rows: Sequence[Row], margins: Margins) -> list[bool]:
    """Return which rows of an index begin on a new line; empty if the rows are no index.

    These rows are those after the pages of an entry, with or without leader dots, after a reference that is not
    continued in an indented row, and after a short row.
    """
    paged = [_INDEX_PAGES.search(row.text) is not None or is_contents_entry(row.text) for row in rows]
    referring = [_INDEX_REFERENCE.search(row.text) is not None for row in rows]
    entries = sum(pages or reference for pages, reference in zip(paged, referring, strict=True))
    if len(rows) < _INDEX_ROWS or entries < _INDEX_SHARE * len(rows) or any(row.cells > 1 for row in rows):
        return []
    breaks = [False]
    for (before, row), pages, reference in zip(pairwise(rows), paged, referring, strict=False):
        is_open = before.text.endswith((",", "-", "–", "(")) or not row.text[0].isalpha()
        deeper = margins.start(row) > margins.start(before) + 0.5 * row.size
        whole = margins.is_short(before, row) or (reference and not deeper)
        breaks.append(pages or (whole and not is_open))
    return breaks


#: Least number of lines of a verse, and least share of them that end early. On 1,300 pages, the rule keeps the lines of
#: poems, addresses, and forms, and divides no paragraph of prose.
_VERSE, _EARLY = 4, 0.4


def _verse_breaks(rows: Sequence[Row], margins: Margins) -> list[bool]:
    """Return which rows begin on a new line: all but the first of a verse or a list of names; empty for other rows.

    All of its rows begin with a capital, many end early, and most of those end no sentence.
    """
    if len(rows) < _VERSE or margins.heading or margins.hanging or not all(map(_begins_line, rows)):
        return []
    titled = is_capitals(rows[0].text) and not is_capitals(rows[1].text)
    if titled or any(is_sure_heading(row) or is_caption(row.text) for row in rows):
        return []
    early = [before for before, row in pairwise(rows) if margins.is_short(before, row)]
    sentences = sum(row.text.endswith((".", "!", "?")) for row in early)
    verse = len(early) >= _EARLY * len(rows) and 2 * sentences <= len(early)
    return [index > 0 for index in range(len(rows))] if verse else []


def _begins_line(row: Row) -> bool:
    """Return whether the row has no list marker, and its first letter is a capital."""
    first = next(filter(str.isalnum, row.text), "")
    return first.isupper() and row.cells == 1 and parse_marker(row.text) is None and not is_footnote(row.text)


def _in_stretch(rows: Sequence[Row], measures: Measures, edge: float) -> list[Group]:
    margins = find_margins(rows, measures, edge)
    if _is_address(rows, margins):
        return [Group(list(rows), [index > 0 for index in range(len(rows))])]
    if breaks := _index_breaks(rows, margins) or _verse_breaks(rows, margins):
        return [Group(list(rows), breaks)]
    groups: list[Group] = []
    for index, row in enumerate(rows):
        before = rows[index - 1] if index else None
        group = groups[-1] if groups else None
        short = before is not None and margins.is_short(before, row)
        marker = _starts_item(row, before, group, short)
        if group is None or before is None or marker is not None:
            groups.append(Group([row], [False], marker))
        elif _starts_new(group, before, row, margins, short) or _is_over_paragraph(group, rows[index:], margins):
            groups.append(Group([row], [False]))
        else:
            group.rows.append(row)
            group.breaks.append(_own_line(group, before, row, margins, short))
    return groups


def _is_over_paragraph(group: Group, rows: Sequence[Row], margins: Margins) -> bool:
    """Return whether the item of one row is above a paragraph with an indented first row, and no part of it."""
    if group.marker is None or len(group.rows) > 1 or len(rows) < 2 or parse_marker(rows[1].text):
        return False
    inset, back = (margins.start(row) - margins.start(group.first) for row in rows[:2])
    return inset > margins.indent > max(abs(back), margins.right - margins.end(rows[0]))


#: Minimum share of a row's width of a sentence beside a label; in forms, pieces are shorter.
_LABELLED = 0.7


def _own_line(group: Group, before: Row, row: Row, margins: Margins, short: bool) -> bool:
    """Return whether a row of the group begins on a new line, as in addresses, verses, and cells."""
    if is_contents_entry(before.text) or (_FIELD.match(before.text) and _FIELD.match(row.text)):
        return True
    if row.cells > 1 or before.cells > 1:
        # A stretched line of a justified paragraph, and a label beside its first line, have wide gaps, too.
        one = min(row.cells, before.cells) == 1 and not short
        labelled = is_reference(before.text) or _is_labelled_prose(before)
        prose = one and (goes_on(before.text, row.text) or (row.cells == 1 and labelled))
        return not prose and (row.cells > 1 or group.marker is None)
    return short and not goes_on(before.text, row.text)


def _is_labelled_prose(row: Row) -> bool:
    """Return whether most of the row is one piece of an unfinished sentence, as beside a label."""
    widest = max(line.box.width for line in row.lines)
    return widest > _LABELLED * (row.x1 - row.x0) and not ends_sentence(row.text)


def _starts_new(group: Group, before: Row, row: Row, margins: Margins, short: bool) -> bool:
    if is_contents_entry(before.text) and is_contents_entry(row.text):
        return False
    if _starts_own(row, before, margins) or (len(group.rows) == 1 and margins.stands_over(before, row, short)):
        return not goes_on(before.text, row.text) or is_caption(row.text)
    if len(group.rows) == 1 and is_sure_heading(before) and short and not goes_on(before.text, row.text):
        return True
    if group.marker is not None:
        return margins.leaves_item(group.first, before, row, len(group.rows) > 1, short)
    if margins.begins_paragraph(before, row, group.first):
        return not goes_on(before.text, row.text)
    capitals = all(is_capitals(each.text) for each in group.rows) and not row.text.isupper()
    if capitals and row.text[:1].isupper() and group.length > (3 if short else 8):
        return True
    if margins.heading and not before.text.endswith("."):
        return False
    inside = margins.centred or (margins.hanging and margins.is_inset(row) and row.text[:1].islower())
    return short and ends_sentence(before.text) and before.cells == row.cells == 1 and not inside


def _with_footnote_starts(groups: list[Group], measures: Measures) -> list[Group]:
    """Split small print at each footnote mark."""
    result: list[Group] = []
    for group in groups:
        result.append(group)
        if group.size > 0.93 * measures.body or len(group.rows) < 2 or group.marker:
            continue
        current = group
        rows, breaks = group.rows, group.breaks
        current.rows, current.breaks = [rows[0]], [False]
        for before, row, own in zip(rows, rows[1:], breaks[1:], strict=False):
            if is_footnote(row.text) and ends_sentence(before.text):
                current = Group([row], [False])
                result.append(current)
            else:
                current.rows.append(row)
                current.breaks.append(own)
    return result


#: Rows of programs, and the least share of such rows: a program also has rows of words, such as comments.
_STATEMENT = re.compile(
    r"[{};%]$|^[})\]]|\)\s*:$|\w\(.*\)[;,]?$|^\s*(?:#|//|/\*|--|<[/!?\w]|@\w|%|\\\w)"
    r"|(?<![^\s(,])\w+_\w+(?![\w@/])|\w\s*(?:[-+*/|]?=|==|!=|->|=>|:=|<-)\s*\S"
    r"|^(?:import|from|return|def|class|if|for|while|else|elif|try|except|with|print|end|var|let|const)\b[^.!?]*[^.!?\s]$"
)
_STATEMENTS = 0.6
#: Least share of such rows in the monospaced rows of a scan's column, if it has programs at all.
_SOME_STATEMENTS = 0.25
_LINE_NUMBER = re.compile(r"^\d+\s+")
#: Dashes of lists, which no program has, and the largest size of code relative to the text.
_LONG_DASHES, _LARGEST_CODE = "–—", 1.14


def _is_statement(row: Row) -> bool:
    return _STATEMENT.search(_LINE_NUMBER.sub("", row.text)) is not None


def is_program(rows: Sequence[Row]) -> bool:
    """Return whether rows are a program: most of them have its signs."""
    return len(rows) > 2 and sum(map(_is_statement, rows)) >= _STATEMENTS * len(rows)


def _is_code(rows: Sequence[Row], program: bool, measures: Measures) -> bool:
    """Return whether a stretch is code: monospaced, and no title, footnote, list item, or addresses.

    `program`: the monospaced rows of the column are a program, which matters on a monospaced page.
    """
    worded = [row for row in rows if not row.text.isdecimal()]
    if not worded or not all(row.mono for row in worded) or (measures.typewriter and not program):
        return False
    first = worded[0]
    noted = any(script.start == 0 for script in first.lines[0].scripts)
    if noted or first.size > _LARGEST_CODE * measures.body:
        return False
    marker = parse_marker(first.text)
    if marker is not None and (marker.certain or first.text[0] in _LONG_DASHES):
        return False
    if measures.noisy and len(rows) == 1 and not _is_statement(first):  # OCR takes some short lines for monospaced
        return False
    addresses = sum(_ADDRESS.search(row.text) is not None and not _is_statement(row) for row in rows)
    return 2 * addresses < len(rows)


def _with_sure_faces(rows: Sequence[Row], measures: Measures) -> list[Row]:
    """Return the rows of a scan: in a text, one monospaced row is names in a sentence; in a program, all rows are.

    Without a program, the rows are typewritten text, of which OCR finds only some monospaced.
    """
    typed = [row for row in rows if row.mono]
    if sum(map(_is_statement, typed)) < _SOME_STATEMENTS * len(typed):
        return [replace(row, mono=False) for row in rows]
    reach = _TOLERANCE * _step(rows, measures)
    found = list(rows)
    for index, row in enumerate(rows):
        above, below = rows[max(0, index - 1) : index], rows[index + 1 : index + 2]
        near = [other.mono for other in (*above, *below) if abs(other.middle - row.middle) < reach * row.size]
        if not near or row.mono in near or (row.mono and above and _begins_program(above[0], row)):
            continue
        if row.mono or len(near) > 1:
            found[index] = replace(row, mono=not row.mono)
    return found


def _begins_program(before: Row, row: Row) -> bool:
    return _is_statement(row) and ends_sentence(before.text)


def group_rows(rows: Sequence[Row], measures: Measures) -> list[Group]:
    """Return the groups of one column from top to bottom; every row is in exactly one."""
    if not rows:
        return []
    if measures.noisy:
        rows = _with_sure_faces(rows, measures)
    program = is_program([row for row in rows if row.mono])
    groups: list[Group] = []
    edge = column_edge(rows, measures)
    for stretch in _stretches(rows, measures):
        if _is_code(stretch, program, measures):
            groups.append(Group(stretch, [True] * len(stretch), code=True))
        else:
            groups += _with_footnote_starts(_in_stretch(stretch, measures, edge), measures)
    usual = median(row.size for row in rows)
    for upper, lower in pairwise(groups):
        lower.gap = lower.first.y0 - upper.rows[-1].y1
    groups[0].gap = 2 * usual
    return groups
