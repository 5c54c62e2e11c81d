"""Read tall pages in slices, so that small letters stay readable, and return one result."""

import asyncio
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from llm_ocr.engines import PageReader, noop
from llm_ocr.engines.vlm.reader import UNDRAWN
from llm_ocr.engines.vlm.requests import ImageTools
from llm_ocr.errors import PageFailure
from llm_ocr.types import Attempt, Box, EncodedImage, Line, Page, PageContent, Path, Raster, Reason, Status, Word

#: Share of a slice's height, from its end, in which a row without ink is searched for the cut.
_SEARCHED = 0.3
#: Share of the letters of its slices that a page read as a whole has at least, if its letters are not too small.
_KEPT = 0.9


async def read_page(
    reader: PageReader, page: Page, tools: ImageTools, on_dispatched: Callable[[], None] = noop
) -> Attempt:
    """Read a page, in slices if it is tall. Raises as `PageReader.read`; a single unreadable slice is only a defect.

    Args:
        reader: The engine.
        page: The page.
        tools: Cut the slices out of the page image.
        on_dispatched: See `PageReader.read`.
    """
    by_layer = reader.name == "embedded" and page.content is not None and bool(page.content.lines)
    # An image that lacks a part of the text is replaced by the text layer, which is that of the whole page.
    by_layer |= page.evidence is not None and page.evidence.undrawn > UNDRAWN
    if not page.slice_height or by_layer:
        return await reader.read(page, on_dispatched)
    boxes = slices_of(page)
    images = await tools.crop(page.image, boxes)
    parts = [_part(page, box, image, number) for number, (box, image) in enumerate(zip(boxes, images, strict=True), 1)]
    waiting = [noop] * (len(parts) - 1) + [on_dispatched]

    async def read(part: Page, called: Callable[[], None]) -> Attempt | PageFailure:
        try:
            return await reader.read(part, called)
        except PageFailure as failure:
            return failure

    tasks = [asyncio.create_task(read(part, called)) for part, called in zip(parts, waiting, strict=True)]
    try:
        results = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    turn = _turn(results)
    if turn == 180:  # the last slice has the first lines
        return _joined(results[::-1], boxes[::-1])
    joined = _joined(results, boxes)
    return await _read_wide(reader, page, tools, joined, turn) if turn else joined


def _letters(attempt: Attempt) -> int:
    """Return the number of letters and digits without those of HTML tags, which each slice of a table repeats."""
    return sum(map(str.isalnum, re.sub(r"</?[A-Za-z][^<>]*>", "", "".join(block.text for block in attempt.blocks))))


def _turn(results: Sequence[Attempt | PageFailure]) -> int:
    """Return the clockwise turn in degrees in which all slices with text were read; 0 if they differ."""
    turns = {result.rotation for result in results if isinstance(result, Attempt) and result.blocks}
    return turns.pop() if len(turns) == 1 else 0


async def _read_wide(reader: PageReader, page: Page, tools: ImageTools, sliced: Attempt, turn: int) -> Attempt:
    """Read a wide page that lies on its side as a whole, as upright wide pages are: the slices cut its lines apart.

    If that fails, or letters become too small, the text of the slices remains, and the page is degraded.
    """
    try:
        image = await tools.resized(page.image, page.slice_height / page.image.height)
        whole = await reader.read(replace(page, image=image, slice_height=0), noop)
    except PageFailure as failure:
        paid = {name: sum(one.get(name, 0) for one in failure.tries) for name in ("tokens_in", "tokens_out", "seconds")}
        whole = replace(sliced, status=Status.DEGRADED, detail=failure.why, tries=failure.tries, **paid)
    best = whole
    if whole.status is not Status.OK or _letters(whole) < _KEPT * _letters(sliced):
        why = f"the page is turned by {turn} degrees, and its slices cut the lines apart"
        detail = "; ".join(filter(None, (why, whole.detail, sliced.detail)))
        best = replace(sliced, status=Status.DEGRADED, reason=sliced.reason or Reason.LOW_QUALITY, detail=detail)
    return replace(
        best,
        tokens_in=sliced.tokens_in + whole.tokens_in,
        tokens_out=sliced.tokens_out + whole.tokens_out,
        seconds=sliced.seconds + whole.seconds,
        tries=sliced.tries + whole.tries,
    )


def slices_of(page: Page) -> list[Box]:
    """Return the relative boxes of a tall page's slices, cut between lines of text where possible."""
    height = page.image.height
    count = -(-height // page.slice_height)
    empty = [False]  # whether a row has no ink
    if page.evidence and page.evidence.ink:
        row, bits = (page.evidence.ink.width + 7) // 8, zlib.decompress(page.evidence.ink.packed)
        empty = [not any(bits[start : start + row]) for start in range(0, len(bits), row)]
    tops = [0.0]
    while count > 1 and 1 - tops[-1] > page.slice_height / height:
        # Slices of equal height, unless a cut without ink is only possible above.
        end = tops[-1] + min(page.slice_height / height, (1 - tops[-1]) / max(1, count - len(tops) + 1))
        lowest = end - _SEARCHED * (end - tops[-1])
        rows = range(int(end * len(empty)) - 1, int(lowest * len(empty)), -1)
        cut = next((row for row in rows if empty[row]), None)
        tops.append(end if cut is None else (cut + 0.5) / len(empty))
    return [Box(0, top, 1, bottom) for top, bottom in zip(tops, [*tops[1:], 1.0], strict=True)]


def _part(page: Page, box: Box, image: EncodedImage, number: int) -> Page:
    """Return a slice as a page of its own."""
    evidence, content = page.evidence, page.content
    if content is not None:
        content = _cut_content(content, box)
    elif evidence is not None and (evidence.lines or evidence.pictured):
        # The text layer of the whole page must not be read for the slice.
        content = PageContent(float(image.width), float(image.height))
    part = replace(page, id=f"{page.id}-s{number:02}", image=image, content=content, slice_height=0)
    if evidence is None:
        return part
    lines = tuple(
        (text, Box(place.x0, (place.y0 - box.y0) / box.height, place.x1, (place.y1 - box.y0) / box.height).clipped())
        for text, place in evidence.lines
        if box.y0 <= place.centre[1] < box.y1
    )
    ink = evidence.ink
    if ink:
        row = (ink.width + 7) // 8
        top, bottom = int(box.y0 * ink.height), max(int(box.y0 * ink.height) + 1, int(box.y1 * ink.height))
        bits = zlib.decompress(ink.packed)[top * row : bottom * row]
        ink = replace(ink, height=bottom - top, packed=zlib.compress(bits, 1), blank=not any(bits))
    return replace(part, evidence=replace(evidence, ink=ink, lines=lines))


PartT = TypeVar("PartT", Line, Word, Raster, Path)


def _cut_content(content: PageContent, box: Box) -> PageContent:
    """Return the content of a slice. Its `unmapped` is an estimate; the first slice has the page's other counts."""
    top, bottom = box.y0 * content.height, box.y1 * content.height

    def moved(part: PartT) -> PartT:
        box = part.box
        return replace(part, box=Box(box.x0, max(0.0, box.y0 - top), box.x1, min(bottom, box.y1) - top))

    lines = tuple(
        replace(moved(line), words=tuple(map(moved, line.words)), parts=tuple(map(moved, line.parts)))
        for line in content.lines
        if top <= line.box.centre[1] < bottom
    )
    share = sum(len(part.text) for part in lines) / max(1, sum(len(whole.text) for whole in content.lines))
    is_first = box.y0 == 0
    return replace(
        content,
        height=bottom - top,
        unmapped=round(share * content.unmapped),
        unread=content.unread * is_first,
        invisible=content.invisible * is_first,
        lines=lines,
        rasters=tuple(moved(raster) for raster in content.rasters if raster.box.y0 < bottom and raster.box.y1 > top),
        paths=tuple(moved(path) for path in content.paths if path.box.y0 < bottom and path.box.y1 > top),
    )


def _joined(results: Sequence[Attempt | PageFailure], boxes: Sequence[Box]) -> Attempt:
    """Return one result of all slices. Raises the first failure if no slice was read."""
    read = [(result, box) for result, box in zip(results, boxes, strict=True) if isinstance(result, Attempt)]
    failures = [result for result in results if isinstance(result, PageFailure)]
    if not read:
        raise failures[0]
    faults = [result for result in results if isinstance(result, PageFailure) or result.status is not Status.OK]
    details = []
    for number, result in enumerate(results, 1):
        detail = result.why if isinstance(result, PageFailure) else result.detail
        if detail:
            details.append(f"slice {number} of {len(results)}: {detail}")
    # Fields without a sum are those of the first slice with text.
    attempts = [attempt for attempt, _ in read]
    chosen = next((attempt for attempt in attempts if attempt.blocks), attempts[0])
    sure = [
        (len(block.text), attempt.confidence)
        for attempt in attempts
        if attempt.confidence is not None
        for block in attempt.blocks
    ]
    letters = sum(count for count, _ in sure)
    return replace(
        chosen,
        status=Status.DEGRADED if faults else Status.OK,
        blocks=tuple(
            replace(
                block,
                box=_on_page(block.box.turned(-attempt.rotation), box),
                continued=tuple(_on_page(more.turned(-attempt.rotation), box) for more in block.continued),
            )
            for attempt, box in read
            for block in attempt.blocks
        ),
        reason=faults[0].reason if faults else None,
        detail="; ".join(details),
        raw="\n\n".join(attempt.raw for attempt in attempts if attempt.raw),
        rotation=0,
        image=None,
        ink=None,
        tokens_in=sum(attempt.tokens_in for attempt in attempts),
        tokens_out=sum(attempt.tokens_out for attempt in attempts),
        seconds=sum(attempt.seconds for attempt in attempts),
        tries=tuple(row for result in results for row in result.tries),
        confidence=round(sum(count * share for count, share in sure) / letters, 4) if letters else None,
    )


def _on_page(place: Box, box: Box) -> Box:
    return Box(place.x0, box.y0 + place.y0 * box.height, place.x1, box.y0 + place.y1 * box.height)
