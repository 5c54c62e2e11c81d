"""The Describe stage over a workspace."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from llm_ocr.api.extracting import caps_of
from llm_ocr.api.following import follows, key_before, pages_stage, units_behind
from llm_ocr.api.import_kept import keeping
from llm_ocr.api.job import Job, Share
from llm_ocr.api.reading import describing, keeps_known
from llm_ocr.api.sharing import Split, publish_held, shared, shows_all, split_of, take_without_units
from llm_ocr.api.threads import stepwise
from llm_ocr.results.schema import Images, figures_to_parquet, pages_from_parquet
from llm_ocr.settings.models import FigureCommand
from llm_ocr.stages.describe import Describe
from llm_ocr.types import Counts, FigureRecord, PageRecord
from llm_ocr.work.keys import DESCRIBE, Claim
from llm_ocr.work.lease_groups import PlannedUnits
from llm_ocr.work.publish import Marker, iter_markers, read_data, standing_marker
from llm_ocr.work.summary import figures_summary
from llm_ocr.work.workspace import Workspace


async def describe(job: Job[FigureCommand]) -> None:
    """Describe the figures of this worker's units that have no marker yet; with `follow` each when it is extracted.

    Raises `StageMissing` when Extract has not finished all units, unless it follows.
    """
    workspace, settings, progress = job.workspace, job.settings, job.progress
    pages_from = pages_stage(settings)
    source = await key_before(job, pages_from)
    ready = await keeping(job, await describing(job))
    try:
        keeps = keeps_known(settings)
        identity = {"extract": source, "reader": dict(ready.reader.identity()), **({"known": "keep"} if keeps else {})}
        claim = Claim(workspace, DESCRIBE, identity)
        key = claim.check()
        split = await split_of(job, DESCRIBE)
        whole = await asyncio.to_thread(_begin, job, split, key, pages_from, source)
        behind = partial(units_behind, workspace=workspace, stage=pages_from, key=source) if follows(settings) else None
        async with shared(job, split, DESCRIBE, key, behind) as share:
            expected: dict[str, int] = {}  # figures of the units under way

            async def with_pages() -> AsyncIterator[tuple[str, Sequence[PageRecord]]]:
                async for unit in stepwise(share.units, job.stop):
                    marker, pages = await asyncio.to_thread(_pages, workspace, pages_from, source, unit.id)
                    expected[unit.id] = marker.figures.expected
                    if not whole:
                        progress.correct(marker.figures.expected, exact=True)
                    yield unit.id, pages

            publisher = _publisher(workspace, claim, expected, share)
            stage = Describe(
                ready.reader,
                settings.describe_mode,
                publisher,
                progress,
                ready.admission,
                caps_of(settings),
                keep_known=keeps,
            )
            await stage.run(with_pages())
        await asyncio.to_thread(take_without_units, workspace, claim)
    finally:
        await ready.close()
    progress.end()


def _pages(workspace: Workspace, stage: str, key: str, unit: str) -> tuple[Marker, list[PageRecord]]:
    """The unit's marker of the stage before, and its pages unless there is no figure on them."""
    marker = standing_marker(workspace, stage, key, unit)
    if not marker.figures.expected:
        return marker, []
    return marker, pages_from_parquet(io.BytesIO(read_data(workspace, marker)), images=Images.FIGURES)


def _begin(job: Job[FigureCommand], split: Split, key: str, pages_from: str, source: str) -> bool:
    """Whether the progress begins with all figures of this worker's units; else they are counted as they come."""
    workspace = job.workspace
    if follows(job.settings) or not shows_all(job, split, DESCRIBE):
        job.progress.begin(DESCRIBE, 0, Counts())
        return False
    units = PlannedUnits(workspace)
    mine = {units.name(place) for place in split.shard.of(range(len(units)))}
    expected = sum(marker.figures.expected for marker in iter_markers(workspace, pages_from, source, mine))
    done = sum((marker.figures for marker in iter_markers(workspace, DESCRIBE, key, mine)), Counts())
    job.progress.begin(DESCRIBE, expected, done)
    return True


def _publisher(
    workspace: Workspace, claim: Claim, expected: dict[str, int], share: Share
) -> Callable[[str, Sequence[FigureRecord]], Awaitable[None]]:
    def write(unit: str, figures: Sequence[FigureRecord]) -> None:
        summary = figures_summary(expected.pop(unit), figures)
        publish_held(share, workspace, claim, unit, figures_to_parquet(figures), summary)

    async def publish_unit(unit: str, figures: Sequence[FigureRecord]) -> None:
        await asyncio.to_thread(write, unit, figures)

    return publish_unit
