"""Describe: request a description, data, or a class of every figure, and store it.

The results of Extract do not change. `describe` runs the stage over a workspace, and `Describe` reads the figures.
"""

import asyncio
import contextlib
import hashlib
import io
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from llm_ocr.config.groups import HYBRID, InputSettings
from llm_ocr.config.models import FigureCommand
from llm_ocr.engines import FigureReader
from llm_ocr.errors import PageFailure, ServerError, WorkspaceMismatch, unexpected_as_failure
from llm_ocr.results.schema import Images, figures_to_parquet, pages_from_parquet
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages import Progress
from llm_ocr.stages.extract import caps_of
from llm_ocr.stages.flow import NO_CAPS, Admission, Caps, Flow, Spool, Ticket
from llm_ocr.stages.job import Job
from llm_ocr.stages.loop import stepwise
from llm_ocr.stages.readers import describing, keeps_known
from llm_ocr.stages.servers import ModelState
from llm_ocr.stages.sharing import (
    Expected,
    begin,
    describe_options,
    follows,
    key_before,
    pages_stage,
    sharing,
    split_of,
    units_behind,
)
from llm_ocr.types import Figure, FigureRecord, PageRecord, Reason, Status, Unit
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import DESCRIBE, Claim, key_settings, newest_key
from llm_ocr.workspace.publish import Marker, find_marker, publish, read_data, standing_marker
from llm_ocr.workspace.published import published_figures
from llm_ocr.workspace.status import figures_to_describe, superseded_figures
from llm_ocr.workspace.summaries import figures_summary

#: Descriptions kept for repeated figures (logos, repeated charts). Each takes a few hundred bytes.
REMEMBERED = 10_000


class FigureTask(NamedTuple):
    """One figure of a unit, with the page, the document, and the engine that read the page."""

    figure: Figure
    page_id: str
    document_id: str
    engine: str
    superseded: bool = False  # another reading of the page counts


async def describe(job: Job[FigureCommand]) -> None:
    """Describe the figures of this worker's unpublished units and publish the rows.

    With `follow`, a unit is described as soon as its pages are published.

    Args:
        job: The command, with an open workspace.

    Raises:
        StageMissing: The stage before has not finished all units, and `follow` is not set.
        WorkspaceMismatch: A worker with other settings was first, or the CPU engine would replace a model.
        ServerError: No model server can be started or reached.
        StorageError: The workspace cannot be read or written.
    """
    workspace, settings, progress = job.workspace, job.settings, job.progress
    pages_from = pages_stage(settings)
    source = await key_before(job, pages_from)
    async with _opened(job, source) as (reader, admission, claim, imported):
        key, keeps = claim.key, keeps_known(settings)
        # A worker of Ray has no command of its own.
        cannot = reader.identity().get("engine") != "model" and job.split is None
        if cannot and await asyncio.to_thread(_left_to_model, job, pages_from, source):
            return
        split = await split_of(job, DESCRIBE)

        def count() -> Expected:
            planned = PlannedUnits(workspace)
            mine = {planned.name(place) for place in split.shard.of(range(len(planned)))}
            return Expected(*figures_to_describe(workspace, pages_from, source, key, mine))

        whole = (await asyncio.to_thread(begin, job, split, DESCRIBE, count)).whole
        async with sharing(job, split, claim) as share:
            if follows(settings):
                units = units_behind(share, workspace, pages_from, source)
            else:
                units = share.take(await asyncio.to_thread(PlannedUnits, workspace))
            expected: dict[str, int] = {}  # figures of the units in progress
            superseded = await asyncio.to_thread(superseded_figures, workspace, pages_from, source)

            async def with_pages() -> AsyncIterator[tuple[str, Sequence[PageRecord]]]:
                async for unit in stepwise(units, job.stop):
                    marker, pages = await asyncio.to_thread(pages_of_figures, workspace, pages_from, source, unit.id)
                    if imported and pages:
                        from llm_ocr.compat.importing import with_descriptions

                        pages = await asyncio.to_thread(
                            with_descriptions, workspace, imported, unit.id, pages, keep=keeps
                        )
                    if pages and unit.repeats:
                        stage.remember(*await asyncio.to_thread(_earlier, workspace, pages_from, source, key, unit))
                    expected[unit.id] = marker.figures.expected
                    if not whole:
                        gone = sum(superseded.get(unit.id, {}).values())
                        progress.correct(marker.figures.expected - gone, exact=True)
                    yield unit.id, pages

            async def publish(unit: str, figures: Sequence[FigureRecord]) -> None:
                data = await asyncio.to_thread(figures_to_parquet, figures)
                await asyncio.to_thread(share.publish, unit, data, figures_summary(expected.pop(unit), figures))

            stage = Describe(
                reader,
                settings.describe_mode,
                publish,
                progress,
                admission,
                caps_of(settings),
                keep_known=keeps or bool(imported),
                model=job.engines.model_state if settings.engine == HYBRID else None,
                superseded=superseded,
            )
            await stage.run(with_pages())
            await asyncio.to_thread(lambda: share.finish(PlannedUnits(workspace)))
    progress.end()


def _left_to_model(job: Job[FigureCommand], pages_from: str, source: str) -> bool:
    """Return whether the newest descriptions are a model's and complete: the CPU engine, which has none, keeps them.

    A command that is only for figures, and names the engine, replaces them.

    Raises:
        WorkspaceMismatch: The model has figures left.
    """
    workspace, key = job.workspace, newest_key(job.workspace, DESCRIBE) or ""
    about = key_settings(workspace, DESCRIBE, key)
    named = job.command == DESCRIBE and job.settings.origins.get("engine", "").startswith("flag")
    if about.get("reader", {}).get("engine") != "model" or named:
        return False
    if (
        about.get("extract") != source
        or follows(job.settings)
        or publish_units_without_figures(workspace, pages_from, source, key, str(about["reader"]["mode"]))
    ):
        command = f"llm-ocr describe -w {workspace.url}"
        raise WorkspaceMismatch(
            f"a model described the figures of {workspace.url}; the CPU engine cannot describe the new ones",
            hint=f"Run: {command}{describe_options(workspace)}, then: llm-ocr assemble -w {workspace.url}\n"
            f"Or, for documents without descriptions: {command} `engine=embedded`",
        )
    return True


def publish_units_without_figures(workspace: Workspace, stage: str, source: str, key: str, mode: str) -> int:
    """Publish the units that Describe has not published and that have no figures; return the figures of the others.

    Figures of pages whose older row is better do not count. Units without others are published, too.

    Args:
        workspace: The workspace.
        stage: The stage of the pages.
        source: Its key.
        key: The key of Describe.
        mode: The mode of its descriptions.
    """
    planned, left = PlannedUnits(workspace), 0
    missing = planned.without_marker(DESCRIBE, key)
    superseded = superseded_figures(workspace, stage, source) if missing else {}
    for place in missing:
        unit = planned.name(place)
        figures, pages = standing_marker(workspace, stage, source, unit).figures.expected, list[PageRecord]()
        if figures and unit in superseded:
            pages = pages_of_figures(workspace, stage, source, unit)[1]
            figures = sum(len(page.figures) for page in pages if page.page_id not in superseded[unit])
        if figures:
            left += figures
        else:
            rows = [superseded_row(one, page.page_id, page.document_id, mode) for page in pages for one in page.figures]
            publish(workspace, DESCRIBE, key, unit, figures_to_parquet(rows), figures_summary(len(rows), rows))
    return left


async def describe_claim(job: Job[FigureCommand]) -> Claim:
    """Return the claim of the key that `describe` would publish under. No server starts."""
    async with _opened(job, await key_before(job, pages_stage(job.settings))) as (_, _, claim, _):
        return claim


@contextlib.asynccontextmanager
async def _opened(job: Job[FigureCommand], source: str) -> AsyncIterator[tuple[FigureReader, Admission, Claim, str]]:
    """Open the reader of figures.

    Yields:
        The reader, the admission of its figures, the claim, and the key of imported descriptions, which take
        precedence.
    """
    settings, imported = job.settings, ""
    async with describing(job) as (reader, admission):
        if isinstance(settings, InputSettings) and settings.input:
            from llm_ocr.compat.importing import imported_key

            imported = await asyncio.to_thread(imported_key, job.workspace, settings.describe_mode)
        about = {**reader.identity(), **({"kept": imported} if imported else {})}
        known = {"known": "keep"} if keeps_known(settings) else {}
        yield reader, admission, Claim(job.workspace, DESCRIBE, {"extract": source, "reader": about, **known}), imported


@dataclass(frozen=True, slots=True)
class Describe:
    """Describes the figures of units. Identical figures with identical captions are described once."""

    reader: FigureReader
    mode: str  # the kind of description, which is stored in every row
    #: Publishes the rows of a complete unit, given by its id.
    publish: Callable[[str, Sequence[FigureRecord]], Awaitable[None]]
    progress: Progress  # receives the status of each figure
    admission: Admission  # bounds the bytes of figures that wait for the engine
    caps: Caps = NO_CAPS  # the user's limits on units, documents, and figures in progress
    keep_known: bool = False  # whether figures keep descriptions that they already have (`Figure.described`)
    #: State of the model of a hybrid run, whose figures fail if it is lost after it has answered.
    model: ModelState | None = None
    #: Pages of which another reading counts, by unit. Their figures get rows, and nothing is asked about them.
    superseded: Mapping[str, Container[str]] = field(default_factory=dict)
    _known: dict[bytes, FigureRecord] = field(default_factory=dict)
    _under_way: dict[bytes, asyncio.Event] = field(default_factory=dict)

    async def run(self, units: AsyncIterable[tuple[str, Sequence[PageRecord]]]) -> None:
        """Describe and publish all units, each given by its id and its pages."""
        spool: Spool[FigureRecord] = Spool()
        flow: Flow[str, FigureTask, FigureRecord] = Flow(
            self._read, self.publish, self.admission, spool, self.caps, lambda task: task.document_id
        )
        await flow.run(self._tasks(units))

    def remember(self, pages: Sequence[PageRecord], records: Mapping[str, FigureRecord]) -> None:
        """Remember earlier descriptions, by figure id, for the same figures on pages that were read again."""
        for figure in (figure for page in pages for figure in page.figures):
            record = records.get(figure.id)
            if record is not None and record.status is not Status.FAILED:
                self._learn(_fingerprint(figure), record)

    def _learn(self, fingerprint: bytes, record: FigureRecord) -> None:
        if len(self._known) >= REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[fingerprint] = record

    async def _tasks(
        self, units: AsyncIterable[tuple[str, Sequence[PageRecord]]]
    ) -> AsyncIterator[tuple[str, list[FigureTask]]]:
        async for unit, pages in units:
            superseded = self.superseded.get(unit, ())
            tasks = [
                FigureTask(figure, page.page_id, page.document_id, page.engine, page.page_id in superseded)
                for page in pages
                for figure in page.figures
            ]
            yield unit, tasks

    async def _read(self, task: FigureTask, ticket: Ticket) -> FigureRecord:
        if self.keep_known and task.figure.described and not task.superseded:
            self.progress.count(Status.OK)
            figure, names = task.figure, (task.figure.id, task.page_id, task.document_id)
            return FigureRecord(*names, Status.OK, self.mode, description=figure.described, engine=task.engine)
        fingerprint = _fingerprint(task.figure)
        while (twin := self._under_way.get(fingerprint)) is not None:
            ticket.release()  # an identical figure is being described
            await twin.wait()
        record = self._known.get(fingerprint)
        if record is not None:
            record = replace(record, tokens_in=0, tokens_out=0, seconds=0.0)  # counted for the first figure
        elif task.superseded:
            return superseded_row(task.figure, task.page_id, task.document_id, self.mode)
        else:
            ended = self._under_way[fingerprint] = asyncio.Event()
            try:
                record = await self._describe(task, ticket)
                if record.status is not Status.FAILED:
                    self._learn(fingerprint, record)
            finally:
                del self._under_way[fingerprint]
                ended.set()
        if not task.superseded:
            self.progress.count(record.status)
        return replace(record, figure_id=task.figure.id, page_id=task.page_id, document_id=task.document_id)

    async def _describe(self, task: FigureTask, ticket: Ticket) -> FigureRecord:
        ticket.weigh(len(task.figure.image.data))
        try:
            try:
                with unexpected_as_failure():
                    record = await self.reader.describe(task.figure, task.page_id, task.document_id, ticket.release)
            except ServerError as lost:
                if self.model is None or not self.model.answered:
                    raise
                raise PageFailure(Reason.MODEL_LOST, str(lost.args[0])) from lost
            if self.model is not None:
                self.model.answered = True
            return record
        except PageFailure as failure:
            return FigureRecord(
                figure_id=task.figure.id,
                page_id=task.page_id,
                document_id=task.document_id,
                status=Status.FAILED,
                mode=self.mode,
                reason=failure.reason,
                detail=failure.detail,
                engine=self.reader.name,
                tokens_in=sum(one.get("tokens_in", 0) for one in failure.tries),
                tokens_out=sum(one.get("tokens_out", 0) for one in failure.tries),
                seconds=sum(one.get("seconds", 0.0) for one in failure.tries),
            )


def superseded_row(figure: Figure, page_id: str, document_id: str, mode: str) -> FigureRecord:
    """Return the row of a figure on a page of which another reading counts."""
    why = "another reading of the page counts"
    return FigureRecord(figure.id, page_id, document_id, Status.FAILED, mode, Reason.GIVEN_UP, why)


def _fingerprint(figure: Figure) -> bytes:
    seen = f"\0{figure.caption}\0{figure.inside}"
    return hashlib.sha256(figure.image.data + seen.encode()).digest()


def pages_of_figures(workspace: Workspace, stage: str, key: str, unit: str) -> tuple[Marker, list[PageRecord]]:
    """Return the unit's marker of the stage before, and its pages unless they contain no figure."""
    marker = standing_marker(workspace, stage, key, unit)
    if not marker.figures.expected:
        return marker, []
    return marker, pages_from_parquet(io.BytesIO(read_data(workspace, marker)), images=Images.FIGURES)


def _earlier(
    workspace: Workspace, stage: str, source: str, key: str, unit: Unit
) -> tuple[list[PageRecord], dict[str, FigureRecord]]:
    """Return the older rows of pages that the unit reads again, and the descriptions of their figures by figure id."""
    again = {row.page_id: row.unit for row in unit.repeats if row.figures}
    older = [name for name in dict.fromkeys(again.values()) if find_marker(workspace, DESCRIBE, key, name)]
    rows = [
        row
        for name in older
        for row in pages_of_figures(workspace, stage, source, name)[1]
        if again.get(row.page_id) == name
    ]
    described = (standing_marker(workspace, DESCRIBE, key, name) for name in older)
    return rows, published_figures(workspace, described, again)
