"""What the model readers need done with images and documents, away from the event loop."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from llm_ocr.engines.embedded.regions import Seen
from llm_ocr.types import Attempt, EncodedImage, Page, Quality


class ImageTools(Protocol):
    """Work that takes processor time, done in other processes. All raise `PageFailure` when it cannot be done."""

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        """The image with its sides multiplied by `scale`."""

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        """The image turned clockwise by 90, 180 or 270 degrees."""

    async def blank(self, image: EncodedImage) -> bool:
        """Whether nothing is to be seen on it."""

    async def content(self, page: Page) -> Page:
        """The page with its text layer read; as it is where it has none."""


class Sight(Protocol):
    """What is seen on pages without a model, on processors of our own. All raise `PageFailure`."""

    def identity(self) -> Mapping[str, Any]:
        """What changes what is seen, as JSON values."""

    async def see(self, page: Page, *, hinted: bool) -> Seen:
        """Where figures are; `hinted`: the page's text speaks of some."""

    async def text(self, page: Page) -> str:
        """The text layer in reading order; "" without one that can be believed."""

    async def orientation(self, page: Page) -> int:
        """Degrees clockwise by which the page must be turned to be upright: 0, 90, 180 or 270."""

    async def close(self) -> None:
        """End its processes."""


@dataclass(frozen=True, slots=True)
class QualityRule:
    """Sound answers whose quality is `below` this are asked for again; `score` says what it is. `version` of that."""

    below: float
    score: Callable[[Page, Attempt], Quality]
    version: int

    def identity(self) -> Mapping[str, Any]:
        """What changes which answer is taken, as JSON values."""
        return {"below": self.below, "version": self.version}

    async def quality(self, page: Page, attempt: Attempt) -> float:
        """The score, made beside the event loop."""
        return (await asyncio.to_thread(self.score, page, attempt)).score
