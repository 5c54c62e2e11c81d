"""A calibration: some pages of what is to be read, drawn by chance, through the real engine for about a minute.

They are read as Extract reads them and written as it writes them, to a folder that is gone afterwards.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llm_ocr.api.engines import EMBEDDED, PAGES_PER_UNIT, SERVER, VLLM
from llm_ocr.api.loop import run_blocking
from llm_ocr.api.session import Session
from llm_ocr.engines.asking import Load
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.settings.environment import cores
from llm_ocr.settings.models import EstimateSettings, ExtractSettings
from llm_ocr.stages import Progress, Silent
from llm_ocr.types import Counts, DocumentPart, PageRecord, Status, Unit

#: Of the pages of a sample, how many are read before the clock starts, at most: so that what is loaded once is.
_WARM = 0.1
#: Pages given to the engine for each that it can have under way: it never waits, and few are left at the end.
_AHEAD = 1.5


@dataclass(frozen=True, slots=True)
class Read:
    """One page of the sample: `ended` seconds after the clock started (below 0: before), bytes of its images."""

    ended: float
    tokens_in: int
    tokens_out: int
    images: int
    status: Status


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the sample has shown. `startup` are seconds until the clock started, the first pages included.

    `parallel`: pages that the engine has under way at a time; `stored`: bytes of the Parquet files that were written.
    """

    pages: tuple[Read, ...]
    startup: float
    seconds: float
    parallel: int
    stored: int
    where: str

    @property
    def ends(self) -> list[float]:
        """Of the pages that the clock was running for, in seconds."""
        return [page.ended for page in self.pages if page.ended >= 0]


def sample_of(units: Iterable[Unit], most: int, seed: int) -> list[DocumentPart]:
    """Pages drawn by chance, each with the same chance, in the order in which they are to be read: one part a page.

    A document that was not counted gives parts that still hold its estimate. Memory holds `most` pages.
    """
    draw = random.Random(seed)
    kept: list[DocumentPart] = []
    for seen, page in enumerate(_pages(units)):
        if len(kept) < most:
            kept.append(page)
        elif (place := draw.randrange(seen + 1)) < most:
            kept[place] = page
    draw.shuffle(kept)
    return kept


def _pages(units: Iterable[Unit]) -> Iterator[DocumentPart]:
    for unit in units:
        for part in unit.parts:
            if part.estimate and not part.pages:
                yield from [part] * part.estimate
            elif not part.pages:
                yield part  # a document that does not open: a page that costs nothing
            else:
                yield from (replace(part, pages=(number,)) for number in part.pages)


def calibrate(settings: EstimateSettings, sample: Sequence[DocumentPart], progress: Progress) -> Calibration:
    """Read the sample, or as much of it as `--calibrate-seconds` allow, with what the settings name.

    Raises `UsageError` without pages, `ServerError` when no server can be had.
    """
    if not sample:
        raise UsageError("--calibrate: there is no page to read")
    chosen = _reading(settings)
    return run_blocking(lambda: _Calibrating(settings, chosen, progress).run(sample))


def _reading(settings: EstimateSettings) -> ExtractSettings:
    engine = SERVER if settings.server_url else VLLM
    if EMBEDDED in (settings.engine, settings.model):
        engine = EMBEDDED
    elif settings.engine != "auto":
        engine = settings.engine
    if engine == EMBEDDED and settings.server_url:
        raise UsageError("the CPU engine asks no server", hint="Leave out --server-url, or name the server's model.")
    own = {"workspace", "model", "engine", "price_in", "price_out", "price_per_hour", "max_hours", "max_cost"}
    shared = (ExtractSettings.model_fields.keys() & type(settings).model_fields.keys()) - own
    values: dict[str, Any] = {name: value for name, value in settings if name in shared & settings.model_fields_set}
    values |= {"workspace": "-", "engine": engine}
    return ExtractSettings(**values if engine == EMBEDDED else {**values, "model": settings.model})


@dataclass(slots=True)
class _Numbers(Silent):
    """Hears where the engine's numbers are read, and passes its words on."""

    shown: Progress
    load: Callable[[], Load] | None = None

    def measure(self, load: Callable[[], Load]) -> None:
        self.load = load

    def say(self, message: str) -> None:
        self.shown.say(message)


@dataclass(slots=True)
class _Written:
    """Rows of finished pages, written as units are."""

    folder: Path
    pages_per_unit: int
    waiting: list[PageRecord] = field(default_factory=list)
    size: int = 0
    files: int = 0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def add(self, record: PageRecord) -> None:
        self.waiting.append(record)
        if len(self.waiting) >= self.pages_per_unit:
            await self.write()

    async def write(self) -> None:
        rows, self.waiting = self.waiting, []
        async with self.writing:
            if rows:
                self.files += 1
                self.size += await asyncio.to_thread(_write, self.folder / f"{self.files}.parquet", rows)


def _write(file: Path, rows: Sequence[PageRecord]) -> int:
    from llm_ocr.results.schema import pages_to_parquet

    file.write_bytes(pages_to_parquet(rows))
    size = file.stat().st_size
    file.unlink()  # a long calibration must not fill the disk
    return size


class _Calibrating:
    """One calibration at work."""

    def __init__(self, settings: EstimateSettings, chosen: ExtractSettings, progress: Progress) -> None:
        self._settings = settings
        self._chosen = chosen
        self._progress = progress
        self._numbers = _Numbers(progress)
        self._session = Session(chosen, self._numbers)
        self._draw = random.Random(settings.seed)
        self._began = time.monotonic()
        self._clock: float | None = None
        self._read: list[Read] = []
        self._under_way = 0
        self._freed = asyncio.Event()

    async def run(self, sample: Sequence[DocumentPart]) -> Calibration:
        engine = self._chosen.engine
        warm = max(1, min(round(_WARM * len(sample)), cores() if engine == EMBEDDED else 1)) if len(sample) > 1 else 0
        pages_per_unit = self._settings.pages_per_unit or PAGES_PER_UNIT[engine]
        self._progress.begin("calibrate", len(sample), Counts())
        try:
            with tempfile.TemporaryDirectory(prefix="llm-ocr-calibrate-") as folder:
                written = _Written(Path(folder), pages_per_unit)
                await self._all(sample[:warm], written, until=None)
                self._clock = time.monotonic()
                await self._all(sample[warm:], written, until=self._clock + self._settings.calibrate_seconds)
                await written.write()
        finally:
            await self._session.close()
        self._progress.end()
        seconds = max((page.ended for page in self._read), default=0.0)
        startup = self._clock - self._began
        where = _where(self._chosen)
        return Calibration(tuple(self._read), startup, seconds, self._parallel(), written.size, where)

    async def _all(self, pages: Sequence[DocumentPart], written: _Written, until: float | None) -> None:
        """Read pages side by side; none is begun after `until`, and those that were begun are finished."""
        async with asyncio.TaskGroup() as tasks:
            for page in pages:
                while self._under_way >= _AHEAD * self._parallel():
                    self._freed.clear()
                    await self._freed.wait()
                if until is not None and time.monotonic() >= until:
                    break
                self._under_way += 1
                tasks.create_task(self._one(page, written))

    async def _one(self, page: DocumentPart, written: _Written) -> None:
        async def finished(position: int, record: PageRecord) -> None:
            self._note(record)
            await written.add(record)

        try:
            await self._session.read(await self._counted(page), finished)
        finally:
            self._under_way -= 1
            self._freed.set()

    async def _counted(self, page: DocumentPart) -> DocumentPart:
        """A page of a document that was not counted: any of those that it has."""
        if not page.estimate:
            return page
        try:
            total = await self._session.total(page)
        except PageFailure as failure:
            return replace(page, estimate=0, reason=failure.reason, detail=failure.detail)
        return replace(page, estimate=0, page_total=total, pages=(self._draw.randint(1, max(1, total)),))

    def _note(self, record: PageRecord) -> None:
        ended = -1.0 if self._clock is None else time.monotonic() - self._clock
        images = len(record.image.data) if record.image else 0
        images += sum(len(figure.image.data) for figure in record.figures)
        self._read.append(Read(ended, record.tokens_in, record.tokens_out, images, record.status))
        self._progress.count(record.status)

    def _parallel(self) -> int:
        """Pages that the engine works on at a time."""
        if self._numbers.load is not None:
            return max(1, self._numbers.load().window)
        workers = (self._chosen.ocr_workers or cores()) + (self._chosen.render_workers or cores())
        return max(1, workers)


def _where(chosen: ExtractSettings) -> str:
    """`this machine (4 cores)`, `the server at gpu:8000`: never with what a URL may hold of secrets."""
    if chosen.engine == SERVER:
        named = [urlsplit(url if "//" in url else f"//{url}") for url in chosen.server_url]
        hosts = ", ".join(f"{one.hostname}:{one.port}" if one.port else str(one.hostname) for one in named)
        return f"the server at {hosts}" if len(named) == 1 else f"the servers at {hosts}"
    own = f"this machine ({cores()} cores)"
    return own if chosen.engine == EMBEDDED else f"vLLM on {own}"
