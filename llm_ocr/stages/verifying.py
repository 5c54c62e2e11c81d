"""Verify the text of a model with OCR: read the image that was sent, beside the model, in processes of its own."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llm_ocr.engines import LocalReader
from llm_ocr.engines.slices import Cropper, slices_of
from llm_ocr.errors import PageFailure
from llm_ocr.plugins import ENGINES
from llm_ocr.results.quality.text_layer import is_true
from llm_ocr.types import Attempt, Box, OcrText, Page, Status

#: Bytes of page images that wait for OCR above which new requests wait: 150 to 400 pages, minutes of a process.
MOST_WAITING = 64 << 20


class Verifier:
    """OCR of pages that a model reads, as evidence for their text. `close()` ends its processes.

    OCR of a page starts when its request is sent, and the page's row waits for it. Requests never wait for OCR while
    the images that OCR has not read yet have less than `MOST_WAITING` bytes together. From there on, pages wait before
    their first request. Pages whose layer is true are not read.

    Args:
        reader: The CPU engine, which no other part uses: fallbacks must not wait for OCR.
        cropper: Cuts tall pages into slices.
        most_waiting: Bytes of waiting images.
    """

    def __init__(self, reader: LocalReader, cropper: Cropper, most_waiting: int = MOST_WAITING) -> None:
        self._reader = reader
        self._cropper = cropper
        self._most_waiting = most_waiting
        self._waiting = 0
        self._read = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[OcrText]] = {}  # by the page object: sessions read pages of one id

    def identity(self) -> Mapping[str, Any]:
        """Return what changes the evidence, as JSON values for the stage's key."""
        version = ENGINES.get(self._reader.name).result_version
        return {"result_version": version, **self._reader.ocr_models()}

    @property
    def waiting(self) -> int:
        """Bytes of the images that OCR has not read yet."""
        return self._waiting

    async def wait_for_room(self) -> None:
        """Return when fewer bytes wait than the limit."""
        while self._waiting >= self._most_waiting:
            self._read.clear()
            await self._read.wait()

    def begin(self, page: Page) -> None:
        """Start the OCR of a page whose request is sent.

        A page with a true layer needs none, and neither does one that OCR has read before.
        """
        evidence = page.evidence
        if id(page) in self._tasks or evidence is None or evidence.undrawn or evidence.ocr:
            return
        if is_true(evidence, Attempt("", "model", Status.OK)):
            return
        self._waiting += len(page.image.data)
        task = self._tasks[id(page)] = asyncio.create_task(self._ocr_text(page))
        task.add_done_callback(lambda done: self._done(done, len(page.image.data)))

    def _done(self, task: asyncio.Task[OcrText], size: int) -> None:
        self._waiting -= size
        self._read.set()
        if not task.cancelled():
            task.exception()  # consumed, also if the page fails before it is asked for

    async def _ocr_text(self, page: Page) -> OcrText:
        """Read a page, in slices if it is tall: small letters of a tall page are too small as a whole."""
        if not page.slice_height:
            return await self._reader.ocr_text(page)
        boxes = slices_of(page)
        images = await self._cropper.crop(page.image, boxes)
        parts = await asyncio.gather(*(self._reader.ocr_text(replace(page, image=image)) for image in images))
        lines = []
        for slice_box, part in zip(boxes, parts, strict=True):
            for line in part.lines:
                top, bottom = (slice_box.y0 + side * slice_box.height for side in (line.box.y0, line.box.y1))
                lines.append(replace(line, box=Box(line.box.x0, top, line.box.x1, bottom), boxes=()))
        return OcrText(tuple(lines), parts[0].scripts)

    async def verified(self, page: Page) -> tuple[Page, str]:
        """Return the page with the text of OCR as evidence, or unchanged, and the reason if OCR failed."""
        task = self._tasks.get(id(page))
        if task is None or page.evidence is None:
            return page, ""
        try:
            text = await asyncio.shield(task)
        except PageFailure as failure:  # no fault of the page
            return page, f"the text was not compared with OCR: {failure.why}"
        return replace(page, evidence=replace(page.evidence, ocr=text)), ""

    def forget(self, page: Page) -> None:
        """Drop the text of a page whose row is complete. The OCR of a page that failed stops."""
        if task := self._tasks.pop(id(page), None):
            task.cancel()

    async def close(self) -> None:
        """End the processes."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reader.close()
