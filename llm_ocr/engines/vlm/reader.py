"""Read pages with a model: request, judge, turn, and fall back to the text layer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any

from llm_ocr.engines import Completion, CompletionRequest, Engine, Inspection, PageInspector, PageReader, noop
from llm_ocr.engines.descriptions import MODES
from llm_ocr.engines.vlm.judging import Verdict, judge_page, worth_of
from llm_ocr.engines.vlm.placing import mentions_figures, with_crops, with_detected
from llm_ocr.engines.vlm.requests import (
    PLACE,
    Images,
    ImageTools,
    QualityRule,
    ReadOptions,
    Step,
    Tries,
    answer_room,
    fitted,
    json_values,
    profile_as_json,
    request_of,
    tokens,
    what_fits,
)
from llm_ocr.engines.vlm.retry import AttemptLoop, Ended, Ladder, joined, rungs_as_json, rungs_for
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.models.parsers import gives_places
from llm_ocr.models.profile import PageNotes, Profile
from llm_ocr.models.registry import all_profiles
from llm_ocr.types import Attempt, Block, Page, Reason, Status

# Back-pressure from work after the model: pages that wait for this work delay new requests.


class Backlog:
    """Limit of pages in later work. `async with` encloses the work; `room` waits while `most` pages are in it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._left = asyncio.Event()

    async def room(self) -> None:
        """Return when fewer pages wait."""
        while self._count >= self._most:
            self._left.clear()
            await self._left.wait()

    async def __aenter__(self) -> None:
        self._count += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1
        self._left.set()


# Detection of figures while the model reads the page, so that a run does not wait for it at its end.


class Ahead:
    """Inspection of one page ahead of the answer, when its turn in the lane arrives.

    Few inspections run at a time, because each OCR process takes 300 MB.
    """

    def __init__(self, look: Callable[[], Awaitable[Inspection]], lane: asyncio.Semaphore) -> None:
        self._begun = False
        self._task = asyncio.create_task(self._run(look, lane))
        self._task.add_done_callback(_ignore_errors)

    async def seen(self) -> Inspection | None:
        """Return the inspection; None if its turn has not arrived. Then it never runs. Raises the errors of `look`."""
        if not self._begun:
            self.drop()
            return None
        return await self._task

    def drop(self) -> None:
        """Cancel the inspection."""
        self._task.cancel()

    async def _run(self, look: Callable[[], Awaitable[Inspection]], lane: asyncio.Semaphore) -> Inspection:
        async with lane:
            self._begun = True
            return await look()


def _ignore_errors(task: "asyncio.Task[Inspection]") -> None:
    """Consume the error of an inspection whose result is not needed."""
    if not task.cancelled():
        task.exception()


# Facts about a page besides the model's answer: text layer, orientation, places of figures.


@dataclass(frozen=True, slots=True)
class FigureRule:
    """Rule for a page's figures. `labels`: labels that are cut out; None: all figures detected on the page."""

    labels: frozenset[str] | None
    from_page: bool = False


class PageHelp:
    """Facts about one page, each determined once. Missing facts are explained in `doubt`."""

    def __init__(self, page: Page, tools: ImageTools, inspector: PageInspector | None, backlog: Backlog) -> None:
        self._page = page
        self._tools = tools
        self._inspector = inspector
        self._backlog = backlog
        self._text: str | None = None
        self._ahead: Ahead | None = None
        self._doubts: list[str] = []

    @property
    def doubt(self) -> str:
        """Missing facts and the reasons."""
        return "; ".join(self._doubts)

    async def page(self) -> Page:
        """Return the page with its text layer. Raises `PageFailure`."""
        if self._page.content is None:
            self._page = await self._tools.content(self._page)
        return self._page

    async def orientation(self) -> int:
        """Return the clockwise turn in degrees that makes the page upright; 0 if unknown."""
        if self._inspector is None:
            return 0
        try:
            return await self._inspector.orientation(await self.page())
        except PageFailure as failure:
            self._doubts.append(f"the orientation of the page is unknown: {failure.why}")
            return 0

    async def anchor(self, most: int) -> str:
        """Return the text layer in at most `most` characters; "" without a credible text layer."""
        if self._text is None:
            self._text = ""
            if self._inspector is not None:
                try:
                    self._text = fitted(await self._inspector.text(await self.page()), most)
                except PageFailure as failure:
                    self._doubts.append(f"the text layer was not read: {failure.why}")
        return self._text

    def look_ahead(self, rule: FigureRule, lane: asyncio.Semaphore) -> None:
        """Start the detection of figures before the answer, when the page's turn in the lane arrives."""
        if rule.from_page and self._inspector is not None and self._ahead is None:
            self._ahead = Ahead(self._look, lane)

    def over(self) -> None:
        """Release the resources at the end of the page."""
        if self._ahead is not None:
            self._ahead.drop()

    async def with_figures(self, blocks: Sequence[Block], rotation: int, rule: FigureRule) -> tuple[Block, ...]:
        """Return the answer's blocks with figures by the rule. `rotation`: degrees clockwise of the turned image."""
        if rule.from_page and blocks:
            async with self._backlog:
                seen = await self._seen(hinted=mentions_figures(blocks))
            turned = tuple(replace(block, box=block.box.turned(rotation)) for block in seen.blocks)
            blocks = with_detected(blocks, replace(seen, blocks=turned))
        return tuple(blocks) if rule.labels is None else with_crops(blocks, rule.labels)

    async def _seen(self, *, hinted: bool) -> Inspection:
        if self._inspector is None:
            return Inspection()
        try:
            seen = await self._ahead.seen() if self._ahead else None
            if seen is None or (hinted and seen.unread):
                seen = await self._look(hinted=hinted)
        except PageFailure as failure:
            self._doubts.append(f"figures were not detected: {failure.why}")
            return Inspection()
        if seen.detail:
            self._doubts.append(seen.detail)
        return seen

    async def _look(self, *, hinted: bool = False) -> Inspection:
        assert self._inspector is not None  # checked by the callers
        return await self._inspector.inspect(await self.page(), hinted=hinted)


# One page: request, verdict, turn, and fallback.


#: Minimum length of a fallback's text, as a share of the best answer's text, to prefer the fallback.
LEAST_FALLBACK = 0.5
#: Maximum turns and repeated requests of a page because the model reports a wrong orientation.
MOST_TURNS = 2
#: Maximum requests of a page after a sound answer of low quality; each costs as much as a whole page.
MOST_REREADS = 3
SOURCE = "model"
#: Share of a page's characters that its image may lack.
UNDRAWN = 0.05
_BLANK = "the page is blank; the model's answer was discarded"


@dataclass(frozen=True, slots=True)
class Read:
    """Content of an answer and the settings of its request. `rotation`: degrees clockwise of the turned page."""

    blocks: tuple[Block, ...]
    mode: str
    rotation: int = 0
    notes: PageNotes | None = None


class PageReading:
    """Reading of one page; a `Task` of the attempt loop."""

    def __init__(self, reader: "ModelReader", page: Page) -> None:
        self._reader = reader
        self._page = page
        self._images = Images(page.image, reader.tools)
        self._help = PageHelp(page, reader.tools, reader.inspector, reader.backlog)
        self._tries = Tries(reader.options.max_attempts)
        self._rotations = [0]  # rotations in which the model has seen the page
        self._blank: bool | None = None
        self._doubt = ""  # reason why the blankness of the page is unknown

    async def run(self, on_dispatched: Callable[[], None]) -> Attempt:
        """Read the page and return the best result. Raises `PageFailure` with all tries."""
        try:
            return await self._run(on_dispatched)
        finally:
            self._help.over()

    async def _run(self, on_dispatched: Callable[[], None]) -> Attempt:
        reader = self._reader
        evidence = self._page.evidence
        undrawn = _undrawn(self._page)
        if evidence is not None and evidence.no_ink and undrawn is None:
            if not evidence.layer_characters:
                return Attempt(reader.name, SOURCE, Status.OK)  # a model would invent text
            detail = f"the image shows nothing, but the text layer has {evidence.layer_characters:,} characters"
            failure = PageFailure(Reason.EMPTY, detail)
            return await self._degraded(Ended(None, failure), failure)
        await reader.backlog.room()
        if undrawn is not None:
            read, _ = await self._by_fallback(0)
            if read is not None:
                return self._of_fallback(read, undrawn)
        if reader.options.rotate == "probe":
            self._turn(await self._help.orientation())
            self._rotations = [self._images.rotation]
        ladder = Ladder(reader.first, reader.rungs)
        if self._page.again:
            ladder.climb()  # the first rung was not good enough
        rereads = min(MOST_REREADS, len(reader.rungs))

        def sent() -> None:
            on_dispatched()
            self._help.look_ahead(reader.figures(reader.first.mode), reader.lane)

        loop = AttemptLoop(reader.engine, self, ladder, self._tries, sent, reader.options.backoff, rereads=rereads)
        ended = await loop.run()
        if ended.failure is None and ended.best is not None:
            if undrawn is not None:
                detail = joined(undrawn.detail, ended.best.verdict.detail)
                return await self._of_model(ended, Status.DEGRADED, undrawn.reason, detail)
            return await self._of_model(ended, Status.OK, None, ended.best.verdict.detail)
        assert ended.failure is not None  # a loop without a sound answer ends with a failure
        return await self._degraded(ended, ended.failure)

    async def request(self, step: Step) -> CompletionRequest:
        """Return the request of a step. Raises `PageFailure` if its image cannot be created."""
        reader = self._reader
        profile = reader.profile
        most = reader.anchored(step)
        anchor = await self._help.anchor(most) if most else ""
        extra_tokens = tokens(anchor)
        if anchor:
            step = replace(step, max_tokens=min(step.max_tokens, max(1, answer_room(profile) - extra_tokens)))
        return request_of(
            profile,
            step,
            self._page.id,
            await self._images.sized(step.scale),
            reader.asked(step.mode, anchor),
            vllm_settings={**profile.page_settings, **reader.guides(step.mode)},
            extra_tokens=extra_tokens,
        )

    async def judge(self, answer: Completion, step: Step) -> Verdict[Read]:
        """Judge an answer; a page that is not upright is turned, and its request repeated."""
        parsers = self._reader.profile.parsers
        verdict = judge_page(answer, parsers.get(step.mode) or parsers[""], self._images.frame(step.scale))
        read = Read(verdict.result, step.mode, self._images.rotation, verdict.notes)
        degrees = self._wrong_by(verdict.notes)
        if degrees:
            self._turn(degrees)
            self._rotations.append(self._images.rotation)
            detail = f"according to the model, the page must be rotated by {degrees} degrees clockwise"
            return Verdict(read, verdict.reason, detail, min(1, verdict.worth), verdict.notes, again=True)
        found: Verdict[Read] = Verdict(read, verdict.reason, verdict.detail, verdict.worth, verdict.notes)
        if verdict.reason is None:
            return await self._rated(found)
        if await self._is_blank():
            return Verdict(replace(read, blocks=()), None, _BLANK if answer.text.strip() else "", notes=verdict.notes)
        return replace(found, detail=f"{verdict.detail}; {self._doubt}") if self._doubt else found

    async def _rated(self, found: Verdict[Read]) -> Verdict[Read]:
        """Return a sound verdict with its quality if the rule requires one."""
        rule, read = self._reader.rule, found.result
        if rule is None:
            return found
        attempt = Attempt(self._reader.name, SOURCE, Status.OK, read.blocks, rotation=read.rotation)
        quality = await rule.quality(self._page, attempt)
        if quality >= rule.below:
            return replace(found, quality=quality)
        said = joined(found.detail, f"its quality of {quality:.2f} is below {rule.below:g}")
        return replace(found, quality=quality, weak=True, detail=said)

    def _wrong_by(self, notes: PageNotes | None) -> int:
        """Return the clockwise turn in degrees that the model reports; 0 for an orientation that was already sent."""
        if notes is None or notes.is_rotation_valid is not False or self._reader.options.rotate == "never":
            return 0
        degrees = notes.rotation_correction or 0
        seen = (self._images.rotation + degrees) % 360 in self._rotations
        return 0 if seen or len(self._rotations) > MOST_TURNS else degrees

    def _turn(self, degrees: int) -> None:
        if degrees:
            self._images.turn(degrees)

    async def _is_blank(self) -> bool:
        """Return whether the page is blank; checked once per page, and only after a bad answer."""
        evidence = self._page.evidence
        if evidence is not None and evidence.ink is not None:
            return evidence.no_ink
        if self._blank is None:
            try:
                self._blank = await self._reader.tools.blank(self._page.image)
            except PageFailure as failure:
                self._blank = False
                self._doubt = f"it is unknown whether the page is blank: {failure.why}"
        return self._blank

    async def _degraded(self, ended: Ended[Read], failure: PageFailure) -> Attempt:
        best = ended.best.verdict if ended.best else None
        why_not = ""
        if not ended.final:
            read, why_not = await self._by_fallback(best.worth if best else 0)
            if read is not None:
                return self._of_fallback(read, failure)
        if best is not None:
            detail = joined(ended.shortfall(len(self._tries.rows)), why_not)
            return await self._of_model(ended, Status.DEGRADED, best.reason or failure.reason, detail)
        raise failure.with_tries(self._tries.rows, joined(failure.detail, why_not)) from failure

    async def _by_fallback(self, worth: int) -> tuple[Attempt | None, str]:
        """Read the page with the fallback; None and the reason if it fails or an answer of that `worth` is better."""
        fallback = self._reader.fallback
        if fallback is None:
            return None, ""
        try:
            attempt = await fallback.read(await self._help.page())
        except PageFailure as failure:
            return None, f"{fallback.name} could not read it either: {failure.why}"
        if not attempt.blocks:
            return None, f"{fallback.name} found nothing on it"
        if worth and (attempt.status is not Status.OK or worth_of(attempt.blocks) < LEAST_FALLBACK * worth):
            return None, joined(f"{fallback.name} read less of it", attempt.detail)
        return attempt, ""

    def _of_fallback(self, attempt: Attempt, failure: PageFailure) -> Attempt:
        how = {"text-layer": "text layer", "ocr": "OCR"}.get(attempt.source, attempt.source)
        said = f"read by {attempt.engine} ({how}) after {len(self._tries.rows)} tries of {self._reader.name}"
        no_image = {"status": "failed", "reason": failure.reason.value, "detail": failure.detail, "server": ""}
        return replace(
            attempt,
            status=Status.DEGRADED,
            reason=failure.reason,
            detail=joined(said, failure.detail, attempt.detail),
            tokens_in=attempt.tokens_in + self._tries.tokens_in,
            tokens_out=attempt.tokens_out + self._tries.tokens_out,
            seconds=attempt.seconds + self._tries.seconds,
            tries=(*(self._tries.rows or [no_image]), *attempt.tries),
        )

    async def _of_model(self, ended: Ended[Read], status: Status, reason: Reason | None, detail: str) -> Attempt:
        best = ended.best
        assert best is not None  # checked by the callers
        read = best.verdict.result
        rows = tuple(self._tries.rows)
        blocks = await self._help.with_figures(read.blocks, read.rotation, self._reader.figures(read.mode))
        return Attempt(
            engine=self._reader.name,
            source=SOURCE,
            status=status,
            blocks=blocks,
            reason=reason,
            detail=joined(detail, self._help.doubt),
            raw=best.text,
            rotation=read.rotation,
            image=self._images.upright(read.rotation),
            notes=_notes_as_json(read.notes),
            tokens_in=self._tries.tokens_in,
            tokens_out=self._tries.tokens_out,
            seconds=self._tries.seconds,
            tries=rows if len(rows) > 1 else (),
        )


def _undrawn(page: Page) -> PageFailure | None:
    """Return the reason not to ask a model about a page whose image lacks a part of its text; None for other pages."""
    share = page.evidence.undrawn if page.evidence else 0.0
    if share <= UNDRAWN:
        return None
    detail = f"the image lacks {share:.0%} of the text, because the file does not contain its fonts"
    return PageFailure(Reason.NOT_DRAWN, f"{detail}; on Debian and Ubuntu, fonts-noto-cjk draws Chinese and Japanese")


def _notes_as_json(notes: PageNotes | None) -> Mapping[str, Any]:
    return {name: value for name, value in asdict(notes).items() if value is not None} if notes else {}


# A `PageReader` over an engine, a profile, and a retry ladder.


#: Increased when a change alters results for the same answers, parsers included; part of the key.
RESULT_VERSION = 3
#: Pages that may wait for figure detection before requests are delayed: about as many megabytes.
_WAITING = 128
#: Parallel inspections of pages that the model still reads. Pages with a complete answer do not wait here.
_LOOKING_AHEAD = 1


class ModelReader:
    """`PageReader` over a shared engine, which its creator closes. `close()` closes `fallback` and `inspector`.

    A page ends as `ok`, as `degraded`, or, without any usable answer, as a `PageFailure` with all its tries. A degraded
    page is read by `fallback`, or has the best of the answers with loops cut off. A page that kills servers is never
    passed to `fallback`, because the server or its settings may be the cause. Without `inspector`, pages have only the
    figures of the answers, and only the model reports rotations. With a `rule`, a sound answer of low quality is
    repeated up the ladder, at most `MOST_REREADS` times. The best sound answer counts.
    """

    def __init__(
        self,
        engine: Engine,
        profile: Profile,
        tools: ImageTools,
        options: ReadOptions | None = None,
        fallback: PageReader | None = None,
        inspector: PageInspector | None = None,
        rule: QualityRule | None = None,
    ) -> None:
        """Configure the reader. Raises `UsageError` for a mode that the profile lacks, or an unsupported anchor."""
        self.engine = engine
        self.profile = profile
        self.tools = tools
        self.options = options or ReadOptions()
        self.fallback = fallback
        self.inspector = inspector
        self.rule = rule
        self.backlog = Backlog(_WAITING)
        self.lane = asyncio.Semaphore(_LOOKING_AHEAD)
        mode = self.options.mode or profile.mode
        modes = [one for one in profile.prompts if one not in MODES]
        if mode not in modes:
            hint = f"Use one of: {', '.join(modes)}."
            raise UsageError(f"{profile.name} has no mode {mode!r} for pages", hint=hint)
        self.rungs = rungs_for(profile, modes=self.options.prompt is None)
        temperature = profile.temperature if self.options.temperature is None else self.options.temperature
        self.first = Step(mode, temperature, what_fits(profile, self.options.max_tokens))
        labels = self.options.figure_labels
        self.figure_labels = profile.figure_labels if labels is None else labels
        if self.options.anchor and not self._anchors(mode):
            takers = [one.name for one in all_profiles() if one.anchor]
            raise UsageError(
                f"{profile.name} does not support `anchor_text` in mode {mode}",
                hint=f"Models with support: {', '.join(takers)}. Or set a `prompt` that contains {PLACE}.",
            )
        if self.options.guided and not self.guides(mode):
            guided = [one.name for one in all_profiles() if one.guides]
            raise UsageError(
                f"{profile.name} does not support `guided` in mode {mode}",
                hint=f"Remove `guided`. Models with support: {', '.join(guided)}.",
            )

    @property
    def name(self) -> str:
        """Model name as shown to users."""
        return self.engine.name

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that change the attempts, without addresses, keys, or caps of the servers."""
        options = self.options
        modes = {self.first.mode, *(rung.mode for rung in self.rungs if rung.mode)}
        about = {
            "engine": SOURCE,
            "result_version": RESULT_VERSION,
            **profile_as_json(self.profile, model=options.model, revision=options.revision),
            "page_settings": json_values(self.profile.page_settings),
            "mode": self.first.mode,
            "prompts": {mode: self.prompt(mode) for mode in sorted(modes)},
            "temperature": self.first.temperature,
            "max_tokens": self.first.max_tokens,
            "max_attempts": options.max_attempts,
            "ladder": rungs_as_json(self.rungs),
            "figure_labels": sorted(self.figure_labels),
            "figures_from": options.figures_from,
            "rotate": options.rotate,
            "fallback": json_values(self.fallback.identity()) if self.fallback else None,
            "sight": json_values(self.inspector.identity()) if self.inspector else None,
        }
        if options.anchor:
            about["anchor"] = {"characters": options.anchor, "prompt": self.profile.anchor}
        if options.guided:
            about["guides"] = {mode: json_values(self.guides(mode)) for mode in sorted(modes)}
        if self.rule is not None:
            about["min_quality"] = self.rule.identity()
        return about | dict(options.chosen)

    def prompt(self, mode: str) -> str:
        """Return the prompt of a mode: the user's own, or the profile's."""
        own = self.options.prompt
        return self.profile.prompts[mode] if own is None else own

    def asked(self, mode: str, anchor: str) -> str:
        """Return the prompt with the page's text layer, "" for none."""
        prompt = self.prompt(mode)
        if self.options.prompt is None:
            return self.profile.anchor.replace(PLACE, anchor) if anchor else prompt
        return prompt.replace(PLACE, anchor) if self.options.anchor else prompt

    def anchored(self, step: Step) -> int:
        """Return the characters of the text layer for a request: 0 after a request that did not fit."""
        fits = step.max_tokens == self.first.max_tokens
        return self.options.anchor if fits and self._anchors(step.mode) else 0

    def guides(self, mode: str) -> Mapping[str, Any]:
        """Return the settings that force the form of answers in a mode; a custom prompt has its own form."""
        return self.profile.guides.get(mode, {}) if self.options.guided and self.options.prompt is None else {}

    def figures(self, mode: str) -> FigureRule:
        """Return the source and the labels of the figures of an answer in a mode."""
        chosen = self.options.figures_from
        if chosen == "none":
            return FigureRule(frozenset())
        if self.inspector is not None and (
            chosen == "page" or (chosen == "auto" and not has_places(self.profile, mode))
        ):
            return FigureRule(self.options.figure_labels, from_page=True)
        return FigureRule(self.figure_labels)

    def _anchors(self, mode: str) -> bool:
        own = self.options.prompt
        return PLACE in own if own is not None else bool(self.profile.anchor) and mode == self.profile.mode

    async def read(self, page: Page, on_dispatched: Callable[[], None] = noop) -> Attempt:
        """Read a page and return the best available result.

        Raises:
            PageFailure: No answer is usable.
            ServerError: No server is available.
        """
        return await PageReading(self, page).run(on_dispatched)

    async def close(self) -> None:
        """Close the fallback and the page inspector."""
        if self.fallback is not None:
            await self.fallback.close()
        if self.inspector is not None:
            await self.inspector.close()


def has_places(profile: Profile, mode: str) -> bool:
    """Return whether the answers in a mode include the places of figures."""
    return bool(profile.figure_labels) and gives_places(profile.parsers.get(mode) or profile.parsers[""])
