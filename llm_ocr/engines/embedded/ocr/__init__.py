"""OCR of page images on the CPU, with the models of the rapidocr wheel.

`Recogniser` belongs in a worker process: one page at a time, all calls from one thread, half a gigabyte of memory.
Importing this package is cheap; numpy, OpenCV and onnxruntime are imported when a `Recogniser` is made.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_ocr.engines.embedded.ocr.models import available, require_models
from llm_ocr.types import Line, PageContent

if TYPE_CHECKING:
    from llm_ocr.engines.embedded.ocr.detect import Pixels

__all__ = ["OcrPage", "Recogniser", "available"]


@dataclass(frozen=True, slots=True)
class OcrPage:
    """What OCR read on a page. Boxes in pixels of `image`.

    `image` is the page as it was given, unless it was turned by `rotation` degrees clockwise (0, 90, 180 or 270), or
    its lines, which fell to the right by `skew` degrees (rose, where that is negative), were levelled. `unread` counts
    the places with text of which nothing could be read: many of them beside few lines are a script that is not known.
    """

    lines: tuple[Line, ...]
    rotation: int
    image: "Pixels"
    skew: float = 0.0
    unread: int = 0

    @property
    def turned(self) -> bool:
        """Whether `image` is another picture than the one given."""
        return bool(self.rotation or self.skew)


class Recogniser:
    """Both models, loaded. Raises MissingExtra where OCR is not installed. Not to be shared between threads."""

    def __init__(self) -> None:
        require_models()
        from llm_ocr.engines.embedded.ocr.page import PageReading

        self._pages = PageReading()

    def read(self, image: "Pixels") -> OcrPage:
        """All lines of an image of shape height x width x 3 (uint8, RGB), in no particular order."""
        return self._pages.read(image)

    def orientation(self, image: "Pixels") -> int:
        """Degrees clockwise, 0, 90, 180 or 270, by which the image must be turned for its text to be upright."""
        return self._pages.orientation(image)

    def rest(self) -> None:
        """Give back the memory of the last pages, while there is nothing to read: 100 MB. The models stay loaded."""
        self._pages.rest()

    def probe(self, image: "Pixels", content: PageContent) -> float | None:
        """How far the text layer is from what is seen: 0 true, 1 a lie; None: a script that is not known, or no text.

        `image` is the page as shown, `content` its text layer.
        """
        from llm_ocr.engines.embedded.probe import disagreement

        return disagreement(image, content, self._pages.reader)
