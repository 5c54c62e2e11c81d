"""What came of a page's regions, as an `Attempt`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from llm_ocr.engines.layout.asking import Asked
from llm_ocr.engines.layout.detector import Layout
from llm_ocr.engines.layout.merging import Read, merged
from llm_ocr.engines.layout.sorting import Assigned
from llm_ocr.engines.layout.tasks import READ
from llm_ocr.engines.model.climbing import joined
from llm_ocr.engines.model.crops import with_crops
from llm_ocr.engines.model.judging import told
from llm_ocr.errors import PageFailure
from llm_ocr.types import Attempt, Block, Reason, Status

SOURCE = "model"
#: What the first requests of a page's regions are called together, in its tries.
_MODE = "layout-first"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The regions of a page in reading order, and how asking for those to be read ended; None for a blank one.

    Regions with the same image share one `Asked`.
    """

    regions: tuple[Assigned, ...]
    asked: tuple[Asked | None, ...] = ()  # of the regions to be read, in order

    def pairs(self) -> list[tuple[Assigned, Asked | None]]:
        """Every region; None for one that was not asked for."""
        left = iter(self.asked)
        return [(one, next(left) if one.task in READ else None) for one in self.regions]

    def requested(self) -> list[Asked]:
        """What was asked, once each."""
        return list({id(one): one for one in self.asked if one is not None}.values())

    def unread(self) -> bool:
        """Whether something was asked for, and no answer is of any use."""
        asked = self.requested()
        return bool(asked) and not any(one.ended.best for one in asked)

    def failures(self) -> list[PageFailure]:
        """Why regions are not read, or not well."""
        return [one.ended.failure for one in self.requested() if one.ended.failure is not None]

    def tries(self) -> tuple[Mapping[str, Any], ...]:
        """One row for the first requests of all regions, and one for each that had to be repeated; () without any."""
        rows = [one.tries.rows for one in self.requested() if one.tries.rows]
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
            "detail": f"{len(reasons)} of {len(first)} regions had to be asked for again" if reasons else "",
        }
        return (together, *(row for region in rows for row in region[1:]))


def attempt_of(engine: str, layout: Layout, outcome: Outcome, labels: frozenset[str] | None) -> Attempt:
    """The page of which at least one region was read, or none was to be. `labels`: of figures that are cut out; all."""
    blocks = merged([Read(one, _blocks(asked)) for one, asked in outcome.pairs()])
    failures = outcome.failures()
    tries = outcome.tries()
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
        tokens_in=sum(one.tries.tokens_in for one in asked),
        tokens_out=sum(one.tries.tokens_out for one in asked),
        seconds=sum(one.tries.seconds for one in asked),
        tries=tries if len(tries) > 1 or failures else (),
    )


def with_regions(attempt: Attempt, layout: Layout, outcome: Outcome, why: str, failure: PageFailure | None) -> Attempt:
    """A page that was read whole, with what had been asked before. `failure`: it was to be read by its regions."""
    tries = outcome.tries()
    asked = outcome.requested()
    degraded = failure is not None
    return replace(
        attempt,
        status=Status.DEGRADED if degraded else attempt.status,
        reason=attempt.reason or (failure.reason if failure else None),
        detail=joined(f"read as a whole page: {why}", attempt.detail),
        rotation=attempt.rotation if layout.image is None else (layout.rotation + attempt.rotation) % 360,
        image=attempt.image or layout.image,
        tokens_in=attempt.tokens_in + sum(one.tries.tokens_in for one in asked),
        tokens_out=attempt.tokens_out + sum(one.tries.tokens_out for one in asked),
        seconds=attempt.seconds + sum(one.tries.seconds for one in asked),
        tries=(*tries, *rows_of(attempt)) if tries else attempt.tries,
    )


def with_spent(regions: Attempt, tries: tuple[Mapping[str, Any], ...], said: str) -> Attempt:
    """A page that was read whole as well, in vain: `tries` are those of both."""
    return replace(
        regions,
        detail=joined(regions.detail, said),
        tokens_in=sum(one.get("tokens_in", 0) for one in tries),
        tokens_out=sum(one.get("tokens_out", 0) for one in tries),
        seconds=sum(one.get("seconds", 0.0) for one in tries),
        tries=tries,
    )


def with_failure(figures: Attempt, failure: PageFailure) -> Attempt:
    """A page of pictures that was asked for its text in vain: that it has none is no fault."""
    empty = failure.reason is Reason.EMPTY
    return replace(
        figures,
        status=Status.OK if empty else Status.DEGRADED,
        reason=None if empty else failure.reason,
        detail="only pictures were found on it" if empty else joined(failure.reason.value, failure.detail),
        tokens_in=sum(one.get("tokens_in", 0) for one in failure.tries),
        tokens_out=sum(one.get("tokens_out", 0) for one in failure.tries),
        seconds=sum(one.get("seconds", 0.0) for one in failure.tries),
        tries=failure.tries,
    )


def rows_of(attempt: Attempt) -> tuple[Mapping[str, Any], ...]:
    """A page's tries; its only request as a row."""
    if attempt.tries:
        return attempt.tries
    about = {"status": Status.OK.value, "reason": None, "tokens_in": attempt.tokens_in}
    return ({**about, "tokens_out": attempt.tokens_out, "seconds": round(attempt.seconds, 4)},)


def _blocks(asked: Asked | None) -> tuple[Block, ...]:
    best = asked.ended.best if asked else None
    return best.verdict.result if best else ()


def _detail(outcome: Outcome, failed: int) -> str:
    """Which regions are not read, or not well; then what was lost in the others."""
    lost: list[str] = []
    said: list[str] = []
    for one, asked in outcome.pairs():
        if asked is None:
            continue
        failure, best = asked.ended.failure, asked.ended.best
        if failure is not None:
            why = asked.ended.shortfall(len(asked.tries.rows)) or failure.detail
            kept = "" if best else "nothing of it was read"
            lost.append(f"{_where(one)}: {joined(failure.reason.value, why, kept)}")
        elif best is not None and best.verdict.detail:
            said.append(f"{_where(one)}: {best.verdict.detail}")
    head = f"{failed} of {len(outcome.requested())} regions were not read as they should be" if failed else ""
    return joined(head, told(lost), told(said))


def _where(one: Assigned) -> str:
    box = one.region.box
    left, top, right, bottom = (round(100 * side) for side in (box.x0, box.y0, box.x1, box.y1))
    return f"{one.region.label} at {left},{top} to {right},{bottom} %"


def _raw(outcome: Outcome) -> str:
    """The regions and their answers as they came, as JSON."""
    rows = [
        {
            "label": one.region.label,
            "box": [
                round(side, 4) for side in (one.region.box.x0, one.region.box.y0, one.region.box.x1, one.region.box.y1)
            ],
            "score": round(one.region.score, 4),
            "task": one.task,
            "answer": asked.ended.best.text if asked and asked.ended.best else None,
        }
        for one, asked in outcome.pairs()
    ]
    return json.dumps(rows, ensure_ascii=False)
