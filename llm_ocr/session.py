"""Read documents without a workspace; engine, renderer, and reader stay open."""

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llm_ocr.config.models import ReadingCommand
from llm_ocr.documents.rendering import Renderer
from llm_ocr.engines import PageReader
from llm_ocr.engines.regions.detection import tasks_with
from llm_ocr.engines.regions.doclayout import MODEL
from llm_ocr.engines.regions.reader import LayoutReader
from llm_ocr.errors import LimitReached, UsageError
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.extract import Extract
from llm_ocr.stages.flow import Ticket
from llm_ocr.stages.limits import Allowance
from llm_ocr.stages.loop import first_error
from llm_ocr.stages.runtime import (
    EMBEDDED,
    Job,
    Model,
    PartRenderer,
    Reading,
    Remote,
    page_model,
    page_profile,
    passwords,
    reading,
    render_options,
)
from llm_ocr.stages.servers import Engines, choose_engine
from llm_ocr.types import DocumentPart, PageRecord, Unit

#: Hears of each page as it ends: its place in `part.pages`, and its row.
Finished = Callable[[int, PageRecord], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Way:
    """How one document is read, where that is not the settings' way.

    `whole`: not by regions. `tasks`: what is done with regions, as `--region-task`, after those of the settings.
    """

    whole: bool = False
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is open."""

    renderer: Renderer
    reading: Reading
    pages: PartRenderer  # one for all documents: it remembers what it has proved of their files
    model: Model | None


class Session:
    """Reads pages of local files with the settings of Extract. For one event loop; needs `close()`.

    Opened by its first use; a model's servers start at the first page and live until `close`. Documents that are read
    at the same time take turns page by page. Limits of hours and money are those of the session, from when it is made.
    """

    def __init__(self, settings: ReadingCommand, progress: Progress | None = None) -> None:
        self._settings = settings
        self._progress = progress or Silent()
        self._open: asyncio.Task[_Parts] | None = None
        self._held = contextlib.AsyncExitStack()
        self._entering = asyncio.Lock()
        self._allowance = Allowance(settings)

    async def model(self) -> Model | None:
        """The model that reads pages, at its commit; None with the embedded engine."""
        return (await self._parts()).model

    async def count(self, path: Path) -> int:
        """How many pages a file has. Raises `PageFailure` when it cannot be opened."""
        return await (await self._parts()).renderer.open(str(path))

    async def total(self, part: DocumentPart) -> int:
        """How many pages a planned document has. Raises `PageFailure` when it cannot be opened."""
        return await (await self._parts()).pages.count(part)

    async def read(self, part: DocumentPart, finished: Finished, way: Way = Way()) -> None:
        """Read the pages of a part; `finished` gets each page's row, a failed one, too.

        Raises `UsageError` for a way that cannot be gone here, `ServerError` when no server can be had, `LimitReached`
        instead of beginning another page when a limit is reached: those under way are finished.
        """
        self._may_begin()
        parts = await self._parts()
        reader = self._reader(parts.reading.reader, way)
        furniture = self._settings.headers == "keep"
        stage = Extract(parts.pages, reader, _nowhere, self._progress, parts.reading.admission, furniture=furniture)

        async def one(position: int, ticket: Ticket) -> None:
            try:
                record = await stage.read(part, position, ticket)
            finally:
                ticket.release()
            self._allowance.add(record)
            await finished(position, record)

        try:
            async with asyncio.TaskGroup() as tasks:
                for position in range(part.expected):
                    async with self._entering:
                        ticket = await parts.reading.admission.enter()
                    if self._allowance.reached():
                        ticket.release()
                        break
                    tasks.create_task(one(position, ticket))
                else:
                    return
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        self._may_begin()

    def _may_begin(self) -> None:
        """Raise `LimitReached` when no other page may be begun."""
        if reached := self._allowance.reached():
            raise LimitReached(f"{reached} in this session", hint="A new one, with a higher limit, goes on.")

    async def close(self) -> None:
        """Stop servers and processes. Who still reads gets a `ServerError` or failed pages. May be called twice."""
        if self._open is not None:
            self._open.cancel()
            await asyncio.gather(self._open, return_exceptions=True)
        await self._held.aclose()

    async def _parts(self) -> _Parts:
        """Opened once, for all who ask at the same time; anew after it went wrong."""
        if self._open is None or (self._open.done() and (self._open.cancelled() or self._open.exception())):
            self._open = asyncio.create_task(self._opened())
        return await asyncio.shield(self._open)

    async def _opened(self) -> _Parts:
        settings, progress = self._settings, self._progress
        engine = choose_engine(settings, command="extract")
        async with contextlib.AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="llm-ocr-session-"))
            engines = Engines(engine, settings, Path(folder), progress.say)
            stack.push_async_callback(engines.close)
            remote = Remote(settings)
            stack.push_async_callback(remote.close)
            secrets = passwords(settings.password, settings.password_file)
            options = render_options(settings, secrets, page_profile(settings, engines))
            renderer = await stack.enter_async_context(Renderer(options))
            ready = await reading(Job(None, settings, progress, engines, remote), renderer)
            stack.push_async_callback(ready.reader.close)
            model = await page_model(settings, engines, None) if engines.uses_models else None
            self._held = stack.pop_all()
        return _Parts(renderer, ready, PartRenderer(renderer, remote), model)

    def _reader(self, reader: PageReader, way: Way) -> PageReader:
        if not isinstance(reader, LayoutReader):
            if way.tasks:
                raise UsageError("pages are read whole here, not by regions: there are no labels to give tasks to")
            return reader
        if way.whole:
            return reader.whole
        if not way.tasks:
            return reader
        any_label = self._settings.detector not in (None, MODEL, EMBEDDED)
        tasks = tasks_with((*self._settings.region_task, *way.tasks), any_label=any_label)
        return LayoutReader(
            reader.questions.engine, reader.profile, reader.detector, reader.tools, tasks, reader.whole, reader.options
        )


async def _nowhere(unit: Unit, pages: Sequence[PageRecord]) -> None:
    """What is read here is not published."""
