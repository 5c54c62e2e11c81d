"""The embedded engine as the stages see it: pages go to worker processes, attempts come back."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from llm_ocr.documents.page_wire import image_to_wire, page_to_wire
from llm_ocr.documents.remote.urls import shown
from llm_ocr.engines import noop
from llm_ocr.engines.embedded.attempt_wire import attempt_from_wire, block_from_wire
from llm_ocr.engines.embedded.regions import Inspection, nothing_drawn
from llm_ocr.engines.embedded.trace import log_from_wire, tracing
from llm_ocr.engines.vlm.placing import with_crops
from llm_ocr.errors import PageFailure, WorkerDied, WorkerError
from llm_ocr.sandbox import Limits, WorkerPool
from llm_ocr.types import Attempt, EncodedImage, Page, Reason

#: Raised when a change alters what the engine makes of the same page: it goes into the key.
RESULT_VERSION = 2
#: What a worker is asked for that then has the OCR models in memory: the next page without text goes there, too.
_PIXELS = "pixels"
#: Beside a model: niceness, and seconds that a page waits for a process before another is started, which takes as long.
_NICE, _PATIENCE = 10, 1.0


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """`memory` in bytes and `timeout` in seconds for one worker process and page.

    `beside` a model: what feeds the GPU gets the processors first, and few processes do the work where they can.
    Without `ocr`, pages are read from their text layer only, and figures not at all: what has no text layer that can be
    believed fails. `figure_labels`: of blocks that are cut out as figures; None for all pictures and drawings.
    """

    workers: int
    memory: int = 4096 << 20
    timeout: float = 300.0
    text_layer: bool = True
    ocr: bool = True
    confined: bool = True
    beside: bool = False
    figure_labels: frozenset[str] | None = None


class EmbeddedReader:
    """A `PageReader` without a GPU; needs `close()`."""

    name = "embedded"

    def __init__(self, options: EmbeddedOptions) -> None:
        self._options = options
        self.workers = options.workers
        self._pool = WorkerPool(
            "llm_ocr.engines.embedded.worker",
            workers=options.workers,
            limits=Limits(options.memory, requests=2000, confined=options.confined, niceness=_NICE * options.beside),
            patience=_PATIENCE * options.beside,
        )

    def identity(self) -> Mapping[str, Any]:
        about = {"engine": self.name, "result_version": RESULT_VERSION, "text_layer": self._options.text_layer}
        if self._options.figure_labels is not None:
            about["figure_labels"] = sorted(self._options.figure_labels)
        return about if self._options.ocr else {**about, "ocr": False}

    async def read(self, page: Page, admitted: Callable[[], None] = noop) -> Attempt:
        began = time.monotonic()
        payload = {"page": page_to_wire(page), "text_layer": self._options.text_layer, "ocr": self._options.ocr}
        answer = await self._ask("read", payload | {"trace": True} if tracing() else payload)
        log_from_wire(answer.get("decisions", ()), f"{shown(page.source)} page {page.number}")
        attempt = attempt_from_wire(answer, seconds=time.monotonic() - began)
        labels = self._options.figure_labels
        return attempt if labels is None else replace(attempt, blocks=with_crops(attempt.blocks, labels))

    async def read_figure(self, image: EncodedImage) -> str:
        """The text inside a figure, one line a row."""
        if not self._options.ocr:
            return ""
        answer = await self._ask("read_figure", {"image": image_to_wire(image)})
        return str(answer["inside"])

    async def see(self, page: Page, *, hinted: bool) -> Inspection:
        """Where figures are on a page that a model reads; `hinted`: its text speaks of some. Raises PageFailure."""
        if page.content is not None and nothing_drawn(page.content):
            return Inspection(digital=True)  # most pages of plain text: not worth a process
        pixels = page.content is None or not page.content.lines
        payload = {"page": page_to_wire(page), "hinted": hinted}
        answer = await self._ask("see", payload, affinity=_PIXELS if pixels else "")
        blocks = tuple(map(block_from_wire, answer["blocks"]))
        return Inspection(blocks, answer["digital"], answer["detail"], answer["unread"])

    async def text(self, page: Page) -> str:
        """The page's text layer in reading order; "" without one that can be believed. Raises PageFailure."""
        answer = await self._ask("text", {"page": page_to_wire(page)})
        return str(answer["text"])

    async def orientation(self, page: Page) -> int:
        """Degrees clockwise by which the page must be turned to be upright: 0, 90, 180 or 270. Raises PageFailure."""
        answer = await self._ask("orientation", {"page": page_to_wire(page)})
        return int(answer["degrees"])

    async def _ask(self, operation: str, payload: Mapping[str, Any], *, affinity: str = "") -> dict[str, Any]:
        try:
            try:
                return await self._pool.call(operation, payload, deadline=self._options.timeout, affinity=affinity)
            except WorkerDied as death:
                if death.timed_out:
                    raise
            # A worker can die of what an earlier page left behind: once more in a fresh one.
            return await self._pool.call(operation, payload, deadline=self._options.timeout)
        except WorkerDied as death:
            reason = Reason.ENGINE_TIMEOUT if death.timed_out else Reason.ENGINE_ERROR
            raise PageFailure(Reason.ENGINE_LIMIT if death.out_of_memory else reason, str(death)) from death
        except WorkerError as error:
            raise PageFailure(Reason.ENGINE_ERROR, str(error)) from error

    async def close(self) -> None:
        await self._pool.close()
