"""Sources of finished documents, opened again: their pages with the places of all words.

Rows do not have the lines of a page, so formats that lay text over pages find them again, in confined processes: in the
text layer if it is true, otherwise by OCR if it is installed:

    Document ─▶ Originals.pages ─▶ PlacedPages ─▶ files

`export_originals` connects these coroutines with the thread that writes the files of an export (`files.Form`).
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Self

from llm_ocr.config.environment import cache_folder, cores
from llm_ocr.documents.open_fd import Proofs
from llm_ocr.documents.remote import is_remote
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.documents.rows import row_address
from llm_ocr.documents.text_layer import LIE, suspicious
from llm_ocr.engines import EngineOptions, LocalReader
from llm_ocr.errors import PageFailure, StorageError, WorkerDied, WorkerError
from llm_ocr.exporting import Exported, ExportJob
from llm_ocr.plugins import ENGINES
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.quality.text_layer import is_true
from llm_ocr.sandbox.pool import Limits, WorkerPool
from llm_ocr.stages.counting import in_order
from llm_ocr.stages.rendering import EMBEDDED_IMAGE_SIZE, EMBEDDED_SCAN_SIZE, PartRenderer, Remote, passwords
from llm_ocr.types import Attempt, DocumentPart, Page, Reason, Status
from llm_ocr_outputs.files import Batch, Failed, File, Form, export_files
from llm_ocr_outputs.source import Document
from llm_ocr_outputs.words import FoundLine, PlacedPage, found_by_ocr, found_in_layer, placed_words

log = logging.getLogger("llm_ocr.outputs")

#: Worker processes that read the sizes of images, and write PDFs.
_MODULE = "llm_ocr_outputs.pdf_worker"
#: Limits of such a process: bytes of memory, and seconds for a document and for each of its pages.
_MEMORY, _DEADLINE, _PER_PAGE = 4 << 30, 60.0, 3.0
#: Files that a worker can receive at a time.
_MOST_FILES = 250


class Originals:
    """Access to the sources of an export, for one event loop."""

    def __init__(self, job: ExportJob) -> None:
        """Prepare the processes, one of each kind per core, which start at the first page.

        Args:
            job: The export. Its settings have the passwords and the credentials of the sources.
        """
        settings = job.settings
        self.workers = cores()
        self._confined = settings.confinement != "off"
        self._passwords = passwords(settings.password, settings.password_file)
        options = RenderOptions(
            EMBEDDED_IMAGE_SIZE,
            EMBEDDED_SCAN_SIZE,
            "jpeg",
            passwords=self._passwords,
            workers=self.workers,
            confined=self._confined,
        )
        self._renderer = Renderer(options)
        self._remote = Remote(settings)
        self._parts = PartRenderer(self._renderer, self._remote)
        self._pool = WorkerPool(_MODULE, workers=self.workers, limits=Limits(_MEMORY, confined=self._confined))
        self._reader: LocalReader | None = None
        self._opening = asyncio.Lock()
        self._language, self._say = settings.ocr_language, job.progress.say
        self._proofs = Proofs()
        self._places = asyncio.Semaphore(2 * self.workers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End the processes, and remove copies of remote documents."""
        await self._renderer.close()
        await self._pool.close()
        if self._reader is not None:
            await self._reader.close()
        await self._remote.close()

    async def pages(self, document: Document) -> list[PlacedPage]:
        """Return the pages of a document that did not fail, in order.

        Raises:
            PageFailure: The source is gone, has changed, or cannot be opened or rendered.
        """
        if failure := document.failure:
            raise failure
        rows = [row for row in document.rows if row.record.status is not Status.FAILED]
        return [page async for page in in_order(rows, partial(self._page, document.part))]

    async def _page(self, part: DocumentPart, row: DatasetRow) -> PlacedPage:
        async with self._places:
            record = row.record
            number = record.page_number or 1
            page = await self._parts.page(part, number)
            content, evidence = page.content, page.evidence
            attempt = Attempt(record.engine, record.text_source, record.status, probe=record.probe)
            is_layer = content is not None and (
                record.text_source == "text-layer" or (evidence is not None and is_true(evidence, attempt))
            )
            probed = record.probe is not None and record.probe > LIE
            credible = content is not None and bool(content.lines) and not (probed or suspicious(content))
            turned = record.rotation % 180 == 90
            if content is not None:
                width, height = content.width, content.height
            else:
                width, height = await self._image_size(part, number)
            width, height = (height, width) if turned else (width, height)
            found: list[FoundLine] = []
            if is_layer and content is not None:
                found = found_in_layer(content, record.rotation)
            elif record.blocks:
                found = await self._lines(page, record.rotation, width / max(height, 1e-6))
            unsupported = record.ledger.unsupported if record.ledger else ()
            blocks = await asyncio.to_thread(
                placed_words, record.blocks, found, aspect=width / max(height, 1e-6), unsupported=unsupported
            )
            image = record.image or page.image
            across, down = image.width, image.height
            if turned and not record.image:
                across, down = down, across
            dpi = round(72 * across / width) if width else 0
            return PlacedPage(record, blocks, across, down, dpi, credible or is_layer)

    async def _lines(self, page: Page, rotation: int, aspect: float) -> list[FoundLine]:
        """Return the lines that OCR finds on the upright page; without OCR, those of a layer that may be false."""
        reader = await self._ocr()
        if reader is None:
            return found_in_layer(page.content, rotation) if page.content else []
        image = await self._renderer.turned(page.image, rotation) if rotation else page.image
        try:
            return found_by_ocr(await reader.ocr_text(replace(page, image=image)), aspect)
        except PageFailure as failure:  # the text is placed by its blocks alone
            log.warning("%s page %d: words are placed by blocks only: %s", page.source, page.number, failure.why)
            return []

    async def _ocr(self) -> LocalReader | None:
        """Return the reader of scans, which is opened at the first one; None if OCR is not installed."""
        async with self._opening:
            engine = ENGINES.find("embedded")
            if self._reader is None and engine is not None and engine.missing() is None:
                language, stop = None, threading.Event()
                if self._language:
                    folder = cache_folder() / "ocr"
                    find = partial(engine.language_model, self._language, folder, say=self._say, stopped=stop.is_set)
                    try:
                        language = await asyncio.to_thread(find)
                    finally:
                        stop.set()  # a canceled download ends its thread
                self._reader = engine.page_reader(
                    EngineOptions(self.workers, confined=self._confined, language=language)
                )
            return self._reader

    async def _image_size(self, part: DocumentPart, number: int) -> tuple[float, float]:
        """Return the physical size in points of a page of an image file."""
        if row_address(part.source) is None:
            sizes = (await self.work("sizes", part, {}))["sizes"]
        else:
            async with self._remote.page(part.source, part.version, number) as (path, there):
                sizes = (await self._call("sizes", [str(path)], "", {}))["sizes"]
                number = there or 1
        width, height = sizes[min(number, len(sizes)) - 1]
        return float(width), float(height)

    async def work(self, operation: str, part: DocumentPart, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Run an operation of `pdf_worker` on the source of a document, in a confined process.

        Args:
            operation: The operation.
            part: The document. The images of a dataset's row are a file each.
            payload: Its other arguments.

        Raises:
            PageFailure: The source is gone, has changed, or cannot be opened, or the operation failed.
            StorageError: The dataset of the row cannot be read.
        """
        if row_address(part.source) is not None:
            if part.page_total > _MOST_FILES:
                raise PageFailure(
                    Reason.RENDER_LIMIT, f"the row has {part.page_total} images, and at most {_MOST_FILES} are possible"
                )
            async with contextlib.AsyncExitStack() as stack:
                images = [
                    await stack.enter_async_context(self._remote.page(part.source, part.version, number))
                    for number in range(1, max(1, part.page_total) + 1)
                ]
                return await self._call(operation, list(dict.fromkeys(str(path) for path, _ in images)), "", payload)
        if is_remote(part.source):
            async with self._remote.open(part.source, part.version) as copy:
                return await self._call(operation, [str(copy.path)], "", payload)
        return await self._call(operation, [part.source], part.version, payload)

    async def _call(
        self, operation: str, paths: Sequence[str], version: str, payload: Mapping[str, Any]
    ) -> dict[str, Any]:
        async with contextlib.AsyncExitStack() as stack:
            files = [await stack.enter_async_context(self._proofs.given(path, version)) for path in paths]
            request = {**payload, "source": paths[0], "passwords": list(self._passwords), "memory": _MEMORY}
            deadline = _DEADLINE + _PER_PAGE * len(payload.get("pages", ()))
            try:
                return await self._pool.call(operation, request, deadline=deadline, files=files)
            except WorkerDied as death:
                reason = Reason.RENDER_TIMEOUT if death.timed_out else Reason.RENDER_CRASHED
                reason = Reason.RENDER_LIMIT if death.out_of_memory else reason
                raise PageFailure(reason, f"the process that opened the source {death}") from death
            except WorkerError as error:
                raise PageFailure(Reason.RENDER_CRASHED, f"the source cannot be used: {error}") from error


#: Pages of a batch. The pages of an interrupted batch are read by OCR again.
_PAGES = 200


async def export_originals(
    job: ExportJob,
    name: str,
    make: Callable[[Originals, Document], Coroutine[Any, Any, list[File]]],
    opened: Callable[[str], str],
    unit: str = "documents",
    version: int = 1,
) -> Exported:
    """Write the files of a format that opens the sources of documents again; errors as in `export_files`.

    As many documents as there are processes are in work at a time. A document whose source cannot be used is listed in
    `failed-documents.jsonl`.

    Args:
        job: The export.
        name: Name of the format.
        make: Returns the files of a document.
        opened: Returns how to open the result at a URL.
        unit: Name of a record.
        version: Version of the format; see `Form`.
    """
    loop = asyncio.get_running_loop()
    async with Originals(job) as originals:

        def write(_: Batch, documents: Iterator[Document]) -> Iterator[File | Failed]:
            """Make the files in the event loop, for the thread that writes them."""
            waiting: deque[tuple[Document, Future[list[File]]]] = deque()

            def first() -> Sequence[File | Failed]:
                document, future = waiting.popleft()
                try:
                    return future.result()
                except (PageFailure, StorageError) as failure:
                    return [Failed(document, failure)]

            try:
                for document in documents:
                    waiting.append((document, asyncio.run_coroutine_threadsafe(make(originals, document), loop)))
                    if len(waiting) > originals.workers:
                        yield from first()
                while waiting:
                    yield from first()
            finally:
                for started in waiting:
                    started[1].cancel()

        return await export_files(job, Form(name, version, write, opened, unit=unit, pages=_PAGES))
