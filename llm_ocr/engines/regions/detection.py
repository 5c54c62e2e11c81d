"""Detected regions: labels, tasks, deduplication, and reading order. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Protocol

from llm_ocr.errors import UsageError
from llm_ocr.models.parsers.labels import known_kind, normal
from llm_ocr.types import FURNITURE, BlockKind, Box, EncodedImage, Page

# What finds the regions of a page.


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a page that is one thing. `box` is relative; `label` as the detector named it."""

    label: str
    box: Box
    score: float = 1.0  # 0..1
    order: int | None = None  # its turn to be read; None where the detector does not know


@dataclass(frozen=True, slots=True)
class Layout:
    """The regions of a page, those that the detector believes in. `image` is the upright page, where it was turned."""

    regions: tuple[Region, ...]
    image: EncodedImage | None = None
    rotation: int = 0  # degrees clockwise by which the page was turned


class Detector(Protocol):
    """Finds regions, many pages at a time; needs `close()`."""

    @property
    def name(self) -> str:
        """Shown to users."""

    @property
    def parallel(self) -> int:
        """Pages that it can have at the same time without one of them waiting for long."""

    def identity(self) -> Mapping[str, Any]:
        """What changes the regions, as JSON values: goes into the stage's key."""

    async def detect(self, page: Page) -> Layout:
        """The page's regions. Raises `PageFailure` for a page that it cannot look at; other errors end the run."""

    async def close(self) -> None:
        """End its processes."""


# What is done with a region, by its label. The table is that of GLM-OCR's SDK (`label_task_mapping`), with two
# differences: footnotes are read, since they are the author's words, and `reference`, a box around the entries of a
# bibliography, is read where no entry was found in it.


TEXT, TABLE, FORMULA, CHART = "text", "table", "formula", "chart"
SKIP, ABANDON = "skip", "abandon"
#: Read by the model; `skip` keeps box and crop as a figure, `abandon` leaves the region out.
READ = (TEXT, TABLE, FORMULA, CHART)
TASKS = (*READ, SKIP, ABANDON)

# The labels of PP-DocLayoutV3 by their class ids.
_IDS = """
abstract algorithm aside_text chart content display_formula doc_title figure_title footer footer_image footnote
formula_number header header_image image inline_formula number paragraph_title reference reference_content seal
table text vertical_text vision_footnote
"""
LABELS = tuple(_IDS.split())
_BY_TASK = {
    TEXT: "abstract algorithm content doc_title figure_title paragraph_title reference_content text vertical_text "
    "vision_footnote seal formula_number footnote reference",
    TABLE: "table",
    FORMULA: "display_formula inline_formula",
    SKIP: "chart image",
    ABANDON: "header footer number aside_text footer_image header_image",
}
DEFAULT_TASKS: Mapping[str, str] = MappingProxyType(
    {label: task for task, labels in _BY_TASK.items() for label in labels.split()}
)
_BY_KIND = {BlockKind.TABLE: TABLE, BlockKind.FORMULA: FORMULA, BlockKind.FIGURE: SKIP}


def tasks_with(changes: Sequence[str], *, any_label: bool = False) -> Mapping[str, str]:
    """The task of each label, with the changes `LABEL=TASK`.

    Labels that nothing is known of are allowed with `any_label`: another detector may have them. Raises `UsageError`.
    """
    tasks = dict(DEFAULT_TASKS)
    for change in changes:
        label, equals, task = change.partition("=")
        name, wanted = normal(label), normal(task)
        if not name or not equals:
            raise UsageError(f"--region-task {change!r}: no LABEL=TASK", hint="For example: --region-task footer=text")
        if wanted not in TASKS:
            raise UsageError(f"--region-task {change}: no task {task!r}", hint=f"Tasks: {', '.join(TASKS)}.")
        if not any_label and name not in tasks and known_kind(name) is None:
            close = get_close_matches(name, tasks, n=3)
            hint = f"Did you mean {' or '.join(close)}?" if close else f"Labels: {', '.join(LABELS)}."
            raise UsageError(f"--region-task {change}: no label {label!r}", hint=hint)
        tasks[name] = wanted
    return tasks


def task_of(label: str, tasks: Mapping[str, str], able: Mapping[str, str]) -> str:
    """The task of a region, among those that the model is `able` to do (its profile's `region_tasks`).

    A label that stands in no table goes by its meaning. What the model has no prompt for is read as text, a chart kept
    as a figure.
    """
    task = tasks.get(normal(label)) or _meant(label)
    if task in able or task in (SKIP, ABANDON):
        return task
    return SKIP if task == CHART or TEXT not in able else TEXT


def _meant(label: str) -> str:
    kind = known_kind(label)
    if kind in FURNITURE:
        return ABANDON
    return _BY_KIND.get(kind, TEXT) if kind else TEXT


# From what a detector found to the regions of a page: doubles and nested ones left out, in reading order. Pure.


#: Regions of a page that are looked at, those with the highest scores; detectors give 300 at most.
MOST_FOUND = 400
#: Two boxes are one thing from this intersection over union on, with the same label and with different ones.
_SAME, _SAME_BY_ANY_NAME = 0.6, 0.98
#: A region is part of another that covers this share of it.
_INSIDE = 0.9
#: A picture that covers more than this share of the page is its paper, where other things were found on it.
_PAPER = 0.9
#: Boxes around others that are regions themselves: they stand only where they are empty.
_AROUND = frozenset({"reference"})
#: Least side of a region, as a share of the page's: less is a speck.
_SPECK = 0.001


@dataclass(frozen=True, slots=True)
class Assigned:
    """A region and what is to be done with it."""

    region: Region
    task: str


def assigned(found: Iterable[Region], task: Callable[[str], str]) -> tuple[Assigned, ...]:
    """The regions that count, each with its task, in reading order; abandoned ones are gone."""
    clipped = (replace(region, box=region.box.clipped()) for region in found)
    sound = [one for one in clipped if one.box.width > _SPECK and one.box.height > _SPECK]
    sound = sorted(sound, key=lambda one: (-one.score, one.order or 0, one.box.y0, one.box.x0))[:MOST_FOUND]
    all_of_them = [Assigned(region, task(region.label)) for region in _without_doubles(sound)]
    kept = _without_parts(_without_paper(all_of_them))
    return tuple(in_order([one for one in kept if one.task != ABANDON]))


def _without_doubles(regions: Sequence[Region]) -> list[Region]:
    """Of two boxes for one thing, the one with the higher score, which comes first."""
    kept: list[Region] = []
    for region in regions:
        if not any(_doubles(region, other) for other in kept):
            kept.append(region)
    return kept


def _doubles(region: Region, other: Region) -> bool:
    return region.box.iou(other.box) >= (_SAME if region.label == other.label else _SAME_BY_ANY_NAME)


def _without_paper(found: list[Assigned]) -> list[Assigned]:
    if len(found) < 2:
        return found
    return [one for one in found if one.task != SKIP or one.region.box.area <= _PAPER]


def _without_parts(found: list[Assigned]) -> list[Assigned]:
    """Without regions that are read with the one that they stand in, and without boxes that only hold others."""
    bare = [one for one in found if not (_holds_others(one) and any(_part(other, one) for other in found))]
    return [one for one in bare if not any(_part(one, other) and _says_all(other, one) for other in bare)]


def _holds_others(one: Assigned) -> bool:
    return normal(one.region.label) in _AROUND


def _part(one: Assigned, other: Assigned) -> bool:
    mine, around = one.region.box, other.region.box
    return one is not other and mine.area < around.area and mine.covered_by(around) >= _INSIDE


def _says_all(other: Assigned, one: Assigned) -> bool:
    """Whether what is made of `other` holds what would be made of `one` in it: a picture in a text is not read with it.

    What is abandoned takes nothing along that would be read.
    """
    if other.task == ABANDON:
        return one.task == ABANDON
    return one.task != SKIP or other.task in (SKIP, TABLE)


def in_order(found: Sequence[Assigned]) -> list[Assigned]:
    """In the detector's order where it has one, else by columns."""
    if all(one.region.order is not None for one in found):
        return sorted(found, key=lambda one: one.region.order or 0)
    return [found[place] for place in by_columns([one.region.box for one in found])]


def by_columns(boxes: Sequence[Box]) -> list[int]:
    """The places of boxes in reading order: columns from left to right, bands over several columns between them."""
    ordered: list[int] = []
    waiting = [list(range(len(boxes)))]
    while waiting:
        members = waiting.pop()
        if len(members) < 2:
            ordered += members
            continue
        columns = _parts(members, lambda place: (boxes[place].x0, boxes[place].x1))
        parts = columns if len(columns) > 1 else _bands(boxes, members)
        if len(parts) > 1:
            waiting += reversed(parts)
        else:
            ordered += sorted(members, key=lambda place: (boxes[place].y0, boxes[place].x0))
    return ordered


def _bands(boxes: Sequence[Box], members: list[int]) -> list[list[int]]:
    """Cut where nothing stands from left to right; neighbours that have columns in common stay together."""
    bands: list[list[int]] = []
    for part in _parts(members, lambda place: (boxes[place].y0, boxes[place].y1)):
        columns = bands and (_has_columns(boxes, part) or _has_columns(boxes, bands[-1]))
        if columns and _has_columns(boxes, [*bands[-1], *part]):
            bands[-1] += part
        else:
            bands.append(part)
    return bands


def _has_columns(boxes: Sequence[Box], members: Sequence[int]) -> bool:
    return len(_parts(members, lambda place: (boxes[place].x0, boxes[place].x1))) > 1


def _parts(members: Sequence[int], span: Callable[[int], tuple[float, float]]) -> list[list[int]]:
    """Groups whose spans do not overlap, in order; touching by a thousandth of the page does not count."""
    parts: list[list[int]] = []
    end = 0.0
    for place in sorted(members, key=lambda one: span(one)):
        low, high = span(place)
        if parts and low < end - _SPECK:
            parts[-1].append(place)
            end = max(end, high)
        else:
            parts.append([place])
            end = high
    return parts
