"""What an answer about a figure is worth, by what was asked. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from llm_ocr.engines.asking import Answer
from llm_ocr.engines.model.judging import Ending, Verdict, ending
from llm_ocr.models.answers import read_class, read_parse
from llm_ocr.models.tokens import without_special
from llm_ocr.types import Reason

#: Characters of an answer that are quoted where it is none of the classes.
_QUOTED = 60


@dataclass(frozen=True, slots=True)
class Description:
    """As in `FigureRecord`."""

    description: str = ""
    data: str = ""
    label: str = ""


def judge_figure(
    answer: Answer, mode: str, classes: Sequence[str], *, own_prompt: bool = False
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
