"""Find running headers, footers, and page numbers at a page's edges."""

import re
from collections.abc import Sequence
from itertools import pairwise

from llm_ocr.types import BlockKind, Box, Line
from llm_ocr_cpu.layout.groups import is_capitals, is_caption, is_contents_entry, numbering
from llm_ocr_cpu.layout.measures import Measures, is_vertical
from llm_ocr_cpu.layout.rows import Row, make_row

#: Shares of the page's height: search zone of furniture, zone of recurring lines, zone where patterns suffice, and zone
#: of a page number alone in the middle (0.175 in the standard classes of LaTeX on A4).
_ZONE, _RECURRING, _OUTER, _NUMBERED = 0.13, 0.16, 0.092, 0.2
#: Rows at an edge, not counting recurring ones. Distance of a page number from the middle as a share of the width.
_MOST_ROWS, _MIDDLE = 4, 0.02
#: Number of lines below which a page has no running text, such as a letterhead or a slide.
_PAGE_OF_TEXT = 12
#: Number of lines from which a page surely has running text, so that an isolated row at its edge needs no pattern.
_FULL_PAGE = 35
#: The same for a row of parts at both edges, which is also in a list or at the top of a title page.
_SOME_TEXT = 20
#: Height of a line in font sizes, with a tolerance of a tenth; a larger gap than the leading leaves sets rows apart.
_LINE_HEIGHT = 0.9
#: Most parts of a header, with wide gaps between them: three and a page number. A row with more is the head of a table.
_MOST_PARTS = 4
#: Size relative to the text below which a recurring row is no text.
_SMALLER = 0.95
#: Largest leading for gaps; a page of formulas and tables has a larger one.
_MOST_LEADING = 1.6

#: Fewest numbers of lines in a margin, and their largest size relative to the text.
_LEAST_NUMBERS, _SMALL_NUMBER = 6, 0.85
#: Number of characters above which a line is running text.
_LEAST_REST = 25
#: Gap in font sizes up to which letters with a digit, such as `A6`, number the text on their right, not the page.
_LABEL_GAP = 4
#: Size relative to the text of a footer with a page number on a page of few lines.
_SMALL_FOOTER = 0.8
#: Largest size of a running header relative to the text; the second for italic, or capitals beside a page number.
_LARGEST, _LARGEST_DISTINCT = 1.12, 1.4
#: Gap in font sizes between the parts of a row at the left and right edge of the text.
_APART = 3.0
#: Largest size of a dictionary's guide words, relative to its small print.
_LARGEST_GUIDE = 1.6

_NUMBER = re.compile(
    r"[\[(<{|~—–\-\s.•·]*(?:(?:page|seite|pagina|página|p\.?|pg\.?|s\.)\s*)?"
    r"(?:[A-Z]{0,3}-?\d{1,4}(?:[-.:‑–]\d{1,3})?|[ivxlc]{1,7}|[IVXLC]{1,7})"
    r"(?:\s*(?:of|/|von|de|sur|\|)\s*\d{1,4})?[\])>}|~—–\-\s.•·]*$",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_PAGE_WORD = re.compile(r"\bpage\s*\d+(\s*of\s*\d+)?\b|第\s*\d+\s*页|\bseite\s+\d+\b", re.IGNORECASE)
_RUNNING = re.compile(
    r"https?://|\bwww\.|\bdoi\b|\barxiv:|©|\(c\)\s*\d{4}|\bcopyright\b|all rights reserved|\bISSN\b|\bISBN\b|\bet al\.?"
    r"|\bvol(ume|\.)\s*\d|\bno\.\s*\d|\bpp\.\s*\d|downloaded (from|by)|\bpreprint\b|\bproceedings\b|\bconfidential\b"
    r"|licensed (to|under)|\bjournal of\b|\btransactions on\b|\bconference on\b|published (by|as|online)|\bdraft\b"
    r"|\d{1,2}/\d{1,2}/\d{2,4}|\bprinted (on|in)\b|\brev(ision|\.)\s*\d|\bform\s+[\w-]*\d",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[a-z,;].*[.!?:;,]$")
#: Footnote that is an address, such as `1https://example.org`.
_NOTE_LINK = re.compile(r"(?:\d{1,2}|[*†‡§¶]{1,3})\s?https?://", re.IGNORECASE)
_DATED = re.compile(r"[’']\d\d\b|\b(19|20)\d\d\b")
#: Share of the page's width that contains notes running up or down the page.
_MARGIN = 0.1


def _edge_rows(lines: Sequence[Line], measures: Measures, top: bool) -> tuple[list[Row], float]:
    """Return rows near an edge from the outside in, and the height at which the text begins."""
    reach = _NUMBERED * measures.height
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
        elif outside and (len(groups) < _MOST_ROWS or line.recurs):
            groups.append([line])
        else:
            beyond = box.y0 if top else box.y1
            break
    return [make_row(group, measures.rtl) for group in groups], beyond


def is_page_number(text: str) -> bool:
    """Return whether the text is only a page number: `12`, `- xii -`, `Page 3 of 10`, `A-7`."""
    return any(character.isalnum() for character in text) and _NUMBER.match(text.strip()) is not None


def _is_middle_number(row: Row, lines: Sequence[Line], measures: Measures) -> bool:
    """Return whether the row is only a page number in the middle of the text's width."""
    if len(row.lines) > 1 or not is_page_number(row.text):
        return False
    middle = (min(line.box.x0 for line in lines) + max(line.box.x1 for line in lines)) / 2
    return abs(row.lines[0].box.centre[0] - middle) < _MIDDLE * measures.width


def _recurs(row: Row) -> bool:
    return sum(len(line.text) for line in row.lines if line.recurs) * 2 > sum(len(line.text) for line in row.lines)


def _has_number(row: Row) -> bool:
    """Return whether a separate page number is at one end of the row, or in the middle of three parts."""
    if len(row.lines) < 2:
        return False
    first, second, last = row.lines[0], row.lines[1], row.lines[-1]
    if len(row.lines) == 3 and is_page_number(second.text) and _is_apart(row):
        return True
    label = not first.text.isalnum() or first.text.isdecimal() or second.box.x0 - first.box.x1 > _LABEL_GAP * first.size
    other = row.lines[-2].box
    beside = last.box.x0 > other.x1 or last.box.x1 < other.x0  # not the mark of a footnote inside another part
    return (is_page_number(first.text) and label) or (is_page_number(last.text) and beside)


def _is_apart(row: Row) -> bool:
    """Return whether the row has two or three parts with wide gaps, as at both edges and in the middle."""
    boxes = sorted((line.box for line in row.lines), key=lambda box: box.x0)
    return 2 <= len(boxes) <= 3 and all(right.x0 - left.x1 > _APART * row.size for left, right in pairwise(boxes))


def _is_guide(row: Row, measures: Measures) -> bool:
    """Return whether the row has guide words of a dictionary: at both edges, short, in capitals or numbered."""
    parts = sorted(row.lines, key=lambda line: line.box.x0)
    if not 2 <= len(parts) <= 4 or row.size > _LARGEST_GUIDE * measures.body:
        return False
    wide = parts[0].box.x0 < 0.25 * measures.width and parts[-1].box.x1 > 0.75 * measures.width
    apart = all(two.box.x0 - one.box.x1 > 4 * measures.body for one, two in pairwise(parts))
    short = all(len(line.text) < _LEAST_REST for line in parts)
    numbered = any(is_page_number(line.text) for line in parts)
    return wide and apart and short and (numbered or is_capitals(row.text) or row.bold)


def _has_note_mark(row: Row) -> bool:
    """Return whether the row begins with the mark of a footnote: raised, or before an address."""
    first = row.lines[0]
    if any(script.start == 0 and not script.lowered for script in first.scripts) or _NOTE_LINK.match(row.text):
        return True
    if len(row.lines) < 2 or len(first.text) > 3:
        return False
    text = row.lines[1]
    raised = first.box.y0 + first.box.y1 < text.box.y0 + text.box.y1 and first.size < 0.9 * text.size
    return raised and text.box.x0 - first.box.x1 < 0.6 * text.size


def _is_furniture(row: Row, gap: float, after: str, outer: bool, measures: Measures, lines: int) -> bool:
    """Return whether a row is furniture.

    Args:
        row: The row.
        gap: Distance to the next row inward; of recurring rows, the distance of the innermost.
        after: Text below a row at the top; "" for a row at the bottom.
        outer: Whether the row is in the strip where pages have no text.
        measures: Measures of the page.
        lines: Number of lines on the page.
    """
    many = lines >= _PAGE_OF_TEXT
    text = row.text.replace("\t", " ")
    body = measures.body
    # Text of letters and forms recurs as well: without a gap, as a sentence, or on pages of few lines.
    sentence = after and row.size <= _LARGEST * body and _SENTENCE.search(text)
    apart = many and not sentence and gap > (measures.leading - _LINE_HEIGHT) * body
    if _recurs(row) and (apart or row.size < _SMALLER * body):  # a title of a slide may recur on the next slides
        return measures.height > measures.width or row.size <= _LARGEST_DISTINCT * body
    if is_page_number(text):
        year = lines < _FULL_PAGE and _YEAR.fullmatch(text)  # at the bottom of a title page
        return len(row.lines) == 1 and gap > 0.45 * body and not year
    if outer and lines >= _FULL_PAGE and after and _is_guide(row, measures):
        return gap > 0.2 * body
    numbered = _has_number(row) and not is_contents_entry(text)
    distinct = (numbered and is_capitals(text)) or (row.italic and not row.bold and (numbered or gap > 2 * body))
    largest = _LARGEST_DISTINCT if distinct else _LARGEST
    if row.size > largest * body * (1.15 if measures.noisy else 1.0) or len(row.lines) > 6 or len(text) > 160:
        return False
    if _has_note_mark(row) or is_caption(text):
        return False
    if _PAGE_WORD.search(text) and len(text) < 120:
        return gap > 0.4 * body
    sparse = outer and row.size < _SMALL_FOOTER * body
    if numbered and (many or sparse):
        return gap > (0.7 if outer else 1.2) * body
    if not outer:
        return many and row.size < _SMALL_FOOTER * body and _RUNNING.search(text) is not None and gap > body
    if _RUNNING.search(text):
        return gap > (measures.leading - 0.7) * body and (many or row.size < 0.95 * body)
    return many and (_is_over_rest(row, gap, after, measures) or _is_plain_furniture(row, gap, measures, lines))


def _is_over_rest(row: Row, gap: float, after: str, measures: Measures) -> bool:
    """Return whether the row is above the rest of a sentence that began on the page before: no heading is."""
    words = len(after) > _LEAST_REST and after[:1].islower() and after[1:2] != " "
    alone = len(row.text) < 90 and not row.text[:1].islower() and not row.text.endswith((".", ",", ":", ";", "-"))
    return words and alone and not numbering(row.text) and gap > (measures.leading - 0.7) * measures.body


def _is_plain_furniture(row: Row, gap: float, measures: Measures, lines: int) -> bool:
    """Return whether a row is furniture by its position alone."""
    text = row.text
    gap /= min(measures.leading, _MOST_LEADING) * measures.body
    if _is_apart(row) and gap > 1.2 and not row.bold and lines >= _SOME_TEXT:
        return not any(line.text.endswith(("?", ":")) for line in row.lines)
    if _SENTENCE.search(text) or row.bold or (text[:1].islower() and gap < 1.6):
        return False
    small = row.size < (0.85 if measures.noisy else 0.95) * measures.body
    if small or row.italic or is_capitals(text):
        return len(text) < 90 and gap > 0.8
    return lines >= _FULL_PAGE and (gap > 1.6 if len(text) < 90 else gap > 1.0 and _DATED.search(text) is not None)


def _is_numbered_head(row: Row, inner: Row | None, lines: Sequence[Line], measures: Measures) -> bool:
    """Return whether the page number at an end of the row is at a margin of the text, as above small pages."""
    first, last = row.lines[0], row.lines[-1]
    if not _has_number(row) or is_contents_entry(row.text) or (inner is not None and _has_number(inner)):
        return False
    left = first.text.isdecimal() and first.box.x0 < min(line.box.x0 for line in lines) + measures.body
    return left or (last.text.isdecimal() and last.box.x1 > max(line.box.x1 for line in lines) - measures.body)


def _is_ruled(row: Row, end: float, rules: Sequence[Box], measures: Measures) -> bool:
    """Return whether a rule separates the row at the top from the text below, which begins at `end`."""
    body = measures.body
    return (
        max(line.size for line in row.lines) <= 1.12 * body
        and not any(line.bold for line in row.lines)
        and not is_caption(row.text)
        and any(
            -0.5 * body < rule.y0 - row.y1 < 1.2 * body
            and end - rule.y1 > 0.8 * body
            and rule.x0 < row.x0 + body
            and rule.x1 > row.x1 - body
            for rule in rules
        )
    )


def _edge(lines: Sequence[Line], rules: Sequence[Box], measures: Measures, top: bool, count: int) -> list[Row]:
    rows, beyond = _edge_rows(lines, measures, top)
    found: list[Row] = []
    for index, row in enumerate(rows):
        inner = rows[index + 1] if index + 1 < len(rows) else None
        end = (inner.y0 if top else inner.y1) if inner else beyond
        gap = end - row.y1 if top else row.y0 - end
        if _recurs(row):
            gap = _recurring_gap(rows[index:], beyond, top)
        depth = (row.y1 if top else measures.height - row.y0) / measures.height
        alone = gap > 1.5 * measures.body and not top and _is_middle_number(row, lines, measures)
        ruled = top and index == len(found) and _is_ruled(row, end, rules, measures)
        deep = alone or (top and index == 0 and _is_numbered_head(row, inner, lines, measures))
        zone = _NUMBERED if deep else _RECURRING if ruled or _recurs(row) else _ZONE
        if depth > zone:
            break
        outer = depth <= (_ZONE if found and found[-1] is rows[index - 1] else _OUTER)
        after = inner.lines[0].text if top and inner is not None else ""
        if not top and inner is not None and _is_below_heading(row, inner, gap, measures):
            break
        if row.cells <= _MOST_PARTS and (ruled or _is_furniture(row, gap, after, outer, measures, count)):
            number = depth <= _OUTER and len(row.lines) == 1 and is_page_number(row.text)
            found = rows[: index + 1] if _together(rows[: index + 1], measures, number) else [*found, row]
    return found


def _recurring_gap(rows: Sequence[Row], beyond: float, top: bool) -> float:
    """Return the gap between the recurring rows at the beginning of `rows` and the next row, or the text `beyond`."""
    last = next((at for at, row in enumerate(rows) if not _recurs(row)), len(rows)) - 1
    end = (rows[last + 1].y0 if top else rows[last + 1].y1) if last + 1 < len(rows) else beyond
    return end - rows[last].y1 if top else rows[last].y0 - end


def _is_below_heading(row: Row, inner: Row, gap: float, measures: Measures) -> bool:
    """Return whether the row at the bottom is the text of a heading."""
    heading = (inner.bold and not measures.bold) or inner.size > 1.12 * measures.body
    own = row.bold or _recurs(row) or is_page_number(row.text)
    return heading and not own and row.size > 0.95 * measures.body and gap < 2.5 * measures.body


def _together(rows: Sequence[Row], measures: Measures, number: bool) -> bool:
    """Return whether rows outside a furniture row belong to it: small lines without headings; sentences if `number`."""
    return all(row.size <= 1.12 * measures.body and (number or not _SENTENCE.search(row.text)) for row in rows)


def find_furniture(
    lines: Sequence[Line], rules: Sequence[Box], measures: Measures, count: int, on_side: bool = False
) -> list[tuple[BlockKind, Row]]:
    """Return headers, footers, and page numbers with their lines; conservative without recurring lines.

    Args:
        lines: Lines outside tables and figures.
        rules: Horizontal rules outside tables and figures.
        measures: Measures of the page.
        count: Number of all lines of the page, including those of tables and figures.
        on_side: Whether the page was turned, so that its headers and footers are vertical lines.
    """
    notes = [line for line in lines if _is_side_note(line, measures, on_side)]
    found = [
        (BlockKind.PAGE_NUMBER if is_page_number(line.text) else BlockKind.HEADER, make_row([line])) for line in notes
    ]
    taken = {id(line) for line in notes}
    upright = [line for line in lines if not is_vertical(line) and id(line) not in taken]
    numbers = _line_numbers(upright, measures)
    found += [(BlockKind.PAGE_NUMBER, make_row([line])) for line in numbers]
    taken = {id(line) for line in numbers}
    for top in (True, False):
        for row in _edge([line for line in upright if id(line) not in taken], rules, measures, top, count):
            taken.update(id(line) for line in row.lines)
            found += _split(row, BlockKind.HEADER if top else BlockKind.FOOTER, measures)
    return found


def _line_numbers(lines: Sequence[Line], measures: Measures) -> list[Line]:
    """Return the numbers of lines in a margin, as in manuscripts: small, in steps of 1 or 5, beside all text."""
    small = [line for line in lines if line.text.isdecimal() and line.size < _SMALL_NUMBER * measures.body]
    text = [line.box for line in lines if len(line.text) > _LEAST_REST]
    if len(small) < _LEAST_NUMBERS or not text:
        return []
    left, right = min(box.x0 for box in text), max(box.x1 for box in text)
    for side in (
        [line for line in small if line.box.x1 < left - 0.3 * measures.body],
        [line for line in small if line.box.x0 > right + 0.3 * measures.body],
    ):
        ordered = sorted(side, key=lambda line: line.box.y0)
        steps = [int(second.text) - int(first.text) for first, second in pairwise(ordered)]
        if len(ordered) >= _LEAST_NUMBERS and max(steps.count(1), steps.count(5)) > 0.8 * len(steps):
            return side
    return []


def _is_side_note(line: Line, measures: Measures, on_side: bool) -> bool:
    """Return whether a vertical line in the margin is a preprint server's stamp, or a download or license note."""
    middle = line.box.centre[0] / measures.width
    if on_side:
        return (is_vertical(line) or is_page_number(line.text)) and not _ZONE < middle < 1 - _ZONE
    return (
        is_vertical(line)
        and (line.recurs or _RUNNING.search(line.text) is not None)
        and not _MARGIN < middle < 1 - _MARGIN
    )


def _split(row: Row, kind: BlockKind, measures: Measures) -> list[tuple[BlockKind, Row]]:
    """Split a row's page number from its text."""
    numbers = [line for line in row.lines if is_page_number(line.text)]
    if not numbers or len(numbers) > 1:
        return [(kind, row)]
    rest = [line for line in row.lines if line is not numbers[0]]
    number = (BlockKind.PAGE_NUMBER, make_row(numbers))
    return [number, (kind, make_row(rest, measures.rtl))] if rest else [number]
