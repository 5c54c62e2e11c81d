"""Assemble: descriptions into the Markdown, pages into documents, rows into the dataset. Nothing is inferred.

An item is one unit of whole documents, or all ranges of one long document, with the rows of newer generations laid over
the older ones. Its pages are read twice, first without images to know which rows count, then unit by unit: memory holds
one unit's images whatever the length of the document.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.errors import PageFailure
from llm_ocr.results.boxes import boxes_image
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.enrich import enrich
from llm_ocr.results.schema import Images
from llm_ocr.types import EncodedImage, Figure, FigureRecord, PageRecord, Status

_log = logging.getLogger(__name__)

#: Gives the pages of one unit, with the images that are asked for.
Pages = Callable[[str, Images], Iterable[PageRecord]]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which unit's row counts for each page of an item, in the order of the dataset."""

    units: tuple[str, ...]
    unit_of: Mapping[str, str]  # page id -> unit
    order: tuple[str, ...]  # page ids as they follow each other


@dataclass(frozen=True, slots=True)
class Finished:
    """A page as it leaves the pipeline."""

    record: PageRecord
    markdown: str
    boxes: EncodedImage | None = field(default=None, repr=False)


def choose(units: Sequence[str], documents: frozenset[str], pages: Pages) -> Choice:
    """The rows that count among `units`, oldest generation first, for the documents of the item.

    The last ok or degraded row of a page wins, else the last failed one. The row of a document that could not be opened
    (number null) counts only while no later generation opened it.
    """
    best: dict[str, tuple[str, PageRecord]] = {}
    for unit in units:
        for record in pages(unit, Images.NONE):
            if record.document_id not in documents:
                continue
            known = best.get(record.page_id)
            if known is None or record.status is not Status.FAILED or known[1].status is Status.FAILED:
                best[record.page_id] = (unit, record)
    opened = {record.document_id for _, record in best.values() if record.page_number is not None}
    counted = [
        (unit, record)
        for unit, record in best.values()
        if record.page_number is not None or record.document_id not in opened
    ]
    counted.sort(key=lambda chosen: chosen[1].dataset_index)
    return Choice(
        tuple(units),
        {record.page_id: unit for unit, record in counted},
        tuple(record.page_id for _, record in counted),
    )


def finished_pages(
    choice: Choice, pages: Pages, descriptions: Mapping[str, FigureRecord], *, images: Images
) -> Iterator[Finished]:
    """The item's pages, unit by unit; with all images, the page with its boxes drawn as well."""
    texts = {figure: record.description for figure, record in descriptions.items() if record.description}
    for unit in choice.units:
        if unit not in choice.unit_of.values():
            continue
        for record in pages(unit, images):
            if choice.unit_of.get(record.page_id) != unit:
                continue
            yield Finished(record, enrich(record.markdown, texts), _boxes(record) if images is Images.ALL else None)


def _boxes(record: PageRecord) -> EncodedImage | None:
    """None for a failed page, and for an image that the renderer took and Pillow cannot decode."""
    if record.image is None or not record.image.data:
        return None
    try:
        return boxes_image(record.image, record.blocks)
    except PageFailure as failure:
        _log.warning("%s page %s: no picture with boxes: %s", record.source, record.page_number, failure)
        return None


def dataset_row(page: Finished, descriptions: Mapping[str, FigureRecord]) -> DatasetRow:
    """The page's row, with the descriptions of its own figures."""
    own = {figure.id: descriptions[figure.id] for figure in page.record.figures if figure.id in descriptions}
    return DatasetRow(page.record, page.markdown, own, page.boxes)


def without_images(page: Finished) -> Finished:
    """The page's texts alone: what a document's Markdown is made of."""
    figures = tuple(_bare(figure) for figure in page.record.figures)
    image = replace(page.record.image, data=b"") if page.record.image else None
    return Finished(replace(page.record, image=image, figures=figures), page.markdown)


def _bare(figure: Figure) -> Figure:
    return replace(figure, image=replace(figure.image, data=b""))
