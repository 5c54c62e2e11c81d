"""Progress that is also written into the workspace, while it is shown."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from llm_ocr.engines.asking import Load
from llm_ocr.errors import StorageError
from llm_ocr.stages import Progress
from llm_ocr.types import Counts, Status
from llm_ocr.work.metrics import Spending, write_spending
from llm_ocr.work.workspace import Workspace

#: Seconds between two writes.
EVERY = 15.0

_log = logging.getLogger(__name__)


class Recorded:
    """Passes everything on to `shown`, and keeps the numbers of the stage that is under way."""

    def __init__(self, shown: Progress, workspace: Workspace, worker: str, settings: Any) -> None:
        self._shown = shown
        self._workspace = workspace
        self._worker = worker
        self._settings = settings
        self._load: Callable[[], Load] = Load
        self._before = Load()  # the engine's numbers when the stage began: an engine may serve two stages
        self._stage = ""
        self._began = 0.0
        self._items = 0
        self._ended: list[Spending] = []
        self._over = asyncio.Event()

    def begin(self, stage: str, expected: int, done: Counts, estimated: bool = False) -> None:
        self._stage, self._began, self._items = stage, time.monotonic(), 0
        self._before = self._load()
        self._shown.begin(stage, expected, done, *([True] if estimated else []))

    def correct(self, change: int, *, exact: bool) -> None:
        self._shown.correct(change, exact=exact)

    def count(self, status: Status) -> None:
        self._items += 1
        self._shown.count(status)

    def measure(self, load: Callable[[], Load]) -> None:
        self._load = load
        self._shown.measure(load)

    def say(self, message: str) -> None:
        self._shown.say(message)

    def end(self) -> None:
        if self._stage:
            self._ended.append(self._spending())
        self._stage = ""
        self._shown.end()

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Writes the numbers every `EVERY` seconds and at the end, however it comes."""
        self._over.clear()
        writer = asyncio.create_task(self._write_often())
        try:
            yield
        finally:
            self._over.set()
            await writer

    async def _write_often(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), EVERY)
            await asyncio.to_thread(self._write)  # one after the other: an older state never covers a newer one

    def _write(self) -> None:
        ended, self._ended = self._ended, []
        for spending in [*ended, *([self._spending()] if self._stage else [])]:
            if not spending.items and not spending.tokens_in:
                continue
            try:
                write_spending(self._workspace, spending)
            except StorageError as error:
                _log.warning("the numbers of this worker were not written: %s", error)

    def _spending(self) -> Spending:
        load = self._load()
        return Spending(
            worker=self._worker,
            stage=self._stage,
            batch_id=self._settings.batch_id or "",
            updated=datetime.now(UTC).isoformat(timespec="seconds"),
            items=self._items,
            seconds=round(time.monotonic() - self._began, 3),
            tokens_in=load.tokens_in - self._before.tokens_in,
            tokens_out=load.tokens_out - self._before.tokens_out,
            price_in=self._settings.price_in,
            price_out=self._settings.price_out,
            engine=asdict(load),
        )
