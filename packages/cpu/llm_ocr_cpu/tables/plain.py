"""Find tables without rules: by values next to labels, by a caption, and by alignment."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, takewhile
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from llm_ocr.engines.descriptions import TABLE_CAPTION
from llm_ocr.types import Box, Line, Word
from llm_ocr_cpu.layout.groups import has_bullet
from llm_ocr_cpu.tables.cells import Cell, Piece, Row, Segment, Table, is_number, rows_of, with_text
from llm_ocr_cpu.tables.ruled import Rules, components
from llm_ocr_cpu.tables.spaced import MOST_HEADINGS, SENTENCE, Area

if TYPE_CHECKING:
    from llm_ocr_cpu.tables.finder import Finder


# Tables without rules: columns of values next to their labels, and keys with values inside a frame.


_LEAST_KEYS = 4
#: Distance of two rows of headings in letter sizes that is allowed even if the other rows are nearer.
_HEADING_APART = 2.5
#: Minimum values of a column, and those of a column below a heading.
_LEAST_VALUES, _LEAST_HEADED = 5, 3
#: Maximum white space between two columns, and maximum distance of two values of a column, in letter sizes.
_FAR, _LONG_LABEL = 12, 9
#: Largest number of characters of a flag behind some values, as in laboratory reports.
_FLAG = 3
#: Number of a note between a label and its values, as in annual accounts.
_NOTE = re.compile(r"\(?\d{1,2}\)?")


def plain_areas(finder: "Finder", rules: Rules) -> Iterator[tuple[Area, str]]:
    """Yield certain areas of tables without rules, with their type: "keys" in a frame, "plain", or "captioned"."""
    for horizontal, vertical in components(rules):
        h, v = rules.horizontal[horizontal], rules.vertical[vertical]
        if len(v) >= 2:  # in scans, one side of the frame may be missing
            top, bottom = min(float(h[0, 0]), float(v[:, 1].min())), max(float(h[-1, 0]), float(v[:, 2].max()))
            frame = Box(float(v[0, 0]), top, float(v[-1, 0]), bottom)
            yield from ((area, "keys") for area in _keys_in_frame(finder, frame))
    yield from ((area, "plain") for area in _value_columns(finder))
    yield from ((area, "captioned") for area in _captioned_areas(finder))


def _keys_in_frame(finder: "Finder", frame: Box) -> Iterator[Area]:
    """Yield areas below a title or picture with short keys on the left and values on the right, as in an infobox."""
    page = finder.content
    if frame.width < 0.15 * page.width or frame.height < 0.05 * page.height or frame.width > 0.9 * page.width:
        return
    rows = rows_of(finder.pieces(finder.inside(frame)), 1.0)
    pairs = [row for row in rows if len(row.segments) == 2]
    if len(pairs) < _LEAST_KEYS:
        return
    left = float(np.median([row.segments[0].x0 for row in pairs]))
    right = float(np.median([row.segments[1].x0 for row in pairs]))
    size = pairs[0].size
    keyed = [row for row in pairs if abs(row.segments[1].x0 - right) < size and abs(row.segments[0].x0 - left) < size]
    short = [row for row in keyed if len(row.segments[0].text.split()) <= 3]
    if len(short) < max(_LEAST_KEYS, 0.8 * len(pairs)):
        return
    inside = [row for row in rows if short[0].y <= row.y]
    fitting = sum(_fits(row, right, size) for row in inside)
    if fitting >= 0.85 * len(inside):
        bottom = max(piece.box.y1 for row in inside for piece in row.pieces)
        top = min(piece.box.y0 for piece in short[0].pieces)
        box = Box(left - size, top, max(frame.x1, right), bottom)
        yield Area(box, (), ())


def _fits(row: Row, right: float, size: float) -> bool:
    starts = [segment.x0 for segment in row.segments]
    return len(starts) == 2 or (len(starts) == 1 and (starts[0] >= right - size or row.segments[0].x1 < right))


def _value_columns(finder: "Finder") -> Iterator[Area]:
    """Yield areas with labels and one or more columns of numbers on their right, and columns of words beside them."""
    rows = line_rows(finder)
    values = [
        (number, segment)
        for number, row in enumerate(rows)
        for place, segment in enumerate(row.segments)
        if place > 0 and is_number(segment.text)
    ]
    if len(values) < _LEAST_HEADED:
        return
    found: list[Labelled] = []
    for column in _columns(values, rows):
        area = _labelled(rows, column)
        if area is not None and not any(area.box.intersection(other.box) > 0.05 * area.box.area for other in found):
            found = _with_joined(found, area)
    for area in found:
        yield Area(_with_word_columns(rows, area), (), ())


def _captioned_areas(finder: "Finder") -> Iterator[Area]:
    """Yield the rows of several cells directly below the caption of a table."""
    lines = finder.content.lines
    for index, line in enumerate(lines):
        if not finder.free[index] or not TABLE_CAPTION.match(line.text):
            continue
        left, right, down = line.box.x0 - line.size, line.box.x1 + line.size, 0.5 * finder.content.height
        below = Box(left, line.box.y1, right, line.box.y1 + down)
        taken: list[Row] = []
        for row in rows_of(finder.pieces(finder.inside(below))):
            last = taken[-1].y if taken else line.box.y1 + 2 * line.size  # the caption may have a second line
            if row.y - last > 2.5 * row.size or _is_sentence(row, right - left):
                if taken:
                    break
                continue
            if taken or len(row.segments) > 1:
                taken.append(row)
        several = sum(len(row.segments) > 1 for row in taken)
        if several >= _LEAST_ROWS - 1 and several >= 0.5 * len(taken):
            boxes = [piece.box for row in taken for piece in row.pieces]
            yield Area(reduce(Box.union, boxes), (), ())


def _is_sentence(row: Row, width: float) -> bool:
    only = row.segments[0]
    return len(row.segments) == 1 and (only.x1 - only.x0 > 0.6 * width or len(only.text.split()) > 2 * SENTENCE)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labels with columns of numbers: the box with its headings, and the numbers of the rows."""

    box: Box
    rows: frozenset[int]


def _with_joined(found: list[Labelled], area: Labelled) -> list[Labelled]:
    """Add an area; areas side by side with the same rows are parts of one table."""
    for number, other in enumerate(found):
        common, counts = len(area.rows & other.rows), (len(area.rows), len(other.rows))
        if common >= max(0.8 * min(counts), 0.7 * max(counts)):
            joined = Labelled(area.box.union(other.box), area.rows | other.rows)
            return [*found[:number], *found[number + 1 :], joined]
    return [*found, area]


def _with_word_columns(rows: Sequence[Row], area: Labelled) -> Box:
    """Extend the box by aligned columns of words on both sides; columns of the page go on above or below the rows.

    Most rows have such a word, or few have a flag on their right, as `H` for a high value.
    """
    box = area.box
    size = rows[min(area.rows)].size
    for left in (True, False):
        while True:
            side = [_beside(rows[number], box, left=left) for number in sorted(area.rows)]
            near = [segment for segment in side if segment is not None]
            are_flags = not left and near and all(len(segment.text) <= _FLAG for segment in near)
            few = len(near) < max(3, 0.7 * len(side)) and not are_flags
            if few or not _is_aligned(near, size):
                break
            x0, x1 = min(segment.x0 for segment in near), max(segment.x1 for segment in near)
            gap = box.x0 - x1 if left else x0 - box.x1
            strip = Box(x0, box.y0, x1, box.y1)
            if not 0 < gap < _FAR * size or x1 - x0 > 2 * box.width or _goes_beyond(rows, strip, sorted(area.rows)):
                break
            box = box.union(strip)
    return _with_last_lines(rows, _with_headings(rows, min(area.rows), box), size)


def _beside(row: Row, box: Box, *, left: bool) -> Segment | None:
    if left:
        return next((segment for segment in reversed(row.segments) if segment.x1 < box.x0), None)
    return next((segment for segment in row.segments if segment.x0 > box.x1), None)


def _is_aligned(column: Sequence[Segment], size: float) -> bool:
    for places in ([s.x0 for s in column], [s.x1 for s in column], [(s.x0 + s.x1) / 2 for s in column]):
        middle = float(np.median(places))
        if sum(abs(place - middle) < 0.8 * size for place in places) >= 0.8 * len(places):
            return True
    return False


def _goes_beyond(rows: Sequence[Row], strip: Box, own: Sequence[int]) -> bool:
    """Return whether text above or below begins at the same place, as in a column of the page; `own`: table rows."""
    size = rows[own[0]].size
    begins = [any(abs(segment.x0 - strip.x0) < size for segment in row.segments) for row in rows]
    above = [number for number in range(max(0, own[0] - 3), own[0]) if rows[number].y > strip.y0 - 2 * size]
    near = [s for number in above for s in rows[number].segments if abs(s.x0 - strip.x0) < size]
    if any(len(segment.text.split()) >= SENTENCE and not _is_bold(segment) for segment in near):
        return True
    most = max(sum(begins[one + 1 : other]) for one, other in pairwise(own))
    last, lines = rows[own[-1]], 0
    for number in range(own[-1] + 1, len(rows)):
        if rows[number].y - last.y > 1.6 * size:
            break
        if begins[number]:
            last, lines = rows[number], lines + 1
    return lines > max(most, 1)


def _with_last_lines(rows: Sequence[Row], box: Box, size: float) -> Box:
    """Extend the box by the lines that continue the cells of its last row."""
    inside = [row for row in rows if box.y0 <= row.y <= box.y1]
    starts = [segment.x0 for row in inside for segment in row.segments if segment.x0 >= box.x0 - size]
    for row in (row for row in rows if box.y1 < row.y):
        own = [segment for segment in row.segments if segment.x1 > box.x0 - size and segment.x0 < box.x1 + size]
        top = min((piece.box.y0 for segment in own for piece in segment.pieces), default=0.0)
        aligned = all(any(abs(start - segment.x0) < 0.3 * size for start in starts) for segment in own)
        if not own or top - box.y1 > 0.45 * size or not aligned or max(s.x1 for s in own) > box.x1 + size:
            break
        for segment in own:
            for piece in segment.pieces:
                box = box.union(piece.box)
    return box


def line_rows(finder: "Finder") -> list[Row]:
    """Return the free lines of a page in rows."""
    lines = finder.content.lines
    free = np.nonzero(finder.free)[0].tolist()
    return rows_of([piece for i in free for piece in _line_parts(i, lines[i])], 0.3)


def _line_parts(index: int, line: Line) -> list[Piece]:
    """Return a line as one piece, or as parts where a wide gap is beside a number: OCR joins near cells to one line."""
    whole = [Piece(line.text, line.box, index, line.size, line.bold)]
    words = line.words
    if len(words) < 2 or line.size <= 0 or not any(map(str.isdigit, line.text)):
        return whole
    gaps = [after.box.x0 - before.box.x1 > _APART * line.size for before, after in pairwise(words)]
    if not any(gaps):
        return whole
    parts: list[list[Word]] = [[words[0]]]
    for word, apart in zip(words[1:], gaps, strict=True):
        if apart and (is_number(" ".join(each.text for each in parts[-1])) or is_number(word.text)):
            parts.append([word])
        else:
            parts[-1].append(word)
    boxes = [reduce(Box.union, (word.box for word in part)) for part in parts]
    texts = [" ".join(word.text for word in part) for part in parts]
    return [Piece(text, box, index, line.size, line.bold) for text, box in zip(texts, boxes, strict=True)]


Values = list[tuple[int, Segment]]


def _columns(values: Values, rows: Sequence[Row]) -> list[Values]:
    """Return numbers with a common right end, within a few rows, leftmost columns first."""
    columns: list[Values] = []
    for number, segment in values:
        size = rows[number].size
        for column in columns:
            last, other = column[-1]
            near = rows[number].y - rows[last].y <= _LONG_LABEL * size
            if near and number != last and abs(other.x1 - segment.x1) < 0.8 * size:
                column.append((number, segment))
                break
        else:
            columns.append([(number, segment)])
    return sorted((c for c in columns if len(c) >= _LEAST_HEADED), key=lambda c: c[0][1].x0)


def _labelled(rows: Sequence[Row], column: Values) -> Labelled | None:
    """Return the area from the labels to the last number of each row."""
    labels: list[Segment] = []
    rights: list[list[Segment]] = []
    column = [(number, value) for number, value in column if not is_number(_label(rows[number], value).text)]
    if len(column) < _LEAST_HEADED:
        return None
    for number, value in column:
        segments = rows[number].segments
        place = segments.index(value)
        labels.append(_label(rows[number], value))
        rights.append(list(takewhile(lambda segment: is_number(segment.text), segments[place + 1 :])))
    size = rows[column[0][0]].size
    rights = [[value for value in right if _is_common(value, rights, size)] for right in rights]
    if not _plausible(labels, column, sum(map(bool, rights)), size):
        return None
    box = labels[0].pieces[0].box
    for label, (_, value), right in zip(labels, column, rights, strict=True):
        for each in (label, value, *right):
            for piece in each.pieces:
                box = box.union(piece.box)
    headed = _with_headings(rows, column[0][0], box)
    if len(column) < _LEAST_VALUES and not _is_headed(rows, headed, box, column):
        return None
    return Labelled(headed, frozenset(number for number, _ in column))


def _is_headed(rows: Sequence[Row], headed: Box, box: Box, column: Values) -> bool:
    """Return whether words are above the labels and above the values."""
    above = [row for row in rows if headed.y0 <= row.y < box.y0]
    words = [segment for row in above for segment in row.segments if headed.x0 <= segment.x0 <= headed.x1]
    right = min(value.x0 for _, value in column)
    named = [any(map(str.isalpha, segment.text)) for segment in words]
    return all(named) and any(s.x1 < right for s in words) and any(s.x1 > right for s in words)


def _label(row: Row, value: Segment) -> Segment:
    """Return the text to the left of a value, and of the number of a note between both."""
    place = row.segments.index(value) - 1
    return row.segments[place - 1 if place > 0 and _NOTE.fullmatch(row.segments[place].text) else place]


def _is_common(value: Segment, rights: Sequence[Sequence[Segment]], size: float) -> bool:
    """Return whether a third of the rows have a number with the same end or beginning."""
    alike = sum(any(abs(v.x1 - value.x1) < size or abs(v.x0 - value.x0) < size for v in right) for right in rights)
    return alike * 3 >= len(rights)


def _with_headings(rows: Sequence[Row], first: int, box: Box) -> Box:
    """Extend the box by up to three rows above the values that also form columns; a running header is farther."""
    last, count = rows[first], 0
    own = [row.y for row in rows if box.y0 <= row.y <= box.y1]
    farthest = max([_HEADING_APART * last.size, *(1.3 * (below - above) for above, below in pairwise(own))])
    for row in reversed(rows[:first]):
        inside = [segment for segment in row.segments if segment.x1 > box.x0 and segment.x0 < box.x1]
        if last.y - row.y > min(farthest, 4 * last.size) or count == MOST_HEADINGS - 1:
            break
        if not inside:  # a row of another column of the page
            continue
        count += 1
        texts = sum(len(segment.text.split()) > SENTENCE for segment in inside)
        if len(inside) < 2 or texts * 2 >= len(inside):
            break
        beyond = (3 if _is_bold(inside[-1]) else 1) * row.size  # a heading may be wider than the last columns
        if max(segment.x1 - segment.x0 for segment in inside) > 0.5 * box.width or inside[-1].x1 > box.x1 + beyond:
            break
        last = row
        for segment in inside:
            for piece in segment.pieces:
                box = box.union(piece.box)
    return box


def _plausible(labels: Sequence[Segment], column: Values, several: int, size: float) -> bool:
    """Return False for a table of contents, numbered equations, and a page's columns."""
    texts = [value.text for _, value in column]
    printed = [piece.text for label in labels for piece in label.pieces]
    if several * 2 < len(column) and any("...." in text or ". . ." in text for text in printed):
        return False
    if several * 2 < len(column) and is_counting(texts):
        return False
    if all(text.startswith("(") and text.endswith(")") for text in texts):
        return False
    starts = np.array([label.x0 for label in labels])
    words = np.array([len(label.text.split()) for label in labels])
    letters = sum(any(character.isalpha() for character in label.text) for label in labels)
    aligned = float(np.mean(np.abs(starts - np.median(starts)) < 2.5 * size))
    return letters >= 0.8 * len(labels) and float(np.median(words)) <= 7 and aligned >= 0.6


def is_counting(texts: Sequence[str]) -> bool:
    """Return whether the values are rising integers, such as page or item numbers."""
    whole = [int(text) for text in texts if text.isdecimal()]
    rising = sum(a <= b for a, b in pairwise(whole))
    return len(whole) > 0.8 * len(texts) and rising > 0.8 * (len(whole) - 1)


# Tables set with spaces only: consecutive rows with the same number of short, aligned cells.


#: Minimum rows, including the heading, and minimum columns of a table that is found by alignment alone.
_LEAST_ROWS, _LEAST_COLUMNS = 4, 3
#: Maximum words of a cell; more words may be text in the columns of a page.
_MOST_WORDS = 5
#: Minimum white space between two columns in letter sizes.
_APART = 1.2


def aligned_tables(finder: "Finder") -> Iterator[tuple[Box, Table]]:
    """Yield certain tables only: three columns, one of them with values in all rows except the first."""
    for block in _blocks(line_rows(finder)):
        if _has_apart_columns(block) and _has_values(block):
            boxes = [piece.box for row in block for piece in row.pieces]
            box = reduce(Box.union, boxes)
            cells = [
                Cell(number, column, pieces=list(segment.pieces))
                for number, row in enumerate(block)
                for column, segment in enumerate(row.segments)
            ]
            yield box, Table(len(block), len(block[0].segments), tuple(with_text(cells)))


def _blocks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield runs of rows with the same number of cells, aligned and evenly spaced."""
    block: list[Row] = []
    for row in rows:
        if block and not _follows(block, row):
            if len(block) >= _LEAST_ROWS:
                yield block
            # The last row may be the heading of the next block.
            block = block[-1:] if _follows(block[-1:], row) else []
        if len(row.segments) >= _LEAST_COLUMNS and all(_is_short(segment.text) for segment in row.segments):
            block.append(row)
        else:
            block = []
    if len(block) >= _LEAST_ROWS:
        yield block


def _is_short(text: str) -> bool:
    return 0 < len(text.split()) <= _MOST_WORDS


def _follows(block: Sequence[Row], row: Row) -> bool:
    last = block[-1]
    if len(last.segments) != len(row.segments) or not 0.7 < row.size / max(last.size, 1e-6) < 1.43:
        return False
    if not all(_is_short(segment.text) for segment in row.segments):
        return False
    step = last.y - block[-2].y if len(block) > 1 else 1.7 * last.size
    if row.y - last.y > 1.5 * step:
        return False
    aligned = sum(
        abs(a.x0 - b.x0) < 0.6 * row.size
        or abs(a.x1 - b.x1) < 0.6 * row.size
        or abs(a.x0 + a.x1 - b.x0 - b.x1) < 0.8 * row.size
        for a, b in zip(last.segments, row.segments, strict=True)
    )
    return aligned == len(row.segments) or (len(block) == 1 and _are_headings(last, row))


def _are_headings(head: Row, values: Row) -> bool:
    """Return whether words are above numbers in the same order: spreadsheets align words left and numbers right."""
    if any(_has_digit(segment.text) for segment in head.segments):
        return False
    if not all(is_number(segment.text) for segment in values.segments):
        return False
    ends = [-inf, *(segment.x1 for segment in values.segments)]
    starts = [*(segment.x0 for segment in values.segments), inf]
    return all(
        end < segment.x0 and segment.x1 < start
        for segment, end, start in zip(head.segments, ends[:-1], starts[1:], strict=True)
    )


def _has_apart_columns(block: Sequence[Row]) -> bool:
    size = float(np.median([row.size for row in block]))
    rows = block[1:] if _are_headings(block[0], block[1]) else block
    for column in range(len(block[0].segments) - 1):
        end = max(row.segments[column].x1 for row in rows)
        start = min(row.segments[column + 1].x0 for row in rows)
        if start - end < _APART * size:
            return False
    return True


def _has_values(block: Sequence[Row]) -> bool:
    """Return whether headings without digits are above a value column; a table of contents has page numbers only."""
    heads = [segment.text for segment in block[0].segments]
    if any(_has_digit(head) for head in heads) or any(is_number(head) for head in heads):
        return False
    columns = [[row.segments[number].text for row in block[1:]] for number in range(len(heads))]
    valued = [column for column in columns if all(map(_has_digit, column))]
    return any(not is_counting(column) for column in valued)


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


# Tables of words: columns below a bold row of headings, and labels with values.


#: Minimum white space between two columns of words in letter sizes: word spaces are 0.25 to 0.35.
_WORDS_APART = 0.38
#: Maximum distance of two rows in letter sizes.
_ROWS_APART = 2.6
#: Maximum distance of the beginnings of a column's cells in letter sizes; those of words in a paragraph differ more.
_STEADY = 0.3
_LEAST_PAIRS, _MOST_IN_LABEL, _MOST_IN_VALUE = 3, 5, 10
#: The same number of rows without colons or bold labels.
_LEAST_BARE = 4


def word_areas(finder: "Finder") -> Iterator[Area]:
    """Yield areas whose columns begin at the same places: below bold headings, or labels with values."""
    whole = line_rows(finder)
    parted: dict[int, Row] = {}
    at = 0
    while at < len(whole):
        taken: list[Row] = []
        cuts: list[float] = []
        bold = all(piece.bold for piece in whole[at].pieces)
        short = sum(piece.text.count(" ") for piece in whole[at].pieces) < _MOST_IN_LABEL + _MOST_IN_VALUE
        if (bold or short) and len(_parted(finder, whole, at, parted).segments) > 1:
            end = at + 1 + sum(1 for _ in _near_rows(whole[at:]))
            near = [_parted(finder, whole, number, parted) for number in range(at, end)]
            taken, cuts = _below_headings(near) if bold else ([], [])
            if not taken:
                taken, cuts = _pairs(near)
        if taken:
            box = reduce(Box.union, (piece.box for row in taken for piece in row.pieces))
            yield Area(box, (), (), tuple(cuts), exact=True)
        at += max(len(taken), 1)


def _parted(finder: "Finder", rows: Sequence[Row], number: int, done: dict[int, Row]) -> Row:
    """Return a row parted at the gaps between its words; `done` keeps it."""
    if number not in done:
        row = rows[number]
        words = finder.content.lines[row.segments[0].pieces[0].line].words
        gap = max((after.box.x0 - before.box.x1 for before, after in pairwise(words)), default=0.0)
        if len(row.segments) == 1 and gap <= _WORDS_APART * row.size:
            done[number] = row
            return row
        parted = rows_of(finder.pieces(sorted({piece.line for piece in row.pieces})), _WORDS_APART)
        done[number] = parted[0] if len(parted) == 1 else row
    return done[number]


def _near_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows below the first one until a wide gap, another size, or two list items side by side."""
    for before, row in pairwise(rows):
        if sum(has_bullet(segment.text) for segment in row.segments) > 1:
            return
        if row.y - before.y > _ROWS_APART * row.size or not 0.8 < row.size / max(before.size, 1e-6) < 1.25:
            return
        yield row


def _below_headings(rows: Sequence[Row]) -> tuple[list[Row], list[float]]:
    """Return the rows below a bold first row whose gaps go on below it, and the places of the gaps."""
    head, size = rows[0], rows[0].size
    taken = [head]
    gaps = [(one.x1, other.x0) for one, other in pairwise(head.segments)]
    if not gaps or not all(piece.bold for piece in head.pieces):
        return [], []
    for row in _near_rows(rows):
        left = [_rest_of(gap, row) for gap in gaps]
        if min(high - low for low, high in left) < _WORDS_APART * size or all(piece.bold for piece in row.pieces):
            break
        gaps = left
        taken.append(row)
    cuts = [(low + high) / 2 for low, high in gaps]
    columns = [_in_column(taken, low, high) for low, high in pairwise([-inf, *cuts, inf])]
    words = [len(text.split()) for row in taken[1:] for text in (segment.text for segment in row.segments)]
    full = all(len(column) >= max(3, 0.6 * len(taken)) for column in columns)
    if not full or not all(_is_steady(column, size) for column in columns) or max(words) > _MOST_IN_VALUE:
        return [], []
    return taken, cuts


def _rest_of(gap: tuple[float, float], row: Row) -> tuple[float, float]:
    """Return the widest part of a gap that the words of a row leave free."""
    low, high = gap
    inside = [(piece.box.x0, piece.box.x1) for piece in row.pieces if piece.box.x0 < high and piece.box.x1 > low]
    edges = [low, *(x for span in sorted(inside) for x in span), high]
    return max(zip(edges[::2], edges[1::2], strict=True), key=lambda part: part[1] - part[0])


def _in_column(rows: Sequence[Row], low: float, high: float) -> list[tuple[float, float]]:
    """Return the extent of each row's words between two places."""
    spans = []
    for row in rows:
        own = [piece.box for piece in row.pieces if low < (piece.box.x0 + piece.box.x1) / 2 < high]
        if own:
            spans.append((min(box.x0 for box in own), max(box.x1 for box in own)))
    return spans


def _is_steady(column: Sequence[tuple[float, float]], size: float) -> bool:
    """Return whether nearly all cells of a column have the same beginning, end, or middle."""
    for places in ([x0 for x0, _ in column], [x1 for _, x1 in column], [(x0 + x1) / 2 for x0, x1 in column]):
        middle = float(np.median(places))
        if sum(abs(place - middle) < _STEADY * size for place in places) >= 0.75 * len(places):
            return True
    return False


def _pairs(rows: Sequence[Row]) -> tuple[list[Row], list[float]]:
    """Return rows of a short label and a value, each at its own margin, and the place between them."""
    if len(rows[0].segments) != 2:
        return [], []
    (label, value), size = rows[0].segments, rows[0].size
    taken = [rows[0]]
    for row in _near_rows(rows):
        starts = [segment.x0 for segment in row.segments]
        pair = len(starts) == 2 and abs(starts[0] - label.x0) < _STEADY * size
        if not (pair or len(starts) == 1) or abs(starts[-1] - value.x0) > _STEADY * size:
            break
        taken.append(row)
    pairs = [row.segments for row in taken if len(row.segments) == 2]
    labels, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    texts = [each.text for each in values]
    if len(pairs) < _LEAST_PAIRS or len(taken) > 2 * len(pairs) or is_counting(texts):
        return [], []
    if not all(any(map(str.isalpha, each.text)) and len(each.text.split()) <= _MOST_IN_LABEL for each in labels):
        return [], []
    named = all(each.text.endswith(":") for each in labels)
    bold = all(_is_bold(each) for each in labels) and not any(map(_is_bold, values))
    digits = sum(map(_has_digit, texts))
    valued = len(pairs) >= _LEAST_BARE and 3 * digits >= 2 * len(texts) and all(map(_is_short, texts))
    long = any(len(text.split()) > _MOST_IN_VALUE for text in texts) or any(len(each.text) < 3 for each in labels)
    if long or not (named or bold or valued):
        return [], []
    return taken, [(max(each.x1 for each in labels) + min(each.x0 for each in values)) / 2]


def _is_bold(segment: Segment) -> bool:
    return all(piece.bold for piece in segment.pieces)
