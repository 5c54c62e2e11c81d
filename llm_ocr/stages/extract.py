"""Extract: page image to Markdown, figures, and layout."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from llm_ocr.config.groups import LeaseSettings, ModelSettings, RequestSettings
from llm_ocr.config.models import ReadingCommand
from llm_ocr.documents.remote.urls import shown
from llm_ocr.documents.rendering import Renderer
from llm_ocr.engines import PageReader
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.results.quality.scoring import score
from llm_ocr.results.schema import pages_to_parquet, release_memory
from llm_ocr.scheduling.shards import WHOLE, Shard, has_unclaimed
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.flow import NO_CAPS, Admission, Caps, Flow, RowFiles, Spool, Ticket
from llm_ocr.stages.loop import stepwise
from llm_ocr.stages.runtime import (
    Job,
    PartRenderer,
    Share,
    page_model,
    page_profile,
    passwords,
    reading,
    render_options,
)
from llm_ocr.stages.sharing import Split, publish_held, shared, shows_all, split_of, take_without_units
from llm_ocr.types import (
    Attempt,
    Block,
    BlockKind,
    Box,
    Counts,
    DocumentPart,
    EncodedImage,
    Figure,
    Page,
    PageRecord,
    Reason,
    Status,
    Unit,
    figure_id,
    page_id,
)
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import Generation, Kind, generations, read_units, units_of
from llm_ocr.workspace.keys import EXTRACT, Claim, Origin, newest_key
from llm_ocr.workspace.planned import no_such_page, wanted_pages
from llm_ocr.workspace.publish import ESTIMATED, correction, done_units, iter_markers, pages_summary
from llm_ocr.workspace.stored import to_remember

# Units whose documents are all counted: what the plan only estimated is opened before its pages are read.


#: Opens the document of a part: its number of pages. Raises PageFailure.
Count = Callable[[DocumentPart], Awaitable[int]]


async def counted_units(units: AsyncIterable[Unit], count: Count) -> AsyncGenerator[Unit, None]:
    """The units in their order, with the pages of all their documents.

    While such a unit is read, the next one is counted, so that nobody waits for documents to be opened. Must be closed
    when it is not read to its end.
    """
    rest = aiter(units)
    ahead: asyncio.Task[Unit | None] | None = None
    try:
        while True:
            unit = await (ahead or _next(rest, count))
            ahead = None
            if unit is None:
                return
            if unit.estimated:
                ahead = asyncio.create_task(_next(rest, count))
            yield unit
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)  # nobody asks for this unit any more


async def _next(rest: AsyncIterator[Unit], count: Count) -> Unit | None:
    try:
        unit = await anext(rest)
    except StopAsyncIteration:
        return None
    if not unit.estimated:
        return unit
    parts = await asyncio.gather(*(_counted_part(part, count) for part in unit.parts))
    return replace(unit, parts=tuple(parts))


async def _counted_part(part: DocumentPart, count: Count) -> DocumentPart:
    """The part as an exact plan would have it; its estimate stays, because the plan was made with it."""
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


# From an attempt to a page's row: figures cropped, Markdown made, every outcome accounted for.


class Cropper(Protocol):
    """Cuts figures out of a page image."""

    async def crop(self, image: EncodedImage, boxes: Sequence[Box]) -> tuple[EncodedImage, ...]:
        """One image for each relative box, in order."""


async def finished_page(
    part: DocumentPart, position: int, page: Page, attempt: Attempt, cropper: Cropper, *, furniture: bool = False
) -> PageRecord:
    """The row of a page that was read. `position` is the page's place in `part.pages`.

    With `furniture`, running heads, feet and page numbers stand in the Markdown.
    """
    image = attempt.image or page.image
    blocks = _named_figures(page.id, attempt.blocks)
    figures = await _figures(blocks, image, cropper)
    # Some milliseconds of Python: the event loop has answers to read.
    quality = await asyncio.to_thread(score, page, attempt)
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
        attempts=attempt.tries or (_summary(attempt),),
        notes=attempt.notes,
        quality=quality.score,
        quality_parts=quality.parts,
    )


def failed_page(
    part: DocumentPart, position: int, failure: PageFailure, *, engine: str, image: EncodedImage | None = None
) -> PageRecord:
    """The row of a page that could not be read, or of a document that could not be opened."""
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


def _named_figures(page: str, blocks: Sequence[Block]) -> tuple[Block, ...]:
    named: list[Block] = []
    count = 0
    for block in blocks:
        if block.kind is BlockKind.FIGURE:
            count += 1
            block = replace(block, figure_id=figure_id(page, count))
        named.append(block)
    return tuple(named)


async def _figures(blocks: Sequence[Block], image: EncodedImage, cropper: Cropper) -> tuple[Figure, ...]:
    chosen = [block for block in blocks if block.kind is BlockKind.FIGURE]
    if not chosen:
        return ()
    crops = await cropper.crop(image, [block.box for block in chosen])
    return tuple(
        Figure(
            block.figure_id,
            block.label,
            block.box,
            crop,
            caption=block.caption,
            inside=block.inside,
            described=block.described,
        )
        for block, crop in zip(chosen, crops, strict=True)
    )


def _summary(attempt: Attempt) -> dict[str, Any]:
    return {
        "status": attempt.status.value,
        "reason": attempt.reason.value if attempt.reason else None,
        "source": attempt.source,
        "tokens_in": attempt.tokens_in,
        "tokens_out": attempt.tokens_out,
        "seconds": round(attempt.seconds, 4),
    }


# What Extract has to do, and what of it is done: for progress.


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


# Extract: page image -> Markdown, figures and layout.


#: A page of the plan: its part, and its place in `part.pages` (0 for a document that did not open).
Place = tuple[DocumentPart, int]
#: Bytes of finished pages that wait in memory for their unit to be whole; more of them go to disk.
SPOOL_MEMORY = 40 << 20
#: Units whose pages are in memory for the store at a time: a dataset repository takes several in one commit.
UNITS_AT_ONCE = 4


class PageRenderer(Cropper, Protocol):
    """Makes pages of documents; raises PageFailure for one that it cannot make."""

    async def count(self, part: DocumentPart) -> int:
        """How many pages the document has. Raises PageFailure when it cannot be opened."""

    async def page(self, part: DocumentPart, number: int) -> Page:
        """Page `number`, from 1, of the document."""


@dataclass(frozen=True, slots=True)
class Extract:
    """Reads pages and publishes units; `admission` bounds what stands between the documents and the reader.

    Of `estimated` documents the pages were not counted when the progress began. With `furniture`, running heads, feet
    and page numbers stand in the Markdown.
    """

    renderer: PageRenderer
    reader: PageReader
    publish: Callable[[Unit, Sequence[PageRecord]], Awaitable[None]]
    progress: Progress
    admission: Admission
    caps: Caps = NO_CAPS
    estimated: int = 0
    furniture: bool = False

    async def run(self, units: AsyncIterable[Unit]) -> None:
        """Read all pages of all units."""
        counted = counted_units(units, lambda part: self.renderer.count(part))

        async def with_places() -> AsyncIterator[tuple[Unit, list[Place]]]:
            left = self.estimated
            async for unit in counted:
                if unit.estimated:
                    left -= unit.estimated
                    self.progress.correct(unit.expected - unit.planned, exact=left <= 0)
                yield unit, places(unit)

        spool = Spool(RowFiles(_split, _join, _size), SPOOL_MEMORY)
        flow: Flow[Unit, Place, PageRecord] = Flow(
            self._page,
            self.publish,
            self.admission,
            spool,
            self.caps,
            lambda place: place[0].document_id,
            asyncio.Semaphore(UNITS_AT_ONCE),
        )
        async with contextlib.aclosing(counted):
            await flow.run(with_places())

    async def _page(self, place: Place, ticket: Ticket) -> PageRecord:
        record = await self.read(*place, ticket)
        self.progress.count(record.status)
        return record

    async def read(self, part: DocumentPart, position: int, ticket: Ticket) -> PageRecord:
        """The row of `part.pages[position]`: a page that cannot be read is a failed row, never an error."""
        page: Page | None = None
        try:
            if part.reason is not None:
                raise PageFailure(part.reason, part.detail)
            page = await self.renderer.page(part, part.pages[position])
            ticket.weigh(len(page.image.data))
            if part.again:
                page = replace(page, again=True)
            attempt = await self.reader.read(page, ticket.release)
            return await finished_page(part, position, page, attempt, self.renderer, furniture=self.furniture)
        except PageFailure as failure:
            image = page.image if page else None
            return failed_page(part, position, failure, engine=self.reader.name, image=image)


def _pictures(record: PageRecord) -> list[EncodedImage]:
    return [*([record.image] if record.image else []), *(figure.image for figure in record.figures)]


def _with_pictures(record: PageRecord, data: Sequence[bytes]) -> PageRecord:
    left = iter(data)
    image = replace(record.image, data=next(left)) if record.image else None
    figures = tuple(replace(figure, image=replace(figure.image, data=next(left))) for figure in record.figures)
    return replace(record, image=image, figures=figures)


def _split(record: PageRecord) -> tuple[PageRecord, bytes]:
    """The record without its pictures, and these: their lengths in a line, then their bytes."""
    data = [picture.data for picture in _pictures(record)]
    lengths = " ".join(str(len(one)) for one in data)
    return _with_pictures(record, [b""] * len(data)), b"".join((lengths.encode(), b"\n", *data))


def _join(record: PageRecord, heavy: bytes) -> PageRecord:
    lengths, _, rest = heavy.partition(b"\n")
    ends = list(itertools.accumulate(map(int, lengths.split())))
    return _with_pictures(record, [rest[start:end] for start, end in zip([0, *ends], ends, strict=False)])


def _size(record: PageRecord) -> int:
    return sum(len(picture.data) for picture in _pictures(record))


def places(unit: Unit) -> list[Place]:
    """Every expected row of a unit: its part, and the place in `part.pages` (0 for a document that did not open)."""
    return [(part, position) for part in unit.parts for position in range(part.expected)]


# The Extract stage over a workspace.


async def extract(job: Job[ReadingCommand]) -> None:
    """Read the pages of this worker's units that have no marker yet."""
    workspace, settings, progress = job.workspace, job.settings, job.progress
    secrets = passwords(settings.password, settings.password_file)
    profile = page_profile(settings, job.engines)
    async with Renderer(render_options(settings, secrets, profile)) as renderer:
        pages = PartRenderer(renderer, job.remote)
        ready = await reading(job, renderer)
        try:
            origin = Origin(to_remember(settings, engine=job.engines.engine), job.command)
            claim = Claim(workspace, EXTRACT, identity(renderer, ready.reader, settings), origin)
            key = await asyncio.to_thread(claim.check)
            if not secrets:
                await _need_passwords(workspace, key, pages)
            split = await split_of(job, EXTRACT)
            expected = await asyncio.to_thread(_expected, job, split, key)
            progress.begin(EXTRACT, expected.pages, expected.done, *([True] if expected.estimated else []))
            async with shared(job, split, EXTRACT, key) as share:
                stage = Extract(
                    pages,
                    ready.reader,
                    _publisher(workspace, claim, share),
                    progress,
                    ready.admission,
                    caps_of(settings),
                    expected.estimated,
                    furniture=settings.headers == "keep",
                )
                units = stepwise(share.units, job.stop)
                await stage.run(units if expected.whole else _expecting(units, progress))
            await asyncio.to_thread(take_without_units, workspace, claim)
        finally:
            await ready.reader.close()
    progress.end()


async def _need_passwords(workspace: Workspace, key: str, pages: PartRenderer) -> None:
    """Refuse to read encrypted documents without the passwords with which `retry-failed` has planned their pages.

    Raises:
        UsageError: such a document still needs its password, and none was given.
    """
    for part in await asyncio.to_thread(_once_encrypted, workspace, key):
        try:
            await pages.count(part)
        except PageFailure as failure:  # other reasons become the rows of its pages
            if failure.reason is Reason.ENCRYPTED:
                raise UsageError(
                    f"{shown(part.source)} was planned again with its password, which is stored nowhere",
                    hint="Repeat --password-file FILE as for retry-failed. With other passwords its pages fail.",
                ) from failure


def _once_encrypted(workspace: Workspace, key: str) -> list[DocumentPart]:
    """The parts of retries that are not done and stand for documents that could not be opened without a password."""
    found = [one for one in generations(workspace) if any(Reason.ENCRYPTED in why for why in one.replaced.values())]
    done = done_units(workspace, EXTRACT, key) if found else set()
    return [
        part
        for one in found
        for unit in units_of(workspace, one)
        if unit.id not in done and Reason.ENCRYPTED in one.replaced.get(unit.id, {})
        for part in unit.parts
    ]


@contextlib.asynccontextmanager
async def warming_up(job: Job[ReadingCommand], command: str) -> AsyncIterator[None]:
    """Start the model's servers while the block plans the documents, when it is sure that there is something to read.

    What would keep them from starting is raised before the block; at its end where a plan stands already, since what is
    left of that is looked for beside the block.
    """
    if command == "plan" or not job.engines.uses_models:
        yield
        return
    found = await asyncio.to_thread(generations, job.workspace)
    if not found:
        await _warm_up(job)
        yield
        return
    sure = asyncio.Event()
    going_on = asyncio.create_task(_go_on(job, sure))
    try:
        yield
        if sure.is_set():
            await going_on
    finally:
        going_on.cancel()  # Extract finds out by itself
        await asyncio.gather(going_on, return_exceptions=True)


async def _go_on(job: Job[ReadingCommand], sure: asyncio.Event) -> None:
    """A plan stands: units may be done already, or in other hands."""
    key = await asyncio.to_thread(newest_key, job.workspace, EXTRACT)
    split = await split_of(replace(job, progress=Silent()), EXTRACT)
    if await asyncio.to_thread(has_unclaimed, job.workspace, EXTRACT, key, split.shard):
        sure.set()
        await _warm_up(job)


async def _warm_up(job: Job[ReadingCommand]) -> None:
    model = await page_model(job.settings, job.engines, job.workspace)
    fleet = await job.engines.fleet(model.profile, model=model.name, revision=model.revision)
    await job.engines.check()
    fleet.begin()


def identity(renderer: Renderer, reader: PageReader, settings: ModelSettings) -> Mapping[str, Any]:
    """What Extract's key is made of."""
    about = {"reader": dict(reader.identity()), "render": dict(renderer.identity())}
    return about if settings.headers == "drop" else {**about, "headers": settings.headers}


def caps_of(settings: RequestSettings) -> Caps:
    """What the user allows at once."""
    return Caps(settings.workers, settings.max_concurrent_documents, settings.max_page_concurrency)


def _expected(job: Job[LeaseSettings], split: Split, key: str) -> Expected:
    if shows_all(job, split, EXTRACT):
        return expected_pages(job.workspace, key, split.shard)
    return Expected(0, Counts(), whole=False)


async def _expecting(units: AsyncIterator[Unit], progress: Progress) -> AsyncIterator[Unit]:
    """The units, whose pages are expected from now on."""
    async for unit in units:
        progress.correct(unit.planned, exact=True)
        yield unit


def _publisher(
    workspace: Workspace, claim: Claim, share: Share
) -> Callable[[Unit, Sequence[PageRecord]], Awaitable[None]]:
    encoding = asyncio.Lock()  # each takes several times its images' size in memory

    async def publish_unit(unit: Unit, pages: Sequence[PageRecord]) -> None:
        async with encoding:
            data = await asyncio.to_thread(pages_to_parquet, pages)
            await asyncio.to_thread(release_memory)
        summary = pages_summary(unit, pages)
        await asyncio.to_thread(publish_held, share, workspace, claim, unit.id, data, summary)

    return publish_unit
