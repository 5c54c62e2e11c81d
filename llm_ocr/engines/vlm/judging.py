"""Judge answers about pages and figures. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from llm_ocr.engines import Completion, Finish
from llm_ocr.models.parsers.figure_answers import read_class, read_parse
from llm_ocr.models.parsers.repetition import sound_length
from llm_ocr.models.parsers.tokens import without_special
from llm_ocr.models.profile import NO_FRAME, Frame, PageNotes, Parsed, Parser
from llm_ocr.types import Block, BlockKind, Reason

# Whether an answer is what was asked for. Pure.


ResultT = TypeVar("ResultT")

#: A loop at the end of an answer that ended by itself is cut off in silence up to this share of it.
SMALL_LOOP = 0.5
#: Sentences about losses that are kept.
_TOLD = 3


@dataclass(frozen=True, slots=True)
class Verdict(Generic[ResultT]):
    """What an answer is worth: `reason` None for a sound one, else why not; `worth` 0 when nothing of it is usable.

    `again`: the same is to be asked once more, which is not held against it, since what is asked about has changed.
    `quality` of a sound answer, where it was judged; `weak`: it is too low, and another way may do better.
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
        """Whether the answer can stand."""
        return self.reason is None and not self.again


@dataclass(frozen=True, slots=True)
class Ending:
    """An answer's text without the loop at its end, and why it ended as it should not have (None: it did)."""

    text: str
    reason: Reason | None
    detail: str


def ending(answer: Completion) -> Ending:
    """Looks at how an answer ended, not at what it says."""
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
    """A page's answer: its blocks, and whether they can stand. A page without any is empty: it may be blank."""
    end = ending(answer)
    parsed = parse(end.text, frame)
    return replace(_judged(end, parsed), notes=parsed.notes)


def _judged(end: Ending, parsed: Parsed) -> Verdict[tuple[Block, ...]]:
    usable = any(block.text.strip() or block.kind is BlockKind.FIGURE for block in parsed.blocks)
    worth = worth_of(parsed.blocks) if usable else 0
    if end.reason is not None:
        return Verdict(parsed.blocks, end.reason, end.detail, worth)
    if not usable:
        reason = Reason.MALFORMED if parsed.lost else Reason.EMPTY
        return Verdict((), reason, told(parsed.lost) or "the model answered nothing")
    if _mostly_lost(parsed):
        return Verdict(parsed.blocks, Reason.MALFORMED, told(parsed.lost), worth)
    return Verdict(parsed.blocks, None, "; ".join(filter(None, (end.detail, told(parsed.lost)))), worth)


def worth_of(blocks: Sequence[Block]) -> int:
    """Characters of text; a block without any still counts for something."""
    return sum(max(1, len(block.text)) for block in blocks)


def told(lost: Sequence[str]) -> str:
    """The first losses, and how many more there are."""
    more = len(lost) - _TOLD
    return "; ".join([*lost[:_TOLD], *([f"and {more} more"] if more > 0 else [])])


def _mostly_lost(parsed: Parsed) -> bool:
    return len(parsed.lost) > len(parsed.blocks)


# What an answer about a figure is worth, by what was asked. Pure.


#: Characters of an answer that are quoted where it is none of the classes.
_QUOTED = 60


@dataclass(frozen=True, slots=True)
class Description:
    """As in `FigureRecord`."""

    description: str = ""
    data: str = ""
    label: str = ""


def judge_figure(
    answer: Completion, mode: str, classes: Sequence[str], *, own_prompt: bool = False
) -> Verdict[Description]:
    """Return the worth of an answer.

    Args:
        answer: the model's answer about one figure.
        mode: parse, classify, or any other for free text.
        classes: the names to choose from, for classify.
        own_prompt: whether the user's prompt decides the form of JSON, for parse.
    """
    end = ending(answer)
    text = without_special(end.text).strip()
    if not text:
        return Verdict(Description(), end.reason or Reason.EMPTY, end.detail or "the model answered nothing")
    match mode:
        case "parse":
            return _data(end, text, as_asked=not own_prompt)
        case "classify":
            return _label(end, text, classes)
    return Verdict(Description(description=text), end.reason, end.detail, len(text))


def _data(end: Ending, text: str, *, as_asked: bool) -> Verdict[Description]:
    """An answer without data is still worth its text."""
    data, complaint = read_parse(text, as_asked=as_asked)
    if data is None:
        reason = end.reason or Reason.MALFORMED
        return Verdict(Description(description=text), reason, end.detail or complaint, 1)
    return Verdict(Description(data=data), end.reason, end.detail, 1 + len(data))


def _label(end: Ending, text: str, classes: Sequence[str]) -> Verdict[Description]:
    label = read_class(text, classes)
    if label is None:
        said = text if len(text) <= _QUOTED else f"{text[:_QUOTED]} …"
        return Verdict(Description(), end.reason or Reason.MALFORMED, end.detail or f"none of the classes: {said!r}")
    return Verdict(Description(label=label), end.reason, end.detail, 1)
