"""What Extract has to do, and what of it is done: for progress."""

from dataclasses import dataclass

from llm_ocr.types import Counts
from llm_ocr.work.claim import WHOLE, Shard
from llm_ocr.work.generations import generations, read_units
from llm_ocr.work.keys import EXTRACT
from llm_ocr.work.publish import iter_markers
from llm_ocr.work.summary import ESTIMATED, correction
from llm_ocr.work.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Expected:
    """Rows of a shard; those of retries are counted beside those that they stand for.

    Of `estimated` documents the pages are not counted yet. Not `whole`: what else is expected is learnt on the way.
    """

    pages: int
    done: Counts
    estimated: int = 0
    whole: bool = True


def expected_pages(workspace: Workspace, key: str, shard: Shard = WHOLE) -> Expected:
    """From the plan's and the units' markers alone, where the shard is the whole plan."""
    mine: set[str] | None = None
    if shard == WHOLE:
        found = generations(workspace)
        pages, estimated = sum(one.expected for one in found), sum(one.estimated for one in found)
    else:
        mine, pages, estimated = set(), 0, 0
        for unit in shard.of(read_units(workspace)):
            mine.add(unit.id)
            pages += unit.planned
            estimated += unit.estimated
    done = Counts()
    for marker in iter_markers(workspace, EXTRACT, key, mine):
        done += marker.counts
        pages += correction(marker.summary)
        estimated -= int(marker.summary.extra.get(ESTIMATED, 0))
    return Expected(pages, done, estimated)
