"""Describe: figure -> caption, data or class, stored beside the figure; Extract is not touched."""

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.engines import FigureReader
from llm_ocr.errors import PageFailure
from llm_ocr.stages import Progress
from llm_ocr.stages.admission import Admission, Ticket
from llm_ocr.stages.flow import Flow
from llm_ocr.stages.spool import Spool
from llm_ocr.stages.turns import NO_CAPS, Caps
from llm_ocr.types import Figure, FigureRecord, PageRecord, Status

#: Descriptions kept for figures that come again (logos, repeated charts); each is a few hundred bytes.
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class FigureItem:
    """A figure and where it stands."""

    figure: Figure
    page_id: str
    document_id: str
    engine: str  # that read the page


@dataclass(frozen=True, slots=True)
class Describe:
    """Describes the figures of units; the same picture with the same caption once only.

    With `keep_known`, nothing is asked about a figure of which the model that read its page has said something.
    """

    reader: FigureReader
    mode: str
    publish: Callable[[str, Sequence[FigureRecord]], Awaitable[None]]
    progress: Progress
    admission: Admission
    caps: Caps = NO_CAPS
    keep_known: bool = False
    _known: dict[bytes, FigureRecord] = field(default_factory=dict)
    _under_way: dict[bytes, asyncio.Event] = field(default_factory=dict)

    async def run(self, units: AsyncIterable[tuple[str, Sequence[PageRecord]]]) -> None:
        """Describe all figures of the units, each given by its id and its pages."""

        async def with_figures() -> AsyncIterator[tuple[str, list[FigureItem]]]:
            async for unit, pages in units:
                yield unit, figures_of(pages)

        spool: Spool[FigureRecord] = Spool()
        flow: Flow[str, FigureItem, FigureRecord] = Flow(
            self._figure, self.publish, self.admission, spool, self.caps, lambda item: item.document_id
        )
        await flow.run(with_figures())

    async def _figure(self, item: FigureItem, ticket: Ticket) -> FigureRecord:
        if self.keep_known and item.figure.described:
            self.progress.count(Status.OK)
            return self._kept(item)
        fingerprint = _fingerprint(item.figure)
        while (twin := self._under_way.get(fingerprint)) is not None:
            ticket.release()  # it needs no place of its own
            await twin.wait()
        record = self._known.get(fingerprint)
        if record is not None:
            record = replace(record, tokens_in=0, tokens_out=0, seconds=0.0)  # they were spent on the first one
        else:
            ended = self._under_way[fingerprint] = asyncio.Event()
            try:
                record = await self._describe(item, ticket)
                self._remember(fingerprint, record)
            finally:
                del self._under_way[fingerprint]
                ended.set()
        self.progress.count(record.status)
        return replace(record, figure_id=item.figure.id, page_id=item.page_id, document_id=item.document_id)

    def _kept(self, item: FigureItem) -> FigureRecord:
        return FigureRecord(
            figure_id=item.figure.id,
            page_id=item.page_id,
            document_id=item.document_id,
            status=Status.OK,
            mode=self.mode,
            description=item.figure.described,
            engine=item.engine,
        )

    def _remember(self, fingerprint: bytes, record: FigureRecord) -> None:
        if record.status is Status.FAILED:
            return
        if len(self._known) >= REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[fingerprint] = record

    async def _describe(self, item: FigureItem, ticket: Ticket) -> FigureRecord:
        ticket.weigh(len(item.figure.image.data))
        try:
            return await self.reader.describe(item.figure, item.page_id, item.document_id, ticket.release)
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
                tokens_in=sum(one.get("tokens_in", 0) for one in failure.tries),
                tokens_out=sum(one.get("tokens_out", 0) for one in failure.tries),
                seconds=sum(one.get("seconds", 0.0) for one in failure.tries),
            )


def figures_of(pages: Sequence[PageRecord]) -> list[FigureItem]:
    """All figures of the pages, in reading order."""
    return [FigureItem(figure, one.page_id, one.document_id, one.engine) for one in pages for figure in one.figures]


def _fingerprint(figure: Figure) -> bytes:
    digest = hashlib.sha256(figure.image.data)
    digest.update(f"\0{figure.caption}\0{figure.inside}".encode())
    return digest.digest()
