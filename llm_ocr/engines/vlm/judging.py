"""Judge answers about pages and figures. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from llm_ocr.engines import Completion, Finish
from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.figure_answers import read_class, read_parse
from llm_ocr.models.parsers.math_marks import with_dollar_math
from llm_ocr.models.parsers.plain import is_placeless, is_refusal, without_special
from llm_ocr.models.parsers.repetition import sound_length
from llm_ocr.models.profile import NO_FRAME, Frame, PageNotes, Parsed, Parser
from llm_ocr.types import Block, BlockKind, Reason

ResultT = TypeVar("ResultT")

#: A loop up to this share of an answer that ended by itself is removed without a status change.
SMALL_LOOP = 0.5
#: Number of reported losses.
_SHOWN = 3
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

    @property
    def sound(self) -> bool:
        """Whether the answer is acceptable."""
        return self.reason is None and not self.again


@dataclass(frozen=True, slots=True)
class Ending:
    """Text of an answer without the loop at its end, and the fault in its ending (None: no fault)."""

    text: str
    reason: Reason | None
    detail: str


def ending(answer: Completion) -> Ending:
    """Judge the end of an answer, not its content."""
    sound = sound_length(answer.text)
    looped = sound is not None
    text = answer.text if sound is None else answer.text[:sound]
    detail = f"the answer repeats itself after {len(text)} characters" if looped else ""
    match answer.finish:
        case Finish.CUT:
            return Ending(text, Reason.LOOP, detail or f"cut after {len(text)} characters: the answer repeated itself")
        case Finish.LENGTH | Finish.LATE if looped:
            return Ending(text, Reason.LOOP, detail)
        case Finish.LATE:
            return Ending(text, Reason.TRUNCATED, f"the answer did not end within {answer.seconds:.0f} s")
        case Finish.LENGTH:
            return Ending(text, Reason.TRUNCATED, f"the answer did not end within {answer.tokens_out} tokens")
    if looped and len(text) < SMALL_LOOP * len(answer.text):
        return Ending(text, Reason.LOOP, detail)
    return Ending(text, None, f"{detail}; the repetition was cut off" if looped else "")


def judge_page(answer: Completion, parse: Parser, frame: Frame = NO_FRAME) -> Verdict[tuple[Block, ...]]:
    """Judge an answer about a page: its blocks, and whether they are acceptable.

    A page without blocks has the reason `empty`, because the page may be blank. A refusal in the place of a figure's
    description is left out. A paragraph that reads like a refusal may be printed on the page, as in a letter: it is
    kept, but the answer is not sound.
    """
    end = ending(answer)
    parsed = parse(end.text, frame)
    doubtful = False
    if is_refusal(end.text.strip()):
        parsed = replace(parsed, blocks=(), lost=(*parsed.lost, _REFUSED))
    elif any(map(_has_refusal, parsed.blocks)):
        others = tuple(block for block in parsed.blocks if not is_refusal(block.text))
        doubtful = any(is_refusal(block.text) and not is_placeless(block) for block in parsed.blocks)
        kept = parsed.blocks if doubtful and others else others
        parsed = replace(parsed, blocks=tuple(map(_without_refusal, kept)), lost=(*parsed.lost, _REFUSED))
    parsed = replace(parsed, blocks=tuple(map(with_dollar_math, parsed.blocks)))
    verdict = replace(_judged(end, parsed, _nothing_in(answer)), notes=parsed.notes)
    return replace(verdict, reason=Reason.MALFORMED) if doubtful and verdict.sound else verdict


def _nothing_in(answer: Completion) -> str:
    if not answer.reasoned:
        return "the model answered nothing"
    return (
        f"the model answered nothing but {answer.reasoned} characters of reasoning: start the server without "
        "`--reasoning-parser`, or turn reasoning off"
    )


def _has_refusal(block: Block) -> bool:
    return any(map(is_refusal, (block.text, block.caption, block.described)))


def _without_refusal(block: Block) -> Block:
    caption, words = ("" if is_refusal(part) else part for part in (block.caption, block.described))
    return replace(block, caption=caption, described=words)


def _judged(end: Ending, parsed: Parsed, nothing: str) -> Verdict[tuple[Block, ...]]:
    # A layout without texts has places.
    usable = any(
        block.text.strip() or block.kind is BlockKind.FIGURE or block.box != WHOLE_PAGE for block in parsed.blocks
    )
    worth = worth_of(parsed.blocks) if usable else 0
    if end.reason is not None:
        return Verdict(parsed.blocks, end.reason, end.detail, worth)
    if not usable:
        reason = Reason.MALFORMED if parsed.lost else Reason.EMPTY
        return Verdict((), reason, summarized(parsed.lost) or nothing)
    if _mostly_lost(parsed):
        return Verdict(parsed.blocks, Reason.MALFORMED, summarized(parsed.lost), worth)
    return Verdict(parsed.blocks, None, "; ".join(filter(None, (end.detail, summarized(parsed.lost)))), worth)


def worth_of(blocks: Sequence[Block]) -> int:
    """Return the characters of text; a block without text still has a small worth."""
    return sum(max(1, len(block.text)) for block in blocks)


def summarized(lost: Sequence[str]) -> str:
    """Return the first losses and the number of the others."""
    more = len(lost) - _SHOWN
    return "; ".join([*lost[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _mostly_lost(parsed: Parsed) -> bool:
    return len(parsed.lost) > len(parsed.blocks)


# Answers about figures, by mode. Pure.


#: Characters quoted from an answer that is none of the classes.
_QUOTED = 60


@dataclass(frozen=True, slots=True)
class Description:
    """Description with the fields of `FigureRecord`."""

    description: str = ""
    data: str = ""
    label: str = ""


def judge_figure(
    answer: Completion, mode: str, classes: Sequence[str], *, own_prompt: bool = False
) -> Verdict[Description]:
    """Judge an answer about a figure.

    Args:
        answer: The model's answer about one figure.
        mode: parse, classify, or any other mode for free text.
        classes: Names to choose from, for classify.
        own_prompt: Whether the user's prompt defines the JSON format, for parse.
    """
    end = ending(answer)
    text = without_special(end.text).strip()
    if not text:
        return Verdict(Description(), end.reason or Reason.EMPTY, end.detail or _nothing_in(answer))
    if is_refusal(text):
        return Verdict(Description(), Reason.MALFORMED, f"the model refused: {text[:_QUOTED]} …")
    match mode:
        case "parse":
            return _data(end, text, as_asked=not own_prompt)
        case "classify":
            return _label(end, text, classes)
    return Verdict(Description(description=text), end.reason, end.detail, len(text))


def _data(end: Ending, text: str, *, as_asked: bool) -> Verdict[Description]:
    """Judge an answer to parse; without valid data, the answer is still worth its text."""
    data, body = read_parse(text, as_asked=as_asked)
    if data is None:
        reason = end.reason or Reason.MALFORMED
        return Verdict(Description(description=text), reason, end.detail or body, 1)
    return Verdict(Description(data=data), end.reason, end.detail, 1 + len(data))


def _label(end: Ending, text: str, classes: Sequence[str]) -> Verdict[Description]:
    label = read_class(text, classes)
    if label is None:
        said = text if len(text) <= _QUOTED else f"{text[:_QUOTED]} …"
        return Verdict(Description(), end.reason or Reason.MALFORMED, end.detail or f"none of the classes: {said!r}")
    return Verdict(Description(label=label), end.reason, end.detail, 1)
