"""Rows that stages have published, and the final row of each page."""

import heapq
import io
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.errors import PageFailure
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.figure_text import enrich, figure_words
from llm_ocr.results.images import boxes_image
from llm_ocr.results.sanitizing import inert_page
from llm_ocr.results.schema import Images, figures_from_parquet, iter_pages
from llm_ocr.types import EncodedImage, Figure, FigureRecord, PageRecord, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.items import Item
from llm_ocr.workspace.keys import EXTRACT
from llm_ocr.workspace.publish import Marker, find_marker, read_data
from llm_ocr.workspace.superseding import effective_rows

# Assemble: descriptions into the Markdown, pages into documents, rows into the dataset. Nothing is inferred. An item is
# one unit of whole documents, or all ranges of one long document, with the rows of newer generations laid over the
# older ones. Its pages are read twice, first without images to know which rows count, then unit by unit: memory holds
# one unit's images whatever the length of the document.


_log = logging.getLogger(__name__)

#: Gives the pages of one unit, with the images that are asked for.
Pages = Callable[[str, Images], Iterable[PageRecord]]


@dataclass(frozen=True, slots=True)
class Finished:
    """A page as it leaves the pipeline."""

    record: PageRecord
    markdown: str
    boxes: EncodedImage | None = field(default=None, repr=False)


def choose(units: Iterable[str], documents: frozenset[str], pages: Pages) -> dict[str, str]:
    """Which unit's row counts for each page id, among `units`, oldest generation first, and the item's documents."""
    rows = (
        _Row(record.page_id, record.document_id, record.page_number, record.status, unit)
        for unit in units
        for record in pages(unit, Images.NONE)
        if record.document_id in documents
    )
    return {row.page_id: row.unit for row in effective_rows(rows)}


@dataclass(frozen=True, slots=True)
class _Row:
    """What the choice needs of a row, so that the texts of a long document are not all held."""

    page_id: str
    document_id: str
    page_number: int | None
    status: Status
    unit: str


def chosen_rows(
    layers: Iterable[Sequence[str]], chosen: Mapping[str, str], pages: Pages, *, images: Images
) -> Iterator[PageRecord]:
    """The rows that count, in the order of the dataset, a few in memory at a time.

    `layers` are the item's units by generation, oldest first (`Item.layers`); within one, pages ascend.
    """

    def rows(units: Sequence[str]) -> Iterator[PageRecord]:
        wanted = set(chosen.values())
        for unit in units:
            if unit in wanted:
                yield from (record for record in pages(unit, images) if chosen.get(record.page_id) == unit)

    yield from heapq.merge(*(rows(units) for units in layers), key=lambda record: record.dataset_index)


def finished_pages(
    rows: Iterable[PageRecord], descriptions: Mapping[str, FigureRecord], *, images: Images
) -> Iterator[Finished]:
    """Yield the pages with their descriptions and without active content; with all images, their boxes as well."""
    texts = {figure: words for figure, record in descriptions.items() if (words := figure_words(record))}
    for record in map(inert_page, rows):
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


# What stages have published for units, as records again. Each unit's data are read whole: that proves their hash.


def published_pages(workspace: Workspace, marker: Marker, images: Images) -> Iterator[PageRecord]:
    """The pages of a unit, a few in memory at a time beside the unit's data. Raises `StorageError`."""
    return iter_pages(io.BytesIO(read_data(workspace, marker)), images=images)


def published_figures(workspace: Workspace, markers: Iterable[Marker]) -> dict[str, FigureRecord]:
    """Describe's rows of the units by figure id; units without figures are not read. Raises `StorageError`."""
    wanted = (marker for marker in markers if marker.figures.expected)
    units = (figures_from_parquet(io.BytesIO(read_data(workspace, marker))) for marker in wanted)
    return {record.figure_id: record for records in units for record in records}


def extracted_pages(workspace: Workspace, key: str, item: Item, images: Images) -> Iterator[PageRecord]:
    """The rows that count of an item under a key of Extract, as far as its units have been read."""

    def pages(unit: str, wanted: Images) -> Iterator[PageRecord]:
        marker = find_marker(workspace, EXTRACT, key, unit)
        return iter(()) if marker is None else published_pages(workspace, marker, wanted)

    if not item.newer:  # then every row counts, and one reading will do
        return (record for unit in item.unit_ids for record in pages(unit, images))
    chosen = choose(item.unit_ids, item.documents, pages)
    return chosen_rows(item.layers, chosen, pages, images=images)
