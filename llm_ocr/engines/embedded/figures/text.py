"""What the figure finder asks of a page's text: which lines are running text, and what lies behind them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from llm_ocr.engines.embedded.tables.rules import page_unit
from llm_ocr.types import Box, PageContent

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Texts:
    """The lines of a page as arrays. `body` marks running text; `free` what no table has."""

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
        # Wordy: prose rather than labels. "L L L L" on a map has many words and no prose.
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
        """Wordy lines of the body's size that are as wide as a column, and the short last lines below them."""
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
        """Lines of no table whose centre lies in the box grown by `margin`."""
        x, y = self.centres[:, 0], self.centres[:, 1]
        within = (x >= box.x0 - margin) & (x <= box.x1 + margin) & (y >= box.y0 - margin) & (y <= box.y1 + margin)
        return np.nonzero(within & self.free)[0]

    def is_text_box(self, box: Floats, *, picture: bool) -> bool:
        """Whether running text lies on the shape as on a background: lines of body size over most of its height."""
        x0, y0, x1, y1 = box.tolist()
        area = Box(x0, y0, x1, y1)
        members = self.inside(area)
        body = [index for index in members.tolist() if self.body[index]]
        covered = float(np.sum(self.sizes[body])) if body else 0.0
        if picture:
            return len(body) >= 4 and covered > 0.25 * area.height
        return len(body) >= 2 and covered > 0.3 * area.height

    def outside_margins(self, box: Box) -> float:
        """The share of the box's width that lies outside the columns of running text; 0 without running text."""
        if int(self.body.sum()) < 5:
            return 0.0
        left, right = float(self.boxes[self.body, 0].min()), float(self.boxes[self.body, 2].max())
        return (max(0.0, left - box.x0) + max(0.0, box.x1 - right)) / max(box.width, 1e-6)

    def covered(self, box: Box) -> float:
        """The share of the box that lines of running text cover."""
        x0, y0, x1, y1 = self.boxes[self.body].T
        across = np.clip(np.minimum(x1, box.x1) - np.maximum(x0, box.x0), 0, None)
        down = np.clip(np.minimum(y1, box.y1) - np.maximum(y0, box.y0), 0, None)
        return float((across * down).sum()) / max(box.area, 1e-6)

    def without_drawn(self, drawings: Sequence[Box]) -> None:
        """Lines inside drawings are labels, however long, unless they are most of the page's prose."""
        for box in drawings:
            members = self.inside(box)
            inside = int(self.letters[members][self.body[members]].sum())
            if inside < 0.6 * int(self.letters[self.body].sum()):
                self.body[members] = False

    def running(self, members: npt.NDArray[np.intp]) -> int:
        """Letters of prose in the lines."""
        return int(self.letters[members][self.wordy[members]].sum())
