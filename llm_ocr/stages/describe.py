"""Describe: figure to caption, data, or class."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from llm_ocr.compat.importing import keeping
from llm_ocr.config.models import FigureCommand
from llm_ocr.engines import FigureReader
from llm_ocr.errors import PageFailure
from llm_ocr.results.schema import Images, figures_to_parquet, pages_from_parquet
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages import Progress
from llm_ocr.stages.extract import caps_of
from llm_ocr.stages.flow import NO_CAPS, Admission, Caps, Flow, Spool, Ticket
from llm_ocr.stages.loop import stepwise
from llm_ocr.stages.runtime import Job, Share, describing, keeps_known
from llm_ocr.stages.sharing import (
    Split,
    follows,
    key_before,
    pages_stage,
    publish_held,
    shared,
    shows_all,
    split_of,
    take_without_units,
    units_behind,
)
from llm_ocr.types import Counts, Figure, FigureRecord, PageRecord, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import DESCRIBE, Claim
from llm_ocr.workspace.publish import Marker, figures_summary, iter_markers, read_data, standing_marker

# Describe: figure -> caption, data or class, stored beside the figure; Extract is not touched.


#: Descriptions kept for figures that come again (logos, repeated charts); each is a few hundred bytes.
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class FigureItem:
    """A figure and where it stands."""

    figure: Figure
    page_id: str
    document_id: str
    engine: str  # that read the page


@dataclass(frozen=True, slots=True)
class Describe:
    """Describes the figures of units; the same picture with the same caption once only.

    With `keep_known`, nothing is asked about a figure of which the model that read its page has said something.
    """

    reader: FigureReader
    mode: str
    publish: Callable[[str, Sequence[FigureRecord]], Awaitable[None]]
    progress: Progress
    admission: Admission
    caps: Caps = NO_CAPS
    keep_known: bool = False
    _known: dict[bytes, FigureRecord] = field(default_factory=dict)
    _under_way: dict[bytes, asyncio.Event] = field(default_factory=dict)

    async def run(self, units: AsyncIterable[tuple[str, Sequence[PageRecord]]]) -> None:
        """Describe all figures of the units, each given by its id and its pages."""

        async def with_figures() -> AsyncIterator[tuple[str, list[FigureItem]]]:
            async for unit, pages in units:
                yield unit, figures_of(pages)

        spool: Spool[FigureRecord] = Spool()
        flow: Flow[str, FigureItem, FigureRecord] = Flow(
            self._figure, self.publish, self.admission, spool, self.caps, lambda item: item.document_id
        )
        await flow.run(with_figures())

    async def _figure(self, item: FigureItem, ticket: Ticket) -> FigureRecord:
        if self.keep_known and item.figure.described:
            self.progress.count(Status.OK)
            return self._kept(item)
        fingerprint = _fingerprint(item.figure)
        while (twin := self._under_way.get(fingerprint)) is not None:
            ticket.release()  # it needs no place of its own
            await twin.wait()
        record = self._known.get(fingerprint)
        if record is not None:
            record = replace(record, tokens_in=0, tokens_out=0, seconds=0.0)  # they were spent on the first one
        else:
            ended = self._under_way[fingerprint] = asyncio.Event()
            try:
                record = await self._describe(item, ticket)
                self._remember(fingerprint, record)
            finally:
                del self._under_way[fingerprint]
                ended.set()
        self.progress.count(record.status)
        return replace(record, figure_id=item.figure.id, page_id=item.page_id, document_id=item.document_id)

    def _kept(self, item: FigureItem) -> FigureRecord:
        return FigureRecord(
            figure_id=item.figure.id,
            page_id=item.page_id,
            document_id=item.document_id,
            status=Status.OK,
            mode=self.mode,
            description=item.figure.described,
            engine=item.engine,
        )

    def _remember(self, fingerprint: bytes, record: FigureRecord) -> None:
        if record.status is Status.FAILED:
            return
        if len(self._known) >= REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[fingerprint] = record

    async def _describe(self, item: FigureItem, ticket: Ticket) -> FigureRecord:
        ticket.weigh(len(item.figure.image.data))
        try:
            return await self.reader.describe(item.figure, item.page_id, item.document_id, ticket.release)
        except PageFailure as failure:
            return FigureRecord(
                figure_id=item.figure.id,
                page_id=item.page_id,
                document_id=item.document_id,
                status=Status.FAILED,
                mode=self.mode,
                reason=failure.reason,
                detail=failure.detail,
                engine=self.reader.name,
                tokens_in=sum(one.get("tokens_in", 0) for one in failure.tries),
                tokens_out=sum(one.get("tokens_out", 0) for one in failure.tries),
                seconds=sum(one.get("seconds", 0.0) for one in failure.tries),
            )


def figures_of(pages: Sequence[PageRecord]) -> list[FigureItem]:
    """All figures of the pages, in reading order."""
    return [FigureItem(figure, one.page_id, one.document_id, one.engine) for one in pages for figure in one.figures]


def _fingerprint(figure: Figure) -> bytes:
    digest = hashlib.sha256(figure.image.data)
    digest.update(f"\0{figure.caption}\0{figure.inside}".encode())
    return digest.digest()


# The Describe stage over a workspace.


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
