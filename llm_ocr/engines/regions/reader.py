"""Read pages by regions; unreadable pages fall back to a reader of whole pages."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from llm_ocr.engines import Engine, PageReader, noop
from llm_ocr.engines.regions.answers import (
    Asked,
    Outcome,
    Piece,
    Questions,
    attempt_of,
    rows_of,
    with_failure,
    with_regions,
    with_spent,
)
from llm_ocr.engines.regions.detection import READ, Assigned, Detector, Layout, assigned, task_of
from llm_ocr.engines.vlm.requests import ImageTools, QualityRule, ReadOptions
from llm_ocr.engines.vlm.retry import joined
from llm_ocr.errors import PageFailure
from llm_ocr.models.profile import Profile
from llm_ocr.types import Attempt, BlockKind, Box, EncodedImage, Page, Reason, Status

# Single questions put together to batches: as many as wait when a place gets free, never waiting for more.


ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Batches(Generic[ItemT, ResultT]):
    """Runs at most `parallel` batches of at most `size` items at a time."""

    def __init__(
        self, run: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT]]], *, size: int, parallel: int
    ) -> None:
        """`run` gives one result for each item, in order; what it raises goes to all who asked."""
        self._run = run
        self._size = size
        self._parallel = parallel
        self._waiting: deque[tuple[ItemT, asyncio.Future[ResultT]]] = deque()
        self._running: set[asyncio.Task[Any]] = set()

    async def ask(self, item: ItemT) -> ResultT:
        """The item's result."""
        answer: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._running) < self._parallel:
            self._running.add(asyncio.create_task(self._work()))
        return await answer

    async def close(self) -> None:
        """End what runs; who still waits is cancelled."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*tuple(self._running), return_exceptions=True)
        while self._waiting:
            self._waiting.popleft()[1].cancel()

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]
                batch = [(item, answer) for item, answer in batch if not answer.done()]
                if batch:
                    await self._one(batch)
        finally:  # at once, not by a callback: who asks in between must not count on this one
            if (task := asyncio.current_task()) is not None:
                self._running.discard(task)

    async def _one(self, batch: Sequence[tuple[ItemT, asyncio.Future[ResultT]]]) -> None:
        try:
            results = await self._run([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, answer in batch:
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - each who asked raises it
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)


# Regions cut out of a page's image, within limits.


#: Regions of a page that are asked for one by one; a page with more is read whole.
MOST_REGIONS = 200
#: The sum of the regions' areas, in pages: overlapping ones must not make a page many times as large.
MOST_AREA = 4.0
#: Bytes of a page's crops.
MOST_BYTES = 64 << 20
#: Bytes per pixel of a crop that may be blank: text takes more in every format.
_BLANK_BYTES, _BLANK_LEAST = 0.02, 2000


class RegionTools(ImageTools, Protocol):
    """Work on images, done in other processes. Raises `PageFailure` when it cannot be done."""

    async def crops(self, image: EncodedImage, boxes: Sequence[Box]) -> tuple[EncodedImage, ...]:
        """The parts of an image under relative boxes, in order."""


class TooMany(Exception):
    """A page with more regions than are asked for one by one; its text says how many."""


async def cut(
    page_id: str, image: EncodedImage, wanted: Sequence[Assigned], modes: Mapping[str, str], tools: RegionTools
) -> list[Piece | None]:
    """The regions as they are asked for; None for a blank one. Raises `TooMany`, and `PageFailure`."""
    area = sum(one.region.box.area for one in wanted)
    if len(wanted) > MOST_REGIONS or area > MOST_AREA:
        raise TooMany(f"{len(wanted)} regions were found, {area:.1f} times the page")
    if not wanted:
        return []
    images = await tools.crops(image, [one.region.box for one in wanted])
    size = sum(len(one.data) for one in images)
    if size > MOST_BYTES:
        raise TooMany(f"its {len(wanted)} regions take {size >> 20} MiB")
    blank = await asyncio.gather(*(_blank(one, tools) for one in images))
    return [
        None if empty else Piece(f"{page_id}-r{number:02}", crop, modes[one.task], one.region.box.area)
        for number, (one, crop, empty) in enumerate(zip(wanted, images, blank, strict=True), start=1)
    ]


async def _blank(image: EncodedImage, tools: RegionTools) -> bool:
    """Whether there is nothing on it; looked at only where it has few bytes for its pixels."""
    if len(image.data) > max(_BLANK_LEAST, _BLANK_BYTES * image.width * image.height):
        return False
    try:
        return await tools.blank(image)
    except PageFailure:
        return False  # the model will see


# Pages read by their regions: a `PageReader` over a detector and a model, with a reader of whole pages behind it.


#: Raised when a change alters what is made of the same regions and answers: it goes into the key.
RESULT_VERSION = 1
#: Pictures that cover more than this share of a page without text may hold its text: then the page is read whole.
_PICTURE = 0.5
_NOTHING_FOUND = "no region to be read was found on it"


class LayoutReader:
    """A `PageReader`; needs `close()`, which closes the detector and `whole`. The engine is shared.

    All regions of a page are asked for at the same time. A page ends as `ok`; as `degraded`, where a region could not
    be read (`detail` says which) or `whole` had to read the page instead; or as a `PageFailure` with all its tries.
    `whole` reads pages that the detector cannot look at, that have too many regions, or of which no region could be
    read; and those on which nothing is found, unless they are blank, which is no fault. With a `rule`, it reads pages
    of low quality, too, and the better of both answers counts.
    """

    def __init__(
        self,
        engine: Engine,
        profile: Profile,
        detector: Detector,
        tools: RegionTools,
        tasks: Mapping[str, str],
        whole: PageReader,
        options: ReadOptions | None = None,
        rule: QualityRule | None = None,
    ) -> None:
        self.detector = detector
        self.tools = tools
        self.tasks = tasks
        self.whole = whole
        self.profile = profile
        self.options = options or ReadOptions()
        self.rule = rule
        self.questions = Questions(engine, profile, tools, self.options)

    @property
    def name(self) -> str:
        """The model, as users know it."""
        return self.whole.name

    def identity(self) -> Mapping[str, Any]:
        """What changes the attempts; no address, key or cap of the servers."""
        by_regions = {
            "result_version": RESULT_VERSION,
            "detector": dict(self.detector.identity()),
            "tasks": dict(sorted(self.tasks.items())),
            **self.questions.identity(),
        }
        return {**self.whole.identity(), "layout_first": by_regions}

    async def read(self, page: Page, admitted: Callable[[], None] = noop) -> Attempt:
        """The best that could be made of the page. Raises `PageFailure`; `ServerError` when no server can be had."""
        try:
            layout = await self.detector.detect(page)
        except PageFailure as failure:
            why = f"its regions were not found: {failure.why}"
            return await _Reading(self, page, Layout(()), admitted).whole(why, failure)
        return await _Reading(self, page, layout, admitted).run()

    async def close(self) -> None:
        """End the detector and the reader of whole pages."""
        await self.detector.close()
        await self.whole.close()


class _Reading:
    """One page on its way."""

    def __init__(self, reader: LayoutReader, page: Page, layout: Layout, admitted: Callable[[], None]) -> None:
        self._reader = reader
        self._given = page
        # What is known of a page is not turned with it.
        self._page = replace(page, image=layout.image, evidence=None) if layout.image else page
        self._layout = layout
        self._admitted = admitted
        able = reader.profile.region_tasks
        self._outcome = Outcome(assigned(layout.regions, lambda label: task_of(label, reader.tasks, able)))

    async def run(self) -> Attempt:
        wanted = [one for one in self._outcome.regions if one.task in READ]
        if not wanted:
            return await self._without_text()
        reader = self._reader
        try:
            pieces = await cut(self._page.id, self._page.image, wanted, reader.profile.region_tasks, reader.tools)
        except TooMany as many:
            return await self.whole(str(many), PageFailure(Reason.ENGINE_LIMIT, str(many)))
        except PageFailure as failure:
            return await self.whole(f"its regions were not cut out: {failure.why}", failure)
        self._outcome = Outcome(self._outcome.regions, await self._ask(pieces))
        return await self._unread() if self._outcome.unread() else await self._rated(self._by_regions())

    async def _rated(self, regions: Attempt) -> Attempt:
        """The better of this and the whole page's answer, where this is of low quality."""
        rule = self._reader.rule
        quality = await rule.quality(self._given, regions) if rule else 1.0
        if rule is None or quality >= rule.below:
            return regions
        why = f"the quality of its regions, {quality:.2f}, is below {rule.below:g}"
        try:
            whole = await self.whole(why, None)
        except PageFailure as failure:
            return with_spent(regions, failure.tries, f"{why}; it could not be read whole: {failure.why}")
        sound = whole.status is Status.OK or regions.status is not Status.OK
        if sound and await rule.quality(self._given, whole) > quality:
            return whole
        return with_spent(regions, rows_of(whole), f"{why}; read as a whole page it is no better")

    async def whole(self, why: str, failure: PageFailure | None) -> Attempt:
        """The page read by the reader of whole pages. `failure` is None where that is no fault."""
        try:
            attempt = await self._reader.whole.read(self._page, self._admitted)
        except PageFailure as last:
            raise self._failed(last, f"read as a whole page: {why}") from last
        return with_regions(attempt, self._layout, self._outcome, why, failure)

    def _by_regions(self) -> Attempt:
        reader = self._reader
        return attempt_of(reader.name, self._layout, self._outcome, reader.options.figure_labels)

    async def _without_text(self) -> Attempt:
        """A page of pictures, a blank one, or one on which the detector is blind."""
        pictures = self._outcome.regions
        if not pictures:
            return self._by_regions() if await self._is_blank() else await self.whole(_NOTHING_FOUND, None)
        if sum(one.region.box.area for one in pictures) <= _PICTURE:
            return self._by_regions()
        figures = self._by_regions()
        try:
            read = await self.whole(_NOTHING_FOUND, None)
        except PageFailure as failure:
            return with_failure(figures, failure)
        texts = tuple(block for block in read.blocks if block.kind is not BlockKind.FIGURE)
        return replace(read, blocks=(*figures.blocks, *texts))

    async def _is_blank(self) -> bool:
        try:
            return await self._reader.tools.blank(self._page.image)
        except PageFailure:
            return False  # then the model looks at it

    async def _unread(self) -> Attempt:
        """Nothing of any region could be read. Regions that take the server down are not tried in another way."""
        failures = self._outcome.failures()
        first = failures[0]
        if all(one.ended.final for one in self._outcome.requested()):
            raise self._failed(first, f"none of its {len(failures)} regions could be read") from first
        why = f"none of its {len(failures)} regions could be read ({joined(first.reason.value, first.detail)})"
        return await self.whole(why, first)

    def _failed(self, failure: PageFailure, why: str) -> PageFailure:
        return failure.with_tries(self._outcome.tries(), joined(why, failure.detail))

    async def _ask(self, pieces: Sequence[Piece | None]) -> tuple[Asked | None, ...]:
        """All pieces at the same time, those with the same image once; the page leaves the queue with the last one."""
        alike = [(piece.mode, piece.image.data) if piece else None for piece in pieces]
        single = {what: piece for what, piece in zip(alike, pieces, strict=True) if what and piece}
        waiting = set(single)

        def went_out(what: tuple[str, bytes]) -> None:
            if what in waiting:
                waiting.remove(what)
                if not waiting:
                    self._admitted()

        async def ask(what: tuple[str, bytes], piece: Piece) -> Asked:
            try:
                return await self._reader.questions.ask(piece, lambda: went_out(what))
            finally:
                went_out(what)

        tasks = {what: asyncio.create_task(ask(what, piece)) for what, piece in single.items()}
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        return tuple(tasks[what].result() if what else None for what in alike)
