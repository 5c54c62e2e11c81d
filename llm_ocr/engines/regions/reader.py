"""Read pages by regions; unreadable pages fall back to a reader of whole pages."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from llm_ocr.engines import Completion, CompletionRequest, Engine, PageReader, noop
from llm_ocr.engines.regions.answers import Outcome, attempt_of, rows_of, with_regions, with_rows
from llm_ocr.engines.regions.detection import READ, Detector, Layout, Region, assigned, task_of
from llm_ocr.engines.vlm.reader import UNDRAWN, Blocks
from llm_ocr.engines.vlm.requests import (
    Images,
    ImageTools,
    QualityRule,
    ReadOptions,
    Step,
    json_values,
    request_of,
    what_fits,
)
from llm_ocr.engines.vlm.retry import Ladder, Tries, Verdict, joined, judge_page, run_attempts, rungs_for
from llm_ocr.errors import PageFailure
from llm_ocr.models.profile import Profile
from llm_ocr.types import Attempt, BlockKind, EncodedImage, Page, Reason, Status

#: Limit of regions that are requested individually; a page with more is read as a whole.
MOST_REGIONS = 200
#: Limit of the regions' total area in pages: overlapping regions must not multiply the pixels of a page.
MOST_AREA = 4.0
#: Limit of the bytes of a page's crops.
MOST_BYTES = 64 << 20
#: Bytes per pixel below which a crop may be blank: text needs more in every format.
_BLANK_BYTES, _BLANK_LEAST = 0.02, 2000


@dataclass(frozen=True, slots=True)
class Piece:
    """Region to read.

    `id` appears in messages and in poison detection. The other fields are the crop, the task, and the region's share
    0..1 of the page.
    """

    id: str
    image: EncodedImage
    mode: str
    share: float


class TooMany(Exception):
    """A page has more regions than can be requested individually; the text includes the number."""


async def cut(
    page_id: str, image: EncodedImage, wanted: Sequence[Region], modes: Mapping[str, str], tools: ImageTools
) -> list[Piece | None]:
    """Return the crops with their requests; None for a blank region. Raises `TooMany` and `PageFailure`."""
    area = sum(region.box.area for region in wanted)
    if len(wanted) > MOST_REGIONS or area > MOST_AREA:
        raise TooMany(f"{len(wanted)} regions were found, {area:.1f} times the page")
    if not wanted:
        return []
    images = await tools.crop(image, [region.box for region in wanted])
    size = sum(len(image.data) for image in images)
    if size > MOST_BYTES:
        raise TooMany(f"its {len(wanted)} regions take {size >> 20} MiB")
    blank = await asyncio.gather(*(_blank(image, tools) for image in images))
    return [
        None if empty else Piece(f"{page_id}-r{number:02}", crop, modes[region.task], region.box.area)
        for number, (region, crop, empty) in enumerate(zip(wanted, images, blank, strict=True), start=1)
    ]


async def _blank(image: EncodedImage, tools: ImageTools) -> bool:
    """Return whether the image is blank; checked only for few bytes per pixel."""
    if len(image.data) > max(_BLANK_LEAST, _BLANK_BYTES * image.width * image.height):
        return False
    try:
        return await tools.blank(image)
    except PageFailure:
        return False  # the model decides


#: Increased when a change alters results for the same regions and answers; part of the key.
RESULT_VERSION = 4
#: Share of a page without text from which a picture may contain the text. The page is then read as a whole.
_PICTURE = 0.5
_NOTHING_FOUND = "no region to be read was found on it"
#: A region without an answer below this share of the page counts as empty after this number of tries.
SMALL, EMPTY_TRIES = 0.002, 3
_NOTHING = "nothing was read in it"


@dataclass(eq=False)
class LayoutReader:
    """`PageReader` over a shared engine; `close()` closes the detector and `whole`.

    All regions of a page are requested in parallel. A page ends as `ok`, as `degraded`, or as a `PageFailure` with all
    its tries. A page is degraded if a region could not be read (`detail` names the region) or if `whole` had to read
    the page.

    `whole` reads blank pages, and pages that the detector cannot process, without regions, with too many, or without
    any readable one. With a `rule`, `whole` also reads pages of low quality, and the better result counts.
    """

    engine: Engine
    profile: Profile
    detector: Detector
    tools: ImageTools
    tasks: Mapping[str, str]
    whole: PageReader
    options: ReadOptions
    rule: QualityRule | None = None

    def __post_init__(self) -> None:
        profile, options = self.profile, self.options
        self.name = self.whole.name
        self._rungs = rungs_for(profile, modes=False)
        self._temperature = profile.temperature if options.temperature is None else options.temperature
        self._max_tokens = what_fits(profile, options.max_tokens)

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that change the attempts, without addresses, keys, or caps of the servers."""
        modes = sorted(set(self.profile.region_tasks.values()))
        by_regions = {
            "result_version": RESULT_VERSION,
            "detector": dict(self.detector.identity()),
            "tasks": dict(sorted(self.tasks.items())),
            "region_tasks": dict(self.profile.region_tasks),
            "prompts": {mode: self.profile.prompts[mode] for mode in modes},
            "guides": {mode: guide for mode in modes if (guide := json_values(self._guide(mode)))},
            "temperature": self._temperature,
            "max_tokens": self._max_tokens,
            "ladder": [asdict(rung) for rung in self._rungs],
        }
        return {**self.whole.identity(), "layout_first": by_regions}

    async def read(self, page: Page, on_dispatched: Callable[[], None] = noop) -> Attempt:
        """Read a page; see `PageReader.read`. Raises `ServerError` if no server is available."""
        evidence = page.evidence
        if evidence is not None and (evidence.no_ink or evidence.pale or evidence.undrawn > UNDRAWN):
            return await self.whole.read(page, on_dispatched)
        try:
            layout = await self.detector.detect(page)
        except PageFailure as failure:
            why = f"its regions were not found: {failure.why}"
            return await _Reading(self, page, Layout(()), on_dispatched).whole(why, failure)
        return await _Reading(self, page, layout, on_dispatched).run()

    async def read_region(self, piece: Piece, on_sent: Callable[[], None]) -> Tries[Blocks]:
        """Run the requests for a region.

        Args:
            piece: Region to read.
            on_sent: Called when the first request is sent.

        Raises:
            ServerError: No server is available. `PageFailure` is part of the result.
        """
        profile = self.profile
        images = Images(piece.image, self.tools)
        blank: bool | None = None
        empty = 0  # answers without content

        async def make_request(step: Step) -> CompletionRequest:
            return request_of(
                profile,
                step,
                piece.id,
                await images.sized(step.scale),
                profile.prompts[step.mode],
                vllm_settings={**profile.page_settings, **self._guide(step.mode)},
            )

        async def judge(answer: Completion, step: Step) -> Verdict[Blocks]:
            nonlocal blank, empty
            parse = profile.parsers.get(step.mode) or profile.parsers[""]
            verdict = judge_page(answer, parse, images.frame(step.scale), profile.prompts[step.mode])
            if verdict.reason is None:
                return verdict
            empty += verdict.reason is Reason.EMPTY
            if piece.share < SMALL and empty >= EMPTY_TRIES:
                return Verdict((), None, _NOTHING)
            if blank is None:  # checked once per region, and only after a bad answer
                try:
                    blank = await self.tools.blank(piece.image)
                except PageFailure:
                    blank = False  # the answer is judged without this information
            return Verdict((), None, _NOTHING) if blank else verdict

        tries: Tries[Blocks] = Tries(self.options.max_attempts)
        ladder = Ladder(Step(piece.mode, self._temperature, self._max_tokens), self._rungs)
        await run_attempts(self.engine, make_request, judge, ladder, tries, on_sent, self.options.backoff)
        return tries

    def _guide(self, mode: str) -> Mapping[str, Any]:
        """Return the settings that force the form of answers in a mode, if `guided` is on."""
        return self.profile.guides.get(mode, {}) if self.options.guided else {}

    async def close(self) -> None:
        """Close the detector and the reader of whole pages."""
        await self.detector.close()
        await self.whole.close()


class _Reading:
    """Reading of one page."""

    def __init__(self, reader: LayoutReader, page: Page, layout: Layout, on_dispatched: Callable[[], None]) -> None:
        self._reader = reader
        self._given = page
        # The evidence of a page is not turned with its image.
        self._page = replace(page, image=layout.image, evidence=None) if layout.image else page
        self._layout = layout
        self._on_dispatched = on_dispatched
        able = reader.profile.region_tasks
        self._outcome = Outcome(assigned(layout.regions, lambda label: task_of(label, reader.tasks, able)))

    async def run(self) -> Attempt:
        wanted = [region for region in self._outcome.regions if region.task in READ]
        if not wanted:
            return await self._without_text()
        reader = self._reader
        try:
            pieces = await cut(self._page.id, self._page.image, wanted, reader.profile.region_tasks, reader.tools)
        except TooMany as many:
            return await self.whole(str(many), PageFailure(Reason.ENGINE_LIMIT, str(many)))
        except PageFailure as failure:
            return await self.whole(f"its regions were not cut out: {failure.why}", failure)
        self._outcome = Outcome(self._outcome.regions, await self._complete_all(pieces))
        asked = self._outcome.requested()
        if asked and not any(tries.best for tries in asked):
            failures = self._outcome.failures()
            first = failures[0]
            if all(tries.final for tries in asked):
                # Regions that kill the server are not tried in another way.
                raise self._failed(first, f"none of its {len(failures)} regions could be read") from first
            why = f"none of its {len(failures)} regions could be read ({joined(first.reason.value, first.detail)})"
            return await self.whole(why, first)
        regions = self._by_regions()
        rule = reader.rule
        if rule is None:
            return regions
        quality, weakness = await rule.judged(self._given, regions)
        if not weakness:
            return regions
        # The better of this attempt and the whole page's counts.
        why = f"its regions are not good enough: {weakness}"
        try:
            whole = await self.whole(why, None)
        except PageFailure as failure:
            detail = joined(regions.detail, why, f"the whole page could not be read: {failure.why}")
            return replace(with_rows(regions, failure.tries), detail=detail)
        sound = whole.status is Status.OK or regions.status is not Status.OK
        if sound and (await rule.judged(self._given, whole))[0] > quality:
            return whole
        return replace(
            with_rows(regions, rows_of(whole)), detail=joined(regions.detail, why, "the whole page is not better")
        )

    async def whole(self, why: str, failure: PageFailure | None) -> Attempt:
        """Read the page with the reader of whole pages. `failure` is None if that is not a fault."""
        try:
            attempt = await self._reader.whole.read(self._page, self._on_dispatched)
        except PageFailure as last:
            raise self._failed(last, f"read as a whole page: {why}") from last
        return with_regions(attempt, self._layout, self._outcome, why, failure)

    def _by_regions(self) -> Attempt:
        reader = self._reader
        return attempt_of(reader.name, self._layout, self._outcome, reader.options.figure_labels)

    async def _without_text(self) -> Attempt:
        """Read a page of pictures, or a page without detected regions."""
        pictures = self._outcome.regions
        if not pictures:
            return await self.whole(_NOTHING_FOUND, None)
        figures = self._by_regions()
        if sum(region.box.area for region in pictures) <= _PICTURE:
            return figures
        try:
            read = await self.whole(_NOTHING_FOUND, None)
        except PageFailure as failure:
            if failure.reason is Reason.EMPTY:  # the missing text is not a fault
                return replace(with_rows(figures, failure.tries), detail="only pictures were found on it")
            return replace(
                with_rows(figures, failure.tries),
                status=Status.DEGRADED,
                reason=failure.reason,
                detail=joined(failure.reason.value, failure.detail),
            )
        texts = tuple(block for block in read.blocks if block.kind is not BlockKind.FIGURE)
        return replace(read, blocks=(*figures.blocks, *texts))

    def _failed(self, failure: PageFailure, why: str) -> PageFailure:
        return failure.with_tries(self._outcome.rows(), joined(why, failure.detail))

    async def _complete_all(self, pieces: Sequence[Piece | None]) -> tuple[Tries[Blocks] | None, ...]:
        """Request all pieces in parallel; the page leaves the queue with its last request."""
        waiting = {piece.id for piece in pieces if piece}

        def on_sent(name: str) -> None:
            if name in waiting:
                waiting.remove(name)
                if not waiting:
                    self._on_dispatched()

        async def complete(piece: Piece | None) -> Tries[Blocks] | None:
            if piece is None:
                return None
            try:
                return await self._reader.read_region(piece, lambda: on_sent(piece.id))
            finally:
                on_sent(piece.id)

        tasks = [asyncio.create_task(complete(piece)) for piece in pieces]
        try:
            return tuple(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
