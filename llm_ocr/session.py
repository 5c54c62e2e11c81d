"""Read documents without a workspace. The engine, the renderer, and the reader stay open between documents."""

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from llm_ocr.config.fields import lists_settings
from llm_ocr.config.groups import (
    EMBEDDED,
    CountSettings,
    DatasetSettings,
    FilterSettings,
    LogSettings,
    OutcomeSettings,
    RaySettings,
    ShardSettings,
    SourceSettings,
    WorkspaceSettings,
)
from llm_ocr.config.launch_groups import JobGroup
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import ExtractSettings, ReadingCommand
from llm_ocr.documents.images import is_negative, plain_image
from llm_ocr.engines import PageReader
from llm_ocr.engines.regions.detection import tasks_with
from llm_ocr.engines.regions.doclayout import MODEL
from llm_ocr.engines.regions.reader import LayoutReader
from llm_ocr.errors import LimitReached, UsageError
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.engine_choice import choose_engine
from llm_ocr.stages.extract import Extract, PageTask, opened_reading
from llm_ocr.stages.flow import Ticket
from llm_ocr.stages.job import Job
from llm_ocr.stages.limits import Allowance, check_limits
from llm_ocr.stages.loop import first_error
from llm_ocr.stages.model_choice import Model, page_model, with_served_model
from llm_ocr.stages.readers import Reading, limits_of
from llm_ocr.stages.rendering import PartRenderer, Remote
from llm_ocr.stages.servers import Engines, ModelState
from llm_ocr.types import DocumentPart, PageRecord, Unit

if TYPE_CHECKING:
    from PIL.Image import Image

    from llm_ocr.config.keywords import SessionKeywords

_CHOICE = (WorkspaceSettings, SourceSettings, DatasetSettings, CountSettings, FilterSettings)
_WORK = (ShardSettings, RaySettings, OutcomeSettings, JobGroup)
#: Settings of Extract that choose documents, share their pages among workers, or store results: not those of a page.
OF_RUNS = frozenset(name for group in (*_CHOICE, *_WORK) for name in group.model_fields)
OF_RUNS -= {*LogSettings.model_fields, "password", "password_file"}
OF_RUNS |= {"batch_id", "workers", "max_concurrent_documents", "max_page_concurrency"}
#: Receives the position in `part.pages` and the row of each finished page.
Finished = Callable[[int, PageRecord], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DocumentOptions:
    """Options for reading a single document, if they differ from the settings.

    Attributes:
        whole: Whether pages are read whole instead of by regions.
        tasks: Additional region tasks, in the form of `region_task`.
    """

    whole: bool = False
    tasks: tuple[str, ...] = ()


#: Open resources of a session: reader, renderer, which is shared because it caches the checks of files, and model.
_Parts = tuple[Reading, PartRenderer, Model | None]


def page_settings(call: str, keywords: Mapping[str, object], without: Collection[str] = OF_RUNS) -> ExtractSettings:
    """Return the settings of a Python call that reads single pages.

    Args:
        call: The name of the call.
        keywords: The settings.
        without: Settings that have no effect.

    Raises:
        UsageError: A setting is unknown or invalid, or has no effect.
    """
    if idle := [f"`{name}`" for name, value in keywords.items() if name in without and value is not None]:
        verb = "has" if len(idle) == 1 else "have"
        raise UsageError(
            f"{' and '.join(idle)} {verb} no effect in {call}, which reads single pages",
            hint="Leave it out, or read whole documents: `llm_ocr.run(sources, workspace=…)`.",
        )
    return settings_from(ExtractSettings, call, {**keywords, "workspace": "-"})


@lists_settings(ExtractSettings, without=OF_RUNS)
class Session:
    """Read pages without a workspace. The engine stays open between pages.

    The first page opens the engine and starts the servers of a model. `close` or the end of `async with` stops them.
    Several pages can be read at the same time, in one event loop. Limits of hours and money apply from the construction
    of the session.

        async with llm_ocr.Session(engine="embedded") as session:
            pages = [await session.read_page(file) for file in ("a.png", "b.png")]

    Args:
        progress: Receives messages and the status of each page. By default none is shown.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.SessionKeywords`.

    Raises:
        UsageError: A setting is unknown or invalid or has no effect on single pages, or settings contradict each other.
        LlmOcrError: No engine is available.
    """

    def __init__(self, *, progress: Progress | None = None, **settings: "Unpack[SessionKeywords]") -> None:
        chosen = page_settings("Session", settings)
        check_limits(chosen)
        self._begin(chosen, progress, "run")

    @classmethod
    def from_settings(
        cls, settings: ReadingCommand, progress: Progress | None = None, *, command: str = "extract"
    ) -> Self:
        """Return a session with the settings of a command.

        Args:
            settings: The settings of Extract.
            progress: Receives messages and the status of each page. By default none is shown.
            command: Chooses the default engine: `run` falls back to the embedded engine, `extract` requires a choice.

        Returns:
            The session.

        Raises:
            UsageError: Settings contradict each other.
            LlmOcrError: No engine is available.
        """
        session = cls.__new__(cls)
        session._begin(settings, progress, command)
        return session

    def _begin(self, settings: ReadingCommand, progress: Progress | None, command: str) -> None:
        self._settings = settings
        self._engine = choose_engine(settings, command=command)
        if settings.model_share is not None:
            raise UsageError(
                "`model_share` has no effect in a session: it is a share of the pages of a unit",
                hint="Use `model_threshold`.",
            )
        self._progress = progress or Silent()
        self._open: asyncio.Task[_Parts] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # in which the first page was read
        self._closed = False
        self._held = contextlib.AsyncExitStack()
        self._entering = asyncio.Lock()
        self._allowance = Allowance(settings)
        self._model_state = ModelState()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def model(self) -> Model | None:
        """Return the model that reads pages, at its commit; None with the embedded engine."""
        _, _, model = await self._parts()
        return model

    async def count(self, path: Path) -> int:
        """Return the number of pages of a file. Raises `PageFailure` if it cannot be opened."""
        return await self.total(DocumentPart("document", str(path), path.name, "", (), 0, 0))

    async def total(self, part: DocumentPart) -> int:
        """Return the number of pages of a planned document. Raises `PageFailure` if it cannot be opened."""
        _, pages, _ = await self._parts()
        return await pages.count(part)

    async def read_page(self, image: "str | Path | bytes | Image", page_number: int = 1) -> PageRecord:
        """Read one page.

        Args:
            image: A file, its bytes, or a Pillow image.
            page_number: The page of a PDF or TIFF file, from 1.

        Returns:
            The row of the page. The status of a page that cannot be read is `failed`, with a reason.

        Raises:
            UsageError: The image has another type, or no pixels; or the session is closed or of another event loop.
            ServerError: No server can be started or reached.
            LimitReached: A limit is reached.
        """
        rows: list[PageRecord] = []

        async def keep(position: int, record: PageRecord) -> None:
            rows.append(record)

        with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:
            file = await asyncio.to_thread(_as_file, image, Path(folder))
            await self.read(DocumentPart("page", str(file), file.name, "", (page_number,), page_number, 0), keep)
        return rows[0]

    async def read(self, part: DocumentPart, finished: Finished, way: DocumentOptions = DocumentOptions()) -> None:
        """Read the pages of a part.

        Args:
            part: The document, or a page range of it.
            finished: Receives the row of each page, including failed pages.
            way: How the document is read.

        Raises:
            UsageError: The way is not possible with this engine, or the session is closed or of another event loop.
            ServerError: No server can be started or reached.
            LimitReached: A limit is reached. Pages in progress are finished first.
        """
        self._may_begin()
        ready, pages, _ = await self._parts()
        ready = replace(ready, reader=self._reader(ready.reader, way))
        if way.tasks:
            ready = replace(ready, transcribes=lambda: False)
        stage = Extract(
            pages,
            ready,
            _discard,
            self._progress,
            furniture=self._settings.headers == "keep",
            limits=limits_of(self._settings),
            model=self._model_state,
        )

        async def read_position(position: int, ticket: Ticket) -> None:
            try:
                record = await stage.read(PageTask(part, position), ticket)
            finally:
                ticket.release()
            self._allowance.add(record)
            await finished(position, record)

        try:
            async with asyncio.TaskGroup() as tasks:
                for position in range(part.expected):
                    async with self._entering:
                        ticket = await ready.admission.enter()
                    if self._allowance.reached():
                        ticket.release()
                        break
                    tasks.create_task(read_position(position, ticket))
                else:
                    return
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        self._may_begin()

    def _may_begin(self) -> None:
        """Raise `LimitReached` if a limit is reached."""
        if reached := self._allowance.reached():
            raise LimitReached(f"{reached} in this session", hint="Open a new session with a higher limit to continue.")

    async def close(self) -> None:
        """Stop servers and processes. Pages in progress fail or raise `ServerError`. May be called twice.

        Raises:
            UsageError: The session was used in another event loop.
        """
        self._need_loop()
        self._closed = True
        if self._open is not None:
            self._open.cancel()
            await asyncio.gather(self._open, return_exceptions=True)
        await self._held.aclose()

    async def _parts(self) -> _Parts:
        """Return the open resources. They are opened once for all callers, and again after an error."""
        self._need_loop()
        if self._closed:
            raise UsageError("the session is closed", hint="Read more pages in a new session.")
        self._loop = asyncio.get_running_loop()
        if self._open is None or (self._open.done() and (self._open.cancelled() or self._open.exception())):
            self._open = asyncio.create_task(self._opened())
        return await asyncio.shield(self._open)

    def _need_loop(self) -> None:
        """Raise `UsageError` in another event loop than that of the first page: processes and servers belong to it."""
        if self._loop not in (None, asyncio.get_running_loop()):
            raise UsageError(
                "the session was used in another event loop",
                hint="Read all its pages in one call of `asyncio.run`, or open a session in each.",
            )

    async def _opened(self) -> _Parts:
        progress = self._progress
        settings = self._settings = await with_served_model(self._settings, self._engine, progress.say)
        async with contextlib.AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="llm-ocr-session-"))
            engines = Engines(self._engine, settings, Path(folder), progress.say)
            stack.push_async_callback(engines.close)
            remote = Remote(settings)
            stack.push_async_callback(remote.close)
            job = Job(None, settings, progress, engines, remote)
            pages, ready, _ = await stack.enter_async_context(opened_reading(job))
            model = await page_model(settings, engines, None) if engines.uses_models else None
            self._held = stack.pop_all()
        return ready, pages, model

    def _reader(self, reader: PageReader, way: DocumentOptions) -> PageReader:
        if not isinstance(reader, LayoutReader):
            if way.tasks:
                raise UsageError("this session reads whole pages: region tasks have no effect")
            return reader
        if way.whole:
            return reader.whole
        if not way.tasks:
            return reader
        any_label = self._settings.detector not in (None, MODEL, EMBEDDED)
        tasks = tasks_with((*self._settings.region_task, *way.tasks), any_label=any_label)
        return LayoutReader(
            reader.engine, reader.profile, reader.detector, reader.tools, tasks, reader.whole, reader.options
        )


def _as_file(image: "str | Path | bytes | Image", folder: Path) -> Path:
    if isinstance(image, str | Path):
        return Path(image)
    file = folder / "image"
    if isinstance(image, bytes):
        file.write_bytes(image)
        return file
    from PIL import Image, ImageOps

    if not isinstance(image, Image.Image) or 0 in image.size:
        what = f"is of type {type(image).__name__}" if not isinstance(image, Image.Image) else "has no pixels"
        raise UsageError(
            f"the image {what}",
            hint="Use a path, the bytes of a file, or an image of Pillow. For an array: `PIL.Image.fromarray(array)`.",
        )
    plain = plain_image(image)  # PNG has no CMYK, for example
    (ImageOps.invert(plain) if is_negative(image) else plain).save(file, "PNG", compress_level=1)
    return file


async def _discard(unit: Unit, pages: Sequence[PageRecord]) -> None:
    """Discard the rows: a session publishes nothing."""
