"""Extract: page image -> Markdown, figures and layout."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from llm_ocr.engines import PageReader
from llm_ocr.errors import PageFailure
from llm_ocr.stages import Progress
from llm_ocr.stages.admission import Admission, Ticket
from llm_ocr.stages.counted import counted_units
from llm_ocr.stages.flow import Flow
from llm_ocr.stages.pages import Cropper, failed_page, finished_page
from llm_ocr.stages.spool import RowFiles, Spool
from llm_ocr.stages.turns import NO_CAPS, Caps
from llm_ocr.types import DocumentPart, EncodedImage, Page, PageRecord, Unit

#: A page of the plan: its part, and its place in `part.pages` (0 for a document that did not open).
Place = tuple[DocumentPart, int]
#: Bytes of finished pages that wait in memory for their unit to be whole; more of them go to disk.
SPOOL_MEMORY = 40 << 20
#: Units whose pages are in memory for the store at a time: a dataset repository takes several in one commit.
UNITS_AT_ONCE = 4


class PageRenderer(Cropper, Protocol):
    """Makes pages of documents; raises PageFailure for one that it cannot make."""

    async def count(self, part: DocumentPart) -> int:
        """How many pages the document has. Raises PageFailure when it cannot be opened."""

    async def page(self, part: DocumentPart, number: int) -> Page:
        """Page `number`, from 1, of the document."""


@dataclass(frozen=True, slots=True)
class Extract:
    """Reads pages and publishes units; `admission` bounds what stands between the documents and the reader.

    Of `estimated` documents the pages were not counted when the progress began. With `furniture`, running heads, feet
    and page numbers stand in the Markdown.
    """

    renderer: PageRenderer
    reader: PageReader
    publish: Callable[[Unit, Sequence[PageRecord]], Awaitable[None]]
    progress: Progress
    admission: Admission
    caps: Caps = NO_CAPS
    estimated: int = 0
    furniture: bool = False

    async def run(self, units: AsyncIterable[Unit]) -> None:
        """Read all pages of all units."""
        counted = counted_units(units, lambda part: self.renderer.count(part))

        async def with_places() -> AsyncIterator[tuple[Unit, list[Place]]]:
            left = self.estimated
            async for unit in counted:
                if unit.estimated:
                    left -= unit.estimated
                    self.progress.correct(unit.expected - unit.planned, exact=left <= 0)
                yield unit, places(unit)

        spool = Spool(RowFiles(_split, _join, _size), SPOOL_MEMORY)
        flow: Flow[Unit, Place, PageRecord] = Flow(
            self._page,
            self.publish,
            self.admission,
            spool,
            self.caps,
            lambda place: place[0].document_id,
            asyncio.Semaphore(UNITS_AT_ONCE),
        )
        async with contextlib.aclosing(counted):
            await flow.run(with_places())

    async def _page(self, place: Place, ticket: Ticket) -> PageRecord:
        record = await self.read(*place, ticket)
        self.progress.count(record.status)
        return record

    async def read(self, part: DocumentPart, position: int, ticket: Ticket) -> PageRecord:
        """The row of `part.pages[position]`: a page that cannot be read is a failed row, never an error."""
        page: Page | None = None
        try:
            if part.reason is not None:
                raise PageFailure(part.reason, part.detail)
            page = await self.renderer.page(part, part.pages[position])
            ticket.weigh(len(page.image.data))
            if part.again:
                page = replace(page, again=True)
            attempt = await self.reader.read(page, ticket.release)
            return await finished_page(part, position, page, attempt, self.renderer, furniture=self.furniture)
        except PageFailure as failure:
            image = page.image if page else None
            return failed_page(part, position, failure, engine=self.reader.name, image=image)


def _pictures(record: PageRecord) -> list[EncodedImage]:
    return [*([record.image] if record.image else []), *(figure.image for figure in record.figures)]


def _with_pictures(record: PageRecord, data: Sequence[bytes]) -> PageRecord:
    left = iter(data)
    image = replace(record.image, data=next(left)) if record.image else None
    figures = tuple(replace(figure, image=replace(figure.image, data=next(left))) for figure in record.figures)
    return replace(record, image=image, figures=figures)


def _split(record: PageRecord) -> tuple[PageRecord, bytes]:
    """The record without its pictures, and these: their lengths in a line, then their bytes."""
    data = [picture.data for picture in _pictures(record)]
    lengths = " ".join(str(len(one)) for one in data)
    return _with_pictures(record, [b""] * len(data)), b"".join((lengths.encode(), b"\n", *data))


def _join(record: PageRecord, heavy: bytes) -> PageRecord:
    lengths, _, rest = heavy.partition(b"\n")
    ends = list(itertools.accumulate(map(int, lengths.split())))
    return _with_pictures(record, [rest[start:end] for start, end in zip([0, *ends], ends, strict=False)])


def _size(record: PageRecord) -> int:
    return sum(len(picture.data) for picture in _pictures(record))


def places(unit: Unit) -> list[Place]:
    """Every expected row of a unit: its part, and the place in `part.pages` (0 for a document that did not open)."""
    return [(part, position) for part in unit.parts for position in range(part.expected)]
