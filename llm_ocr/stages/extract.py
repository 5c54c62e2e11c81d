"""Extract: read every page and store its Markdown, figures, and layout.

`extract` runs the stage over a workspace, and `Extract` reads the units. Helpers follow in the order of use.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from llm_ocr.config.groups import RequestSettings
from llm_ocr.config.models import ReadingCommand
from llm_ocr.documents.remote import shown
from llm_ocr.documents.rendering import Renderer
from llm_ocr.engines import PageReader, noop
from llm_ocr.engines.slices import read_page
from llm_ocr.errors import PageFailure, ServerError, UsageError, unexpected_as_failure
from llm_ocr.results import routing
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.results.quality import VERSION
from llm_ocr.results.quality.scoring import FITTED, Limits
from llm_ocr.results.routing import GAIN, gain_probability
from llm_ocr.results.schema import pages_to_parquet, release_memory
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.scheduling.shards import WHOLE, Shard, has_unclaimed
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.flow import NO_CAPS, Caps, Flow, Spool, Ticket
from llm_ocr.stages.job import Job
from llm_ocr.stages.loop import stepwise
from llm_ocr.stages.model_choice import page_model, page_profile
from llm_ocr.stages.readers import Reading, Verifier, limits_of, ocr_language, reading
from llm_ocr.stages.rendering import PartRenderer, passwords, render_options
from llm_ocr.stages.servers import ModelState
from llm_ocr.stages.sharing import Expected, begin, repair_command, sharing, split_of
from llm_ocr.types import (
    Attempt,
    BlockKind,
    Counts,
    DocumentPart,
    EncodedImage,
    Figure,
    OcrText,
    Page,
    PageRecord,
    Reason,
    Status,
    Unit,
    figure_id,
    page_id,
)
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.codec import parse_unit_id
from llm_ocr.workspace.generations import Generation, Kind, generations, units_of
from llm_ocr.workspace.keys import EXTRACT, Claim, Origin, newest_key
from llm_ocr.workspace.planned import no_such_page, wanted_pages
from llm_ocr.workspace.publish import done_units, iter_markers
from llm_ocr.workspace.stored import to_remember
from llm_ocr.workspace.summaries import correction, gain, pages_summary

#: Bytes of finished pages that wait in memory for the rest of their unit. Further pages wait on disk.
SPOOL_MEMORY = 40 << 20
#: Units whose pages are in memory for the store at a time. A dataset repository takes several in one commit.
UNITS_AT_ONCE = 4

#: Opens the document of a part and returns its number of pages. Raises `PageFailure`.
Count = Callable[[DocumentPart], Awaitable[int]]


class PageTask(NamedTuple):
    """One expected row of a unit."""

    part: DocumentPart  # the document, or the page range of it, that the unit contains
    position: int  # index into `part.pages`; 0 for a document that could not be opened


async def extract(job: Job[ReadingCommand]) -> None:
    """Read the pages of this worker's unpublished units and publish the rows.

    A page that fails becomes a row with the status `failed`.

    Args:
        job: The command, with an open workspace that has a plan.

    Raises:
        UsageError: A retry contains encrypted documents, and their passwords were not given.
        WorkspaceMismatch: The workspace was extracted with other settings.
        ServerError: No model server can be started or reached.
        StorageError: The workspace cannot be read or written.
    """
    workspace, settings, progress = job.workspace, job.settings, job.progress
    async with opened_reading(job) as (pages, ready, made):
        claim = _claim(job, made)
        key = await asyncio.to_thread(claim.check)
        found = await asyncio.to_thread(generations, workspace)
        own = [generation for generation in found if generation.key(key) == claim.key]
        if not (settings.password or settings.password_file):
            # `retry-failed` may have planned pages of encrypted documents with passwords, which are not stored.
            for part in await asyncio.to_thread(_once_encrypted, workspace, key, own):
                try:
                    await pages.count(part)
                except PageFailure as failure:  # other reasons become the rows of its pages
                    if failure.reason is Reason.ENCRYPTED:
                        raise UsageError(
                            f"{shown(part.source)} needs the password that retry-failed used; passwords are not stored",
                            hint="Set the same `password_file` as for retry-failed. With other passwords, its pages "
                            "fail.",
                        ) from failure
        split = await split_of(job, EXTRACT)
        count = partial(expected_pages, workspace, key, split.shard, own)
        expected = await asyncio.to_thread(begin, job, split, EXTRACT, count)
        repair = next((one.repair for one in own if one.repair and claim.folder != claim.key), None)
        async with sharing(job, split, claim) as share:
            encoding = asyncio.Lock()  # encoding takes several times the images' size in memory

            async def publish(unit: Unit, rows: Sequence[PageRecord]) -> None:
                async with encoding:
                    data = await asyncio.to_thread(pages_to_parquet, rows)
                    await asyncio.to_thread(release_memory)
                await asyncio.to_thread(share.publish, unit.id, data, pages_summary(unit, rows))

            stage = Extract(
                pages,
                ready,
                publish,
                progress,
                caps_of(settings),
                expected.estimated,
                expected.whole,
                furniture=settings.headers == "keep",
                limits=limits_of(settings),
                repair={"repair": claim.key, "settings": dict(repair.options)} if repair else {},
                model=job.engines.model_state,
            )
            await stage.run(stepwise(share.take(PlannedUnits(workspace, own)), job.stop))
            await asyncio.to_thread(lambda: share.finish(PlannedUnits(workspace)))
        for other in (generation for generation in found if generation not in own):
            if await asyncio.to_thread(PlannedUnits(workspace, [other]).without_marker, EXTRACT, key):
                what, continued = "a repair with other settings", repair_command(workspace, other)
                if other.repair is None:
                    what, continued = "of documents for the workspace's settings", f"llm-ocr extract -w {workspace.url}"
                progress.say(f"Generation {other.number} is {what}. To continue: {continued}")
    progress.end()


async def extract_claim(job: Job[ReadingCommand]) -> Claim:
    """Return the claim of the key that `extract` would publish under. No server starts."""
    async with opened_reading(job) as (_, _, made):
        return _claim(job, made)


def _claim(job: Job[ReadingCommand], made: Mapping[str, Any]) -> Claim:
    origin = Origin(to_remember(job.settings, engine=job.engines.engine), job.command)
    return Claim(job.workspace, EXTRACT, made, origin)


@contextlib.asynccontextmanager
async def opened_reading(
    job: Job[ReadingCommand],
) -> AsyncIterator[tuple[PartRenderer, Reading, Mapping[str, Any]]]:
    """Open the renderer and the reader of a command. No process and no server starts before the first page.

    Args:
        job: The command.

    Yields:
        The renderer, the reader, and the settings that determine the rows. Their hash is the key of the stage.
    """
    settings, engines = job.settings, job.engines
    secrets = passwords(settings.password, settings.password_file)
    options = render_options(settings, secrets, page_profile(settings, engines), engines.engine)
    async with Renderer(options, job.renderer) as renderer:
        ready = await reading(job, renderer)
        try:
            yield PartRenderer(renderer, job.remote), ready, identity(renderer, ready, settings)
        finally:
            await ready.close()


@dataclass(frozen=True, slots=True)
class Extract:
    """Reads and publishes units without pauses between them.

    The pages of the next unit enter while the last pages of the previous unit finish.
    """

    renderer: PartRenderer  # renders pages and crops figures
    ready: Reading  # the reader, and what belongs to its pages
    publish: Callable[[Unit, Sequence[PageRecord]], Awaitable[None]]  # publishes the rows of a complete unit
    progress: Progress  # receives the status of each page
    caps: Caps = NO_CAPS  # the user's limits on units, documents, and pages in progress
    estimated: int = 0  # documents whose pages were not counted when the progress began
    whole: bool = True  # whether the progress has begun with all units. If not, each unit is added to it.
    furniture: bool = False  # whether the Markdown contains running heads, feet, and page numbers
    limits: Limits = FITTED  # limits of a page that is `ok`
    #: The key and the settings of a repair, which each of its rows names in its attempts.
    repair: Mapping[str, Any] = field(default_factory=dict)
    model: ModelState = field(default_factory=ModelState)  # whether the reader still has a server, in a hybrid run
    #: What the OCR of the CPU engine read, by the page's id: evidence for pages that wait for the choice of their
    #: unit. Other pages are read by both at once.
    ocr_texts: dict[str, OcrText] = field(default_factory=dict)

    async def run(self, units: AsyncIterable[Unit]) -> None:
        """Read and publish all units."""
        flow: Flow[Unit, PageTask, PageRecord] = Flow(
            self._read,
            self.publish,
            self.ready.admission,
            Spool(_images, _with_images, SPOOL_MEMORY),
            self.caps,
            lambda task: task.part.document_id,
            asyncio.Semaphore(UNITS_AT_ONCE),
            self._for_model if self._by_units else None,
            lambda task, before, ticket: self._read(task, ticket, before),
        )
        async with contextlib.aclosing(counted_units(units, self.renderer.count)) as counted:
            await flow.run(self._tasks(counted))

    async def _tasks(self, units: AsyncIterable[Unit]) -> AsyncIterator[tuple[Unit, list[PageTask]]]:
        left = self.estimated
        async for unit in units:
            if not self.whole:
                self.progress.correct(unit.planned, exact=True)
            if unit.estimated:
                left -= unit.estimated
                self.progress.correct(unit.expected - unit.planned, exact=left <= 0)
            yield unit, [PageTask(part, position) for part in unit.parts for position in range(part.expected)]

    @property
    def _by_units(self) -> bool:
        """Whether the pages for the model are chosen when all pages of their unit are read: a share is of a unit."""
        return self.ready.first is not None and self.ready.route.share is not None

    async def _read(self, task: PageTask, ticket: Ticket, before: PageRecord | None = None) -> PageRecord:
        record = await self.read(task, ticket, before)
        if before is not None or not self._by_units:
            self.progress.count(record.status)
        if not self.repair:
            return record
        return replace(record, attempts=tuple({**attempt, **self.repair} for attempt in record.attempts))

    def _for_model(self, unit: Unit, rows: Sequence[PageRecord]) -> list[int]:
        """Return the positions in a unit of the pages that the model reads, and count the others as finished."""
        chosen = self.ready.route.chosen(unit.id, rows)
        for position in set(range(len(rows))).difference(chosen):
            self.progress.count(rows[position].status)
            self.ocr_texts.pop(rows[position].page_id, None)
        return chosen

    async def read(self, task: PageTask, ticket: Ticket, before: PageRecord | None = None) -> PageRecord:
        """Render and read one page.

        Args:
            task: The page.
            ticket: The page's admission. It is released when the page's request is sent, so that the next page can be
                rendered.
            before: The row by the CPU engine of a page that is for the model.

        Returns:
            The row: `ok`, `degraded`, or `failed` with a reason.
        """
        part, position = task
        ready = self.ready
        try:
            if part.reason is not None:
                raise PageFailure(part.reason, part.detail)
            with unexpected_as_failure():
                page = await self.renderer.page(part, part.pages[position])
        except PageFailure as failure:
            return before or failed_page(part, position, failure, engine=(ready.first or ready.reader).name)
        ticket.weigh(len(page.image.data))
        if part.again and not self.repair:  # a repair reads in another way by its settings
            page = replace(page, again=True)
        if ready.first is None:
            return (await self._read_with(ready.reader, task, page, ticket.release))[0]
        if before is not None:
            ocr = self.ocr_texts.pop(page.id, None)
        else:
            before, ocr = await self._read_with(ready.first, task, page, noop)
            probability = {GAIN: round(gain_probability(before), 3)}
            before = replace(before, attempts=tuple({**attempt, **probability} for attempt in before.attempts))
            if self._by_units and ocr:
                self.ocr_texts[page.id] = ocr
            if self._by_units or not ready.route.chosen("", [before]):
                return before
        if ocr and page.evidence:  # evidence for the text of the model
            page = replace(page, evidence=replace(page.evidence, ocr=ocr))
        model = self.model
        if not model.lost:
            if ready.ahead is not None:  # the next page may be rendered when this one has its place in the queue
                queued = await ready.ahead.enter()
                queued.weigh(len(page.image.data))
                ticket.release()
                ticket = queued
            try:
                row, _ = await self._read_with(ready.reader, task, page, ticket.release)
            except ServerError as error:
                if not model.answered:
                    raise
                if not model.lost:
                    model.lost = str(error.args[0])
                    self.progress.say(
                        f"{model.lost}. Pages that the model was to read keep the text of the CPU engine, and are"
                        " `degraded`. `llm-ocr repair` reads them again."
                    )
            else:
                model.answered |= row.tokens_out > 0  # a blank page needs no request
                return better(before, row)
            finally:
                ticket.release()
        return without_model(before, model.lost)

    async def _read_with(
        self, reader: PageReader, task: PageTask, page: Page, on_dispatched: Callable[[], None]
    ) -> tuple[PageRecord, OcrText | None]:
        """Return the row of a rendered page by one of the readers, and what its OCR read, if it is kept as evidence."""
        part, position = task
        try:
            with unexpected_as_failure():
                verifier = self.ready.verifier
                if verifier is None or reader is not self.ready.reader:
                    attempt = await read_page(reader, page, self.renderer, on_dispatched)
                else:
                    page, attempt = await self._verified(page, on_dispatched, verifier)
                row = await finished_page(
                    part,
                    position,
                    page,
                    replace(attempt, ocr=None),
                    self.renderer,
                    furniture=self.furniture,
                    limits=self.limits,
                    transcribed=self.ready.transcribes(),
                )
        except PageFailure as failure:
            return failed_page(part, position, failure, engine=reader.name, image=page.image), None
        return row, attempt.ocr

    async def _verified(
        self, page: Page, on_dispatched: Callable[[], None], verifier: Verifier
    ) -> tuple[Page, Attempt]:
        """Read a page, and return it with the text of OCR as evidence. Raises `PageFailure`."""

        def on_sent() -> None:
            on_dispatched()
            verifier.begin(page)

        await verifier.wait_for_room()
        try:
            attempt = await read_page(self.ready.reader, page, self.renderer, on_sent)
            if attempt.source != "model":  # a fallback's text is that of the layer or of the same OCR
                return page, attempt
            found, why_not = await verifier.verified(page)
            return found, replace(attempt, detail="; ".join(filter(None, (attempt.detail, why_not))))
        finally:
            verifier.forget(page)


def identity(renderer: Renderer, ready: Reading, settings: ReadingCommand) -> Mapping[str, Any]:
    """Return the settings that determine the rows. Their hash is the key of the stage."""
    about: dict[str, Any] = {"reader": dict(ready.reader.identity()), "render": dict(renderer.identity())}
    if ready.first is not None:
        about["hybrid"] = {"first": dict(ready.first.identity()), **asdict(ready.route), "routing": routing.VERSION}
    if settings.headers != "drop":
        about["headers"] = settings.headers
    limits = {"max_unread": settings.max_unread, "max_unsupported": settings.max_unsupported}
    if any(limit is not None for limit in limits.values()) or settings.verify != "layer":
        about["ledger"] = {**limits, "version": VERSION}
    if settings.verify != "layer":
        about["ledger"] |= {"verify": settings.verify, **(ready.verifier.identity() if ready.verifier else {})}
    return about


def _once_encrypted(workspace: Workspace, key: str, own: Sequence[Generation]) -> list[DocumentPart]:
    """Return the parts of unfinished retries whose documents could not be opened without a password."""
    retries = [one for one in own if any(Reason.ENCRYPTED in why for why in one.replaced.values())]
    done = done_units(workspace, EXTRACT, key) if retries else set()
    return [
        part
        for retry in retries
        for unit in units_of(workspace, retry)
        if unit.id not in done and Reason.ENCRYPTED in retry.replaced.get(unit.id, {})
        for part in unit.parts
    ]


def caps_of(settings: RequestSettings) -> Caps:
    """Return the user's limits on units, documents, and pages in progress."""
    return Caps(settings.workers, settings.max_concurrent_documents, settings.max_page_concurrency)


def expected_pages(
    workspace: Workspace, key: str, shard: Shard = WHOLE, among: Sequence[Generation] | None = None
) -> Expected:
    """Return the expected rows of a shard. For the whole plan, only markers are read.

    Args:
        workspace: The workspace.
        key: The stage key.
        shard: The share of the units.
        among: The generations that the worker reads. By default all.
    """
    mine: set[str] | None = None
    every = generations(workspace)
    found = every if among is None else among
    retry: int | None = None  # the newest generation, if it is a retry and all units before it are done
    if found and found[-1].kind is Kind.RETRY:
        older = {generation.number for generation in found[:-1]}
        before = sum(parse_unit_id(unit)[0] in older for unit in done_units(workspace, EXTRACT, key))
        retry = found[-1].number if before >= sum(one.units for one in found[:-1]) else None
    if shard.count == 1 and retry is None and len(found) == len(every):
        pages, estimated = sum(one.expected for one in found), sum(one.estimated for one in found)
    else:
        mine, pages, estimated = set(), 0, 0
        for unit in shard.of(unit for generation in found for unit in units_of(workspace, generation)):
            if retry is not None and unit.generation != retry:
                continue
            mine.add(unit.id)
            pages += unit.planned
            estimated += unit.estimated
    done = Counts()
    for marker in iter_markers(workspace, EXTRACT, key, mine):
        done += marker.counts
        pages += correction(marker.summary)
        estimated -= marker.summary.extra.estimated
    return Expected(pages, done, estimated)


async def counted_units(units: AsyncIterable[Unit], count: Count) -> AsyncGenerator[Unit, None]:
    """Yield the units in order, with the pages of all their documents counted.

    The next unit is counted while the current unit is read. Close the generator if it is not read to its end.

    Args:
        units: Units of the plan.
        count: Opens a document and returns its number of pages.
    """
    rest = aiter(units)
    ahead: asyncio.Task[Unit | None] | None = None
    try:
        while True:
            unit = await (ahead or _next_counted(rest, count))
            ahead = None
            if unit is None:
                return
            if unit.estimated:
                ahead = asyncio.create_task(_next_counted(rest, count))
            yield unit
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)


async def _next_counted(rest: AsyncIterator[Unit], count: Count) -> Unit | None:
    try:
        unit = await anext(rest)
    except StopAsyncIteration:
        return None
    if not unit.estimated:
        return unit
    parts = await asyncio.gather(*(_counted_part(part, count) for part in unit.parts))
    return replace(unit, parts=tuple(parts))


async def _counted_part(part: DocumentPart, count: Count) -> DocumentPart:
    """Return the part as an exact plan would contain it, but with the estimate that the plan was made with."""
    if part.counted:
        return part
    try:
        total = await count(part)
    except PageFailure as failure:
        return replace(part, reason=failure.reason, detail=failure.detail)
    pages = wanted_pages(part.wanted, total)
    if not pages:
        return replace(part, reason=Reason.NO_SUCH_PAGE, detail=no_such_page(total), page_total=total)
    return replace(part, pages=pages, page_total=total)


async def finished_page(
    part: DocumentPart,
    position: int,
    page: Page,
    attempt: Attempt,
    renderer: PartRenderer,
    *,
    furniture: bool = False,
    limits: Limits = FITTED,
    transcribed: bool = False,
) -> PageRecord:
    """Return the row of a page that was read.

    Args:
        part: The part of the plan that contains the page.
        position: Index of the page in `part.pages`.
        page: The rendered page.
        attempt: The engine's result.
        renderer: Cuts the figures out of the page image, and rates the answer.
        furniture: Whether the Markdown contains running heads, feet, and page numbers.
        limits: Limits of a page that is `ok`.
        transcribed: Whether a model was asked for the page's own text.
    """
    image = attempt.image or page.image
    numbers = itertools.count(1)
    blocks = tuple(
        replace(block, figure_id=figure_id(page.id, next(numbers))) if block.kind is BlockKind.FIGURE else block
        for block in attempt.blocks
    )
    pictured = [block for block in blocks if block.kind is BlockKind.FIGURE]
    crops = await renderer.crop(image, [block.box for block in pictured]) if pictured else ()
    figures = tuple(
        Figure(
            block.figure_id,
            block.label,
            block.box,
            crop,
            caption=block.caption,
            inside=block.inside,
            described=block.described,
        )
        for block, crop in zip(pictured, crops, strict=True)
    )
    attempt, quality, ledger = await renderer.rated(page, attempt, limits, transcribed=transcribed)
    for fault, reason in ((page.damage, Reason.UNREADABLE), (page.stands_for, Reason.PLACEHOLDER)):
        if fault:
            of_page = (Status.DEGRADED, reason) if attempt.status is Status.OK else (attempt.status, attempt.reason)
            detail = "; ".join(filter(None, (fault, attempt.detail)))
            attempt = replace(attempt, status=of_page[0], reason=of_page[1], detail=detail)
    only = {
        "status": attempt.status.value,
        "reason": attempt.reason.value if attempt.reason else None,
        "source": attempt.source,
        "tokens_in": attempt.tokens_in,
        "tokens_out": attempt.tokens_out,
        "seconds": round(attempt.seconds, 4),
    }
    return PageRecord(
        page_id=page.id,
        document_id=part.document_id,
        source=shown(part.source),
        page_number=page.number,
        dataset_index=part.index_of(position),
        status=attempt.status,
        reason=attempt.reason,
        detail=attempt.detail,
        engine=attempt.engine,
        text_source=attempt.source,
        rotation=attempt.rotation,
        blank=not blocks,
        image=image,
        markdown=blocks_to_markdown(blocks, furniture=furniture),
        blocks=blocks,
        figures=figures,
        tokens_in=attempt.tokens_in,
        tokens_out=attempt.tokens_out,
        seconds=attempt.seconds,
        probe=attempt.probe,
        attempts=attempt.tries or (only,),
        notes=attempt.notes,
        quality=quality.score,
        quality_parts=quality.parts,
        ledger=ledger,
        invisible_chars=page.invisible_chars,
    )


def failed_page(
    part: DocumentPart, position: int, failure: PageFailure, *, engine: str, image: EncodedImage | None = None
) -> PageRecord:
    """Return the row of a page that could not be read, or of a document that could not be opened.

    Args:
        part: The part of the plan that contains the page.
        position: Index of the page in `part.pages`; 0 if the document could not be opened.
        failure: The reason, with the attempts of the engine.
        engine: Name of the engine.
        image: The rendered page, if rendering succeeded.
    """
    number = part.pages[position] if part.pages else None
    only = {"status": Status.FAILED.value, "reason": failure.reason.value, "detail": failure.detail}
    return PageRecord(
        page_id=page_id(part.document_id, number),
        document_id=part.document_id,
        source=shown(part.source),
        page_number=number,
        dataset_index=part.index_of(position),
        status=Status.FAILED,
        reason=failure.reason,
        detail=failure.detail,
        engine=engine,
        image=image,
        tokens_in=sum(one.get("tokens_in", 0) for one in failure.tries),
        tokens_out=sum(one.get("tokens_out", 0) for one in failure.tries),
        seconds=sum(one.get("seconds", 0.0) for one in failure.tries),
        attempts=failure.tries or (only,),
    )


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


def _images(record: PageRecord) -> list[bytes]:
    """Return the images of a row, which the spool may keep in a file while the row stays in memory."""
    return [*([record.image.data] if record.image else []), *(figure.image.data for figure in record.figures)]


def _with_images(record: PageRecord, data: Sequence[bytes]) -> PageRecord:
    left = iter(data)
    image = replace(record.image, data=next(left)) if record.image else None
    figures = tuple(replace(figure, image=replace(figure.image, data=next(left))) for figure in record.figures)
    return replace(record, image=image, figures=figures)


@contextlib.asynccontextmanager
async def warming_up(job: Job[ReadingCommand], command: str) -> AsyncIterator[None]:
    """Start the model's servers while the block plans the documents, if pages are certain to be left.

    With the CPU engine, the recognizer of another language is downloaded meanwhile.

    An error that prevents the start is raised before the block. With an existing plan, a background task searches for
    unread units, and the error is raised at the end of the block.

    Args:
        job: The command.
        command: Its name. `plan` starts no servers.
    """
    if command == "plan":
        yield
        return
    if not job.engines.uses_models:
        download = asyncio.create_task(ocr_language(job.settings, job.progress.say, job.engines.engine))
        try:
            yield
            await download
        finally:
            download.cancel()
            await asyncio.gather(download, return_exceptions=True)
        return

    async def start() -> None:
        model = await page_model(job.settings, job.engines, job.workspace)
        pool = await job.engines.pool(model.profile, model=model.name, revision=model.revision)
        await job.engines.check()
        pool.begin()

    sure = False

    async def start_if_unread() -> None:  # unless all units are done or claimed by other workers
        nonlocal sure
        key = await asyncio.to_thread(newest_key, job.workspace, EXTRACT)
        split = await split_of(replace(job, progress=Silent()), EXTRACT)
        if await asyncio.to_thread(has_unclaimed, job.workspace, EXTRACT, key, split.shard):
            sure = True
            await start()

    if not await asyncio.to_thread(generations, job.workspace):
        await start()
        yield
        return
    search = asyncio.create_task(start_if_unread())
    try:
        yield
        if sure:
            await search
    finally:
        search.cancel()  # Extract itself finds out
        await asyncio.gather(search, return_exceptions=True)
