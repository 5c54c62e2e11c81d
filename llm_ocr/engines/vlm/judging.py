"""Judge answers about pages and figures. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from llm_ocr.engines import Completion, Finish
from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.figure_answers import read_class, read_parse
from llm_ocr.models.parsers.math_marks import with_dollar_math
from llm_ocr.models.parsers.plain import is_placeless, without_special
from llm_ocr.models.parsers.repetition import sound_length
from llm_ocr.models.parsers.talk import is_refusal, says_nothing, without_echo
from llm_ocr.models.profile import NO_FRAME, Frame, PageNotes, Parser
from llm_ocr.types import FURNITURE, Block, BlockKind, Reason

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
    the page, as in a letter: it is kept, but the answer is not sound. A `prompt` that the answer repeats is left out.
    """
    text, reason, detail = ending(answer)
    text = without_echo(text, prompt)
    parsed = parse(text, frame)
    blocks, lost = parsed.blocks, parsed.lost
    doubtful = False
    if says_nothing("\n".join(block.text for block in blocks if block.kind not in FURNITURE)):
        blocks = ()
    if is_refusal(text.strip()):
        blocks, lost = (), (*lost, _REFUSED)
    elif any(is_refusal(part) for block in blocks for part in (block.text, block.caption, block.described)):
        others = tuple(block for block in blocks if not is_refusal(block.text))
        doubtful = any(is_refusal(block.text) and not is_placeless(block) for block in blocks)
        blocks = tuple(
            replace(
                block,
                caption="" if is_refusal(block.caption) else block.caption,
                described="" if is_refusal(block.described) else block.described,
            )
            for block in (blocks if doubtful and others else others)
        )
        lost = (*lost, _REFUSED)
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
    answer: Completion, mode: str, classes: Sequence[str], *, own_prompt: bool = False
) -> Verdict[Description]:
    """Judge an answer about a figure.

    Args:
        answer: The model's answer about one figure.
        mode: parse, classify, or any other mode for free text.
        classes: Names to choose from, for classify.
        own_prompt: Whether the user's prompt defines the JSON format, for parse.
    """
    body, reason, detail = ending(answer)
    text = without_special(body).strip()
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
    return Verdict(Description(description=text), reason, detail, len(text))
