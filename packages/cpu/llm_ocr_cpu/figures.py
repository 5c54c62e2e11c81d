"""Find the figures of a page: captions first, then touching images and drawings."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from llm_ocr.engines.trace import note, relative, tracing
from llm_ocr.types import Box, Line, PageContent, Path
from llm_ocr_cpu.figure_clusters import (
    Anchors,
    Cluster,
    Texts,
    clusters_of,
    find_captions,
    joined,
    page_objects,
    symbols,
)
from llm_ocr_cpu.regions import Region
from llm_ocr_cpu.tables.cells import is_code, is_number

# Figures without captions, the extent of figures, and their kind.


#: Minimum share of the page for a picture, and for a drawing, without a caption.
_PICTURE, _DRAWING = 0.018, 0.03
#: Letters between two objects from which they are separate figures.
_MOST_BETWEEN = 100
#: Share of the page's height from the top within which an object is a letterhead or logo, unless it is large.
_HEAD = 0.2
#: Share of the page's prose above which a figure is a poster or slide, whose text stays text.
MOST_PROSE = 0.4
#: Letters of prose below which a text is labels and a legend.
LEAST_PROSE = 300
#: Lines of prose, or of words this much larger than the text, from which the lines over a picture are text of the page.
_LINES_OVER, _DISPLAY = 2, 1.3
#: Words of a label beside a figure; the lines of a narrow column of text have more.
_LONGEST_LABEL = 4
#: Numbers outside of a frame of rules, which are on the axes of a chart; those of a table are inside.
_ON_AXES = 6
#: Lines of a program from which a frame around them is no drawing.
_LISTING = 8
#: Edges of a drawing in its shorter side, and share of strokes beyond them up to which all are a border.
_EDGE, _IN_MIDDLE = 0.15, 0.1
#: Length along neither axis of a cluster's objects but the longest, in its diagonals, from which they are a drawing.
_SLANTED = 0.3
#: Letters in a chart for each of its numbers; a program with line numbers beside it has more.
_MOST_LETTERS = 12


def merged(clusters: Sequence[Cluster], texts: Texts) -> list[Cluster]:
    """Merge clusters with a small gap and no running text between them."""
    groups = [cluster for cluster in clusters if not cluster.only_rules or cluster.total > 2]
    groups = sorted(groups, key=lambda cluster: -cluster.box.area)[:300]
    gap = 10 * texts.unit
    changed = True
    while changed:
        changed = False
        for index, cluster in enumerate(groups):
            near = [other for other in groups[index + 1 :] if _together(cluster, other, gap, texts)]
            if near:
                groups = [other for other in groups if other is not cluster and other not in near]
                groups.append(joined([cluster, *near]))
                changed = True
                break
    return groups


def _together(first: Cluster, second: Cluster, gap: float, texts: Texts) -> bool:
    a, b = first.box, second.box
    across = max(a.x0 - b.x1, b.x0 - a.x1)
    down = max(a.y0 - b.y1, b.y0 - a.y1)
    if max(across, down) > gap:
        return False
    if max(across, down) > 0 and first.rasters and second.rasters and not (first.drawn or second.drawn):
        same = abs(a.y0 - b.y0) + abs(a.y1 - b.y1) < gap or abs(a.x0 - b.x0) + abs(a.x1 - b.x1) < gap
        if not same:
            return False
    both = texts.inside(a.union(b))
    outside = both[~np.isin(both, np.concatenate((texts.inside(a), texts.inside(b))))]
    return not texts.body[both].any() and int(texts.letters[outside].sum()) < _MOST_BETWEEN


def shown(cluster: Cluster) -> Cluster:
    """Return the cluster without its rules and frame if it contains only images."""
    if cluster.picture is None or cluster.drawn or cluster.picture.area > 0.9 * cluster.box.area:
        return cluster
    return replace(cluster, box=cluster.picture, rules=0, shapes=0)


def is_figure(cluster: Cluster, texts: Texts) -> bool:
    """Return whether a cluster without a caption is a figure: large, outside the letterhead, not decoration."""
    page = texts.content
    box = cluster.box
    share = box.area / max(page.width * page.height, 1e-6)
    if min(box.width, box.height) < 0.04 * min(page.width, page.height) or (_aspect(box) > 8 and share < 0.5):
        return False
    if box.y1 < _HEAD * page.height and share < 0.06:
        return False
    if share < 0.1 and box.y1 < 0.35 * page.height and texts.outside_margins(box) > 0.3:
        return False
    members = texts.inside(box)
    if texts.body[members].sum() * texts.body_size > 0.25 * box.height or texts.covered(box) > 0.15:
        return False
    if cluster.is_picture:
        return share >= _PICTURE
    return share >= _DRAWING and _is_drawing(cluster, texts, members)


def _aspect(box: Box) -> float:
    return max(box.width, box.height) / max(min(box.width, box.height), 1e-6)


def _is_drawing(cluster: Cluster, texts: Texts, members: npt.NDArray[np.intp]) -> bool:
    if _is_listing([texts.content.lines[index] for index in members]):
        return False
    inside = set(members.tolist())
    labels = inside | with_labels(cluster.box, texts, frozenset())[1]
    numbers = sum(is_number(texts.content.lines[index].text) for index in labels)
    on_axes = sum(is_number(texts.content.lines[index].text) for index in labels - inside)
    numbered = numbers >= 6 and int(texts.letters[members].sum()) <= _MOST_LETTERS * numbers
    chart = cluster.shapes + cluster.rules + cluster.drawn >= 10 and numbered
    slanted = cluster.slanted - cluster.longest > _SLANTED * math.hypot(cluster.box.width, cluster.box.height)
    drawing = (cluster.drawn >= 25 or slanted) and not _is_border(cluster, texts.content.paths)
    return drawing or (chart and (cluster.drawn + cluster.shapes >= 4 or on_axes >= _ON_AXES))


def _is_border(cluster: Cluster, paths: Sequence[Path]) -> bool:
    """Return whether nearly all strokes are at the edges of the cluster, as the ornaments around a certificate."""
    box = cluster.box
    inner = box.grown(-_EDGE * min(box.width, box.height))
    own = [path.box for path in paths if path.box.covered_by(box) > 0.5 and path.box.area < 0.5 * box.area]
    in_middle = sum(one.intersection(inner) > 0 for one in own)
    return len(own) > 0.5 * cluster.drawn and in_middle < _IN_MIDDLE * len(own)  # a map may have symbols as strokes


def _is_listing(lines: Sequence[Line]) -> bool:
    """Return whether the lines are a program: monospaced, and most of them at its left edge."""
    starts = sorted(line.box.x0 for line in lines if line.mono)
    return (
        len(starts) >= _LISTING
        and is_code(lines)
        and starts[len(starts) // 2] - starts[0] < 4 * max(line.size for line in lines)
    )


def with_labels(box: Box, texts: Texts, keep_out: frozenset[int]) -> tuple[Box, frozenset[int]]:
    """Return the figure's box extended by the labels at its edges, and the lines inside."""
    own = {int(index) for index in texts.inside(box)} - keep_out
    grown = box
    margin = 1.3 * min(texts.body_size, 12 * texts.unit)
    limit = Box(
        box.x0 - 2 * margin - 0.1 * box.width,
        box.y0 - 2 * margin - 0.1 * box.height,
        box.x1 + 2 * margin + 0.1 * box.width,
        box.y1 + 2 * margin + 0.1 * box.height,
    )
    for _ in range(2):
        for index in texts.inside(grown, margin).tolist():
            if index not in keep_out and index not in own and _is_label(index, texts, grown):
                label = texts.content.lines[index].box
                if label.covered_by(limit) > 0.99:
                    own.add(index)
                    grown = grown.union(label)
    for index in own:
        line = texts.content.lines[index].box
        if line.covered_by(box) > 0.5:
            grown = grown.union(line)
    return grown, frozenset(own)


def labels_beside(box: Box, caption: frozenset[int], texts: Texts, keep_out: frozenset[int]) -> frozenset[int]:
    """Return the lines left and right of a figure within the width of its caption; none if text runs beside it."""
    lines = texts.content.lines
    if not caption:
        return frozenset()
    ends = [(lines[index].box.x0, lines[index].box.x1) for index in caption]
    band = Box(min(x0 for x0, _ in ends), box.y0, max(x1 for _, x1 in ends), box.y1)
    inside = {int(index) for index in texts.inside(band)} - keep_out
    labels = all(
        not texts.body[index]
        and lines[index].size <= 1.05 * texts.body_size
        and not lines[index].recurs
        and len(lines[index].text.split()) <= _LONGEST_LABEL
        for index in inside
    )
    return frozenset(inside) if labels else frozenset()


def _is_label(index: int, texts: Texts, box: Box) -> bool:
    """Return whether a line is a label: short, at the edge, not larger than running text, mostly within the figure."""
    line = texts.content.lines[index]
    if texts.body[index] or line.size > 1.05 * texts.body_size or line.recurs:
        return False
    if min(line.box.width, line.box.height) > 2.5 * line.size:
        return False  # slanted: the box does not determine the position
    beyond = max(box.x0 - line.box.x0, 0) + max(line.box.x1 - box.x1, 0)
    return beyond <= 0.5 * line.box.width or line.box.width < 4 * line.size


def label_of(cluster: Cluster, lines: frozenset[int], texts: Texts) -> str:
    """Return "image", "chart", or "diagram"."""
    if cluster.is_picture:
        return "image"
    own = [texts.content.lines[index].text for index in lines]
    numbers = sum(map(is_number, own))
    return "chart" if numbers >= 5 and numbers * 3 >= len(own) else "diagram"


# Figures of a page: images, drawings, and combinations, found by captions first.


def find_figures(content: PageContent, tables: Sequence[Region], pictures: Sequence[Box] = ()) -> list[Region]:
    """Return the figures from top to bottom, without lines of tables or of other figures.

    The function never raises on unusual content.

    Args:
        content: Content of the page.
        tables: Result of `find_tables` on the same page.
        pictures: Boxes of images, in page units, that are figures in any size.
    """
    if not content.rasters and not content.paths:
        return []
    texts = Texts(content, frozenset(index for table in tables for index in table.lines | table.caption))
    areas = np.array([(t.box.x0, t.box.y0, t.box.x1, t.box.y1) for t in tables], dtype=np.float64).reshape(-1, 4)
    clusters = clusters_of(page_objects(texts, areas), content.width, content.height)
    clusters += clusters_of(symbols(content.lines), content.width, content.height)
    captions = find_captions(texts)
    texts.without_sub_captions(captions)
    texts.without_drawn([cluster.box for cluster in clusters if cluster.drawn >= 15])
    anchors = Anchors(texts, captions, clusters, [table.box for table in tables])
    chosen: list[tuple[Cluster, frozenset[int]]] = [
        (joined(members), caption.lines) for caption, members in anchors.found()
    ]
    by_caption = len(chosen)
    rest = [cluster for cluster, free in zip(clusters, anchors.free, strict=True) if free]
    candidates = [shown(cluster) for cluster in merged(rest, texts)]
    for cluster in candidates:
        known = any(cluster.box.covered_by(other.box) > 0.5 for other, _ in chosen)
        if not known and is_figure(cluster, texts):
            chosen.append((cluster, frozenset()))
    for picture in pictures:
        if not any(picture.covered_by(other.box) > 0.5 for other, _ in chosen):
            chosen.append((Cluster(picture, 1, 0, 0, 0, picture.area, 0.0, 0.0, picture), frozenset()))
    if tracing():
        counts = {"captions": len(captions), "by_caption": by_caption, "candidates": len(candidates)}
        words = f"{len(clusters)} groups of objects; {len(captions)} captions, {by_caption} of them with objects; "
        words += f"{len(chosen) - by_caption} of {len(candidates)} groups without a caption are figures"
        note("figures", words, groups=len(clusters), chosen=len(chosen), **counts)
    return _regions(texts, chosen, frozenset(index for caption in captions for index in caption.lines))


def _regions(texts: Texts, chosen: Sequence[tuple[Cluster, frozenset[int]]], captions: frozenset[int]) -> list[Region]:
    regions: list[Region] = []
    taken = captions
    content_lines = texts.content.lines
    prose = texts.running(np.array(sorted(set(range(len(texts.content.lines))) - captions), dtype=np.intp))
    for cluster, caption in sorted(chosen, key=lambda item: (item[0].box.y0, item[0].box.x0)):
        beside = labels_beside(cluster.box, caption, texts, taken)
        around = reduce(Box.union, (content_lines[index].box for index in beside), cluster.box)
        if cluster.is_plain_picture and not caption:  # names and prices below a picture are text of the page
            box, lines = cluster.box, _on_images(cluster.box, texts) - taken
        else:
            box, lines = with_labels(around, texts, taken)
        inside = texts.running(np.array(sorted(lines), dtype=np.intp))
        if inside > LEAST_PROSE and inside > (MOST_PROSE + 0.2 * bool(caption)) * prose:
            _note_figure("no figure", "holds too much of the page's prose", box, texts, cluster, caption)
            continue
        lines -= _over_picture(cluster, lines, texts, named=bool(caption))
        taken |= lines
        margin = 1.5 * texts.unit
        page = Box(0, 0, texts.content.width, texts.content.height)
        edge = box.grown(margin).clipped(page.width, page.height)
        label = label_of(cluster, lines, texts)
        _note_figure("figure", label, edge, texts, cluster, caption)
        regions.append(Region("figure", edge, lines, "", label, caption))
    return regions


def _on_images(box: Box, texts: Texts) -> frozenset[int]:
    """Return the lines in the box that are on its images, not between them."""
    on_images = [texts.inside(r.box) for r in texts.content.rasters if r.box.intersection(box) > 0]
    return frozenset(np.intersect1d(texts.inside(box), np.concatenate(on_images)).tolist())


def _over_picture(cluster: Cluster, lines: frozenset[int], texts: Texts, *, named: bool) -> frozenset[int]:
    """Return the lines over a picture that is a background, such as a watermark; none if they are labels.

    Lines of OCR are parts of the picture. In a picture that no caption names, most labels have up to two words.
    """
    if not cluster.is_picture:
        return frozenset()
    large = (texts.words > 1) & (texts.sizes > _DISPLAY * texts.body_size)
    prose = texts.wordy | large
    drawn = [index for index in lines if texts.content.lines[index].confidence == 1.0]
    if sum(bool(prose[index]) for index in drawn) >= _LINES_OVER:
        return lines
    if not named and 2 * sum(bool(prose[index] or texts.words[index] > 2) for index in drawn) >= max(1, len(drawn)):
        return frozenset(drawn)
    # Labels are anywhere in a picture; lines of a list begin at one edge.
    edges = Counter(round(float(texts.boxes[index, 0])) for index in drawn if texts.words[index] > 1)
    return lines if max(edges.values(), default=0) > _LINES_OVER else frozenset()


def _note_figure(step: str, found: str, box: Box, texts: Texts, cluster: Cluster, caption: frozenset[int]) -> None:
    """Log a figure, or an area that is none, with the reason."""
    if not tracing():
        return
    page = texts.content
    share = cluster.box.area / max(page.width * page.height, 1e-6)
    kind = "picture" if cluster.is_picture else "drawing"
    words = " ".join(page.lines[index].text for index in sorted(caption))
    reason = "a caption names it" if caption else f"a {kind} of {share:.0%} of the page without a caption"
    objects = {"images": cluster.rasters, "drawn": cluster.drawn, "rules": cluster.rules, "shapes": cluster.shapes}
    note(step, f"{found}: {reason}", box=relative(box, page.width, page.height), caption=words, **objects)
