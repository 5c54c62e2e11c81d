"""Whether an answer is what was asked for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from llm_ocr.engines.asking import Answer, Finish
from llm_ocr.models.profile import NO_FRAME, Frame, PageNotes, Parsed, Parser
from llm_ocr.models.repetition import sound_length
from llm_ocr.types import Block, BlockKind, Reason

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


def ending(answer: Answer) -> Ending:
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


def judge_page(answer: Answer, parse: Parser, frame: Frame = NO_FRAME) -> Verdict[tuple[Block, ...]]:
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
