"""Define detected regions: labels, tasks, deduplication, and reading order. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Protocol

from llm_ocr.errors import UsageError
from llm_ocr.models.parsers.labels import known_kind, normal
from llm_ocr.types import FURNITURE, BlockKind, Box, EncodedImage, Page


@dataclass(frozen=True, slots=True)
class Region:
    """Part of a page with one kind of content. `box` is relative; `label` is the detector's name."""

    label: str
    box: Box
    score: float = 1.0  # 0..1
    order: int | None = None  # position in reading order; None if unknown
    task: str = ""  # what is done with it, once `assigned`


@dataclass(frozen=True, slots=True)
class Layout:
    """Regions of a page above the detector's threshold. `image` is the upright page if the page was turned."""

    regions: tuple[Region, ...]
    image: EncodedImage | None = None
    rotation: int = 0  # clockwise turn of the page in degrees


class Detector(Protocol):
    """Detector of regions for many pages in parallel; requires `close()`."""

    @property
    def name(self) -> str:
        """Name shown to users."""

    @property
    def parallel(self) -> int:
        """Number of pages that the detector processes in parallel without a long wait."""

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that change the regions, as JSON values for the stage's key."""

    async def detect(self, page: Page) -> Layout:
        """Return the page's regions.

        Raises:
            PageFailure: The page cannot be processed; other errors end the run.
        """

    async def close(self) -> None:
        """End the processes."""


# Tasks by region label, from the table of GLM-OCR's SDK (`label_task_mapping`) with two differences. Footnotes are
# read, because they are the author's text. `reference`, a box around the entries of a bibliography, is read if it
# contains no entry.


TEXT, TABLE, FORMULA, CHART = "text", "table", "formula", "chart"
SKIP, ABANDON = "skip", "abandon"
#: Tasks for the model. `skip` keeps box and crop as a figure; `abandon` drops the region.
READ = (TEXT, TABLE, FORMULA, CHART)
TASKS = (*READ, SKIP, ABANDON)

# Labels of PP-DocLayoutV3 by class id.
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
DEFAULT_TASKS: Mapping[str, str] = {label: task for task, labels in _BY_TASK.items() for label in labels.split()}
_BY_KIND = {BlockKind.TABLE: TABLE, BlockKind.FORMULA: FORMULA, BlockKind.FIGURE: SKIP}


def tasks_with(changes: Sequence[str], *, any_label: bool = False) -> Mapping[str, str]:
    """Return the task of each label, with the changes `LABEL=TASK`.

    Args:
        changes: Changes as `LABEL=TASK`.
        any_label: Whether unknown labels are allowed, because another detector may produce them.

    Raises:
        UsageError: A change is invalid.
    """
    tasks = dict(DEFAULT_TASKS)
    for change in changes:
        label, equals, task = change.partition("=")
        name, wanted = normal(label), normal(task)
        if not name or not equals:
            raise UsageError(f"`region_task={change}` is not LABEL=TASK", hint="For example: `region_task=footer=text`")
        if wanted not in TASKS:
            raise UsageError(f"`region_task={change}`: unknown task {task!r}", hint=f"Tasks: {', '.join(TASKS)}.")
        if not any_label and name not in tasks and known_kind(name) is None:
            close = get_close_matches(name, tasks, n=3)
            hint = f"Did you mean {' or '.join(close)}?" if close else f"Labels: {', '.join(LABELS)}."
            raise UsageError(f"`region_task={change}`: unknown label {label!r}", hint=hint)
        tasks[name] = wanted
    return tasks


def task_of(label: str, tasks: Mapping[str, str], able: Mapping[str, str]) -> str:
    """Return the task of a region, among those that the model supports (`able`, its profile's `region_tasks`).

    The meaning of an unknown label decides. Content without a prompt is read as text, and a chart is kept as a figure.
    """
    task = tasks.get(normal(label))
    if not task:
        kind = known_kind(label)
        task = ABANDON if kind in FURNITURE else _BY_KIND.get(kind, TEXT) if kind else TEXT
    if task in able or task in (SKIP, ABANDON):
        return task
    return SKIP if task == CHART or TEXT not in able else TEXT


#: Limit of processed regions per page, by score; detectors return 300 at most.
MOST_FOUND = 400
#: Intersection over union from which two boxes are duplicates, with the same label and with different labels.
_SAME, _SAME_BY_ANY_NAME = 0.6, 0.98
#: Covered share from which a region is part of another.
_INSIDE = 0.9
#: Share of the page from which a picture is the paper, if other regions were found on it.
_PAPER = 0.9
#: Labels of boxes around other regions: they are kept only without regions inside.
_AROUND = frozenset({"reference"})
#: Minimum side of a region as a share of the page's side; smaller regions are specks.
_SPECK = 0.001


def assigned(found: Iterable[Region], task: Callable[[str], str]) -> tuple[Region, ...]:
    """Return the relevant regions with their tasks in reading order; `abandon` regions are dropped."""
    clipped = (replace(region, box=region.box.clipped()) for region in found)
    visible = [region for region in clipped if region.box.width > _SPECK and region.box.height > _SPECK]
    visible.sort(key=lambda region: (-region.score, region.order or 0, region.box.y0, region.box.x0))
    # Of duplicates, the box with the highest score is kept.
    distinct: list[Region] = []
    for region in visible[:MOST_FOUND]:
        if not any(
            region.box.iou(other.box) >= (_SAME if region.label == other.label else _SAME_BY_ANY_NAME)
            for other in distinct
        ):
            distinct.append(region)
    kept = [replace(region, task=task(region.label)) for region in distinct]
    if len(kept) > 1:
        kept = [region for region in kept if region.task != SKIP or region.box.area <= _PAPER]
    # Drop boxes that only enclose others, then regions that are read as part of another region.
    kept = [
        region
        for region in kept
        if normal(region.label) not in _AROUND or not any(_is_part(other, region) for other in kept)
    ]
    kept = [region for region in kept if not any(_is_read_with(region, other) for other in kept)]
    return tuple(in_order([region for region in kept if region.task != ABANDON]))


def _is_part(part: Region, whole: Region) -> bool:
    inner, outer = part.box, whole.box
    return part is not whole and inner.area < outer.area and inner.covered_by(outer) >= _INSIDE


def _is_read_with(part: Region, whole: Region) -> bool:
    """Return whether a region is a part of another, whose result includes its own.

    A picture inside a text is not read with the text. An `abandon` region does not include regions that would be read.
    """
    included = part.task == ABANDON if whole.task == ABANDON else part.task != SKIP or whole.task in (SKIP, TABLE)
    return included and _is_part(part, whole)


def in_order(found: Sequence[Region]) -> list[Region]:
    """Return the regions in the detector's order if known, otherwise by columns."""
    if all(region.order is not None for region in found):
        return sorted(found, key=lambda region: region.order or 0)
    return [found[place] for place in by_columns([region.box for region in found])]


def by_columns(boxes: Sequence[Box]) -> list[int]:
    """Return the indices of boxes in reading order: columns left to right, bands across columns between them."""
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
    """Split at empty horizontal bands; adjacent bands with common columns stay together."""
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
    """Return groups whose spans do not overlap, in order; an overlap of a thousandth of the page does not count."""
    parts: list[list[int]] = []
    end = 0.0
    for place in sorted(members, key=span):
        low, high = span(place)
        if parts and low < end - _SPECK:
            parts[-1].append(place)
            end = max(end, high)
        else:
            parts.append([place])
            end = high
    return parts
