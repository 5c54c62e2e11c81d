"""Merge the answers about single regions into one page attempt. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_ocr.engines.regions.detection import CHART, FORMULA, READ, SKIP, TEXT, Layout, Region
from llm_ocr.engines.vlm.placing import with_crops
from llm_ocr.engines.vlm.reader import SOURCE, Blocks
from llm_ocr.engines.vlm.retry import Tries, joined, summarized
from llm_ocr.errors import PageFailure
from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.labels import kind_of, labelled, normal, with_captions
from llm_ocr.types import Attempt, Block, BlockKind, Box, Status

_NUMBER = re.compile(r"[(\[（【]?\s*(?P<number>[\w.\-–'*]{1,12})\s*[)\]）】]?")
_END = "\n$$"
#: Minimum common height of a number and its formula, as a share of the number's height.
_SAME_HEIGHT = 0.5
#: Kinds that the region's label decides, whatever the answer looks like.
_BY_LABEL = frozenset(
    {
        BlockKind.TITLE,
        BlockKind.HEADING,
        BlockKind.CAPTION,
        BlockKind.FOOTNOTE,
        BlockKind.CODE,
        BlockKind.HEADER,
        BlockKind.FOOTER,
        BlockKind.PAGE_NUMBER,
    }
)


def merged(read: Iterable[tuple[Region, Sequence[Block]]]) -> tuple[Block, ...]:
    """Return the page's blocks with kinds by region label, numbers in their formulas, captions at their figures.

    Args:
        read: Regions in reading order, each with the blocks of its answer (empty without an answer). The boxes of the
            blocks are relative to the region.
    """
    placed = [(region, list(_placed(region, blocks))) for region, blocks in read]
    formulas = [(region.box, blocks) for region, blocks in placed if region.task == FORMULA]
    for region, blocks in placed:
        number = _NUMBER.fullmatch(_words(blocks)) if normal(region.label) == "formula_number" else None
        formula = _nearest(region.box, formulas) if number else None
        # Move the number into its formula. A number without a formula, or whose formula has no place, is unchanged.
        last = formula[-1] if formula else None
        if number and formula and last and last.kind is BlockKind.FORMULA and last.text.endswith(_END):
            if "\\tag" not in last.text:
                text = f"{last.text.removesuffix(_END)} \\tag{{{number['number']}}}{_END}"
                formula[-1] = replace(last, text=text)
            blocks.clear()
    return with_captions(tuple(block for _, blocks in placed for block in blocks))


def _placed(region: Region, blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield a region's blocks with boxes on the page."""
    label, box, task = region.label, region.box, region.task
    kind = kind_of(label)
    if task in (SKIP, CHART):
        yield Block(BlockKind.FIGURE, box, label=label, described=_words(blocks) if task == CHART else "")
    elif task == TEXT and kind in _BY_LABEL:
        # A title, heading, caption etc. is one block. The label sets the level, not the answer's marks.
        for block in labelled(label, (box,), _words(blocks), []):
            yield replace(block, level=1) if block.kind is BlockKind.HEADING and not block.level else block
    else:
        # In a text region, headings become text, and consecutive paragraphs become one block.
        plain = BlockKind.LIST_ITEM if kind is BlockKind.LIST_ITEM else BlockKind.TEXT
        paragraphs: Block | None = None
        for block in blocks:
            placed = replace(block, box=_within(block.box, box), label=label)
            if task == TEXT and block.kind in (BlockKind.TEXT, BlockKind.TITLE, BlockKind.HEADING):
                if paragraphs is not None:
                    text = f"{paragraphs.text}\n\n{placed.text}"
                    paragraphs = replace(paragraphs, text=text, box=paragraphs.box.union(placed.box))
                else:
                    paragraphs = replace(placed, kind=plain, level=0)
                continue
            if paragraphs is not None:
                yield paragraphs
            paragraphs = None
            yield placed
        if paragraphs is not None:
            yield paragraphs


def _words(blocks: Iterable[Block]) -> str:
    """Return the text of all blocks as Markdown without heading marks."""
    texts = (block.text.strip() or block.described.strip() for block in blocks)
    return "\n\n".join(filter(None, texts))


def _within(box: Box, region: Box) -> Box:
    """Convert a box relative to the region to one relative to the page."""
    if box == WHOLE_PAGE:
        return region
    width, height = region.width, region.height
    return Box(
        region.x0 + box.x0 * width, region.y0 + box.y0 * height, region.x0 + box.x1 * width, region.y0 + box.y1 * height
    )


def _nearest(number: Box, formulas: Iterable[tuple[Box, list[Block]]]) -> list[Block] | None:
    """Return the blocks of the nearest formula at the number's height."""
    nearest, least = None, 2.0
    for box, blocks in formulas:
        common = min(number.y1, box.y1) - max(number.y0, box.y0)
        apart = max(number.x0 - box.x1, box.x0 - number.x1, 0.0)
        if common >= _SAME_HEIGHT * number.height and apart < least:
            nearest, least = blocks, apart
    return nearest


#: Mode of the row that sums up the first requests of a page's regions.
_MODE = "layout-first"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Regions of a page in reading order, and the results of the requested ones; None for a blank region."""

    regions: tuple[Region, ...]
    asked: tuple[Tries[Blocks] | None, ...] = ()  # of the requested regions, in order

    def pairs(self) -> list[tuple[Region, Tries[Blocks] | None]]:
        """Return every region with its result; None for a region that was not requested."""
        left = iter(self.asked)
        return [(region, next(left) if region.task in READ else None) for region in self.regions]

    def requested(self) -> list[Tries[Blocks]]:
        """Return the results of the regions that are not blank."""
        return [tries for tries in self.asked if tries is not None]

    def failures(self) -> list[PageFailure]:
        """Return the failures of regions that are unread or degraded."""
        return [tries.failure for tries in self.requested() if tries.failure is not None]

    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """Return one row for the first requests of all regions, and one for each repeated request; () for none."""
        rows = [tries.rows for tries in self.requested() if tries.rows]
        if not rows:
            return ()
        first = [region[0] for region in rows]
        reasons = [row["reason"] for row in first if row["reason"]]
        together = {
            "status": (Status.FAILED if reasons else Status.OK).value,
            "reason": reasons[0] if reasons else None,
            "mode": _MODE,
            "regions": len(first),
            "tokens_in": sum(row["tokens_in"] for row in first),
            "tokens_out": sum(row["tokens_out"] for row in first),
            "seconds": round(sum(row["seconds"] for row in first), 4),
            "waited": round(max(row["waited"] for row in first), 4),
            "server": first[0]["server"],
            "detail": f"{len(reasons)} of {len(first)} regions needed another request" if reasons else "",
        }
        return (together, *(row for region in rows for row in region[1:]))


def attempt_of(engine: str, layout: Layout, outcome: Outcome, labels: frozenset[str] | None) -> Attempt:
    """Return the attempt for a page with at least one read region, or with none to read.

    Args:
        engine: Name of the engine.
        layout: Regions of the page.
        outcome: Results of the regions.
        labels: Labels of figures that are cut out; None: all.
    """
    blocks = merged((region, tries.best.result if tries and tries.best else ()) for region, tries in outcome.pairs())
    failures = outcome.failures()
    rows = outcome.rows()
    asked = outcome.requested()
    return Attempt(
        engine=engine,
        source=SOURCE,
        status=Status.DEGRADED if failures else Status.OK,
        blocks=blocks if labels is None else with_crops(blocks, labels),
        reason=failures[0].reason if failures else None,
        detail=_detail(outcome, len(failures)),
        raw=_raw(outcome),
        rotation=layout.rotation,
        image=layout.image,
        tokens_in=sum(tries.tokens_in for tries in asked),
        tokens_out=sum(tries.tokens_out for tries in asked),
        seconds=sum(tries.seconds for tries in asked),
        tries=rows if len(rows) > 1 or failures else (),
    )


def with_regions(attempt: Attempt, layout: Layout, outcome: Outcome, why: str, failure: PageFailure | None) -> Attempt:
    """Add the region results to a page that was read as a whole.

    Args:
        attempt: Attempt of the whole-page reader.
        layout: Regions of the page.
        outcome: Results of the regions.
        why: Reason for reading the whole page.
        failure: Failure of the regions, if the page was meant to be read by regions.
    """
    rows = outcome.rows()
    asked = outcome.requested()
    degraded = failure is not None
    return replace(
        attempt,
        status=Status.DEGRADED if degraded else attempt.status,
        reason=attempt.reason or (failure.reason if failure else None),
        detail=joined(f"read as a whole page: {why}", attempt.detail),
        rotation=attempt.rotation if layout.image is None else (layout.rotation + attempt.rotation) % 360,
        image=attempt.image or layout.image,
        tokens_in=attempt.tokens_in + sum(tries.tokens_in for tries in asked),
        tokens_out=attempt.tokens_out + sum(tries.tokens_out for tries in asked),
        seconds=attempt.seconds + sum(tries.seconds for tries in asked),
        tries=(*rows, *rows_of(attempt)) if rows else attempt.tries,
    )


def with_rows(attempt: Attempt, rows: tuple[Mapping[str, Any], ...]) -> Attempt:
    """Return a page read by regions with other tries and their sums."""
    return replace(
        attempt,
        tokens_in=sum(row.get("tokens_in", 0) for row in rows),
        tokens_out=sum(row.get("tokens_out", 0) for row in rows),
        seconds=sum(row.get("seconds", 0.0) for row in rows),
        tries=rows,
    )


def rows_of(attempt: Attempt) -> tuple[Mapping[str, Any], ...]:
    """Return a page's tries; a single request as one row."""
    if attempt.tries:
        return attempt.tries
    about = {"status": Status.OK.value, "reason": None, "tokens_in": attempt.tokens_in}
    return ({**about, "tokens_out": attempt.tokens_out, "seconds": round(attempt.seconds, 4)},)


def _detail(outcome: Outcome, failed: int) -> str:
    """Return the unread and degraded regions, then the losses in the others."""
    lost: list[str] = []
    losses: list[str] = []
    for region, tries in outcome.pairs():
        if tries is None:
            continue
        failure, best, box = tries.failure, tries.best, region.box
        left, top, right, bottom = (round(100 * side) for side in (box.x0, box.y0, box.x1, box.y1))
        where = f"{region.label} at {left},{top} to {right},{bottom} %"
        if failure is not None:
            kept = "" if best else "no text was read"
            detail = joined(failure.reason.value, tries.shortfall or failure.detail, kept)
            lost.append(f"{where}: {detail}")
        elif best is not None and best.detail:
            losses.append(f"{where}: {best.detail}")
    head = f"{failed} of {len(outcome.requested())} regions were not read completely" if failed else ""
    return joined(head, summarized(lost), summarized(losses))


def _raw(outcome: Outcome) -> str:
    """Return the regions and their raw answers as JSON."""
    rows = []
    for region, tries in outcome.pairs():
        box = region.box
        rows.append(
            {
                "label": region.label,
                "box": [round(side, 4) for side in (box.x0, box.y0, box.x1, box.y1)],
                "score": round(region.score, 4),
                "task": region.task,
                "answer": tries.best.raw if tries and tries.best else None,
            }
        )
    return json.dumps(rows, ensure_ascii=False)
