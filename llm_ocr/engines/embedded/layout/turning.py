"""Pages whose text runs up or down: laid out as if turned upright, the boxes turned back."""

from collections.abc import Sequence
from dataclasses import replace

from llm_ocr.engines.embedded.layout.measures import is_vertical
from llm_ocr.engines.embedded.regions import Region
from llm_ocr.types import Block, Box, Line, PageContent


def _runs_up(lines: Sequence[Line]) -> bool:
    """Whether most lines are read from the bottom to the top (the page lies on its left side)."""
    votes = 0
    for line in lines:
        if len(line.words) > 1:
            votes += 1 if line.words[0].box.centre[1] > line.words[-1].box.centre[1] else -1
    return votes >= 0


def sideways(content: PageContent) -> bool | None:
    """None for an upright page; else whether its lines are read from the bottom to the top."""
    vertical = [line for line in content.lines if is_vertical(line)]
    total = sum(len(line.text) for line in content.lines)
    if 2 * sum(len(line.text) for line in vertical) <= total:
        return None
    return _runs_up(vertical)


def upright(content: PageContent, regions: Sequence[Region], up: bool) -> tuple[PageContent, list[Region]]:
    """The page turned so that its text is read from left to right."""
    width, height = content.width, content.height

    def turn(box: Box) -> Box:
        if up:
            return Box(height - box.y1, box.x0, height - box.y0, box.x1)
        return Box(box.y0, width - box.x1, box.y1, width - box.x0)

    lines = tuple(
        replace(line, box=turn(line.box), words=tuple(replace(word, box=turn(word.box)) for word in line.words))
        for line in content.lines
    )
    paths = tuple(replace(path, box=turn(path.box)) for path in content.paths)
    turned = PageContent(height, width, lines, (), paths, content.unmapped)
    return turned, [replace(region, box=turn(region.box)) for region in regions]


def turned_back(blocks: Sequence[Block], up: bool) -> tuple[Block, ...]:
    """Blocks of the upright page with their relative boxes on the page as shown."""

    def back(box: Box) -> Box:
        if up:
            return Box(box.y0, 1 - box.x1, box.y1, 1 - box.x0)
        return Box(1 - box.y1, box.x0, 1 - box.y0, box.x1)

    return tuple(replace(block, box=back(block.box)) for block in blocks)
