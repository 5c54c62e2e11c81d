"""Running headers, footers and page numbers: what stands at a page's edge and belongs to the whole document."""

import re
from collections.abc import Sequence

from llm_ocr.engines.embedded.layout.rows import Measures, Row, is_vertical, make_row
from llm_ocr.types import BlockKind, Line

#: Parts of the page's height: where furniture is looked for, where recurring lines are taken, where patterns suffice.
_ZONE, _RECURRING, _OUTER = 0.13, 0.16, 0.092
_MOST_ROWS = 4
#: Fewer lines than this make no page of running text: a letterhead or a slide's words are all there is.
_PAGE_OF_TEXT = 12
#: From this many lines on it is surely one, and a row set apart at its edge needs no pattern.
_FULL_PAGE = 35

_NUMBER = re.compile(
    r"[\[(<{|~—–\-\s.•·]*(?:(?:page|seite|pagina|página|p\.?|pg\.?|s\.)\s*)?"
    r"(?:[A-Z]{0,3}-?\d{1,4}(?:[-.‑–]\d{1,3})?|[ivxlc]{1,7}|[IVXLC]{1,7})"
    r"(?:\s*(?:of|/|von|de|sur|\|)\s*\d{1,4})?[\])>}|~—–\-\s.•·]*$",
    re.IGNORECASE,
)
_PAGE_WORD = re.compile(r"\bpage\s*\d+(\s*of\s*\d+)?\b|第\s*\d+\s*页|\bseite\s+\d+\b", re.IGNORECASE)
_RUNNING = re.compile(
    r"https?://|\bwww\.|\bdoi\b|\barxiv:|©|\(c\)\s*\d{4}|\bcopyright\b|all rights reserved|\bISSN\b|\bISBN\b|\bet al\.?"
    r"|\bvol(ume|\.)\s*\d|\bno\.\s*\d|\bpp\.\s*\d|downloaded (from|by)|\bpreprint\b|\bproceedings\b|\bconfidential\b"
    r"|licensed (to|under)|\bjournal of\b|\btransactions on\b|\bconference on\b|published (by|as|online)|\bdraft\b"
    r"|\d{1,2}/\d{1,2}/\d{2,4}|\bprinted (on|in)\b|\brev(ision|\.)\s*\d|\bform\s+[\w-]*\d",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[a-z,;].*[.!?:;,]$")
_DATED = re.compile(r"[’']\d\d\b|\b(19|20)\d\d\b")
#: Notes that run up or down the page stand within this part of its width.
_MARGIN = 0.1


def _edge_rows(lines: Sequence[Line], measures: Measures, top: bool) -> tuple[list[Row], float]:
    """Rows near an edge from the outside in, and the height where the text behind them begins."""
    reach = _RECURRING * measures.height
    sign = 1.0 if top else -1.0
    ordered = sorted(lines, key=lambda line: sign * (line.box.y0 + line.box.y1))
    groups: list[list[Line]] = []
    beyond = measures.height if top else 0.0
    for line in ordered[:200]:
        box = line.box
        outside = box.y1 <= reach if top else box.y0 >= measures.height - reach
        last = groups[-1][-1].box if groups else None
        if last is not None and min(last.y1, box.y1) - max(last.y0, box.y0) > 0.5 * min(last.height, box.height):
            groups[-1].append(line)
        elif outside and len(groups) < _MOST_ROWS:
            groups.append([line])
        else:
            beyond = box.y0 if top else box.y1
            break
    return [make_row(group, measures.rtl) for group in groups], beyond


def is_page_number(text: str) -> bool:
    """Whether the text is nothing but a page number: `12`, `- xii -`, `Page 3 of 10`, `A-7`."""
    return any(character.isalnum() for character in text) and _NUMBER.match(text.strip()) is not None


def _recurs(row: Row) -> bool:
    return sum(len(line.text) for line in row.lines if line.recurs) * 2 > sum(len(line.text) for line in row.lines)


def _has_number(row: Row) -> bool:
    """Whether a page number stands at one end of the row, apart from the rest."""
    texts = [line.text for line in row.lines]
    return len(texts) > 1 and (is_page_number(texts[0]) or is_page_number(texts[-1]))


def _is_furniture(row: Row, gap: float, outer: bool, measures: Measures, lines: int) -> bool:
    """`gap`: the distance to the next row inwards; `outer`: within the strip where pages carry no text."""
    many = lines >= _PAGE_OF_TEXT
    if _recurs(row):
        return True
    text = row.text.replace("\t", " ")
    body = measures.body
    if is_page_number(text):
        return len(row.lines) == 1 and gap > 0.45 * body
    if row.size > 1.12 * body * (1.15 if measures.noisy else 1.0) or len(row.lines) > 6 or len(text) > 160:
        return False
    if _PAGE_WORD.search(text) and len(text) < 120:
        return gap > 0.4 * body
    if _has_number(row) and many:
        return gap > (0.7 if outer else 1.2) * body
    if not outer:
        return False
    if _RUNNING.search(text):
        return gap > 0.5 * body and (many or row.size < 0.95 * body)
    return many and _is_plain_furniture(row, gap, measures, lines)


def _is_plain_furniture(row: Row, gap: float, measures: Measures, lines: int) -> bool:
    """A row that nothing but its place sets apart from the text."""
    text = row.text
    if _SENTENCE.search(text) or row.bold or text[:1].islower():
        return False
    gap /= measures.leading * measures.body
    small = row.size < (0.85 if measures.noisy else 0.95) * measures.body
    if small or row.italic or text.isupper():
        return len(text) < 90 and gap > 0.8
    return lines >= _FULL_PAGE and (gap > 1.6 if len(text) < 90 else gap > 1.0 and _DATED.search(text) is not None)


def _edge(lines: Sequence[Line], measures: Measures, top: bool, count: int) -> list[Row]:
    rows, beyond = _edge_rows(lines, measures, top)
    found: list[Row] = []
    for index, row in enumerate(rows):
        inner = rows[index + 1] if index + 1 < len(rows) else None
        gap = (inner.y0 if inner else beyond) - row.y1 if top else row.y0 - (inner.y1 if inner else beyond)
        depth = (row.y1 if top else measures.height - row.y0) / measures.height
        zone = _RECURRING if _recurs(row) else _ZONE
        if depth > zone:
            break
        outer = depth <= (_ZONE if found and found[-1] is rows[index - 1] else _OUTER)
        if _is_furniture(row, gap, outer, measures, count):
            found = rows[: index + 1] if _together(rows[: index + 1], measures) else [*found, row]
    return found


def _together(rows: Sequence[Row], measures: Measures) -> bool:
    """Whether rows outside of one that is furniture go with it: small lines, none of them a heading."""
    return all(row.size <= 1.12 * measures.body and not _SENTENCE.search(row.text) for row in rows)


def find_furniture(lines: Sequence[Line], measures: Measures, count: int) -> list[tuple[BlockKind, Row]]:
    """Headers, footers and page numbers of a page, each with its lines; conservative where nothing recurs.

    `count`: all lines of the page, those of tables and figures too.
    """
    upright = [line for line in lines if not is_vertical(line)]
    notes = [line for line in lines if is_vertical(line) and _is_side_note(line, measures)]
    found = [(BlockKind.HEADER, make_row([line])) for line in notes]
    taken: set[int] = set()
    for top in (True, False):
        for row in _edge([line for line in upright if id(line) not in taken], measures, top, count):
            taken.update(id(line) for line in row.lines)
            found += _split(row, BlockKind.HEADER if top else BlockKind.FOOTER, measures)
    return found


def _is_side_note(line: Line, measures: Measures) -> bool:
    """Whether a line that runs up or down the margin is a stamp of a preprint server, a download or licence note."""
    middle = line.box.centre[0] / measures.width
    return (line.recurs or _RUNNING.search(line.text) is not None) and not _MARGIN < middle < 1 - _MARGIN


def _split(row: Row, kind: BlockKind, measures: Measures) -> list[tuple[BlockKind, Row]]:
    """A row's page number apart from its text."""
    numbers = [line for line in row.lines if is_page_number(line.text)]
    if not numbers or len(numbers) > 1:
        return [(kind, row)]
    rest = [line for line in row.lines if line is not numbers[0]]
    number = (BlockKind.PAGE_NUMBER, make_row(numbers))
    return [number, (kind, make_row(rest, measures.rtl))] if rest else [number]
