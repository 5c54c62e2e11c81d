"""One page on its way through a model: asked, judged, turned, or left to the fallback."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from llm_ocr.engines.asking import Answer, Question
from llm_ocr.engines.model.anchor import tokens
from llm_ocr.engines.model.climbing import Climber, Ended, joined
from llm_ocr.engines.model.images import Images
from llm_ocr.engines.model.judging import Verdict, judge_page, worth_of
from llm_ocr.engines.model.ladder import Ladder
from llm_ocr.engines.model.page_help import PageHelp
from llm_ocr.engines.model.questions import answer_room, question_of
from llm_ocr.engines.model.tries import Step, Tries
from llm_ocr.errors import PageFailure
from llm_ocr.models.profile import PageNotes
from llm_ocr.types import Attempt, Block, Page, Reason, Status

if TYPE_CHECKING:
    from llm_ocr.engines.model.reader import ModelReader

#: Least share of the best answer's text that a fallback must have read to be preferred to it.
LEAST_FALLBACK = 0.5
#: So often a page is turned by the model's word, and asked for again.
MOST_TURNS = 2
#: So often, at most, a page is asked for again since a sound answer is of low quality: each time costs a whole page.
MOST_REREADS = 3
SOURCE = "model"
_BLANK = "the page is blank; what the model answered was left out"


@dataclass(frozen=True, slots=True)
class Read:
    """What an answer says, and how it was asked for. `rotation`: degrees clockwise by which the page was turned."""

    blocks: tuple[Block, ...]
    mode: str
    rotation: int = 0
    notes: PageNotes | None = None


class PageReading:
    """One page; a `Task` of the climber."""

    def __init__(self, reader: "ModelReader", page: Page) -> None:
        self._reader = reader
        self._page = page
        self._images = Images(page.image, reader.tools)
        self._help = PageHelp(page, reader.tools, reader.sight, reader.backlog)
        self._tries = Tries(reader.options.max_attempts)
        self._rotations = [0]  # those in which the model saw it
        self._blank: bool | None = None
        self._doubt = ""  # why it is not known whether the page is blank

    async def run(self, admitted: Callable[[], None]) -> Attempt:
        """The best that could be made of it. Raises `PageFailure` with all tries."""
        try:
            return await self._run(admitted)
        finally:
            self._help.over()

    async def _run(self, admitted: Callable[[], None]) -> Attempt:
        reader = self._reader
        await reader.backlog.room()
        if reader.options.rotate == "probe":
            self._turn(await self._help.orientation())
            self._rotations = [self._images.rotation]
        ladder = Ladder(reader.first, reader.rungs)
        if self._page.again:
            ladder.climb()  # the first way is the one that was not good enough
        rereads = min(MOST_REREADS, len(reader.rungs))

        def sent() -> None:
            admitted()
            self._help.look_ahead(reader.figures(reader.first.mode), reader.lane)

        climber = Climber(reader.engine, self, ladder, self._tries, sent, reader.options.backoff, rereads=rereads)
        ended = await climber.run()
        failure = ended.failure
        if failure is None and ended.best is not None:
            return await self._of_model(ended, Status.OK, None, ended.best.verdict.detail)
        assert failure is not None  # a climb without a sound answer ends with one
        return await self._degraded(ended, failure)

    async def question(self, step: Step) -> Question:
        """The request of a step. Raises `PageFailure` when its image cannot be made."""
        reader = self._reader
        profile = reader.profile
        most = reader.anchored(step)
        anchor = await self._help.anchor(most) if most else ""
        beside = tokens(anchor)
        if anchor:
            step = replace(step, max_tokens=min(step.max_tokens, max(1, answer_room(profile) - beside)))
        return question_of(
            profile,
            step,
            self._page.id,
            await self._images.sized(step.scale),
            reader.asked(step.mode, anchor),
            vllm_settings={**profile.page_settings, **reader.guides(step.mode)},
            beside=beside,
        )

    async def judge(self, answer: Answer, step: Step) -> Verdict[Read]:
        """What an answer is worth; a page that does not stand upright is turned, and asked for again."""
        parsers = self._reader.profile.parsers
        verdict = judge_page(answer, parsers.get(step.mode) or parsers[""], self._images.frame(step.scale))
        read = Read(verdict.result, step.mode, self._images.rotation, verdict.notes)
        degrees = self._wrong_by(verdict.notes)
        if degrees:
            self._turn(degrees)
            self._rotations.append(self._images.rotation)
            detail = f"the model says that the page must be turned by {degrees} degrees clockwise"
            return Verdict(read, verdict.reason, detail, min(1, verdict.worth), verdict.notes, again=True)
        found: Verdict[Read] = Verdict(read, verdict.reason, verdict.detail, verdict.worth, verdict.notes)
        if verdict.reason is None:
            return await self._rated(found)
        if await self._is_blank():
            return Verdict(replace(read, blocks=()), None, _BLANK if answer.text.strip() else "", notes=verdict.notes)
        return replace(found, detail=f"{verdict.detail}; {self._doubt}") if self._doubt else found

    async def _rated(self, found: Verdict[Read]) -> Verdict[Read]:
        """A sound answer with its quality, where one is asked for."""
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
        """Degrees clockwise by which the model wants the page turned; 0 where it was seen like that already."""
        if notes is None or notes.is_rotation_valid is not False or self._reader.options.rotate == "never":
            return 0
        degrees = notes.rotation_correction or 0
        seen = (self._images.rotation + degrees) % 360 in self._rotations
        return 0 if seen or len(self._rotations) > MOST_TURNS else degrees

    def _turn(self, degrees: int) -> None:
        if degrees:
            self._images.turn(degrees)

    async def _is_blank(self) -> bool:
        """Asked of each page once, and only of one whose answer is no good."""
        if self._blank is None:
            try:
                self._blank = await self._reader.tools.blank(self._page.image)
            except PageFailure as failure:
                self._blank = False
                self._doubt = f"whether the page is blank is not known: {failure.why}"
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
        """What the fallback makes of the page; None and why where it cannot, or an answer of that `worth` is better."""
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
        assert best is not None  # the callers look
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
            notes=_said(read.notes),
            tokens_in=self._tries.tokens_in,
            tokens_out=self._tries.tokens_out,
            seconds=self._tries.seconds,
            tries=rows if len(rows) > 1 else (),
        )


def _said(notes: PageNotes | None) -> Mapping[str, Any]:
    return {name: value for name, value in asdict(notes).items() if value is not None} if notes else {}
