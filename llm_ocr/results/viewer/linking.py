"""Which lines of a page's Markdown were made of which block: what links a box to its text."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from llm_ocr.results.figure_links import IMAGE
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import FURNITURE, Block, BlockKind


def lines_of_blocks(markdown: str, blocks: Sequence[Block]) -> dict[int, int]:
    """The block's place among `blocks` for each line number of the Markdown, as far as it can be told. Linear.

    A block is looked for by its first line, behind the block before it; a page whose Markdown was not made of its
    blocks has no links.
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
            end = cursor if block.kind is not BlockKind.FIGURE else _next_text(lines, cursor)
            found.update(dict.fromkeys(range(start, end), place))
    return found


def _known(line: str) -> str:
    """What does not change when a list is indented, or when a figure's alt text gets its description."""
    line = line.strip()
    image = IMAGE.match(line)
    return image["target"] if image else line


def _next_text(lines: Sequence[str], start: int) -> int:
    """The line behind the description that follows a figure."""
    at = start
    while at < len(lines) and not lines[at]:
        at += 1
    if at < len(lines) and lines[at].startswith("*Figure "):
        return at + 1
    return start
