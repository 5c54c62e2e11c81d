"""How an answer is made from an image: the protocols; implementations stand beside."""

from collections.abc import Mapping
from typing import Any, Protocol

from llm_ocr.types import Attempt, Figure, FigureRecord, Page


class PageReader(Protocol):
    """Reads pages. Raises `PageFailure` for a page that it cannot read; other errors end the run."""

    @property
    def name(self) -> str:
        """Shown to users and stored with each page."""

    def identity(self) -> Mapping[str, Any]:
        """What changes its answers, as JSON values: goes into the stage's key."""

    async def read(self, page: Page) -> Attempt:
        """One try at a page."""

    async def close(self) -> None:
        """End its processes and connections."""


class FigureReader(Protocol):
    """Describes figures. Raises `PageFailure` for a figure that it cannot describe."""

    @property
    def name(self) -> str:
        """Shown to users and stored with each figure."""

    def identity(self) -> Mapping[str, Any]:
        """What changes its answers, as JSON values: goes into the stage's key."""

    async def describe(self, figure: Figure, page_id: str, document_id: str) -> FigureRecord:
        """One figure's row."""

    async def close(self) -> None:
        """End its processes and connections."""
