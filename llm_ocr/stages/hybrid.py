"""Choose the pages that a model reads after the CPU engine, and the better of both rows."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm_ocr.results.routing import THRESHOLD, gain_probability
from llm_ocr.types import PageRecord, Reason, Status
from llm_ocr.workspace.superseding import gain


@dataclass(frozen=True, slots=True)
class Route:
    """Choice of the pages that a model reads.

    Attributes:
        threshold: Least probability that the model's answer is better.
        share: Largest share of the pages of a unit; None: all pages from the threshold on.
    """

    threshold: float = THRESHOLD
    share: float | None = None

    def chosen(self, unit: str, rows: Sequence[PageRecord]) -> list[int]:
        """Return the positions of the pages for the model, those with the highest probabilities first.

        Args:
            unit: Id of the unit. It decides whether a part of a page is rounded up or down, so that many small units
                have the share together, and a unit that is read twice has the same pages.
            rows: The rows of the unit's pages by the CPU engine.
        """
        probabilities = [gain_probability(row) for row in rows]
        found = [place for place, probability in enumerate(probabilities) if probability >= self.threshold]
        found.sort(key=lambda place: -probabilities[place])
        if self.share is None:
            return found
        return found[: int(self.share * len(rows) + zlib.crc32(unit.encode()) / 2**32)]


@dataclass(slots=True)
class ModelState:
    """State of the model of a run.

    Attributes:
        answered: Whether it has read a page.
        lost: Why no server of it is left; "" while there is one.
    """

    answered: bool = False
    lost: str = ""


def better(first: PageRecord, second: PageRecord) -> PageRecord:
    """Return the better row of a page, with the attempts and the tokens of both.

    The model's row counts unless it is worse by its status, or has more unread or unsupported and is not `ok`: whether
    both are `ok` says nothing about formulas and tables, which are a reason to ask the model.

    Args:
        first: The row of the CPU engine.
        second: The row of the model.
    """
    row = second if second.status is Status.OK or gain(second, first) >= 0 else first
    return replace(
        row,
        attempts=(*first.attempts, *second.attempts),
        tokens_in=first.tokens_in + second.tokens_in,
        tokens_out=first.tokens_out + second.tokens_out,
        seconds=first.seconds + second.seconds,
    )


def without_model(first: PageRecord, why: str) -> PageRecord:
    """Return the row of the CPU engine for a page that the model should have read, and whose servers are gone."""
    if first.status is Status.FAILED:
        return first
    before = f"{first.reason.value}: {first.detail}" if first.reason else first.detail
    detail = "; ".join(filter(None, (f"the model was to read it: {why}", before)))
    return replace(first, status=Status.DEGRADED, reason=Reason.MODEL_LOST, detail=detail)
