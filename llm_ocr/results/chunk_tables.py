"""Tables that are larger than a passage, cut between rows, with the header over each part. No row is ever lost."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llm_ocr.results.chunk_packing import Measure, lines, pack

_TAG = re.compile(r"<(?P<close>/?)(?P<name>table|tr|thead|tbody|tfoot)\b[^<>]*>", re.IGNORECASE)
_SECTION = re.compile(r"</?(?:thead|tbody|tfoot)\b[^<>]*>", re.IGNORECASE)
_SPAN = re.compile(r"\browspan\s*=\s*[\"']?(\d{1,4})", re.IGNORECASE)
_CELL = re.compile(r"<(td|th)\b", re.IGNORECASE)
_RULE = re.compile(r"[\s|:-]*-[\s|:-]*")


@dataclass(frozen=True, slots=True)
class _Table:
    """`begin` and `end` stand around each part, `first` only before the rows of the first one (a caption in HTML)."""

    begin: str
    first: str
    header: str
    rows: tuple[str, ...]
    end: str

    def part(self, rows: str, *, first: bool, header: bool) -> str:
        return f"{self.begin}{self.first if first else ''}{self.header if header else ''}{rows}{self.end}".strip("\n")


def split_table(text: str, room: int, limit: int, measure: Measure) -> list[str]:
    """Parts of at most `limit`, the first one of at most `room`; a row that is larger is a part of its own.

    The header (of HTML: `<thead>`, or rows of `<th>` alone; of pipe tables: what is above the rule) is repeated where
    header and rows fit the limit together. Rows of HTML that a cell spans stay together where they fit.
    """
    table = _html(text, limit, measure) if _TAG.match(text.lstrip()) else _pipes(text)
    if table is None or not table.rows:
        return list(pack(lines(text, limit, measure), room, limit, measure))
    frame = measure(table.begin + table.end)
    header = measure(table.header)
    repeats = header and header + frame <= limit // 2
    taken = frame + (header if repeats else 0)
    rows = table.rows if repeats or not table.header else (table.header, *table.rows)
    least = max(limit - taken, 1)
    begun = max(room - taken - measure(table.first), 1)
    return list(_parts(table, list(pack(rows, begun, least, measure)), bool(repeats), limit, measure))


def _parts(table: _Table, groups: Sequence[str], repeats: bool, limit: int, measure: Measure) -> Iterator[str]:
    for number, rows in enumerate(groups):
        first = number == 0
        part = table.part(rows, first=first, header=repeats)
        if repeats and not first and measure(part) > limit:  # one row that fills a part alone
            part = table.part(rows, first=first, header=False)
        yield part


def _pipes(text: str) -> _Table | None:
    head, rule, *rows = text.split("\n") if text.count("\n") > 1 else ("", "")
    if "|" not in head or not _RULE.fullmatch(rule):
        return None
    return _Table("", "", f"{head}\n{rule}\n", tuple(f"{row}\n" for row in rows), "")


def _html(text: str, limit: int, measure: Measure) -> _Table | None:
    """None for HTML without rows; a table that is not closed ends with the text."""
    starts: list[int] = []
    depth = begun = ended = head = 0
    for tag in _TAG.finditer(text):
        name, close = tag["name"].lower(), bool(tag["close"])
        if name == "table":
            depth += -1 if close else 1
            begun = begun or tag.end()
            ended = tag.start() if close and not depth else ended
        elif depth == 1 and name == "tr" and not close and not ended:
            starts.append(tag.start())
        elif depth == 1 and name == "thead" and close:
            head = len(starts)
    if not starts:
        return None
    text, ended = (text, ended) if ended else (f"{text}</table>", len(text))
    rows = [_SECTION.sub("", text[at:end]) for at, end in zip(starts, [*starts[1:], ended], strict=True)]
    head = head or _heading_rows(rows)
    begin, first = text[:begun], _SECTION.sub("", text[begun : starts[0]]).strip()
    return _Table(
        f"{begin}\n",
        first and f"{first}\n",
        "".join(rows[:head]),
        tuple(_tied(rows[head:], limit, measure)),
        text[ended:],
    )


def _heading_rows(rows: Sequence[str]) -> int:
    for number, row in enumerate(rows):
        cells = {cell[1].lower() for cell in _CELL.finditer(row)}
        if cells != {"th"}:
            return number
    return 0


def _tied(rows: Sequence[str], limit: int, measure: Measure) -> Iterator[str]:
    """The rows, those that share a cell as one, unless they are too large together."""
    group: list[str] = []
    ends = 0
    for number, row in enumerate(rows):
        if number >= ends and group:
            yield from _whole(group, limit, measure)
            group = []
        group.append(row)
        ends = max([ends, number + 1, *(number + int(span[1]) for span in _SPAN.finditer(row))])
    yield from _whole(group, limit, measure)


def _whole(group: Sequence[str], limit: int, measure: Measure) -> Sequence[str]:
    text = "".join(group)
    return [text] if len(group) > 1 and measure(text) <= limit // 2 else group
