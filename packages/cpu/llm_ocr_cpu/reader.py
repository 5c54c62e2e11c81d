"""Read pages with the embedded engine: send pages to worker processes and return their attempts."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from llm_ocr.documents.page_wire import from_wire, page_to_wire, to_wire
from llm_ocr.documents.remote import shown
from llm_ocr.engines import EngineOptions, Inspection, noop
from llm_ocr.engines.trace import log_from_wire, tracing
from llm_ocr.engines.vlm.placing import with_crops
from llm_ocr.errors import PageFailure, WorkerDied, WorkerError
from llm_ocr.sandbox.pool import Limits, WorkerPool
from llm_ocr.types import Attempt, Block, EncodedImage, OcrText, Page, Reason
from llm_ocr_cpu.ocr.models import find_models, has_layout_model, warn_without_layout_model
from llm_ocr_cpu.regions import nothing_drawn

#: Increased when a change alters results for the same page; part of the key.
RESULT_VERSION = 22
#: Affinity key of workers with loaded OCR models, so that the next page without text uses the same worker.
_PIXELS = "pixels"
#: With a model in parallel: niceness, and seconds that a page waits before a process starts, which takes as long.
_NICE, _START_DELAY = 10, 1.0


class EmbeddedReader:
    """`LocalReader` of PDF text and OCR; requires `close()`."""

    name = "embedded"

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self.workers = options.workers
        language = options.language
        paths = [] if language is None else list(filter(None, (language.model, language.dictionary)))
        self._files = [path.open("rb") for path in paths]  # for workers, which may open no files
        self._pool = WorkerPool(
            "llm_ocr_cpu.worker",
            workers=options.workers,
            limits=Limits(
                options.memory, requests=2000, confined=options.confined, niceness=_NICE * options.background
            ),
            start_delay=_START_DELAY * options.background,
        )

    def identity(self) -> Mapping[str, Any]:
        # Not the arithmetic (bfloat16, integers, or neither): workers of one run may have different processors.
        about: dict[str, Any] = {
            "engine": self.name,
            "result_version": RESULT_VERSION,
            "text_layer": self._options.text_layer,
        }
        about |= self.ocr_models()
        if self._options.figure_labels is not None:
            about["figure_labels"] = sorted(self._options.figure_labels)
        if not self._options.ocr:
            return {**about, "ocr": False}
        return {**about, "layout_model": True} if has_layout_model() else about

    def ocr_models(self) -> Mapping[str, str]:
        """Return the part of the identity that names the OCR models; empty for those of the rapidocr wheel."""
        models = find_models() if self._options.ocr else None
        if self._options.language:
            return {"ocr_language": self._options.language.digest}
        return {"ocr_models": "tiny"} if models and models.tiny else {}

    async def read(self, page: Page, on_dispatched: Callable[[], None] = noop) -> Attempt:
        began = time.monotonic()
        options = self._options
        payload = {"page": page_to_wire(page), "text_layer": options.text_layer, "ocr": options.ocr}
        payload |= {"layout_model": options.ocr and has_layout_model(), "with_ocr": options.with_ocr}
        answer = await self._call("read", payload | {"trace": True} if tracing() else payload)
        if fault := answer.get("layout_model_fault"):
            warn_without_layout_model(fault)
        log_from_wire(answer.get("decisions", ()), f"{shown(page.source)} page {page.number}")
        attempt = from_wire(Attempt, answer["attempt"])
        # The process has read an untrusted document. Fields that it has no reason to set are ignored.
        attempt = replace(
            attempt,
            engine=self.name,
            seconds=time.monotonic() - began,
            blocks=tuple(replace(block, figure_id="") for block in attempt.blocks),
            raw="",
            notes={},
            tokens_in=0,
            tokens_out=0,
            tries=(),
        )
        labels = options.figure_labels
        return attempt if labels is None else replace(attempt, blocks=with_crops(attempt.blocks, labels))

    async def read_figure(self, image: EncodedImage) -> str:
        """Return the text inside a figure, one line per row."""
        if not self._options.ocr:
            return ""
        answer = await self._call("read_figure", {"image": to_wire(image)})
        return str(answer["inside"])

    async def ocr_text(self, page: Page) -> OcrText:
        """Return the lines that OCR finds in the page image; see `LocalReader`. Raises `PageFailure`."""
        answer = await self._call("ocr_text", {"image": to_wire(page.image)})
        return from_wire(OcrText, answer["ocr"])

    async def inspect(self, page: Page, *, hinted: bool) -> Inspection:
        """Return the figures of a page that a model reads; `hinted`: its text mentions figures.

        Raises `PageFailure`.
        """
        if page.content is not None and nothing_drawn(page.content):
            return Inspection(digital=True)  # most pages of plain text: not worth a process
        pixels = page.content is None or not page.content.lines
        payload = {"page": page_to_wire(page), "hinted": hinted}
        answer = await self._call("see", payload, affinity=_PIXELS if pixels else "")
        blocks = tuple(replace(from_wire(Block, block), figure_id="") for block in answer["blocks"])
        return Inspection(blocks, answer["digital"], answer["detail"])

    async def text(self, page: Page) -> str:
        """Return the page's text layer in reading order; "" without a credible one. Raises `PageFailure`."""
        answer = await self._call("text", {"page": page_to_wire(page)})
        return str(answer["text"])

    async def orientation(self, page: Page) -> int:
        """Return the clockwise turn in degrees (0, 90, 180, or 270) that makes the page upright.

        Raises `PageFailure`.
        """
        answer = await self._call("orientation", {"page": page_to_wire(page)})
        return int(answer["degrees"])

    async def _call(self, operation: str, payload: Mapping[str, Any], *, affinity: str = "") -> dict[str, Any]:
        deadline, files = self._options.timeout, [file.fileno() for file in self._files]
        try:
            try:
                return await self._pool.call(operation, payload, deadline=deadline, affinity=affinity, files=files)
            except WorkerDied as death:
                if death.timed_out:
                    raise
            # An earlier page may have damaged the worker: retry in a fresh one.
            return await self._pool.call(operation, payload, deadline=deadline, files=files)
        except WorkerDied as death:
            reason = Reason.ENGINE_TIMEOUT if death.timed_out else Reason.ENGINE_ERROR
            raise PageFailure(Reason.ENGINE_LIMIT if death.out_of_memory else reason, str(death)) from death
        except WorkerError as error:
            raise PageFailure(Reason.ENGINE_ERROR, str(error)) from error

    async def close(self) -> None:
        await self._pool.close()
        for file in self._files:
            file.close()
