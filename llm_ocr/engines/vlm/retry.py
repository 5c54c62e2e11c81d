"""Judge answers, and run the attempts for one page or figure: the retry ladder and the loop."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from llm_ocr.engines import Completion, CompletionRequest, Engine, Finish
from llm_ocr.engines.vlm.requests import LONGEST_BACKOFF, Step
from llm_ocr.errors import PageFailure, RequestError, RequestRefused
from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.figure_answers import read_class, read_description, read_parse
from llm_ocr.models.parsers.latex import with_dollar_math
from llm_ocr.models.parsers.layout_json import UNACCEPTABLE
from llm_ocr.models.parsers.plain import is_placeless, legible, without_special
from llm_ocr.models.parsers.repetition import sound_length
from llm_ocr.models.parsers.talk import describes_image, is_refusal, omits_text, says_nothing, without_echo
from llm_ocr.models.profile import NO_FRAME, Frame, PageNotes, Parser, Profile, Rung
from llm_ocr.types import FURNITURE, Block, BlockKind, Reason, Status, plural

ResultT = TypeVar("ResultT")

#: A loop up to this share of an answer that ended by itself is removed without a status change.
SMALL_LOOP = 0.5
#: Number of reported losses.
_SHOWN = 3
#: Share of an answer's characters that may be U+FFFD, in place of characters that a model cannot write.
MOST_UNKNOWN = 0.01
_NOT_THE_TEXT = "the model describes the page, or says that it left out text"
_REFUSED = "the model refused to read an image"


@dataclass(frozen=True, slots=True)
class Verdict(Generic[ResultT]):
    """Verdict on an answer.

    `reason` is None for a sound answer, otherwise the fault; `worth` is 0 if nothing is usable. `again`: repeat the
    request without a penalty, because its subject has changed. `quality` is the score of a sound answer if rated.
    `weak`: the quality is too low, and another way may produce a better answer.
    """

    result: ResultT
    reason: Reason | None = None
    detail: str = ""
    worth: int = 0
    notes: PageNotes | None = None
    again: bool = False
    quality: float | None = None
    weak: bool = False
    mode: str = ""  # of the request, for pages
    rotation: int = 0  # degrees clockwise of the page in the request
    raw: str = ""  # the answer's text, once it is the best answer

    @property
    def sound(self) -> bool:
        """Whether the answer is acceptable."""
        return self.reason is None and not self.again


def ending(answer: Completion) -> tuple[str, Reason | None, str]:
    """Judge the end of an answer, not its content.

    Returns:
        The text without the loop at its end, the fault (None: no fault), and the detail.
    """
    sound = sound_length(answer.text)
    looped = sound is not None
    text = answer.text if sound is None else answer.text[:sound]
    detail = f"the answer repeats itself after {len(text)} characters" if looped else ""
    match answer.finish:
        case Finish.CUT:
            return text, Reason.LOOP, detail or f"cut after {len(text)} characters: the answer repeated itself"
        case Finish.LENGTH | Finish.LATE if looped:
            return text, Reason.LOOP, detail
        case Finish.LATE:
            return text, Reason.TRUNCATED, f"the answer did not end within {answer.seconds:.0f} s"
        case Finish.LENGTH:
            return text, Reason.TRUNCATED, f"the answer did not end within {answer.tokens_out} tokens"
    if looped and len(text) < SMALL_LOOP * len(answer.text):
        return text, Reason.LOOP, detail
    return text, None, f"{detail}; the repetition was cut off" if looped else ""


def judge_page(
    answer: Completion, parse: Parser, frame: Frame = NO_FRAME, prompt: str = ""
) -> Verdict[tuple[Block, ...]]:
    """Judge an answer about a page: its blocks, and whether they are acceptable.

    A page without blocks has the reason `empty`, because the page may be blank; so has an answer that only says so. A
    refusal in the place of a figure's description is left out. A paragraph that reads like a refusal may be printed on
    the page, as in a letter: it is kept, but the answer is not sound, nor is one that omits or describes the text.
    A `prompt` that the answer repeats is left out.
    """
    text, reason, detail = ending(answer)
    text = without_echo(legible(text), prompt)
    parsed = parse(text, frame)
    blocks, lost = parsed.blocks, parsed.lost
    doubtful = not UNACCEPTABLE.isdisjoint(lost)
    if says_nothing("\n".join(block.text for block in blocks if block.kind not in FURNITURE)):
        blocks = ()
    if is_refusal(text.strip()):
        blocks, lost = (), (*lost, _REFUSED)
    elif any(is_refusal(part) for block in blocks for part in (block.text, block.caption, block.described)):
        others = tuple(block for block in blocks if not is_refusal(block.text))
        doubtful |= any(is_refusal(block.text) and not is_placeless(block) for block in blocks)
        blocks = tuple(
            replace(
                block,
                caption="" if is_refusal(block.caption) else block.caption,
                described="" if is_refusal(block.described) else block.described,
            )
            for block in (blocks if doubtful and others else others)
        )
        lost = (*lost, _REFUSED)
    written = [block.text for block in blocks if block.kind is BlockKind.TEXT]
    if any(map(omits_text, written)) or (len(blocks) == 1 and written and describes_image(written[0])):
        doubtful, lost = True, (*lost, _NOT_THE_TEXT)
    unknown = text.count("\ufffd")
    if unknown > MOST_UNKNOWN * len(text):
        doubtful, lost = True, (*lost, f"{plural(unknown, 'character')} that the model could not write")
    blocks = tuple(map(with_dollar_math, blocks))
    losses = summarized(lost)
    # A layout without texts has places.
    usable = any(block.text.strip() or block.kind is BlockKind.FIGURE or block.box != WHOLE_PAGE for block in blocks)
    worth = worth_of(blocks) if usable else 0
    if reason is None and not usable:
        blocks, reason = (), Reason.MALFORMED if lost else Reason.EMPTY
        detail = losses or _nothing_in(answer)
    elif reason is None and len(lost) > len(blocks):
        reason, detail = Reason.MALFORMED, losses
    elif reason is None:
        reason, detail = Reason.MALFORMED if doubtful else None, "; ".join(filter(None, (detail, losses)))
    return Verdict(blocks, reason, detail, worth, parsed.notes)


def _nothing_in(answer: Completion) -> str:
    if not answer.reasoned:
        return "the model answered nothing"
    return (
        f"the model answered nothing but {answer.reasoned} characters of reasoning: start the server without "
        "`--reasoning-parser`, or turn reasoning off"
    )


def worth_of(blocks: Sequence[Block]) -> int:
    """Return the characters of text; a block without text still has a small worth."""
    return sum(max(1, len(block.text)) for block in blocks)


def summarized(lost: Sequence[str]) -> str:
    """Return the first losses and the number of the others."""
    more = len(lost) - _SHOWN
    return "; ".join([*lost[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


#: Characters quoted from an answer that is none of the classes.
_QUOTED = 60


@dataclass(frozen=True, slots=True)
class Description:
    """Description with the fields of `FigureRecord`."""

    description: str = ""
    data: str = ""
    label: str = ""


def judge_figure(
    answer: Completion, mode: str, classes: Sequence[str], *, own_prompt: bool = False, prompt: str = ""
) -> Verdict[Description]:
    """Judge an answer about a figure.

    Args:
        answer: The model's answer about one figure.
        mode: parse, classify, or any other mode for free text.
        classes: Names to choose from, for classify.
        own_prompt: Whether the user's prompt defines the form of the answer.
        prompt: The request's prompt, which is left out of the answer.
    """
    body, reason, detail = ending(answer)
    text = without_special(without_echo(legible(body), prompt)).strip()
    if mode not in ("parse", "classify"):
        text = text if own_prompt else read_description(text)
    if not text:
        return Verdict(Description(), reason or Reason.EMPTY, detail or _nothing_in(answer))
    if is_refusal(text):
        return Verdict(Description(), Reason.MALFORMED, f"the model refused: {text[:_QUOTED]} …")
    if mode == "parse":
        data, fault = read_parse(text, as_asked=not own_prompt)
        if data is None:  # the answer is still worth its text
            return Verdict(Description(description=text), reason or Reason.MALFORMED, detail or fault, 1)
        return Verdict(Description(data=data), reason, detail, 1 + len(data))
    if mode == "classify":
        label = read_class(text, classes)
        if label is None:
            quoted = text if len(text) <= _QUOTED else f"{text[:_QUOTED]} …"
            return Verdict(Description(), reason or Reason.MALFORMED, detail or f"none of the classes: {quoted!r}")
        return Verdict(Description(label=label), reason, detail, 1)
    if text.count("\ufffd") > MOST_UNKNOWN * len(text):
        unknown = plural(text.count("\ufffd"), "character")
        reason, detail = reason or Reason.MALFORMED, detail or f"{unknown} that the model could not write"
    return Verdict(Description(description=text), reason, detail, len(text))


#: Factors for a request that exceeds the context: for the sides of its image, and for its answer, a possible cause.
SHRINK_IMAGE, SHRINK_ANSWER = 0.7, 0.5
#: Maximum answers with a loop per page: on higher rungs, most pages that loop so often loop again.
MOST_LOOPS = 4
#: Maximum answers of reasoning alone: the server's settings are the cause, and another try has the same.
MOST_REASONED = 2
#: Maximum times that an image is made smaller: to a quarter of its sides.
MOST_SHRINKS = 4


class Ladder:
    """Retry ladder that returns the next request. The last rung repeats; without rungs the first request repeats.

    `resizes`: images can be scaled down. Otherwise, a request that does not fit only requests a shorter answer.
    """

    def __init__(self, first: Step, rungs: Sequence[Rung], *, resizes: bool = True) -> None:
        self._first = first
        self._rungs = rungs
        self._shrink_image = SHRINK_IMAGE if resizes else 1.0
        self.climbed = 0  # rungs, one after each bad answer
        self._shrunk = 0  # times
        self._most_shrinks = MOST_SHRINKS if resizes else 1

    @property
    def step(self) -> Step:
        """Settings of the next request. A rung never lowers the temperature: the same answer would repeat."""
        step = self._first
        if self.climbed and self._rungs:
            rung = self._rungs[min(self.climbed, len(self._rungs)) - 1]
            warmer = step.temperature if rung.temperature is None else max(rung.temperature, step.temperature)
            step = replace(step, mode=rung.mode or step.mode, temperature=warmer, scale=rung.scale)
        if self._shrunk:
            smaller = max(1, int(step.max_tokens * SHRINK_ANSWER))
            step = replace(step, scale=step.scale * self._shrink_image**self._shrunk, max_tokens=smaller)
        return step

    def shrink(self) -> bool:
        """Shrink all further requests after one that did not fit; return False if they are already small.

        The answer is halved once. A small encoder cache of the server may require a much smaller image.
        """
        self._shrunk += 1
        return self._shrunk <= self._most_shrinks


def rungs_for(profile: Profile, *, modes: bool = True, scales: bool = True) -> tuple[Rung, ...]:
    """Return the profile's ladder without prompts or image sizes that do not apply."""
    rungs = [
        replace(rung, mode=rung.mode if modes else None, scale=rung.scale if scales else 1.0) for rung in profile.ladder
    ]
    return tuple(rung for rung in rungs if rung != Rung())


@dataclass(slots=True)
class Tries(Generic[ResultT]):
    """Requests for one page, figure, or region: at most `limit`, plus those that do not count.

    `best` is the answer to use. `failure` is None for a sound `best`, otherwise the last failure. `final`: no other
    reader may read the page, because the page kills servers.
    """

    limit: int
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    uncounted: int = 0
    best: Verdict[ResultT] | None = None
    failure: PageFailure | None = None
    final: bool = False

    @property
    def left(self) -> bool:
        return len(self.rows) - self.uncounted < self.limit

    @property
    def shortfall(self) -> str:
        """Fault of `best`, and the end of the tries if it differs; "" without both."""
        if self.best is None or self.failure is None:
            return ""
        of_many = f"the best of {len(self.rows)} tries" if len(self.rows) > 1 else ""
        reason, detail = self.failure.reason, self.failure.detail
        last = "" if self.best.reason is reason else f"the last one: {reason.value}: {detail}"
        return joined(self.best.detail, of_many, last)

    def add(
        self,
        step: Step,
        reason: Reason | None,
        detail: str,
        seconds: float,
        waited: float,
        answer: Completion | None = None,
        *,
        counts: bool = True,
        quality: float | None = None,
    ) -> None:
        """Record a request with its `answer`, if any; `reason` is the fault of the answer or of the request."""
        self.uncounted += not counts
        self.seconds += seconds
        if answer is not None:
            self.tokens_in += answer.tokens_in
            self.tokens_out += answer.tokens_out
        self.rows.append(
            {
                "status": (Status.FAILED if reason else Status.OK).value,
                "reason": reason.value if reason else None,
                "temperature": step.temperature,
                "mode": step.mode,
                "scale": round(step.scale, 4),
                "tokens_in": answer.tokens_in if answer else 0,
                "tokens_out": answer.tokens_out if answer else 0,
                "seconds": round(seconds, 4),
                "waited": round(waited, 4),
                "server": answer.server if answer else "",
                "detail": detail,
                **({"tokens_estimated": True} if answer and answer.estimated else {}),
                **({} if quality is None else {"quality": quality}),
            }
        )

    def judged(self, step: Step, answer: Completion, verdict: Verdict[ResultT]) -> None:
        """Record an answer, and keep it if it is the best: sound beats unsound, and higher beats lower quality."""
        self.add(
            step,
            verdict.reason,
            verdict.detail,
            answer.seconds,
            answer.waited,
            answer,
            counts=not verdict.again,
            quality=verdict.quality,
        )
        if self.best is not None and self.best.sound:
            is_better = verdict.sound and (verdict.quality or 0.0) > (self.best.quality or 0.0)
        else:
            is_better = verdict.sound or verdict.worth > (self.best.worth if self.best else 0)
        if is_better:
            self.best = replace(verdict, raw=answer.text)


def joined(*parts: str) -> str:
    """Join the parts that are not empty as one detail."""
    return "; ".join(part for part in parts if part)


def _failure_of(error: RequestError | PageFailure) -> PageFailure:
    if isinstance(error, PageFailure):
        return error
    if isinstance(error, RequestRefused):
        return PageFailure(Reason.TOO_LONG if error.too_long else Reason.REFUSED, str(error))
    return PageFailure(Reason.SERVER_ERROR, str(error), retryable=True)


async def run_attempts(
    engine: Engine,
    make_request: Callable[[Step], Awaitable[CompletionRequest]],
    judge: Callable[[Completion, Step], Awaitable[Verdict[ResultT]]],
    ladder: Ladder,
    tries: Tries[ResultT],
    on_dispatched: Callable[[], None],
    backoff: float,
    *,
    most_malformed: int | None = None,
    rereads: int = 0,
) -> None:
    """Send requests for one page, figure, or region, up the ladder and within its tries.

    A bad answer moves up the ladder. A lost request is repeated unchanged after a pause. `MOST_LOOPS` limits answers
    with a loop, and `MOST_REASONED` those of reasoning alone. The best sound answer is kept, whatever the later answers
    are. `PageFailure` is part of the result.

    Args:
        engine: Engine that completes the requests.
        make_request: Returns the request of a step. Raises `PageFailure` if its image cannot be created.
        judge: Judges the answer of a step; never raises.
        ladder: Position on the retry ladder.
        tries: Receives one row for each request, and the result.
        on_dispatched: Called when the first request is sent, once: a page leaves the queue once.
        backoff: Seconds before a lost request is repeated; doubled each time.
        most_malformed: Limit of malformed answers; None: limited by the tries only.
        rereads: Limit of the tries after a sound answer of low quality.

    Raises:
        ServerError: No server is available.
    """
    failure: PageFailure | None = None
    faults: Counter[Reason] = Counter()
    reasoned = lost = 0  # answers of reasoning alone, and consecutive lost requests
    sent, final = 0.0, False
    undispatched = [on_dispatched]

    def on_sent() -> None:
        nonlocal sent
        sent = time.monotonic()
        while undispatched:
            undispatched.pop()()

    while tries.left and (rereads > 0 or tries.best is None or not tries.best.sound):
        rereads -= tries.best is not None and tries.best.sound
        step = ladder.step
        try:
            request = await make_request(step)
        except PageFailure as unmade:
            failure = unmade
            break
        began, sent = time.monotonic(), 0.0
        try:
            answer = await engine.complete(request, on_sent)
        except (RequestError, PageFailure) as error:
            failure, final = _failure_of(error), isinstance(error, PageFailure)
            now = time.monotonic()
            tries.add(step, failure.reason, failure.detail, now - (sent or now), (sent or now) - began)
            if final or (isinstance(error, RequestRefused) and not (error.too_long and ladder.shrink())):
                break
            if not isinstance(error, RequestRefused):
                if tries.left and backoff > 0:
                    await asyncio.sleep(min(backoff * 2.0 ** min(lost, 16), LONGEST_BACKOFF))
                lost += 1
            continue
        lost = 0
        verdict = await judge(answer, step)
        tries.judged(step, answer, verdict)
        if verdict.again:
            continue
        if verdict.sound and not verdict.weak:
            break
        ladder.climbed += 1
        if verdict.reason is None:
            continue
        failure = PageFailure(verdict.reason, verdict.detail)
        faults[verdict.reason] += 1
        reasoned += bool(answer.reasoned) and not answer.text.strip()
        if faults[Reason.MALFORMED] == most_malformed or faults[Reason.LOOP] == MOST_LOOPS or reasoned == MOST_REASONED:
            break
    if tries.best is None or not tries.best.sound:  # a sound answer has no failure, whatever the later answers are
        tries.failure, tries.final = failure, final
