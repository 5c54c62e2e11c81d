"""Extract: page image -> Markdown, figures and layout."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from llm_ocr.engines import PageReader
from llm_ocr.errors import PageFailure
from llm_ocr.stages import Progress
from llm_ocr.stages.flow import flow
from llm_ocr.stages.pages import Cropper, failed_page, finished_page
from llm_ocr.types import DocumentPart, Page, PageRecord, Unit


class PageRenderer(Cropper, Protocol):
    """Makes pages of documents; raises PageFailure for one that it cannot make."""

    async def page(self, part: DocumentPart, number: int) -> Page:
        """Page `number`, from 1, of the document."""


@dataclass(frozen=True, slots=True)
class Extract:
    """Reads pages and publishes units; at most `in_flight` pages stand between source and unit, which bounds memory."""

    renderer: PageRenderer
    reader: PageReader
    publish: Callable[[Unit, Sequence[PageRecord]], Awaitable[None]]
    progress: Progress
    in_flight: int

    async def run(self, units: AsyncIterable[Unit]) -> None:
        """Read all pages of all units."""

        async def with_places() -> AsyncIterator[tuple[Unit, list[tuple[DocumentPart, int]]]]:
            async for unit in units:
                yield unit, places(unit)

        await flow(with_places(), self._page, self.publish, in_flight=self.in_flight)

    async def _page(self, place: tuple[DocumentPart, int]) -> PageRecord:
        record = await self.read(*place)
        self.progress.count(record.status)
        return record

    async def read(self, part: DocumentPart, position: int) -> PageRecord:
        """The row of `part.pages[position]`: a page that cannot be read is a failed row, never an error."""
        page: Page | None = None
        try:
            if part.reason is not None:
                raise PageFailure(part.reason, part.detail)
            page = await self.renderer.page(part, part.pages[position])
            attempt = await self.reader.read(page)
            return await finished_page(part, position, page, attempt, self.renderer)
        except PageFailure as failure:
            image = page.image if page else None
            return failed_page(part, position, failure, engine=self.reader.name, image=image)


def places(unit: Unit) -> list[tuple[DocumentPart, int]]:
    """Every expected row of a unit: its part, and the place in `part.pages` (0 for a document that did not open)."""
    return [(part, position) for part in unit.parts for position in range(part.expected)]
