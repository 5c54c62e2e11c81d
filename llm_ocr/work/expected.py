"""What Extract has to do, and what of it is done: for progress."""

from collections.abc import Sequence
from dataclasses import dataclass

from llm_ocr.types import Counts
from llm_ocr.work.claim import WHOLE, Shard
from llm_ocr.work.generations import Generation, Kind, generations, read_units, units_of
from llm_ocr.work.keys import EXTRACT
from llm_ocr.work.publish import done_units, iter_markers
from llm_ocr.work.summary import ESTIMATED, correction
from llm_ocr.work.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Expected:
    """Rows of a shard. After a retry of a plan that is done, they are the rows of the retry alone.

    Of `estimated` documents the pages are not counted yet. Not `whole`: what else is expected is learnt on the way.
    """

    pages: int
    done: Counts
    estimated: int = 0
    whole: bool = True


def expected_pages(workspace: Workspace, key: str, shard: Shard = WHOLE) -> Expected:
    """From the plan's and the units' markers alone, where the shard is the whole plan."""
    mine: set[str] | None = None
    found = generations(workspace)
    retry = _retry_alone(workspace, key, found)
    if shard == WHOLE and retry is None:
        pages, estimated = sum(one.expected for one in found), sum(one.estimated for one in found)
    else:
        mine, pages, estimated = set(), 0, 0
        for unit in shard.of(read_units(workspace)):
            if retry is not None and unit.generation != retry:
                continue
            mine.add(unit.id)
            pages += unit.planned
            estimated += unit.estimated
    done = Counts()
    for marker in iter_markers(workspace, EXTRACT, key, mine):
        done += marker.counts
        pages += correction(marker.summary)
        estimated -= int(marker.summary.extra.get(ESTIMATED, 0))
    return Expected(pages, done, estimated)


def _retry_alone(workspace: Workspace, key: str, found: Sequence[Generation]) -> int | None:
    """Return the number of the newest generation if it is a retry and all units before it are done, else None."""
    if not found or found[-1].kind is not Kind.RETRY:
        return None
    newest = found[-1]
    own = {unit.id for unit in units_of(workspace, newest)}
    done = done_units(workspace, EXTRACT, key) - own
    return newest.number if len(done) >= sum(one.units for one in found[:-1]) else None
