"""The embedded engine as the stages see it: pages go to worker processes, attempts come back."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llm_ocr.documents.page_wire import image_to_wire, page_to_wire
from llm_ocr.engines.embedded.attempt_wire import attempt_from_wire
from llm_ocr.errors import PageFailure, WorkerDied, WorkerError
from llm_ocr.processes import Limits, WorkerPool
from llm_ocr.types import Attempt, EncodedImage, Page, Reason

#: Raised when a change alters what the engine makes of the same page: it goes into the key.
RESULT_VERSION = 1


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """`memory` in bytes and `timeout` in seconds for one worker process and page."""

    workers: int
    memory: int = 4096 << 20
    timeout: float = 300.0
    text_layer: bool = True


class EmbeddedReader:
    """A `PageReader` without a GPU; needs `close()`."""

    name = "embedded"

    def __init__(self, options: EmbeddedOptions) -> None:
        self._options = options
        self.workers = options.workers
        self._pool = WorkerPool(
            "llm_ocr.engines.embedded.worker",
            workers=options.workers,
            limits=Limits(memory=options.memory, requests=2000),
        )

    def identity(self) -> Mapping[str, Any]:
        return {"engine": self.name, "result_version": RESULT_VERSION, "text_layer": self._options.text_layer}

    async def read(self, page: Page) -> Attempt:
        began = time.monotonic()
        payload = {"page": page_to_wire(page), "text_layer": self._options.text_layer}
        answer = await self._ask("read", payload)
        return attempt_from_wire(answer, seconds=time.monotonic() - began)

    async def read_figure(self, image: EncodedImage) -> str:
        """The text inside a figure, one line a row."""
        answer = await self._ask("read_figure", {"image": image_to_wire(image)})
        return str(answer["inside"])

    async def _ask(self, operation: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        try:
            try:
                return await self._pool.call(operation, payload, deadline=self._options.timeout)
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
