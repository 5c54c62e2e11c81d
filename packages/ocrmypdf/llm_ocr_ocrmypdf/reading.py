"""Read page images for OCRmyPDF: one session for all of its threads, in an event loop of its own thread."""

import asyncio
import atexit
import logging
import threading
from collections.abc import Coroutine
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ocrmypdf import BadArgsError, ExitCode, ExitCodeException
from PIL import Image

from llm_ocr import LlmOcrError, PageFailure, Session, Status, UsageError
from llm_ocr.engines import EngineOptions
from llm_ocr.plugins import ENGINES
from llm_ocr.types import EncodedImage, OcrText, Page
from llm_ocr_outputs.words import PlacedPage, found_by_ocr, placed_words

T = TypeVar("T")
log = logging.getLogger("llm_ocr.ocrmypdf")


class ReadingError(ExitCodeException):
    """The pages cannot be read, for example because no server answers."""

    exit_code = ExitCode.child_process_error


class PageReader:
    """Session and OCR processes of one choice of settings. Its methods may be called from several threads."""

    def __init__(self, server_url: tuple[str, ...], model: str | None, config: str | None, jobs: int) -> None:
        """Check the settings. Processes start at the first page.

        Args:
            server_url: Servers of a model, or none.
            model: Model of the server, if it has several.
            config: File with other settings.
            jobs: Number of pages that are read at the same time.

        Raises:
            BadArgsError: A setting is invalid, or settings contradict each other.
        """
        given: dict[str, Any] = {"server_url": server_url, "model": model, "config": config}
        given = {name: value for name, value in given.items() if value} or {"engine": "embedded"}
        try:
            self._session = Session(**given, render_workers=jobs, ocr_workers=jobs)
        except LlmOcrError as error:
            raise BadArgsError(str(error)) from error
        self._ocr = ENGINES.get("embedded").page_reader(EngineOptions(jobs))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="llm-ocr", daemon=True).start()
        atexit.register(self._close)

    def read(self, file: Path) -> PlacedPage:
        """Read an image, and place its words on the lines that OCR finds in it.

        Returns:
            The page. A page that could not be read has no blocks; the log has the reason.

        Raises:
            ReadingError: No server can be reached.
        """
        with Image.open(file) as image:
            (width, height), (dpi, _) = image.size, image.info.get("dpi", (72, 72))
        record = self._run(self._session.read_page(file))
        if record.status is not Status.OK:
            log.warning("%s: %s: %s %s", file.name, record.status, record.reason or "", record.detail)
        # Blocks are places on the upright page, and lines places in the image.
        blocks = [
            replace(
                block,
                box=block.box.turned(-record.rotation),
                continued=tuple(box.turned(-record.rotation) for box in block.continued),
            )
            for block in record.blocks
        ]
        found = found_by_ocr(lines, width / height) if blocks and (lines := self.lines(file)) else []
        unsupported = record.ledger.unsupported if record.ledger else ()
        placed = placed_words(blocks, found, aspect=width / height, unsupported=unsupported)
        return PlacedPage(record, placed, width, height, round(dpi))

    def lines(self, file: Path) -> OcrText | None:
        """Return the lines that OCR finds in an image; None without OCR, for which the log has the reason."""
        return self._found(self._ocr.ocr_text(_page(file)), file)

    def orientation(self, file: Path) -> int:
        """Return the clockwise turn in degrees that makes an image upright; 0 without OCR."""
        return self._found(self._ocr.orientation(_page(file)), file) or 0

    def _found(self, work: Coroutine[Any, Any, T], file: Path) -> T | None:
        try:
            return self._run(work)
        except PageFailure as failure:
            log.warning("%s: the places of its lines are unknown: %s", file.name, failure.why)
            return None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except PageFailure:
            raise
        except LlmOcrError as error:
            kind = BadArgsError if isinstance(error, UsageError) else ReadingError
            raise kind(str(error)) from error

    def _close(self) -> None:
        async def close() -> None:
            await self._session.close()
            await self._ocr.close()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(timeout=60)


#: Returns the reader of a choice, which stays open until the program ends.
page_reader = cache(PageReader)


def _page(file: Path) -> Page:
    with Image.open(file) as image:
        data = EncodedImage(file.read_bytes(), f"image/{(image.format or 'png').lower()}", *image.size)
    return Page("page", "page", 1, data)
