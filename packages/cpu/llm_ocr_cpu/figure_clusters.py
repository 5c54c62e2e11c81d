"""Find candidates for figures: captions, and clusters of images and strokes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llm_ocr.engines.descriptions import FIGURE_CAPTION
from llm_ocr.types import Box, Line, PageContent
from llm_ocr_cpu.tables.finder import caption_lines
from llm_ocr_cpu.tables.ruled import page_unit

# Text of a page as the figure finder uses it: running text, and the areas behind it.


Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Texts:
    """Lines of a page as arrays. `body` marks running text; `free` marks lines outside tables."""

    def __init__(self, content: PageContent, taken: frozenset[int]) -> None:
        self.content = content
        self.unit = page_unit(content)
        lines = content.lines
        self.boxes: Floats = np.array(
            [(line.box.x0, line.box.y0, line.box.x1, line.box.y1) for line in lines], dtype=np.float64
        ).reshape(-1, 4)
        self.sizes: Floats = np.array([line.size for line in lines], dtype=np.float64)
        self.words = np.array([line.text.count(" ") + 1 for line in lines], dtype=np.int64)
        self.letters = np.array([sum(map(str.isalpha, line.text)) for line in lines], dtype=np.int64)
        self.free: Bools = np.array([index not in taken for index in range(len(lines))], dtype=np.bool_)
        self.centres: Floats = (self.boxes[:, :2] + self.boxes[:, 2:]) / 2
        # Wordy: prose, not labels. "L L L L" on a map has many words and no prose.
        self.wordy: Bools = (self.words >= 4) & (self.letters >= 2.5 * self.words)
        self.body_size = self._body_size()
        self.body = self._body()

    def _body_size(self) -> float:
        chosen = self.wordy if self.wordy.any() else np.ones(len(self.sizes), dtype=np.bool_)
        if not len(self.sizes):
            return 10 * self.unit
        sizes, weights = self.sizes[chosen], self.letters[chosen] + 1
        order = np.argsort(sizes)
        half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
        return float(sizes[order][min(int(half), len(sizes) - 1)])

    def _body(self) -> Bools:
        """Return wordy lines of the body's size and a column's width, and the short last lines below them."""
        if not len(self.boxes):
            return np.zeros(0, dtype=np.bool_)
        width = self.boxes[:, 2] - self.boxes[:, 0]
        height = self.boxes[:, 3] - self.boxes[:, 1]
        near = (self.sizes > 0.8 * self.body_size) & (self.sizes < 1.2 * self.body_size) & (width > 2 * height)
        wordy = self.wordy & near & self.free
        if not wordy.any():
            return wordy
        column = float(np.percentile(width[wordy], 75))
        body = wordy & (width >= 0.55 * column) & (self.words >= 5)
        order = np.argsort(self.boxes[:, 1], kind="stable")
        for index in order.tolist():
            if not body[index] and near[index] and self.free[index]:
                body[index] = self._ends_paragraph(index, body)
        return body

    def _ends_paragraph(self, index: int, body: Bools) -> bool:
        x0, y0, _, _ = self.boxes[index]
        size = self.sizes[index]
        step = y0 - self.boxes[:, 1]
        above = body & (step > 0.5 * size) & (step < 1.7 * size) & (np.abs(self.boxes[:, 0] - x0) < 2.5 * size)
        return bool(above.any())

    def inside(self, box: Box, margin: float = 0.0) -> npt.NDArray[np.intp]:
        """Return lines outside tables with their center in the box, extended by `margin`."""
        x, y = self.centres[:, 0], self.centres[:, 1]
        within = (x >= box.x0 - margin) & (x <= box.x1 + margin) & (y >= box.y0 - margin) & (y <= box.y1 + margin)
        return np.nonzero(within & self.free)[0]

    def is_text_box(self, box: Floats, *, picture: bool) -> bool:
        """Return whether the shape is a background of running text: lines of body size over most of its height."""
        x0, y0, x1, y1 = box.tolist()
        area = Box(x0, y0, x1, y1)
        members = self.inside(area)
        body = [index for index in members.tolist() if self.body[index]]
        covered = float(np.sum(self.sizes[body])) if body else 0.0
        if picture:
            return len(body) >= 4 and covered > 0.25 * area.height
        return len(body) >= 2 and covered > 0.3 * area.height

    def outside_margins(self, box: Box) -> float:
        """Return the share of the box's width outside the columns of running text; 0 without running text."""
        if int(self.body.sum()) < 5:
            return 0.0
        left, right = float(self.boxes[self.body, 0].min()), float(self.boxes[self.body, 2].max())
        return (max(0.0, left - box.x0) + max(0.0, box.x1 - right)) / max(box.width, 1e-6)

    def covered(self, box: Box) -> float:
        """Return the share of the box that lines of running text cover."""
        x0, y0, x1, y1 = self.boxes[self.body].T
        across = np.clip(np.minimum(x1, box.x1) - np.maximum(x0, box.x0), 0, None)
        down = np.clip(np.minimum(y1, box.y1) - np.maximum(y0, box.y0), 0, None)
        return float((across * down).sum()) / max(box.area, 1e-6)

    def without_drawn(self, drawings: Sequence[Box]) -> None:
        """Remove lines inside drawings from the body: they are labels, unless they are most of the page's prose."""
        for box in drawings:
            members = self.inside(box)
            inside = int(self.letters[members][self.body[members]].sum())
            if inside < 0.6 * int(self.letters[self.body].sum()):
                self.body[members] = False

    def without_sub_captions(self, captions: Sequence["Caption"]) -> None:
        """Remove lines such as "(a) Before the flood" directly above a caption from the body: they name its parts."""
        for caption in captions:
            gap = caption.box.y0 - self.boxes[:, 3]
            near = self.body & (gap > -1) & (gap < 2 * self.body_size)
            for index in np.nonzero(near)[0].tolist():
                if _SUB_CAPTION.match(self.content.lines[index].text):
                    self.body[index] = False

    def running(self, members: npt.NDArray[np.intp]) -> int:
        """Return the letters of prose in the lines."""
        return int(self.letters[members][self.wordy[members]].sum())


# Captions of figures: "Figure 3: …" at the start of a paragraph, with its continuation lines.


#: Maximum lines of a caption.
_LONGEST = 40
_SUB_CAPTION = re.compile(r"\s*\(?[a-hA-H]\)\s")
_MARKED = re.compile(r"[.:|)–—-]\s*$")
_SENTENCE = re.compile(
    r"^\s*(?:and|or|in|of|is|are|was|shows?|also|illustrates?|depicts?|can|we|the|to|for|with|by|at|on|as|from|gives?)\b"
)


@dataclass(frozen=True, slots=True)
class Caption:
    """Caption with the indices of its `lines`, and the `box` around them."""

    lines: frozenset[int]
    box: Box


def find_captions(texts: Texts) -> list[Caption]:
    """Return captions from top to bottom. A sentence that begins with "Figure 3 shows" is not a caption."""
    lines = texts.content.lines
    order = sorted(range(len(lines)), key=lambda i: (lines[i].box.y0, lines[i].box.x0))
    found: list[tuple[str, Caption]] = []
    used: set[int] = set()
    for index in order:
        if index not in used and texts.free[index] and (name := _begins(texts, index)):
            members = _members(lines, index, texts) - used
            used |= members
            box = lines[index].box
            for member in members:
                box = box.union(lines[member].box)
            found.append((name, Caption(frozenset(members), box)))
    return _one_of_each(found, texts)


def _begins(texts: Texts, index: int) -> str:
    """Return the figure's name, such as "figure3", if the line begins a caption; otherwise ""."""
    line = texts.content.lines[index]
    match = FIGURE_CAPTION.match(line.text)
    if match is None:
        return ""
    name = "".join(filter(str.isalnum, match[0].lower()))
    rest = line.text[match.end() :]
    if _MARKED.search(match[0]) or not rest:
        return name
    if _SENTENCE.match(rest) or rest[:1].islower():
        return ""
    other_look = line.bold or line.italic or line.size < 0.93 * texts.body_size
    return name if other_look or not _in_paragraph(texts, index) else ""


def _in_paragraph(texts: Texts, index: int) -> bool:
    """Return whether body text is directly above."""
    line = texts.content.lines[index]
    step = line.box.y0 - texts.boxes[:, 1]
    beside = (texts.boxes[:, 0] < line.box.x1) & (texts.boxes[:, 2] > line.box.x0)
    return bool((texts.body & beside & (step > 0.3 * line.size) & (step < 1.5 * line.size)).any())


def _members(lines: tuple[Line, ...], start: int, texts: Texts) -> set[int]:
    down = texts.boxes[:, 1] - lines[start].box.y0
    reach = _LONGEST * max(lines[start].box.height, lines[start].size)
    near = np.nonzero(texts.free & (down > -0.5 * lines[start].size) & (down < reach))[0].tolist()
    following = [index for index in near if not FIGURE_CAPTION.match(lines[index].text)]
    return set(caption_lines(lines, following, start))


def _one_of_each(found: list[tuple[str, Caption]], texts: Texts) -> list[Caption]:
    """Return one caption per number: the one in a different style from the text, otherwise the first."""
    best: dict[str, tuple[int, Caption]] = {}
    for name, caption in found:
        line = texts.content.lines[min(caption.lines, key=lambda i: texts.boxes[i, 1])]
        looks = int(line.bold) + int(line.italic) + 2 * (abs(line.size - texts.body_size) > 0.06 * texts.body_size)
        if name not in best or looks > best[name][0]:
            best[name] = (looks, caption)
    return sorted((caption for _, caption in best.values()), key=lambda caption: caption.box.y0)


# Pictures and drawings of a page, joined if they touch: tiles of an image, strokes of a chart.


Ints = npt.NDArray[np.int64]

#: Cells along the longer side of the grid for joining objects.
_CELLS = 240
#: Bars of different heights on one axis from which a drawing is a bar chart, and maximum number of rules to examine.
_LEAST_BARS, _MOST_AXES = 3, 60
#: Largest number of drawing operators of a plain shape.
_PLAIN = 24
#: Rules around a picture.
_FRAME = 4
#: Number of equal single letters from which they are symbols of a drawing.
_MANY_SYMBOLS = 500


@dataclass(frozen=True, slots=True)
class Objects:
    """Possible parts of figures. `boxes` (n, 4); `drawn`: curves and slanted lines; `rule`: thin, along an axis.

    `slanted` is the length along neither axis in page units: the slant of an object times its diagonal. Of equal shapes
    at one place, such as the shadow, the fill, and the frame of a card, only the first has one.
    """

    boxes: Floats
    raster: npt.NDArray[np.bool_]
    drawn: npt.NDArray[np.bool_]
    rule: npt.NDArray[np.bool_]
    slanted: Floats


@dataclass(frozen=True, slots=True)
class Cluster:
    """Touching objects: their common box, the number of each kind, and the area of images."""

    box: Box
    rasters: int
    drawn: int
    rules: int
    shapes: int  # rectangles and similar shapes
    raster_area: float
    slanted: float  # length along neither axis, in page units
    longest: float  # the same of the longest object
    picture: Box | None  # around the images only

    @property
    def total(self) -> int:
        return self.rasters + self.drawn + self.rules + self.shapes

    @property
    def only_rules(self) -> bool:
        return self.rules == self.total

    @property
    def is_picture(self) -> bool:
        return self.raster_area > 0.5 * self.box.area

    @property
    def is_plain_picture(self) -> bool:
        """Whether there are only images, perhaps in a frame: no axes or marks, which have labels."""
        return self.is_picture and self.total - self.rasters <= _FRAME


def page_objects(texts: Texts, tables: Floats) -> Objects:
    """Return visible objects outside tables, without page backgrounds, text boxes, and underlines."""
    content, unit = texts.content, texts.unit
    rasters = [(r.box.x0, r.box.y0, r.box.x1, r.box.y1) for r in content.rasters]
    visible = [p for p in content.paths if is_visible(p.stroke) or is_visible(p.fill)]
    paths = [(p.box.x0, p.box.y0, p.box.x1, p.box.y1) for p in visible]
    boxes = np.array([*rasters, *paths], dtype=np.float64).reshape(-1, 4)
    count = len(rasters)
    raster = np.arange(len(boxes)) < count
    segments = np.array([1] * count + [p.segments for p in visible], dtype=np.int64)
    filled = np.array([True] * count + [p.fill is not None for p in visible], dtype=np.bool_)
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    slants = np.array([0.0] * count + [p.slant for p in visible], dtype=np.float64)
    thin = np.minimum(width, height) <= 2.5 * unit
    drawn = ~raster & ((segments > 6) | (~thin & ~filled & (segments <= 3)))
    keep = ~_inside(boxes, tables) & (np.maximum(width, height) > 0.8 * unit) & ~(raster & thin)
    # Rules between the columns of a page would join everything that they touch.
    wide = thin & ((width > 0.5 * content.width) | (height > 0.4 * content.height))
    keep &= ~wide | _grid_lines(boxes, wide, ~raster & ~thin & filled, unit)
    keep &= ~_behind_text(texts, boxes, raster, filled, segments)
    frame = ~raster & ~filled & ~thin & (segments <= _PLAIN) & (width * height > 0.02 * content.width * content.height)
    boxes[raster] = _in_frames(boxes[raster], boxes[frame & keep])
    stroke = np.where(segments <= 3, np.arange(len(boxes)), -1)  # two strokes may cross in one box
    same = np.column_stack((np.round(boxes / (2 * unit)), slants.round(2), keep, stroke))
    _, first = np.unique(same, axis=0, return_index=True)
    slanted = np.zeros(len(boxes))
    slanted[first] = (slants * np.hypot(width, height))[first]
    return Objects(boxes[keep], raster[keep], drawn[keep], (thin & ~drawn & ~raster)[keep], slanted[keep])


def _grid_lines(
    boxes: Floats, wide: npt.NDArray[np.bool_], shapes: npt.NDArray[np.bool_], unit: float
) -> npt.NDArray[np.bool_]:
    """Return the wide rules of bar charts: an axis below bars of several heights, the other axis, and the grid."""
    lines = np.zeros(len(boxes), dtype=np.bool_)
    for x0, _, x1, y1 in boxes[wide][:_MOST_AXES].tolist():
        bars = boxes[shapes & (np.abs(boxes[:, 3] - y1) < unit) & (boxes[:, 0] >= x0) & (boxes[:, 2] <= x1)]
        heights = bars[:, 3] - bars[:, 1]
        if len(bars) >= _LEAST_BARS and len(np.unique(np.round(heights / unit))) >= _LEAST_BARS:
            grid = (np.abs(boxes[:, 0] - x0) < unit) & (np.abs(boxes[:, 2] - x1) < unit)
            axis = (boxes[:, 0] > x0 - unit) & (boxes[:, 2] < x1 + unit) & (np.abs(boxes[:, 3] - y1) < unit)
            lines |= wide & (grid | axis)
    return lines


def symbols(lines: Sequence[Line]) -> Objects:
    """Return single letters that repeat as in no text, as objects: symbols fill the areas of a map."""
    single: dict[str, list[Box]] = {}
    for line in lines:
        if line.text[1:2] not in ("", " "):
            continue
        tokens = line.text.split(" ")
        if len(tokens[0]) == 1 and tokens[0].isalpha() and len(set(tokens)) == 1:
            single.setdefault(tokens[0], []).extend(word.box for word in line.words)
    found = [box for boxes in single.values() if len(boxes) >= _MANY_SYMBOLS for box in boxes]
    boxes = np.array([(box.x0, box.y0, box.x1, box.y1) for box in found], dtype=np.float64).reshape(-1, 4)
    no, yes = np.zeros(len(found), dtype=np.bool_), np.ones(len(found), dtype=np.bool_)
    return Objects(boxes, no, yes, no, np.zeros(len(found), dtype=np.float64))


def _in_frames(boxes: Floats, frames: Floats) -> Floats:
    """Clip images to the frame that contains their center: they extend beyond the frame that clips them.

    Strokes are not clipped, because a chart's line looks like a frame around the middle of the chart's axes.
    """
    cut = boxes.copy()
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    for x0, y0, x1, y1 in frames[:60].tolist():
        inside = (x > x0) & (x < x1) & (y > y0) & (y < y1)
        cut[inside] = np.clip(cut[inside], (x0, y0, x0, y0), (x1, y1, x1, y1))
    return cut


def is_visible(colour: tuple[int, int, int] | None) -> bool:
    """Return whether strokes or shapes of the color differ from white paper."""
    return colour is not None and min(colour) < 248


def _inside(boxes: Floats, areas: Floats) -> npt.NDArray[np.bool_]:
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    inside = np.zeros(len(boxes), dtype=np.bool_)
    for x0, y0, x1, y1 in areas.tolist():
        inside |= (x >= x0 - 2) & (x <= x1 + 2) & (y >= y0 - 2) & (y <= y1 + 2)
    return inside


def _behind_text(texts: Texts, boxes: Floats, raster: Bools, filled: Bools, segments: Ints) -> Bools:
    """Return objects that cover the page, plain shapes that cover half of it, and those behind running text.

    On a page without running text, a frame that covers half of it is that of a chart.
    """
    page = texts.content.width * texts.content.height
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    behind = (area > 0.8 * page) | ((area > 0.5 * page) & (segments <= _PLAIN) & ~raster & (filled | texts.body.any()))
    large = np.nonzero(((segments <= _PLAIN) | raster) & (area > 0.004 * page) & ~behind)[0]
    order = large[np.argsort(-area[large], kind="stable")][:400]
    for index in order.tolist():
        behind[index] = texts.is_text_box(boxes[index], picture=bool(raster[index]))
    return behind


def clusters_of(objects: Objects, width: float, height: float) -> list[Cluster]:
    """Return connected sets of objects; objects within two grid cells are connected."""
    if not len(objects.boxes):
        return []
    cell = max(width, height) / _CELLS
    columns, rows = int(width / cell) + 2, int(height / cell) + 2
    low_x = np.clip((objects.boxes[:, 0] / cell - 0.5).astype(np.int64), 0, columns - 1)
    low_y = np.clip((objects.boxes[:, 1] / cell - 0.5).astype(np.int64), 0, rows - 1)
    high_x = np.clip((objects.boxes[:, 2] / cell + 0.5).astype(np.int64), low_x, columns - 1)
    high_y = np.clip((objects.boxes[:, 3] / cell + 0.5).astype(np.int64), low_y, rows - 1)
    marks = np.zeros((rows + 1, columns + 1), dtype=np.int64)
    np.add.at(marks, (low_y, low_x), 1)
    np.add.at(marks, (high_y + 1, high_x + 1), 1)
    np.add.at(marks, (low_y, high_x + 1), -1)
    np.add.at(marks, (high_y + 1, low_x), -1)
    painted = marks.cumsum(0).cumsum(1)[:rows, :columns] > 0
    labels = labelled(painted)
    return _collected(objects, labels[low_y, low_x])


def _collected(objects: Objects, owner: Ints) -> list[Cluster]:
    order = np.argsort(owner, kind="stable")
    starts = np.nonzero(np.diff(owner[order], prepend=-1))[0]
    boxes = objects.boxes[order]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    raster, drawn, rule = objects.raster[order], objects.drawn[order], objects.rule[order]
    columns = [
        np.minimum.reduceat(boxes[:, 0], starts),
        np.minimum.reduceat(boxes[:, 1], starts),
        np.maximum.reduceat(boxes[:, 2], starts),
        np.maximum.reduceat(boxes[:, 3], starts),
        *(np.add.reduceat(kind.astype(np.float64), starts) for kind in (raster, drawn, rule, ~(raster | drawn | rule))),
        np.add.reduceat(np.where(raster, area, 0.0), starts),
        np.add.reduceat(objects.slanted[order], starts),
        np.maximum.reduceat(objects.slanted[order], starts),
    ]
    ends = [*starts[1:].tolist(), len(order)]
    found = []
    for start, end, row in zip(starts.tolist(), ends, zip(*(c.tolist() for c in columns), strict=True), strict=True):
        picture = _around(boxes[start:end][raster[start:end]]) if row[4] else None
        found.append(
            Cluster(Box(*row[:4]), int(row[4]), int(row[5]), int(row[6]), int(row[7]), row[8], row[9], row[10], picture)
        )
    return found


def _around(boxes: Floats) -> Box:
    low, high = boxes[:, :2].min(0).tolist(), boxes[:, 2:].max(0).tolist()
    return Box(*low, *high)


def joined(clusters: list[Cluster]) -> Cluster:
    """Join several clusters to one."""
    box, picture = clusters[0].box, clusters[0].picture
    for cluster in clusters[1:]:
        box = box.union(cluster.box)
        if cluster.picture is not None:
            picture = cluster.picture if picture is None else picture.union(cluster.picture)
    return Cluster(
        box,
        sum(cluster.rasters for cluster in clusters),
        sum(cluster.drawn for cluster in clusters),
        sum(cluster.rules for cluster in clusters),
        sum(cluster.shapes for cluster in clusters),
        sum(cluster.raster_area for cluster in clusters),
        sum(cluster.slanted for cluster in clusters),
        max(cluster.longest for cluster in clusters),
        picture,
    )


def labelled(painted: npt.NDArray[np.bool_]) -> Ints:
    """Return a number for each connected set of painted cells (eight neighbors), -1 for other cells."""
    labels = np.full(painted.shape, -1, dtype=np.int64)
    parents: list[int] = []

    def root(label: int) -> int:
        while parents[label] != label:
            parents[label] = parents[parents[label]]
            label = parents[label]
        return label

    before: list[tuple[int, int, int]] = []
    for row, line in enumerate(painted):
        edges = np.nonzero(np.diff(line.astype(np.int8), prepend=0, append=0))[0].tolist()
        runs: list[tuple[int, int, int]] = []
        at = 0
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            label = len(parents)
            parents.append(label)
            while at < len(before) and before[at][1] < start:
                at += 1
            above = at
            while above < len(before) and before[above][0] <= end:
                parents[root(label)] = root(before[above][2])
                above += 1
            labels[row, start:end] = label
            runs.append((start, end, label))
        before = runs
    if parents:
        final = np.array([root(label) for label in range(len(parents))], dtype=np.int64)
        labels[labels >= 0] = final[labels[labels >= 0]]
    return labels


# Figures of captions: the content between a caption and the text above (or below) in its column.


#: Minimum width and height of a figure as shares of the page.
_LEAST_WIDTH, _LEAST_HEIGHT = 0.06, 0.025
#: Number of touching rules from which they are a drawing on graph paper, if a caption names it.
_GRID = 10
#: Number of lines of running text around a caption that determine the column.
_AROUND = 16


class Anchors:
    """Assignment of each zone's clusters to its caption; a cluster belongs to at most one caption."""

    def __init__(
        self, texts: Texts, captions: Sequence[Caption], clusters: Sequence[Cluster], tables: Sequence[Box]
    ) -> None:
        self.texts = texts
        self.captions = captions
        self.clusters = clusters
        self.free = [True] * len(clusters)
        self.stops = [*(caption.box for caption in captions), *tables]
        lines = texts.content.lines
        self.body = [lines[index].box for index in np.nonzero(texts.body)[0].tolist()]
        self.below_first = False

    def found(self) -> list[tuple[Caption, list[Cluster]]]:
        """Return captions with their clusters: first those above or below, then those at the side."""
        pairs: list[tuple[Caption, list[Cluster]]] = []
        alone: list[Caption] = []
        for number, caption in enumerate(self.captions):
            above, below = self._zone(caption, above=True), self._zone(caption, above=False)
            first, second = (below, above) if self.below_first else (above, below)
            chosen = self._members(first, caption)
            if not chosen:
                chosen = self._members(second, caption)
                # If the topmost caption is above its figure, so are the others.
                self.below_first = bool(number == 0 and chosen and len(self.captions) > 1)
            if chosen:
                pairs.append((caption, self._taken(chosen)))
            else:
                alone.append(caption)
        for caption in alone:
            chosen = self._beside(caption)
            if chosen:
                pairs.append((caption, self._taken(chosen)))
        return pairs

    def _taken(self, chosen: list[int]) -> list[Cluster]:
        for index in chosen:
            self.free[index] = False
        return [self.clusters[index] for index in chosen]

    def _column(self, caption: Caption) -> tuple[float, float]:
        """Return the left and right end of the text column of the caption."""
        x0, x1 = caption.box.x0, caption.box.x1
        over = [box for box in self.body if min(box.x1, x1) - max(box.x0, x0) > 0.5 * min(box.width, x1 - x0)]
        if over:
            usual = float(np.median([box.width for box in over]))
            over = [box for box in over if box.width < 1.3 * usual]  # an abstract across two columns belongs to neither
            x0 = min(x0, float(np.percentile([box.x0 for box in over], 10)))
            x1 = max(x1, float(np.percentile([box.x1 for box in over], 90)))
        if len(over) < 3:  # too little text to determine the columns: a figure may be wider than its caption
            centre, page = (x0 + x1) / 2, self.texts.content.width
            reach = max(0.5 * (x1 - x0), min(centre, page - centre))
            x0, x1 = centre - reach, centre + reach
        return x0, x1

    def _zone(self, caption: Caption, *, above: bool) -> Box:
        left, right = self._column(caption)
        page = self.texts.content
        edge = 0.0 if above else page.height
        for box in (*self.body, *self.stops):
            if box is caption.box or min(box.x1, right) - max(box.x0, left) < 0.3 * min(box.width, right - left):
                continue
            if above and box.y1 <= caption.box.y0 + 1:
                edge = max(edge, box.y1)
            elif not above and box.y0 >= caption.box.y1 - 1:
                edge = min(edge, box.y0)
        zone = Box(left, edge, right, caption.box.y0) if above else Box(left, caption.box.y1, right, edge)
        return self._widened(zone, caption)

    def _widened(self, zone: Box, caption: Caption) -> Box:
        """Extend the zone to the page's edge on each side without text or other captions."""
        page = self.texts.content
        reach = 0.1 * page.height
        beside = [box for box in self.body if box.y1 > zone.y0 and box.y0 < zone.y1]
        beside += [b for b in self.stops if b is not caption.box and b.y1 > zone.y0 and b.y0 < zone.y1 + reach]
        left = 0.0 if not any(box.x1 <= zone.x0 + 1 for box in beside) else zone.x0
        right = page.width if not any(box.x0 >= zone.x1 - 1 for box in beside) else zone.x1
        return Box(min(left, zone.x0), zone.y0, max(right, zone.x1), zone.y1)

    def _beside(self, caption: Caption) -> list[int]:
        """Return the cluster to the left or right of the caption that covers the caption's height."""
        page, text = self.texts.content, caption.box
        for index, cluster in enumerate(self.clusters):
            box = cluster.box
            apart = max(box.x0 - text.x1, text.x0 - box.x1)
            level = min(box.y1, text.y1) - max(box.y0, text.y0) > 0.5 * text.height
            big = box.width > 2 * _LEAST_WIDTH * page.width and box.height > 2 * _LEAST_HEIGHT * page.height
            if self.free[index] and big and level and -2 < apart < 0.05 * page.width and not cluster.only_rules:
                return [index]
        return []

    def _members(self, zone: Box, caption: Caption) -> list[int]:
        """Return the zone's clusters without lone rules; none if they are too small or too distant."""
        slack = 4 * self.texts.unit
        members = []
        for index, cluster in enumerate(self.clusters):
            if self.free[index] and self._belongs(cluster, zone, slack):
                members.append(index)
        found = [self.clusters[index] for index in members]
        if len(members) < 4 and all(cluster.only_rules and cluster.total < _GRID for cluster in found):
            return []
        members = self._near(members, caption)
        boxes = [self.clusters[index].box for index in members]
        if not boxes:
            return []
        width = max(box.x1 for box in boxes) - min(box.x0 for box in boxes)
        height = max(box.y1 for box in boxes) - min(box.y0 for box in boxes)
        page = self.texts.content
        big = width >= _LEAST_WIDTH * page.width and height >= _LEAST_HEIGHT * page.height
        return members if big else []

    def _belongs(self, cluster: Cluster, zone: Box, slack: float) -> bool:
        box = cluster.box
        flat = box.height <= 3 * self.texts.unit and box.width > 0.5 * zone.width
        if cluster.only_rules and cluster.total <= 2 and flat:
            return False  # a rule across the column
        inside = zone.x0 <= box.centre[0] <= zone.x1 and box.y0 >= zone.y0 - slack and box.y1 <= zone.y1 + slack
        return inside or (box.area > 0 and box.covered_by(zone) > 0.8)

    def _near(self, members: list[int], caption: Caption) -> list[int]:
        """Return the clusters that are connected to the caption without a gap wider than a few label lines."""
        gap = max(8 * self.texts.body_size, 0.06 * self.texts.content.height)
        group = caption.box
        left, chosen = list(members), []
        while left:
            near = [index for index in left if _distance(group, self.clusters[index].box) <= gap]
            if not near:
                break
            for index in near:
                group = group.union(self.clusters[index].box)
                left.remove(index)
            chosen.extend(near)
        return chosen


def _distance(first: Box, second: Box) -> float:
    across = max(first.x0 - second.x1, second.x0 - first.x1, 0.0)
    down = max(first.y0 - second.y1, second.y0 - first.y1, 0.0)
    return max(across, down)
