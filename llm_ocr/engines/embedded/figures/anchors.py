"""Figures that a caption tells of: what stands between it and the text above (or below) in its column."""

from collections.abc import Sequence

import numpy as np

from llm_ocr.engines.embedded.figures.captions import Caption
from llm_ocr.engines.embedded.figures.clusters import Cluster
from llm_ocr.engines.embedded.figures.text import Texts
from llm_ocr.types import Box

#: A figure is at least this share of the page wide, and this share high.
_LEAST_WIDTH, _LEAST_HEIGHT = 0.06, 0.025
#: Lines of running text around a caption that tell the column.
_AROUND = 16


class Anchors:
    """Gives each caption the clusters of its zone; a cluster belongs to one caption at most."""

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
        """Captions with their clusters: those above or below first, then those beside."""
        pairs: list[tuple[Caption, list[Cluster]]] = []
        alone: list[Caption] = []
        for number, caption in enumerate(self.captions):
            above, below = self._zone(caption, above=True), self._zone(caption, above=False)
            first, second = (below, above) if self.below_first else (above, below)
            chosen = self._members(first, caption)
            if not chosen:
                chosen = self._members(second, caption)
                # Where the topmost caption stands above its figure, the others do.
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
        """Left and right end of the column of text that the caption belongs to."""
        x0, x1 = caption.box.x0, caption.box.x1
        over = [box for box in self.body if min(box.x1, x1) - max(box.x0, x0) > 0.5 * min(box.width, x1 - x0)]
        if over:
            usual = float(np.median([box.width for box in over]))
            over = [box for box in over if box.width < 1.3 * usual]  # an abstract across two columns is in neither
            x0 = min(x0, float(np.percentile([box.x0 for box in over], 10)))
            x1 = max(x1, float(np.percentile([box.x1 for box in over], 90)))
        if len(over) < 3:  # nothing tells the columns: a figure may be wider than its caption
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
        """The zone out to the page's edge on each side where no text and no other caption stands beside it."""
        page = self.texts.content
        reach = 0.1 * page.height
        beside = [box for box in self.body if box.y1 > zone.y0 and box.y0 < zone.y1]
        beside += [b for b in self.stops if b is not caption.box and b.y1 > zone.y0 and b.y0 < zone.y1 + reach]
        left = 0.0 if not any(box.x1 <= zone.x0 + 1 for box in beside) else zone.x0
        right = page.width if not any(box.x0 >= zone.x1 - 1 for box in beside) else zone.x1
        return Box(min(left, zone.x0), zone.y0, max(right, zone.x1), zone.y1)

    def _beside(self, caption: Caption) -> list[int]:
        """The cluster at the caption's left or right that reaches at least as high and as low as the caption."""
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
        """Clusters of the zone, without lone rules; none when they are too small or too far to be the figure."""
        slack = 4 * self.texts.unit
        members = []
        for index, cluster in enumerate(self.clusters):
            if self.free[index] and self._belongs(cluster, zone, slack):
                members.append(index)
        solid = [index for index in members if not self.clusters[index].only_rules]
        if not solid and len(members) < 4:
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
        """The clusters reached from the caption without a gap wider than some lines of labels."""
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
