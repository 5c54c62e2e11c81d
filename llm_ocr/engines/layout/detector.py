"""What finds the regions of a page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from llm_ocr.types import Box, EncodedImage, Page


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a page that is one thing. `box` is relative; `label` as the detector named it."""

    label: str
    box: Box
    score: float = 1.0  # 0..1
    order: int | None = None  # its turn to be read; None where the detector does not know


@dataclass(frozen=True, slots=True)
class Layout:
    """The regions of a page, those that the detector believes in. `image` is the upright page, where it was turned."""

    regions: tuple[Region, ...]
    image: EncodedImage | None = None
    rotation: int = 0  # degrees clockwise by which the page was turned


class Detector(Protocol):
    """Finds regions, many pages at a time; needs `close()`."""

    @property
    def name(self) -> str:
        """Shown to users."""

    @property
    def parallel(self) -> int:
        """Pages that it can have at the same time without one of them waiting for long."""

    def identity(self) -> Mapping[str, Any]:
        """What changes the regions, as JSON values: goes into the stage's key."""

    async def detect(self, page: Page) -> Layout:
        """The page's regions. Raises `PageFailure` for a page that it cannot look at; other errors end the run."""

    async def close(self) -> None:
        """End its processes."""
