"""Describe: figure -> caption, data or class, stored beside the figure; Extract is not touched."""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.engines import FigureReader
from llm_ocr.errors import PageFailure
from llm_ocr.stages import Progress
from llm_ocr.stages.flow import flow
from llm_ocr.types import Figure, FigureRecord, PageRecord, Status

#: Descriptions kept for figures that come again (logos, repeated charts); each is a few hundred bytes.
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class FigureItem:
    """A figure and where it stands."""

    figure: Figure
    page_id: str
    document_id: str


@dataclass(frozen=True, slots=True)
class Describe:
    """Describes the figures of units, `in_flight` at a time; the same picture with the same caption once only."""

    reader: FigureReader
    mode: str
    publish: Callable[[str, Sequence[FigureRecord]], Awaitable[None]]
    progress: Progress
    in_flight: int
    _known: dict[bytes, FigureRecord] = field(default_factory=dict)

    async def run(self, units: AsyncIterable[tuple[str, Sequence[PageRecord]]]) -> None:
        """Describe all figures of the units, each given by its id and its pages."""

        async def with_figures() -> AsyncIterator[tuple[str, list[FigureItem]]]:
            async for unit, pages in units:
                yield unit, figures_of(pages)

        await flow(with_figures(), self._figure, self.publish, in_flight=self.in_flight)

    async def _figure(self, item: FigureItem) -> FigureRecord:
        known = _fingerprint(item.figure)
        record = self._known.get(known)
        if record is None:
            record = await self._describe(item)
            if record.status is not Status.FAILED:
                if len(self._known) >= REMEMBERED:
                    self._known.pop(next(iter(self._known)))
                self._known[known] = record
        self.progress.count(record.status)
        return replace(record, figure_id=item.figure.id, page_id=item.page_id, document_id=item.document_id)

    async def _describe(self, item: FigureItem) -> FigureRecord:
        try:
            return await self.reader.describe(item.figure, item.page_id, item.document_id)
        except PageFailure as failure:
            return FigureRecord(
                figure_id=item.figure.id,
                page_id=item.page_id,
                document_id=item.document_id,
                status=Status.FAILED,
                mode=self.mode,
                reason=failure.reason,
                detail=failure.detail,
                engine=self.reader.name,
            )


def figures_of(pages: Sequence[PageRecord]) -> list[FigureItem]:
    """All figures of the pages, in reading order."""
    return [FigureItem(figure, page.page_id, page.document_id) for page in pages for figure in page.figures]


def _fingerprint(figure: Figure) -> bytes:
    digest = hashlib.sha256(figure.image.data)
    digest.update(f"\0{figure.caption}\0{figure.inside}".encode())
    return digest.digest()
