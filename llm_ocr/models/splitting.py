"""Answers cut at markers: a label and a box in a notation of the model's own, and the text that belongs to them.

One splitter for all such formats, by a `MarkerSpec`. Linear in the length; no text is lost but that of markers.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from llm_ocr.models.coordinates import Scale
from llm_ocr.types import Box

#: Characters at the end of an answer in which a part of a marker is looked for.
_LONGEST_CUT = 400
_NUMBER = re.compile(r"-?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})")
_BETWEEN = re.compile(r"[\s,]+")


def _any(label: str, box: Box | None) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class MarkerSpec:
    """How a model marks the pieces of a page.

    `marker` has the groups `label` and `box` (four numbers), and may have `more` (the piece goes on with an earlier
    one) and `turn`. The text stands behind it up to the next; with `inside` it stands between two marks of which each
    has one corner (groups `x`, `y`), the second one also the label. Quantifiers must be bounded or possessive, so that
    the time stays linear.
    """

    marker: re.Pattern[str]
    cut: re.Pattern[str]  # a part of a marker at the end of an answer; ends with \Z
    stray: re.Pattern[str] | None = None  # remains of markers, which are no text of the page
    inside: bool = False
    #: What is a marker, by its label and box (None: cannot be read); everything else that looks like one is text.
    accepts: Callable[[str, Box | None], bool] = _any


@dataclass(slots=True)
class Marked:
    """One piece. `label` is None for text outside of markers."""

    label: str | None
    boxes: list[Box] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)  # its text, and that of pieces that went on with it
    more: bool = False
    turn: str = ""

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(slots=True)
class Split:
    """All pieces of an answer in order, those without a marker only where they have text; and what was lost."""

    pieces: list[Marked] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def marked(self) -> bool:
        """Whether there was any marker."""
        return any(piece.label is not None for piece in self.pieces)


def split_by_marker(text: str, spec: MarkerSpec, scale: Scale) -> Split:
    """The pieces of an answer. Never raises."""
    text, cut = without_cut(text, spec.cut)
    split = Split()
    for piece in _inside(text, spec, scale, split.lost) if spec.inside else _behind(text, spec, scale, split.lost):
        if spec.stray is not None:
            piece.parts = [spec.stray.sub("", part) for part in piece.parts]
        if piece.label is not None or piece.text.strip():
            split.pieces.append(piece)
    if cut:
        split.lost.append("the answer ends within a marker")
    return split


def without_cut(text: str, cut: re.Pattern[str]) -> tuple[str, bool]:
    """The text without the part of a marker at its end, and whether there was one."""
    found = cut.search(text, max(0, len(text) - _LONGEST_CUT))
    return (text[: found.start()], True) if found else (text, False)


def read_box(written: str, scale: Scale) -> Box | None:
    """The box of four numbers with commas or spaces between them; None for anything else."""
    numbers = _BETWEEN.split(written.strip())
    if len(numbers) != 4 or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    x0, y0, x1, y1 = map(float, numbers)
    return scale(x0, y0, x1, y1)


def unreadable(label: str) -> str:
    """What `lost` says of a box."""
    return f"{label or 'a piece'}: a box that cannot be read"


def _behind(text: str, spec: MarkerSpec, scale: Scale, lost: list[str]) -> Iterator[Marked]:
    piece = Marked(None)
    done = 0
    for mark in spec.marker.finditer(text):
        groups = mark.groupdict()
        label = mark["label"].strip()
        box = read_box(mark["box"], scale)
        if not spec.accepts(label, box):
            continue
        piece.parts.append(text[done : mark.start()])
        yield piece
        done = mark.end()
        if box is None:
            lost.append(unreadable(label))
        piece = Marked(label, [box] if box else [], more=bool(groups.get("more")), turn=groups.get("turn") or "")
    piece.parts.append(text[done:])
    yield piece


def _inside(text: str, spec: MarkerSpec, scale: Scale, lost: list[str]) -> Iterator[Marked]:
    """Each mark opens a piece, or ends the open one: by its label, or where nothing stands between it and the next."""
    marks = list(spec.marker.finditer(text))
    yield Marked(None, parts=[text[: marks[0].start()] if marks else text])
    opened: re.Match[str] | None = None
    kept = ""  # the text of the open piece
    for mark, following in pairwise([*marks, None]):
        assert mark is not None  # only the last of the pairs' second halves is
        behind = text[mark.end() : following.start() if following else len(text)]
        ends = mark["label"] is not None or (opened is not None and kept.strip() and not behind.strip())
        if ends:
            label = (mark["label"] or "").strip()
            box = read_box(f"{opened['x']},{opened['y']},{mark['x']},{mark['y']}", scale) if opened else None
            if box is None:
                lost.append(unreadable(label))
            yield Marked(label, [box] if box else [], [kept])
            opened, kept = None, ""
            yield Marked(None, parts=[behind])
        else:
            if opened is not None and kept.strip():
                lost.append("a piece without an end")
                yield Marked(None, parts=[kept])
            opened, kept = mark, behind
    if opened is not None:
        yield Marked(None, parts=[kept])
