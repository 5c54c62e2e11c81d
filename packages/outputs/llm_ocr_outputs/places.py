"""Places of blocks, and of unsupported text, in the Markdown of a page."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TypeVar

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.figure_text import enriched_page
from llm_ocr.results.markdown import DESCRIPTION, IMAGE, blocks_to_markdown, clean
from llm_ocr.types import FURNITURE, Block, BlockKind, PageRecord

Number = TypeVar("Number", int, float)


def lines_of_blocks(markdown: str, blocks: Sequence[Block]) -> dict[int, int]:
    """Return the index among `blocks` for each line number of the Markdown, if known. Takes linear time.

    A block is found by its first line, after the preceding block. A page whose Markdown was not made of its blocks has
    no links.
    """
    lines = [_known(line) for line in markdown.split("\n")]
    where: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        if line:
            where[line].append(number)
    found: dict[int, int] = {}
    cursor = 0
    for place, block in enumerate(blocks):
        text = [] if block.kind in FURNITURE else blocks_to_markdown([block]).split("\n")
        first = next((known for line in text if (known := _known(line))), "")
        places = where.get(first, [])
        at = bisect_left(places, cursor)
        if at < len(places):
            start = places[at]
            cursor = start + len(text)
            end = cursor
            if block.kind is BlockKind.FIGURE:  # its description may follow
                text_at = next((at for at in range(cursor, len(lines)) if lines[at]), len(lines))
                if text_at < len(lines) and lines[text_at].startswith(DESCRIPTION):
                    end = text_at + 1
            found.update(dict.fromkeys(range(start, end), place))
    return found


def _known(line: str) -> str:
    """Return the part of a line that indentation, or a description in a figure's alt text, does not change."""
    line = line.strip()
    image = IMAGE.match(line)
    return image["target"] if image else line


# Unsupported text: its spans are places in the texts of blocks. To find them in the page's Markdown, the page is
# rendered again with a mark, a private character, at each start and end. A mark can change the result, for example at
# the hyphen that makes a line a list item. Then the place is that of the block's lines.

_FIRST_MARK, _LAST_MARK = 0xF0000, 0xFFFFD
MARK = re.compile(f"[{chr(_FIRST_MARK)}-{chr(_LAST_MARK)}]")
_NO_LETTERS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Unsupported text of a page. `start` and `end` are its characters in the page's Markdown.

    They are None for text that the Markdown lacks, such as a running head or words inside of a figure.
    """

    block: int
    text: str
    start: int | None = None
    end: int | None = None


def unsupported_texts(
    row: DatasetRow, markdown: str, finish: Callable[[PageRecord], str] | None = None
) -> list[Unsupported]:
    """Return the unsupported text of a page in the order of its ledger.

    Args:
        row: The page.
        markdown: The text of the page in which places are wanted.
        finish: Makes this text of the page's record; None if the text is the row's final Markdown.

    Returns:
        The texts. A place is either exact, or that of the block that contains the text.
    """
    record = row.record
    found: list[Unsupported] = []  # with their places in the texts of blocks
    for span in record.ledger.unsupported if record.ledger else ():
        text = _text_of(record.blocks[span.block]) if 0 <= span.block < len(record.blocks) else ""
        start, end = max(0, span.start), min(len(text), span.end)
        words = text[start:end]
        if words.strip():  # a user's own stage may have changed the blocks
            start += len(words) - len(words.lstrip())
            found.append(Unsupported(span.block, words.strip(), start, start + len(words.strip())))
    if not found:
        return []
    if finish is None:
        is_enriched = row.final_markdown != record.markdown
        finish = partial(enriched_page, descriptions=row.figures) if is_enriched else attrgetter("markdown")
    exact = _marked_places(record, markdown, found, finish)
    lines = _lines_in(markdown, lines_of_blocks(markdown, record.blocks)) if None in exact else {}
    return [
        Unsupported(one.block, clean(one.text), *(place or _holding(one.text, markdown, lines.get(one.block))))
        for one, place in zip(found, exact, strict=True)
    ]


def _text_of(block: Block) -> str:
    return (block.inside or block.text) if block.kind is BlockKind.FIGURE else block.text


def _marked_places(
    record: PageRecord, markdown: str, texts: Sequence[Unsupported], finish: Callable[[PageRecord], str]
) -> list[tuple[int, int] | None]:
    """Return the places of the texts, given by their places in the blocks; None for those that are not exact."""
    if MARK.search(markdown) or 2 * len(texts) > _LAST_MARK - _FIRST_MARK:
        return [None] * len(texts)
    inserted: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for number, text in enumerate(texts):
        for at, mark in ((text.start or 0, 2 * number), (text.end or 0, 2 * number + 1)):
            inserted[text.block].append((at, chr(_FIRST_MARK + mark)))
    blocks = list(record.blocks)
    for number, marks in inserted.items():
        marked = _with_marks(blocks[number], marks)
        if MARK.sub("", _rendered(marked)) == _rendered(blocks[number]):
            blocks[number] = marked
    places: dict[str, int] = {}
    for furniture in (False, True):
        if blocks_to_markdown(record.blocks, furniture=furniture) == record.markdown:
            result = clean(finish(replace(record, markdown=blocks_to_markdown(blocks, furniture=furniture))))
            if MARK.sub("", result) == markdown:
                places = {found[0]: found.start() - before for before, found in enumerate(MARK.finditer(result))}
                break
    ends = [places.get(chr(_FIRST_MARK + number)) for number in range(2 * len(texts))]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return [None if start is None or end is None else (start, end) for start, end in pairs]


def _rendered(block: Block) -> str:
    return blocks_to_markdown([block], furniture=True)


def joined_ranges(ranges: Iterable[tuple[Number, Number]], gap: Number | int = 0) -> list[tuple[Number, Number]]:
    """Return the ranges in order; those that overlap, or are at most `gap` apart, become one."""
    joined: list[tuple[Number, Number]] = []
    for start, end in sorted(ranges):
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def with_marks(text: str, ranges: Iterable[tuple[int, int]]) -> str:
    """Return the text with a mark at the start and end of each range; ranges are in order and do not overlap."""
    mark = chr(_FIRST_MARK)
    return _inserted(text, [(at, mark) for place in ranges for at in place])


def _inserted(text: str, marks: Iterable[tuple[int, str]]) -> str:
    parts: list[str] = []
    last = 0
    for at, mark in sorted(marks):
        parts += [text[last:at], mark]
        last = at
    return "".join([*parts, text[last:]])


def _with_marks(block: Block, marks: Iterable[tuple[int, str]]) -> Block:
    text = _text_of(block)
    changed = _inserted(text, marks)
    return replace(block, inside=changed) if block.inside and text is block.inside else replace(block, text=changed)


def _lines_in(markdown: str, blocks: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Return the characters of each block from the blocks of lines."""
    found: dict[int, tuple[int, int]] = {}
    start = 0
    for number, line in enumerate(markdown.split("\n")):
        end = start + len(line)
        if (block := blocks.get(number)) is not None:
            found[block] = (found.get(block, (start, end))[0], end)
        start = end + 1
    return found


def _holding(text: str, markdown: str, place: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """Return a place if its letters contain those of the text."""
    if place is None or _NO_LETTERS.sub("", clean(text)) not in _NO_LETTERS.sub("", markdown[slice(*place)]):
        return None, None
    return place
