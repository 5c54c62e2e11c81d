"""Pictures and drawings of a page, joined where they touch: tiles of an image, the strokes of a chart."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llm_ocr.engines.embedded.figures.text import Texts
from llm_ocr.types import Box

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Cells along the longer side of the grid in which objects are joined.
_CELLS = 240


@dataclass(frozen=True, slots=True)
class Objects:
    """What may belong to a figure. `boxes` (n, 4); `drawn`: curves and slanted lines; `rule`: thin, along an axis."""

    boxes: Floats
    raster: npt.NDArray[np.bool_]
    drawn: npt.NDArray[np.bool_]
    rule: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Objects that touch: their common box, how many there are of each kind, and what area images cover."""

    box: Box
    rasters: int
    drawn: int
    rules: int
    shapes: int  # rectangles and the like
    raster_area: float
    picture: Box | None  # around the images only

    @property
    def total(self) -> int:
        return self.rasters + self.drawn + self.rules + self.shapes

    @property
    def only_rules(self) -> bool:
        return self.rules == self.total


def page_objects(texts: Texts, tables: Floats) -> Objects:
    """Visible objects outside tables that are not behind the text: no page background, no text box, no underline."""
    content, unit = texts.content, texts.unit
    rasters = [(r.box.x0, r.box.y0, r.box.x1, r.box.y1) for r in content.rasters]
    visible = [p for p in content.paths if _is_visible(p.stroke) or _is_visible(p.fill)]
    paths = [(p.box.x0, p.box.y0, p.box.x1, p.box.y1) for p in visible]
    boxes = np.array([*rasters, *paths], dtype=np.float64).reshape(-1, 4)
    count = len(rasters)
    raster = np.arange(len(boxes)) < count
    segments = np.array([1] * count + [p.segments for p in visible], dtype=np.int64)
    filled = np.array([True] * count + [p.fill is not None for p in visible], dtype=np.bool_)
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    thin = np.minimum(width, height) <= 2.5 * unit
    slanted = ~thin & ~filled & (segments <= 3)
    drawn = ~raster & ((segments > 6) | slanted)
    keep = ~_inside(boxes, tables) & (np.maximum(width, height) > 0.8 * unit) & ~(raster & thin)
    # Rules between the columns of a page would join all that they touch.
    keep &= ~(thin & ((width > 0.5 * content.width) | (height > 0.4 * content.height)))
    keep &= ~_behind_text(texts, boxes, raster, segments)
    frame = ~raster & ~filled & ~thin & (segments <= 24) & (width * height > 0.02 * content.width * content.height)
    return Objects(_in_frames(boxes, frame & keep)[keep], raster[keep], drawn[keep], (thin & ~drawn & ~raster)[keep])


def _in_frames(boxes: Floats, frame: npt.NDArray[np.bool_]) -> Floats:
    """Images reach beyond the frame that cuts them; what has its centre in a frame ends there."""
    cut = boxes.copy()
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    for x0, y0, x1, y1 in boxes[frame][:60].tolist():
        inside = (x > x0) & (x < x1) & (y > y0) & (y < y1)
        cut[inside] = np.clip(cut[inside], (x0, y0, x0, y0), (x1, y1, x1, y1))
    return cut


def _is_visible(colour: tuple[int, int, int] | None) -> bool:
    return colour is not None and min(colour) < 248


def _inside(boxes: Floats, areas: Floats) -> npt.NDArray[np.bool_]:
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    inside = np.zeros(len(boxes), dtype=np.bool_)
    for x0, y0, x1, y1 in areas.tolist():
        inside |= (x >= x0 - 2) & (x <= x1 + 2) & (y >= y0 - 2) & (y <= y1 + 2)
    return inside


def _behind_text(texts: Texts, boxes: Floats, raster: npt.NDArray[np.bool_], segments: Ints) -> npt.NDArray[np.bool_]:
    """Objects that cover the page, and plain shapes or images with lines of running text on them."""
    page = texts.content.width * texts.content.height
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    behind = area > 0.8 * page
    large = np.nonzero(((segments <= 24) | raster) & (area > 0.004 * page) & ~behind)[0]
    order = large[np.argsort(-area[large], kind="stable")][:400]
    for index in order.tolist():
        behind[index] = texts.is_text_box(boxes[index], picture=bool(raster[index]))
    return behind


def clusters_of(objects: Objects, width: float, height: float) -> list[Cluster]:
    """Connected sets of objects; near counts as touching, up to two cells of the grid."""
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
    ]
    ends = [*starts[1:].tolist(), len(order)]
    found = []
    for start, end, row in zip(starts.tolist(), ends, zip(*(c.tolist() for c in columns), strict=True), strict=True):
        picture = _around(boxes[start:end][raster[start:end]]) if row[4] else None
        found.append(Cluster(Box(*row[:4]), int(row[4]), int(row[5]), int(row[6]), int(row[7]), row[8], picture))
    return found


def _around(boxes: Floats) -> Box:
    low, high = boxes[:, :2].min(0).tolist(), boxes[:, 2:].max(0).tolist()
    return Box(*low, *high)


def joined(clusters: list[Cluster]) -> Cluster:
    """Several clusters as one."""
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
        picture,
    )


def labelled(painted: npt.NDArray[np.bool_]) -> Ints:
    """A number for each connected set of painted cells (eight neighbours), -1 elsewhere."""
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
