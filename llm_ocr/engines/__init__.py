"""How an answer is made from an image: the protocols; implementations stand beside."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from llm_ocr.types import Attempt, Figure, FigureRecord, Page


def unheard() -> None:
    """For `admitted` where nobody listens."""


class PageReader(Protocol):
    """Reads pages. Raises `PageFailure` for a page that it cannot read; other errors end the run."""

    @property
    def name(self) -> str:
        """Shown to users and stored with each page."""

    def identity(self) -> Mapping[str, Any]:
        """What changes its answers, as JSON values: goes into the stage's key."""

    async def read(self, page: Page, admitted: Callable[[], None] = unheard) -> Attempt:
        """The best that could be made of a page.

        A reader that queues pages calls `admitted` when this one's turn has come: then the next may be prepared.
        """

    async def close(self) -> None:
        """End its processes and connections."""


class FigureReader(Protocol):
    """Describes figures. Raises `PageFailure` for a figure that it cannot describe."""

    @property
    def name(self) -> str:
        """Shown to users and stored with each figure."""

    def identity(self) -> Mapping[str, Any]:
        """What changes its answers, as JSON values: goes into the stage's key."""

    async def describe(
        self, figure: Figure, page_id: str, document_id: str, admitted: Callable[[], None] = unheard
    ) -> FigureRecord:
        """One figure's row. `admitted` as in `PageReader.read`."""

    async def close(self) -> None:
        """End its processes and connections."""
