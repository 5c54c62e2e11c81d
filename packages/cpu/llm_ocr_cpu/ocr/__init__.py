"""Run OCR on page images on the CPU, with the models of the rapidocr wheel.

`Recogniser` belongs in a worker process: one page at a time, all calls from one thread, 0.5 GB of memory (with OpenVINO
0.9 GB). Importing this package is cheap; numpy, OpenCV, and the runtime are imported when a `Recogniser` is created.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_ocr.types import Box, Line, OcrLine, OcrText, PageContent
from llm_ocr_cpu.ocr.models import RecogniserModel, available, require_models

if TYPE_CHECKING:
    from llm_ocr_cpu.layout_model import Hints
    from llm_ocr_cpu.ocr.detect import Pixels
    from llm_ocr_cpu.ocr.leveling import Bend

__all__ = ["OcrPage", "Recogniser", "available"]

#: Characters of a line per its height in width.
_LETTERS = 2.0


@dataclass(frozen=True, slots=True)
class OcrPage:
    """OCR result of a page. Boxes in pixels of `image`.

    `image` is the original page, unless it was turned by `rotation` degrees clockwise (0, 90, 180, or 270), or leveled.
    Leveling corrects lines that fell to the right by `skew` degrees (negative: rose), and curved lines of a sheet with
    a `bend`. `clean` is `image` without text that shows through. `unread` are the text areas without readable text:
    many of them with few lines indicate an unsupported script.
    """

    lines: tuple[Line, ...]
    rotation: int
    image: "Pixels"
    skew: float = 0.0
    unread: tuple[Box, ...] = ()
    bend: "Bend | None" = None
    clean: "Pixels | None" = None

    @property
    def turned(self) -> bool:
        """Whether `image` differs from the original image."""
        return bool(self.rotation or self.skew or self.bend)

    def text(self, scripts: frozenset[str]) -> OcrText:
        """Return the text with boxes on the original page; `scripts`: those that the recognizer reads."""
        height, width = self.image.shape[:2]

        def placed(box: Box) -> Box:
            return self.on_page(box.scaled(1 / width, 1 / height)).clipped()

        lines = [
            OcrLine(
                *(line.text, placed(line.box), line.confidence),
                tuple(word.confidence for word in line.words),
                tuple(placed(word.box) for word in line.words),
            )
            for line in self.lines
        ]
        for box in self.unread:
            letters = round(_LETTERS * max(box.width, box.height) / max(1.0, min(box.width, box.height)))
            lines.append(OcrLine("\ufffd" * letters, placed(box), 0.0))
        return OcrText(tuple(lines), scripts, self.skew)

    def on_page(self, box: Box) -> Box:
        """Return a relative box on the original page, before OCR turned and leveled the image."""
        if self.bend is not None:
            box = _bent(box, self.bend)
        if self.skew:
            box = _skewed(box, self)
        return box.turned(-self.rotation)


def _bent(box: Box, bend: "Bend") -> Box:
    import numpy as np

    x, y = (np.array(ends) for ends in ((box.x0, box.x1, box.x0, box.x1), (box.y0, box.y0, box.y1, box.y1)))
    rows = bend.source(x * bend.width, y * bend.height) / bend.height
    return Box(box.x0, float(rows.min()), box.x1, float(rows.max())).clipped()


def _skewed(box: Box, read: "OcrPage") -> Box:
    height, width = read.image.shape[:2]
    cosine, sine = math.cos(math.radians(read.skew)), math.sin(math.radians(read.skew))
    corners = []
    for x, y in ((box.x0, box.y0), (box.x1, box.y0), (box.x0, box.y1), (box.x1, box.y1)):
        across, down = (x - 0.5) * width, (y - 0.5) * height
        corners.append(((across * cosine - down * sine) / width + 0.5, (across * sine + down * cosine) / height + 0.5))
    xs, ys = zip(*corners, strict=True)
    return Box(min(xs), min(ys), max(xs), max(ys)).clipped()


class Recogniser:
    """The models, loaded. Not for use by several threads. Raises `MissingExtra` without OCR.

    `language` is the recognizer of another language.
    """

    def __init__(self, language: RecogniserModel | None = None) -> None:
        require_models()
        from llm_ocr_cpu.ocr.page import PageReading

        self._pages = PageReading(language)

    @property
    def scripts(self) -> frozenset[str]:
        """The scripts that it reads, as the first words of their characters' Unicode names."""
        return frozenset(self._pages.reader.scripts)

    def read(self, image: "Pixels") -> OcrPage:
        """Return all lines of an image of shape height x width x 3 (uint8, RGB), unordered."""
        return self._pages.read(image)

    def orientation(self, image: "Pixels") -> int:
        """Return the clockwise turn in degrees (0, 90, 180, or 270) that makes the image's text upright."""
        return self._pages.orientation(image)

    def rest(self) -> None:
        """Release the memory of the last pages, 100 MB, while idle. The models stay loaded."""
        self._pages.rest()

    def probe(self, image: "Pixels", content: PageContent, *, scan: bool = False) -> float | None:
        """Return the distance between text layer and image: 0 true, 1 false.

        None means an unsupported script or no text.

        Args:
            image: Page as shown.
            content: Content with the text layer.
            scan: The layer is older OCR of a scanned page.
        """
        from llm_ocr_cpu.probe import disagreement

        return disagreement(image, content, self._pages.reader, scan=scan)

    def with_hints(self, image: "Pixels", lines: tuple[Line, ...]) -> "Hints":
        """Return the lines of an upright scan with marks of the layout model, and its formulas, if it is installed."""
        from llm_ocr_cpu.layout_model import with_hints

        return with_hints(image, lines)

    def reread(self, image: "Pixels", content: PageContent, fonts: Mapping[int, bool]) -> PageContent:
        """Return the content with the readings of its doubtful words, and of wrong ones among the words of `fonts`.

        `image` is the page as shown.
        """
        from llm_ocr_cpu.rereading import reread

        return reread(image, content, self._pages.reader, fonts)

    def read_pictures(self, image: "Pixels", content: PageContent, boxes: Sequence[Box]) -> PageContent:
        """Return the content with the text of those pictures that are tables or text. `image` is the page as shown."""
        from llm_ocr_cpu.pictured_text import read_pictures

        return read_pictures(image, content, boxes, self._pages)

    def read_outside(self, image: "Pixels", content: PageContent, areas: Sequence[Box]) -> PageContent:
        """Return the content with the text in areas where it has none. `image` is the page as shown."""
        from llm_ocr_cpu.pictured_text import read_outside

        return read_outside(image, content, areas, self._pages)
