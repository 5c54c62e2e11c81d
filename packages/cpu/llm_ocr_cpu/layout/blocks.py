"""Build the blocks of a page and their Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import count, pairwise

from llm_ocr.engines.trace import note, relative, tracing
from llm_ocr.results.joining import clean
from llm_ocr.types import Block, BlockKind, Box, Line, PageContent
from llm_ocr_cpu.layout.columns import (
    arrange,
    column_entries,
    find_frames,
    make_sheet,
    reading_order,
    ruling_lines,
)
from llm_ocr_cpu.layout.furniture import find_furniture, is_page_number
from llm_ocr_cpu.layout.groups import Group
from llm_ocr_cpu.layout.kinds import Entry
from llm_ocr_cpu.layout.marks import FACE_MARK, emphasized, emphasized_heading, join_marked, marked_end, tagged
from llm_ocr_cpu.layout.measures import Measures, is_vertical, measure, steadied
from llm_ocr_cpu.layout.rows import (
    Row,
    make_row,
    make_rows,
    turn_of,
    turned_back,
    upright,
    with_bullets,
    with_level_box,
)
from llm_ocr_cpu.layout.tagging import tagged_parts
from llm_ocr_cpu.regions import FORMULA, Region, inside_text

# Plain text to Markdown with the same visible characters. Only characters that would change the meaning are escaped
# (CommonMark 0.31 and GitHub's strikethrough). People and language models read the text, and a backslash before every
# punctuation mark would disturb both.


_LEADING = re.compile(
    r"^([ \t]*)(?:"
    r"(?P<mark>\#{1,6}(?=\s|$)|>|[-+*](?=\s|$)|={2,}[ \t]*$|-{2,}[ \t]*$|~{3,}|`{3,}|\[(?=[^\]\n]+\]:)"
    r"|(?:[*_-][ \t]*){3,}$)"
    r"|(?P<number>\d{1,9})(?P<stop>[.)])(?=\s|$))",
    re.MULTILINE,
)
_BACKSLASH = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ENTITY = re.compile(r"&(?=#?\w{1,31};)")
_IMAGE = re.compile(r"!\[")
_LINK = re.compile(r"\[(?=[^\]\n]*\]\()")
_STAR = re.compile(r"\*(?=\S)|(?<=\S)\*")
_UNDERSCORES = re.compile(r"(?<!\w)_+(?=[^\s_][^_\n]*_)")
_PLAIN = re.compile(r"[\\<&!\[*`_~]")


def escape_inline(text: str) -> str:
    """Escape text that does not begin a line, such as that of a heading; see `escape`."""
    if not _PLAIN.search(text):
        return text
    text = _BACKSLASH.sub(r"\\\\", text)
    text = _TAG.sub(r"\\<", text)
    text = _ENTITY.sub(r"\\&", text)
    text = _IMAGE.sub(r"!\\[", text)
    text = _LINK.sub(lambda match: "[" if text[: match.start()].endswith("\\") else "\\[", text)
    if text.count("*") > 1:
        text = _STAR.sub(r"\\*", text)
    if text.count("`") > 1:
        text = text.replace("`", "\\`")
    if text.count("~~") > 1:
        text = text.replace("~~", "\\~~")
    return _UNDERSCORES.sub(lambda match: "\\_" * len(match[0]), text)


def _lead(match: re.Match[str]) -> str:
    if match["mark"]:
        return f"{match[1]}\\{match['mark']}"
    return f"{match[1]}{match['number']}\\{match['stop']}"


def escape(text: str) -> str:
    """Return Markdown that shows `text`, which may have several lines.

    Escaped are: marks at the start of a line that would open a heading, quote, list, rule, fence, or link definition;
    pairs of `*`, `` ` ``, and `~~`; underscores around words (never inside them); `<` before a tag name; entities;
    links and images; a backslash before punctuation. Not for code.
    """
    inline = escape_inline(text)
    # A star at the start of a line is already escaped as part of a pair. A second backslash would undo the first.
    return _LEADING.sub(_lead, inline)


def unescape(text: str) -> str:
    """Return the characters that Markdown written by `escape` shows."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


# Markdown text of blocks from groups of rows.


#: Line break within a paragraph.
_BREAK = "  \n"
#: Wide gap between pieces of a row, as in forms. Several spaces keep the pieces apart in the file; renderers show one.
_GAP = "   "
#: Leader dots, as in a table of contents, each perhaps with a mark of its face.
_LEADERS = re.compile(rf"\s*{FACE_MARK}?(?:{FACE_MARK}?[.․…·]\s?){{5,}}\s*")


def _texts(group: Group) -> list[str]:
    texts = [row.marked for row in group.rows]
    if group.marker is not None:
        texts[0] = marked_end(texts[0], len(group.first.text) - len(group.marker.rest))
    return texts


def _lines(group: Group, words: frozenset[str]) -> list[str]:
    """Return the lines of a group, unescaped, with marked scripts and with hyphens at line ends resolved."""
    lines: list[str] = []
    for text, own in zip(_texts(group), group.breaks or [False] * len(group.rows), strict=True):
        if lines and not own:
            lines[-1] = join_marked(lines[-1], text, words)
        else:
            lines.append(text)
    return [_flat(line) for line in lines]


def _flat(text: str) -> str:
    """Return the text without soft hyphens, with spaces for each wide gap of a row, and with short leaders."""
    return _LEADERS.sub(" ... ", clean(text)).replace("\t", _GAP).rstrip()


def heading_text(group: Group, measures: Measures) -> str:
    """Return all rows as one line of Markdown, including a section number."""
    text = reduce(lambda one, other: join_marked(one, other, measures.words), (row.marked for row in group.rows))
    return emphasized_heading(escape_inline(_flat(text)), measures)


def code_text(group: Group) -> str:
    """Return rows of code with their indentation, unescaped; wide row gaps become empty lines."""
    rows = group.rows
    width = _character_width(rows)
    left = min(row.x0 for row in rows)
    steps = sorted(lower.middle - upper.middle for upper, lower in pairwise(rows))
    usual = max(steps[len(steps) // 3], 0.5 * rows[0].size) if steps else 1.0
    lines = [_code_row(rows[0], left, width)]
    for upper, lower in pairwise(rows):
        blank = min(max(round((lower.middle - upper.middle) / usual) - 1, 0), 2)
        lines += [""] * blank + [_code_row(lower, left, width)]
    return "\n".join(lines)


def _character_width(rows: Sequence[Row]) -> float:
    lines = [line for row in rows for line in row.lines]
    total = sum(len(line.text) for line in lines)
    return max(sum(line.box.width for line in lines) / max(total, 1), 0.1)


def _code_row(row: Row, left: float, width: float) -> str:
    text = ""
    for line in row.lines:
        column = min(round((line.box.x0 - left) / width), 200)
        text = text.ljust(column) if not text or len(text) < column else text + " "
        text += clean(line.text)
    return text


def markdown(group: Group, measures: Measures, *, faces: bool = True) -> str:
    """Return the Markdown of a paragraph, caption, footnote, or list item, with emphasis if `faces`."""
    lines = [escape_inline(line) for line in _lines(group, measures.words)]
    shown = emphasized(lines, measures) if faces else map(tagged, lines)
    text = _BREAK.join(_LEADING.sub(_lead, line) for line in shown)
    return text if group.marker is None else f"{group.marker.mark} {text}"


# Blocks from a page's content.


def page_blocks(content: PageContent, regions: Sequence[Region], *, on_side: bool = False) -> tuple[Block, ...]:
    """Return the blocks of a page in reading order: top furniture, body, footnotes, bottom furniture.

    `regions` are laid out as a whole. Their lines appear only in their TABLE, FORMULA, or FIGURE block, and their
    captions as adjacent CAPTION blocks. Every other line of `content` is in exactly one block. Boxes of the result are
    relative. A page without lines and regions has no blocks. `on_side`: the page was on its side, and was turned.
    """
    degrees = turn_of(content)
    if degrees:
        turned, turned_regions = upright(content, regions, degrees)
        return turned_back(_blocks(turned, turned_regions, degrees != 180), degrees)
    return _blocks(content, regions, on_side)


def _blocks(content: PageContent, regions: Sequence[Region], on_side: bool) -> tuple[Block, ...]:
    claimed: set[int] = set()
    for region in regions:
        claimed |= region.lines | region.caption
    visible = [line for line in content.lines if line.text.strip()]
    unclaimed = [line for index, line in enumerate(content.lines) if index not in claimed and line.text.strip()]
    watermarks = [line for line in unclaimed if line.watermark]
    free = steadied([line for line in unclaimed if not line.watermark and not _DOTS.fullmatch(line.text)])
    standard = free if sum(len(line.text) for line in free) > _ENOUGH else visible
    if not standard and not regions:
        return ()
    page = _Page(content, measure(content, standard or [_NO_LINE]))
    free = [with_level_box(line) for line in with_bullets(free, content.paths)]
    rules = ruling_lines(content.paths, content.width, [_place(content, region) for region in regions])
    marginal = free
    if _marks_furniture(content):
        marginal = [line for line in free if line.tag < 0 or line.recurs or _is_number_alone(line, free)]
    furniture = find_furniture(marginal, rules, page.measures, len(content.lines), on_side)
    for kind, row in furniture:
        note("furniture", kind.value.replace("_", " "), text=row.text.replace("\t", " "))
    taken = {id(line) for _, row in furniture for line in row.lines}
    free = [line for line in free if id(line) not in taken]
    # Vertical writing on a page with more horizontal text. OCR also takes rows of few letters for columns.
    columns = PageContent(content.width, content.height, tuple(line for line in free if line.stacked), (), ())
    if not turn_of(columns):
        columns, free = replace(columns, lines=()), [replace(line, stacked=False) for line in free]
    flowing = [line for line in free if not is_vertical(line) and not line.stacked]
    entries = _entries(content, flowing, regions, rules, page.measures)
    at_top = [kind is BlockKind.HEADER or row.middle < content.height / 2 for kind, row in furniture]
    top = [page.furniture(*found) for found, above in zip(furniture, at_top, strict=True) if above]
    foot = [page.furniture(*found) for found, above in zip(furniture, at_top, strict=True) if not above]
    body = page.entries(entries)
    upright_lines = [line for line in free if is_vertical(line) and not line.stacked]
    aside = [page.text(BlockKind.TEXT, Group([make_row([line])], [False])) for line in (*upright_lines, *watermarks)]
    return tuple([*top, *body, *aside, *page_blocks(columns, ()), *foot])


def _is_number_alone(line: Line, lines: Sequence[Line]) -> bool:
    """Return whether a line may be a page number: not the mark of another line in its row."""
    if not is_page_number(line.text):
        return False
    middle = line.box.centre[1]
    return not any(other.box.y0 < middle < other.box.y1 for other in lines if other is not line)


#: Line of dots or underscores only: a rule in print, or a field of a form.
_DOTS = re.compile(r"[\s._\u00b7\u2026]{6,}")
#: Number of characters outside tables and figures from which they determine the page's measures.
_ENOUGH = 150
#: Share of the page's height that has headers or footers.
_EDGE = 0.13
_NO_LINE = Line("", Box(0, 0, 1, 10), 10.0)


def _entries(
    content: PageContent, lines: list[Line], regions: Sequence[Region], rules: Sequence[Box], measures: Measures
) -> list[Entry]:
    flow = _Flow(content, measures, rules)
    if content.tags:
        entries = flow.tagged_entries(lines, regions)
    else:
        places = [_place(content, region) for region in regions]
        entries = flow.entries(
            lines, list(zip(regions, places, strict=True)), find_frames(content, lines, measures), None
        )
    return arrange(entries, _short_rules(content), measures, content.tags)


def _marks_furniture(content: PageContent) -> bool:
    """Return whether the file tags its text, and has some without a tag at an edge: headers and page numbers."""
    edge = _EDGE * content.height
    return bool(content.tags) and any(
        line.tag < 0 and not edge < line.box.centre[1] < content.height - edge for line in content.lines
    )


class _Flow:
    """Reader of lines, regions, and frames in reading order; the text of a frame is read at the place of the frame."""

    def __init__(self, content: PageContent, measures: Measures, rules: Sequence[Box]) -> None:
        self._content, self._measures, self._rules = content, measures, rules
        self._columns = count()

    def entries(
        self, lines: Sequence[Line], regions: Sequence[tuple[Region, Box]], frames: Sequence[Box], around: Box | None
    ) -> list[Entry]:
        """Return the entries of a page or frame; `frames` from the largest to the smallest."""
        outer: list[Box] = []
        for box in frames:
            if not any(_is_in(box, other) for other in outer):
                outer.append(box)
        held = {id(line): box for box in outer for line in lines if _is_in(line.box, box)}
        kept = {id(region): box for box in outer for region, place in regions if _is_in(place, box)}
        free = [line for line in lines if id(line) not in held]
        rest = [pair for pair in regions if id(pair[0]) not in kept]
        rules = [rule for rule in self._rules if around is None or _is_in(rule, around)]
        sheet = make_sheet(free, [*(place for _, place in rest), *outer], rules, self._measures)
        result: list[Entry] = []
        for part in reading_order(sheet):
            ids, start = part.ids, len(result)
            members = [free[index] for index in ids if index < len(free)]
            here = [rest[index - len(free)][0] for index in ids if len(free) <= index < len(free) + len(rest)]
            boxes = [outer[index - len(free) - len(rest)] for index in ids if index >= len(free) + len(rest)]
            for box in sorted(boxes, key=lambda box: box.y0):
                above = [line for line in members if line.box.centre[1] < box.y0]
                upper = [region for region in here if region.box.centre[1] < box.y0]
                result += self._column(above, upper, around)
                inside = [line for line in lines if held.get(id(line)) is box]
                own = [pair for pair in regions if kept.get(id(pair[0])) is box]
                result += self.entries(
                    inside, own, [each for each in frames if each is not box and _is_in(each, box)], box
                )
                members = [line for line in members if line.box.centre[1] >= box.y0]
                here = [region for region in here if region not in upper]
            result += self._column(members, here, around)
            for entry in self._column([free[index] for index in part.notes], [], around):
                entry.note = True
                place = _place_of_note(entry, result[start:])
                result.insert(start + place, entry)
        return result

    def tagged_entries(self, lines: Sequence[Line], regions: Sequence[Region]) -> list[Entry]:
        """Return the entries of a tagged page."""
        note("reading order", "by the tags of the file", tags=len(self._content.tags))
        result: list[Entry] = []
        for own, here in tagged_parts(lines, regions, self._content):
            result += self._column(own, here, None)
        return result

    def _column(self, lines: Sequence[Line], regions: Sequence[Region], frame: Box | None) -> list[Entry]:
        if not lines and not regions:
            return []
        column = next(self._columns)
        if tracing():
            content = self._content
            box = reduce(Box.union, [*(line.box for line in lines), *(region.box for region in regions)])
            parts = f"part {column + 1}: {len(lines)} lines, {len(regions)} tables and figures"
            note("reading order", parts, box=relative(box, content.width, content.height))
        found = column_entries(column, lines, regions, self._measures)
        for entry in found:
            entry.frame = frame
        return found


def _place_of_note(note: Entry, text: Sequence[Entry]) -> int:
    """Return the place of a note in a column: before the paragraph at whose upper half it is, or after it."""
    for place, entry in enumerate(text):
        if (entry.box.y0 + entry.box.y1) / 2 > note.box.y0:
            return place
    return len(text)


def _is_in(box: Box, frame: Box) -> bool:
    return box.covered_by(frame) > 0.9


def _place(content: PageContent, region: Region) -> Box:
    """Return the box of the region with its caption, because both are placed together."""
    return reduce(Box.union, (content.lines[index].box for index in region.caption), region.box)


def _short_rules(content: PageContent) -> list[Box]:
    """Return rules in the style of footnote separators: thin, short, low on the page."""
    found = [
        path.box
        for path in content.paths
        if path.box.height < 2.5
        and 0.04 * content.width < path.box.width < 0.5 * content.width
        and path.box.y0 > 0.4 * content.height
    ]
    return found[:100]


def _pieces(group: Group) -> Iterator[list[Box]]:
    """Yield the boxes of a group's lines, split where the group continues in the next column or after a figure."""
    piece: list[Box] = []
    for row in group.rows:
        boxes = [line.box for line in row.lines]
        top, height = min(box.y0 for box in boxes), max(box.height for box in boxes)
        if piece and (top < piece[-1].y0 - height or top > piece[-1].y1 + 3 * height):
            yield piece
            piece = []
        piece += boxes
    if piece:
        yield piece


class _Page:
    """Writer of blocks with relative boxes."""

    def __init__(self, content: PageContent, measures: Measures) -> None:
        self.content, self.measures = content, measures
        self._x, self._y = 1 / max(content.width, 1e-6), 1 / max(content.height, 1e-6)

    def box(self, boxes: Iterable[Box]) -> Box:
        return reduce(Box.union, boxes).scaled(self._x, self._y).clipped()

    def furniture(self, kind: BlockKind, row: Row) -> Block:
        return Block(kind, self.box(line.box for line in row.lines), escape(_flat(row.text)))

    def text(self, kind: BlockKind, group: Group, level: int = 0) -> Block:
        if kind is BlockKind.CODE:
            text = code_text(group)
        elif kind in (BlockKind.TITLE, BlockKind.HEADING):
            text = heading_text(group, self.measures)
        else:
            text = markdown(group, self.measures, faces=kind in (BlockKind.TEXT, BlockKind.LIST_ITEM))
        first, *rest = (self.box(boxes) for boxes in _pieces(group))
        return Block(kind, first, text, level=level, continued=tuple(rest))

    def entries(self, entries: Sequence[Entry]) -> list[Block]:
        blocks: list[Block] = []
        for entry in entries:
            if entry.region is not None:
                blocks += self.region(entry.region)
            elif entry.group is not None:
                blocks.append(self.text(entry.kind, entry.group, entry.level))
        return blocks

    def region(self, region: Region) -> list[Block]:
        """Return the table or figure with its caption above or below, as on the page."""
        lines = self.content.lines
        box = self.box([region.box])
        rows = make_rows([lines[index] for index in sorted(region.caption) if lines[index].text.strip()], self.measures)
        caption = [self.text(BlockKind.CAPTION, Group(rows, [False] * len(rows)))] if rows else []
        plain = caption[0].text if caption else ""
        if region.kind == "table":
            block = Block(BlockKind.TABLE, box, region.text, label=region.label)
        elif region.kind == FORMULA and region.text:
            block = Block(BlockKind.FORMULA, box, f"$$\n{region.text}\n$$", label=region.label)
        else:
            inside = inside_text(lines, region.lines)
            shown = escape(" ".join(inside.split())) if region.kind == FORMULA else ""  # an image alone hides text
            block = Block(BlockKind.FIGURE, box, shown, label=region.label, inside=inside, caption=plain)
        above = bool(rows) and sum(row.middle for row in rows) / len(rows) < (region.box.y0 + region.box.y1) / 2
        return [*caption, block] if above else [block, *caption]
