"""Find the figures of a page: captions first, then touching images and drawings."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from llm_ocr.engines.trace import note, relative, tracing
from llm_ocr.types import Box, PageContent
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
from llm_ocr_cpu.tables.cells import is_number

# Figures without captions, the extent of figures, and their kind.


#: Minimum share of the page for a picture, and for a drawing, without a caption.
_PICTURE, _DRAWING = 0.018, 0.03
#: Share of the page's height from the top within which an object is a letterhead or logo, unless it is large.
_HEAD = 0.2
#: Share of the page's prose above which a figure is a poster or slide, whose text stays text.
MOST_PROSE = 0.4
#: Letters of prose below which a text is labels and a legend.
LEAST_PROSE = 300
#: Lines of prose, or of words this much larger than the text, from which the lines over a picture are text of the page.
_LINES_OVER, _DISPLAY = 2, 1.3
#: Numbers outside of a frame of rules, which are on the axes of a chart; those of a table are inside.
_ON_AXES = 6
#: Letters in a chart for each of its numbers; a program with line numbers beside it has more.
_MOST_LETTERS = 12


def is_figure(cluster: Cluster, texts: Texts) -> bool:
    """Return whether a cluster without a caption is a figure: large, outside the letterhead, not decoration."""
    page = texts.content
    box = cluster.box
    share = box.area / max(page.width * page.height, 1e-6)
    if min(box.width, box.height) < 0.04 * min(page.width, page.height) or (_aspect(box) > 8 and share < 0.5):
        return False
    if box.y1 < _HEAD * page.height and share < 0.06:
        return False
    picture = cluster.raster_area > 0.5 * box.area
    if share < 0.1 and box.y1 < 0.35 * page.height and texts.outside_margins(box) > 0.3:
        return False
    members = texts.inside(box)
    if texts.body[members].sum() * texts.body_size > 0.25 * box.height or texts.covered(box) > 0.15:
        return False
    if picture:
        return share >= _PICTURE
    return share >= _DRAWING and _is_drawing(cluster, texts, members)


def _aspect(box: Box) -> float:
    return max(box.width, box.height) / max(min(box.width, box.height), 1e-6)


def _is_drawing(cluster: Cluster, texts: Texts, members: npt.NDArray[np.intp]) -> bool:
    inside = set(members.tolist())
    labels = inside | with_labels(cluster.box, texts, frozenset())[1]
    numbers = sum(is_number(texts.content.lines[index].text) for index in labels)
    on_axes = sum(is_number(texts.content.lines[index].text) for index in labels - inside)
    numbered = numbers >= 6 and int(texts.letters[members].sum()) <= _MOST_LETTERS * numbers
    chart = cluster.shapes + cluster.rules + cluster.drawn >= 10 and numbered
    return cluster.drawn >= 25 or (chart and (cluster.drawn + cluster.shapes >= 4 or on_axes >= _ON_AXES))


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
    if cluster.raster_area > 0.5 * cluster.box.area:
        return "image"
    own = [texts.content.lines[index].text for index in lines]
    numbers = sum(map(is_number, own))
    return "chart" if numbers >= 5 and numbers * 3 >= len(own) else "diagram"


# Figures of a page: images, drawings, and combinations, found by captions first.


def find_figures(content: PageContent, tables: Sequence[Region]) -> list[Region]:
    """Return the figures from top to bottom, without lines of tables or of other figures.

    The function never raises on unusual content. `tables` is the result of `find_tables` on the same page.
    """
    if not content.rasters and not content.paths:
        return []
    texts = Texts(content, frozenset(index for table in tables for index in table.lines | table.caption))
    areas = np.array([(t.box.x0, t.box.y0, t.box.x1, t.box.y1) for t in tables], dtype=np.float64).reshape(-1, 4)
    clusters = clusters_of(page_objects(texts, areas), content.width, content.height)
    clusters += clusters_of(symbols(content.lines), content.width, content.height)
    captions = find_captions(texts)
    texts.without_drawn([cluster.box for cluster in clusters if cluster.drawn >= 15])
    anchors = Anchors(texts, captions, clusters, [table.box for table in tables])
    chosen: list[tuple[Cluster, frozenset[int]]] = [
        (joined(members), caption.lines) for caption, members in anchors.found()
    ]
    by_caption = len(chosen)
    rest = [cluster for cluster, free in zip(clusters, anchors.free, strict=True) if free]
    candidates = [cluster for cluster in rest if not cluster.only_rules or cluster.total > 2]
    candidates = sorted(candidates, key=lambda cluster: -cluster.box.area)[:300]
    for cluster in candidates:
        if is_figure(cluster, texts) and not any(cluster.box.covered_by(other.box) > 0.5 for other, _ in chosen):
            chosen.append((cluster, frozenset()))
    if tracing():
        counts = {"captions": len(captions), "by_caption": by_caption, "candidates": len(candidates)}
        words = f"{len(clusters)} groups of objects; {len(captions)} captions, {by_caption} of them with objects; "
        words += f"{len(chosen) - by_caption} of {len(candidates)} groups without a caption are figures"
        note("figures", words, groups=len(clusters), chosen=len(chosen), **counts)
    return _regions(texts, chosen, frozenset(index for caption in captions for index in caption.lines))


def _regions(texts: Texts, chosen: Sequence[tuple[Cluster, frozenset[int]]], captions: frozenset[int]) -> list[Region]:
    regions: list[Region] = []
    taken = captions
    prose = texts.running(np.array(sorted(set(range(len(texts.content.lines))) - captions), dtype=np.intp))
    for cluster, caption in sorted(chosen, key=lambda item: (item[0].box.y0, item[0].box.x0)):
        box, lines = with_labels(cluster.box, texts, taken)
        inside = texts.running(np.array(sorted(lines), dtype=np.intp))
        if inside > LEAST_PROSE and inside > (MOST_PROSE + 0.2 * bool(caption)) * prose:
            _note_figure("no figure", "holds too much of the page's prose", box, texts, cluster, caption)
            continue
        lines -= _over_picture(cluster, lines, texts)
        taken |= lines
        margin = 1.5 * texts.unit
        page = Box(0, 0, texts.content.width, texts.content.height)
        edge = box.grown(margin).clipped(page.width, page.height)
        label = label_of(cluster, lines, texts)
        _note_figure("figure", label, edge, texts, cluster, caption)
        regions.append(Region("figure", edge, lines, "", label, caption))
    return regions


def _over_picture(cluster: Cluster, lines: frozenset[int], texts: Texts) -> frozenset[int]:
    """Return the lines over a picture that is a background, such as a watermark; none if they are labels.

    Lines of OCR are parts of the picture.
    """
    if cluster.raster_area <= 0.5 * cluster.box.area:
        return frozenset()
    large = (texts.words > 1) & (texts.sizes > _DISPLAY * texts.body_size)
    prose = texts.wordy | large
    drawn = [index for index in lines if texts.content.lines[index].confidence == 1.0]
    if sum(bool(prose[index]) for index in drawn) >= _LINES_OVER:
        return lines
    # Labels are anywhere in a picture; lines of a list begin at one edge.
    edges = Counter(round(float(texts.boxes[index, 0])) for index in drawn if texts.words[index] > 1)
    return lines if max(edges.values(), default=0) > _LINES_OVER else frozenset()


def _note_figure(step: str, found: str, box: Box, texts: Texts, cluster: Cluster, caption: frozenset[int]) -> None:
    """Log a figure, or an area that is none, with the reason."""
    if not tracing():
        return
    page = texts.content
    share = cluster.box.area / max(page.width * page.height, 1e-6)
    kind = "picture" if cluster.raster_area > 0.5 * cluster.box.area else "drawing"
    words = " ".join(page.lines[index].text for index in sorted(caption))
    reason = "a caption names it" if caption else f"a {kind} of {share:.0%} of the page without a caption"
    objects = {"images": cluster.rasters, "drawn": cluster.drawn, "rules": cluster.rules, "shapes": cluster.shapes}
    note(step, f"{found}: {reason}", box=relative(box, page.width, page.height), caption=words, **objects)
