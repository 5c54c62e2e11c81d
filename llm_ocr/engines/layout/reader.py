"""Pages read by their regions: a `PageReader` over a detector and a model, with a reader of whole pages behind it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llm_ocr.engines import PageReader, unheard
from llm_ocr.engines.asking import Engine
from llm_ocr.engines.layout.asking import Asked, Piece, Questions
from llm_ocr.engines.layout.attempts import Outcome, attempt_of, rows_of, with_failure, with_regions, with_spent
from llm_ocr.engines.layout.cutting import RegionTools, TooMany, cut
from llm_ocr.engines.layout.detector import Detector, Layout
from llm_ocr.engines.layout.sorting import assigned
from llm_ocr.engines.layout.tasks import READ, task_of
from llm_ocr.engines.model.climbing import joined
from llm_ocr.engines.model.options import ReadOptions
from llm_ocr.engines.model.tools import QualityRule
from llm_ocr.errors import PageFailure
from llm_ocr.models.profile import Profile
from llm_ocr.types import Attempt, BlockKind, Page, Reason, Status

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

    async def read(self, page: Page, admitted: Callable[[], None] = unheard) -> Attempt:
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
