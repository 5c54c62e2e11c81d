"""Read pages with a model: request, judge, turn, and fall back to the text layer."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from llm_ocr.engines import Completion, CompletionRequest, Engine, Inspection, LocalReader, PageReader, noop
from llm_ocr.engines.descriptions import MODES
from llm_ocr.engines.vlm.placing import mentions_figures, with_crops, with_detected
from llm_ocr.engines.vlm.requests import (
    PLACE,
    Images,
    ImageTools,
    QualityRule,
    ReadOptions,
    Step,
    answer_room,
    fitted,
    json_values,
    profile_as_json,
    request_of,
    tokens,
    what_fits,
)
from llm_ocr.engines.vlm.retry import Ladder, Tries, Verdict, joined, judge_page, run_attempts, rungs_for, worth_of
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.models.choosing import gives_boxes
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import all_profiles
from llm_ocr.types import Attempt, Block, Page, Reason, Status

#: Minimum length of a fallback's text, as a share of the best answer's text, to prefer the fallback.
LEAST_FALLBACK = 0.5
#: Maximum turns and repeated requests of a page because the model reports a wrong orientation.
MOST_TURNS = 2
#: Maximum requests of a page after a sound answer of low quality; each costs as much as a whole page.
MOST_REREADS = 3
SOURCE = "model"
#: Share of a page's characters that its image may lack.
UNDRAWN = 0.05

Blocks = tuple[Block, ...]


class PageReading:
    """Reading of one page: requests, turns, figures, and the fallback.

    Each fact about the page is determined once. Missing facts are explained in `_doubts`.
    """

    def __init__(self, reader: "ModelReader", page: Page) -> None:
        self._reader = reader
        self._page = page
        self._images = Images(page.image, reader.tools)
        self._tries: Tries[Blocks] = Tries(reader.options.max_attempts)
        self._rotations = [0]  # rotations in which the model has seen the page
        self._with_layer = page if page.content is not None else None  # the page with its text layer
        self._anchor: str | None = None
        self._doubts: list[str] = []

    async def run(self, on_dispatched: Callable[[], None]) -> Attempt:
        """Read the page and return the best result. Raises `PageFailure` with all tries."""
        reader = self._reader
        evidence = self._page.evidence
        undrawn: PageFailure | None = None
        if evidence is not None and evidence.undrawn > UNDRAWN:
            undrawn = PageFailure(
                Reason.NOT_DRAWN,
                f"the image lacks {evidence.undrawn:.0%} of the text, because the file does not contain its fonts; on "
                "Debian and Ubuntu, fonts-noto-cjk draws Chinese and Japanese",
            )
        if evidence is not None and evidence.no_ink and undrawn is None:
            if not evidence.layer_characters:
                return Attempt(reader.name, SOURCE, Status.OK)  # a model would invent text
            detail = f"the image shows nothing, but the text layer has {evidence.layer_characters:,} characters"
            return await self._degraded(PageFailure(Reason.EMPTY, detail))
        async with reader.backlog:
            pass  # pages after the model delay new requests
        if undrawn is not None:
            attempt, _ = await self._by_fallback(undrawn, 0)
            if attempt is not None:
                return attempt
        if reader.options.rotate == "probe" and reader.inspector is not None:
            try:
                self._images.turn(await reader.inspector.orientation(await self._layered_page()))
            except PageFailure as unknown:
                self._doubts.append(f"the orientation of the page is unknown: {unknown.why}")
            self._rotations = [self._images.rotation]
        ladder = Ladder(reader.first, reader.rungs)
        if self._page.again:
            ladder.climbed += 1  # the first rung was not good enough
        await run_attempts(
            reader.engine,
            self.request,
            self.judge,
            ladder,
            self._tries,
            on_dispatched,
            reader.options.backoff,
            rereads=min(MOST_REREADS, len(reader.rungs)),
        )
        best, failure = self._tries.best, self._tries.failure
        if failure is not None or best is None:
            assert failure is not None  # a loop without a sound answer ends with a failure
            return await self._degraded(failure)
        if undrawn is not None:
            return await self._of_model(best, Status.DEGRADED, undrawn.reason, joined(undrawn.detail, best.detail))
        return await self._of_model(best, Status.OK, None, best.detail)

    async def request(self, step: Step) -> CompletionRequest:
        """Return the request of a step. Raises `PageFailure` if its image cannot be created."""
        reader = self._reader
        profile, options = reader.profile, reader.options
        anchor = ""
        # After a request that did not fit, the text layer is left out.
        if options.anchor and step.max_tokens == reader.first.max_tokens and reader.takes_anchor(step.mode):
            if self._anchor is None:
                self._anchor = ""
                if reader.inspector is not None:
                    try:
                        layer = await reader.inspector.text(await self._layered_page())
                        self._anchor = fitted(layer, options.anchor)
                    except PageFailure as failure:
                        self._doubts.append(f"the text layer was not read: {failure.why}")
            anchor = self._anchor
        prompt = reader.prompt(step.mode)
        if options.prompt is not None:
            prompt = prompt.replace(PLACE, anchor) if options.anchor else prompt
        elif anchor:
            prompt = profile.anchor.replace(PLACE, anchor)
        extra_tokens = tokens(anchor)
        if anchor:
            step = replace(step, max_tokens=min(step.max_tokens, max(1, answer_room(profile) - extra_tokens)))
        return request_of(
            profile,
            step,
            self._page.id,
            await self._images.sized(step.scale),
            prompt,
            vllm_settings={**profile.page_settings, **reader.guides(step.mode)},
            extra_tokens=extra_tokens,
        )

    async def judge(self, answer: Completion, step: Step) -> Verdict[Blocks]:
        """Judge an answer; a page that is not upright is turned, and its request repeated."""
        reader, images = self._reader, self._images
        parsers = reader.profile.parsers
        parse = parsers.get(step.mode) or parsers[""]
        verdict = judge_page(answer, parse, images.frame(step.scale), reader.prompt(step.mode))
        verdict = replace(verdict, mode=step.mode, rotation=images.rotation)
        if verdict.reason is Reason.EMPTY and self._page.evidence is not None and self._page.evidence.pale:
            return replace(verdict, reason=None)  # the ink may be that of the sheet's other side
        notes = verdict.notes
        if notes is not None and notes.is_rotation_valid is False and reader.options.rotate != "never":
            degrees = notes.rotation_correction or 0
            is_new = (images.rotation + degrees) % 360 not in self._rotations
            if degrees and is_new and len(self._rotations) <= MOST_TURNS:
                images.turn(degrees)
                self._rotations.append(images.rotation)
                detail = f"according to the model, the page must be rotated by {degrees} degrees clockwise"
                return replace(verdict, detail=detail, worth=min(1, verdict.worth), again=True)
        rule = reader.rule
        if verdict.reason is not None or rule is None:
            return verdict
        attempt = Attempt(reader.name, SOURCE, Status.OK, verdict.result, rotation=verdict.rotation)
        quality, weakness = await rule.judged(self._page, attempt)
        return replace(verdict, quality=quality, weak=bool(weakness), detail=joined(verdict.detail, weakness))

    async def _layered_page(self) -> Page:
        """Return the page with its text layer. Raises `PageFailure`."""
        if self._with_layer is None:
            self._with_layer = await self._reader.tools.content(self._page)
        return self._with_layer

    async def _with_figures(self, blocks: Blocks, rotation: int) -> Blocks:
        """Return an answer's blocks with the figures detected on the page, turned by the rotation of the image."""
        inspector = self._reader.inspector
        assert inspector is not None  # checked by `detects_figures`
        try:
            async with self._reader.backlog:
                found = await inspector.inspect(await self._layered_page(), hinted=mentions_figures(blocks))
        except PageFailure as failure:
            found = Inspection(detail=f"figures were not detected: {failure.why}")
        if found.detail:
            self._doubts.append(found.detail)
        turned = tuple(replace(block, box=block.box.turned(rotation)) for block in found.blocks)
        return with_detected(blocks, replace(found, blocks=turned))

    async def _degraded(self, failure: PageFailure) -> Attempt:
        best = self._tries.best
        why_not = ""
        if not self._tries.final:
            attempt, why_not = await self._by_fallback(failure, best.worth if best else 0)
            if attempt is not None:
                return attempt
        if best is not None:
            detail = joined(self._tries.shortfall, why_not)
            return await self._of_model(best, Status.DEGRADED, best.reason or failure.reason, detail)
        raise failure.with_tries(self._tries.rows, joined(failure.detail, why_not)) from failure

    async def _by_fallback(self, failure: PageFailure, worth: int) -> tuple[Attempt | None, str]:
        """Read the page with the fallback after a failure.

        Returns:
            The attempt; or None, and the reason if the fallback fails or an answer of that `worth` is better.
        """
        fallback, tries = self._reader.fallback, self._tries
        if fallback is None:
            return None, ""
        try:
            attempt = await fallback.read(await self._layered_page())
        except PageFailure as failed:
            return None, f"{fallback.name} could not read it either: {failed.why}"
        if not attempt.blocks:
            return None, f"{fallback.name} found nothing on it"
        if worth and (attempt.status is not Status.OK or worth_of(attempt.blocks) < LEAST_FALLBACK * worth):
            return None, joined(f"{fallback.name} read less of it", attempt.detail)
        how = {"text-layer": "text layer", "ocr": "OCR"}.get(attempt.source, attempt.source)
        origin = f"read by {attempt.engine} ({how}) after {len(tries.rows)} tries of {self._reader.name}"
        no_request = {"status": "failed", "reason": failure.reason.value, "detail": failure.detail, "server": ""}
        attempt = replace(
            attempt,
            status=Status.DEGRADED,
            reason=failure.reason,
            detail=joined(origin, failure.detail, attempt.detail),
            tokens_in=attempt.tokens_in + tries.tokens_in,
            tokens_out=attempt.tokens_out + tries.tokens_out,
            seconds=attempt.seconds + tries.seconds,
            tries=(*(tries.rows or [no_request]), *attempt.tries),
        )
        return attempt, ""

    async def _of_model(self, best: Verdict[Blocks], status: Status, reason: Reason | None, detail: str) -> Attempt:
        reader, tries = self._reader, self._tries
        blocks = best.result
        if reader.detects_figures(best.mode):
            labels = reader.options.figure_labels
            if blocks:
                blocks = await self._with_figures(blocks, best.rotation)
        else:
            labels = frozenset() if reader.options.figures_from == "none" else reader.figure_labels
        notes = asdict(best.notes) if best.notes else {}
        return Attempt(
            engine=reader.name,
            source=SOURCE,
            status=status,
            blocks=blocks if labels is None else with_crops(blocks, labels),
            reason=reason,
            detail=joined(detail, *self._doubts),
            raw=best.raw,
            rotation=best.rotation,
            image=self._images.upright(best.rotation),
            notes={name: value for name, value in notes.items() if value is not None},
            tokens_in=tries.tokens_in,
            tokens_out=tries.tokens_out,
            seconds=tries.seconds,
            tries=tuple(tries.rows) if len(tries.rows) > 1 else (),
        )


#: Increased when a change alters results for the same answers, parsers included; part of the key.
RESULT_VERSION = 8
#: Pages whose figures are detected after the answer, before requests are delayed: about as many megabytes.
_WAITING = 128


@dataclass(eq=False)
class ModelReader:
    """`PageReader` over a shared engine, which its creator closes. `close()` closes `fallback` and `inspector`.

    A page ends as `ok`, as `degraded`, or, without any usable answer, as a `PageFailure` with all its tries. A degraded
    page is read by `fallback`, or has the best of the answers with loops cut off. A page that kills servers is never
    passed to `fallback`, because the server or its settings may be the cause. Without `inspector`, pages have only the
    figures of the answers, and only the model reports rotations. With a `rule`, a sound answer of low quality is
    repeated up the ladder, at most `MOST_REREADS` times. The best sound answer counts.
    """

    engine: Engine
    profile: Profile
    tools: ImageTools
    options: ReadOptions = field(default_factory=ReadOptions)
    fallback: PageReader | None = None
    inspector: LocalReader | None = None
    rule: QualityRule | None = None

    def __post_init__(self) -> None:
        """Configure the reader. Raises `UsageError` for a mode that the profile lacks, or an unsupported anchor."""
        profile, self.name = self.profile, self.engine.name
        self.backlog = asyncio.Semaphore(_WAITING)  # held by each page after the model
        mode = self.options.mode or profile.mode
        modes = [name for name in profile.prompts if name not in MODES]
        if mode not in modes:
            hint = f"Use one of: {', '.join(modes)}."
            raise UsageError(f"{profile.name} has no mode {mode!r} for pages", hint=hint)
        self.rungs = rungs_for(profile, modes=self.options.prompt is None)
        temperature = profile.temperature if self.options.temperature is None else self.options.temperature
        self.first = Step(mode, temperature, what_fits(profile, self.options.max_tokens))
        labels = self.options.figure_labels
        self.figure_labels = profile.figure_labels if labels is None else labels
        if self.options.anchor and not self.takes_anchor(mode):
            takers = [other.name for other in all_profiles() if other.anchor]
            raise UsageError(
                f"{profile.name} does not support `anchor_text` in mode {mode}",
                hint=f"Models with support: {', '.join(takers)}. Or set a `prompt` that contains {PLACE}.",
            )
        if self.options.guided and not self.guides(mode):
            guided = [other.name for other in all_profiles() if other.guides]
            raise UsageError(
                f"{profile.name} does not support `guided` in mode {mode}",
                hint=f"Remove `guided`. Models with support: {', '.join(guided)}.",
            )

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
            "ladder": [asdict(rung) for rung in self.rungs],
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
            about["min_quality"] = json_values(self.rule.limits)
        return about | dict(options.chosen)

    def prompt(self, mode: str) -> str:
        """Return the prompt of a mode: the user's own, or the profile's."""
        own = self.options.prompt
        return self.profile.prompts[mode] if own is None else own

    def takes_anchor(self, mode: str) -> bool:
        """Return whether the prompt of a mode has a place for the page's text layer."""
        own = self.options.prompt
        return PLACE in own if own is not None else bool(self.profile.anchor) and mode == self.profile.mode

    def guides(self, mode: str) -> Mapping[str, Any]:
        """Return the settings that force the form of answers in a mode; a custom prompt has its own form."""
        return self.profile.guides.get(mode, {}) if self.options.guided and self.options.prompt is None else {}

    def detects_figures(self, mode: str) -> bool:
        """Return whether the figures of an answer in a mode are those detected on the page."""
        source = self.options.figures_from
        from_page = source == "page" or (source == "auto" and not gives_boxes(self.profile, mode))
        return from_page and self.inspector is not None

    async def read(self, page: Page, on_dispatched: Callable[[], None] = noop) -> Attempt:
        """Read a page; see `PageReader.read`. Raises `ServerError` if no server is available."""
        return await PageReading(self, page).run(on_dispatched)

    async def close(self) -> None:
        """Close the fallback and the page inspector."""
        if self.fallback is not None:
            await self.fallback.close()
        if self.inspector is not None:
            await self.inspector.close()
