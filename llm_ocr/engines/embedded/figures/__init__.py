"""Figures of a page: images, drawings and what both make together, found by their captions first."""

from collections.abc import Sequence

import numpy as np

from llm_ocr.engines.embedded.figures.anchors import Anchors
from llm_ocr.engines.embedded.figures.captions import find_captions
from llm_ocr.engines.embedded.figures.clusters import Cluster, clusters_of, joined, page_objects
from llm_ocr.engines.embedded.figures.judge import (
    LEAST_PROSE,
    MOST_PROSE,
    is_figure,
    label_of,
    merged,
    shown,
    with_labels,
)
from llm_ocr.engines.embedded.figures.text import Texts
from llm_ocr.engines.embedded.regions import Region
from llm_ocr.types import Box, PageContent


def find_figures(content: PageContent, tables: Sequence[Region]) -> list[Region]:
    """The figures, from top to bottom; none takes a line of a table or of another figure. Never raises on odd content.

    `tables`: what `find_tables` found on the same page.
    """
    if not content.rasters and not content.paths:
        return []
    texts = Texts(content, frozenset(index for table in tables for index in table.lines | table.caption))
    areas = np.array([(t.box.x0, t.box.y0, t.box.x1, t.box.y1) for t in tables], dtype=np.float64).reshape(-1, 4)
    clusters = clusters_of(page_objects(texts, areas), content.width, content.height)
    captions = find_captions(texts)
    texts.without_drawn([cluster.box for cluster in clusters if cluster.drawn >= 15])
    anchors = Anchors(texts, captions, clusters, [table.box for table in tables])
    chosen: list[tuple[Cluster, frozenset[int]]] = [
        (joined(members), caption.lines) for caption, members in anchors.found()
    ]
    rest = [cluster for cluster, free in zip(clusters, anchors.free, strict=True) if free]
    for cluster in map(shown, merged(rest, texts)):
        if is_figure(cluster, texts) and not any(cluster.box.covered_by(other.box) > 0.5 for other, _ in chosen):
            chosen.append((cluster, frozenset()))
    return _regions(texts, chosen, frozenset(index for caption in captions for index in caption.lines))


def _regions(texts: Texts, chosen: Sequence[tuple[Cluster, frozenset[int]]], captions: frozenset[int]) -> list[Region]:
    regions: list[Region] = []
    taken = captions
    prose = texts.running(np.array(sorted(set(range(len(texts.content.lines))) - captions), dtype=np.intp))
    for cluster, caption in sorted(chosen, key=lambda item: (item[0].box.y0, item[0].box.x0)):
        box, lines = with_labels(cluster.box, texts, taken)
        inside = texts.running(np.array(sorted(lines), dtype=np.intp))
        if inside > LEAST_PROSE and inside > (MOST_PROSE + 0.2 * bool(caption)) * prose:
            continue
        taken |= lines
        margin = 1.5 * texts.unit
        page = Box(0, 0, texts.content.width, texts.content.height)
        edge = box.grown(margin).clipped(page.width, page.height)
        regions.append(Region("figure", edge, lines, "", label_of(cluster, lines, texts), caption))
    return regions
