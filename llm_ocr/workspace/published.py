"""Rows that stages have published, and the effective row of each page.

The rows of newer generations override the older rows of an item. Assemble reads pages twice: first without images to
select the effective rows, then unit by unit. Memory holds the images of one unit, whatever the length of the document.
"""

import heapq
import io
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from llm_ocr.engines.descriptions import current_form
from llm_ocr.errors import PageFailure
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.documents import with_only_places
from llm_ocr.results.figure_text import enriched_page
from llm_ocr.results.images import boxes_image
from llm_ocr.results.sanitizing import inert_page
from llm_ocr.results.schema import Images, fields_from_parquet, figures_from_parquet, iter_pages
from llm_ocr.types import FieldsRecord, FigureRecord, PageRecord, Reason, Status, Unit, page_id, plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.items import Item
from llm_ocr.workspace.keys import EXTRACT, FIELDS
from llm_ocr.workspace.publish import Marker, data_damaged, find_marker, read_data
from llm_ocr.workspace.summaries import kept_pages

_log = logging.getLogger(__name__)

#: Returns the pages of a unit with the requested images.
Pages = Callable[[str, Images], Iterable[PageRecord]]


def choose(
    units: Iterable[str], documents: frozenset[str], pages: Pages, marker: Callable[[str], Marker | None]
) -> dict[str, str]:
    """Return the unit of the effective row by page id: of the last ok or degraded row, otherwise of the last row.

    Rows that a marker names as worse than the older row of their page do not count. The row of a document that could
    not be opened (page number None) counts only until a later generation has opened it. Pages keep the order of their
    first row.

    Args:
        units: unit ids, oldest generation first.
        documents: ids of the item's documents; pages of other documents are ignored.
        pages: returns the pages of a unit.
        marker: returns the marker of a unit; None if it is not finished.
    """
    best: dict[str, tuple[Status, str]] = {}
    unopened: dict[str, str] = {}  # document by page id
    opened: set[str] = set()
    for found in filter(None, map(marker, units)):
        kept = kept_pages(found.summary)
        for record in pages(found.unit, Images.NONE):
            page, status = record.page_id, record.status
            if record.document_id not in documents or page in kept:
                continue
            if page not in best or status is not Status.FAILED or best[page][0] is Status.FAILED:
                best[page] = status, found.unit
            if record.page_number is None:
                unopened[page] = record.document_id
            else:
                opened.add(record.document_id)
    return {page: unit for page, (_, unit) in best.items() if unopened.get(page) not in opened}


def chosen_rows(
    layers: Iterable[Sequence[str]], chosen: Mapping[str, str], pages: Pages, *, images: Images
) -> Iterator[PageRecord]:
    """Yield the effective rows in the order of the dataset, a few in memory at a time.

    Args:
        layers: the item's units by generation, oldest first (`Item.layers`); within a generation, pages ascend.
        chosen: unit of the effective row by page id (`choose`).
        pages: returns the pages of a unit.
        images: the images to load.
    """

    def rows(units: Sequence[str]) -> Iterator[PageRecord]:
        wanted = set(chosen.values())
        for unit in units:
            if unit in wanted:
                yield from (record for record in pages(unit, images) if chosen.get(record.page_id) == unit)

    yield from heapq.merge(*(rows(units) for units in layers), key=lambda record: record.dataset_index)


def finished_pages(
    rows: Iterable[PageRecord], descriptions: Mapping[str, FigureRecord], *, images: Images
) -> Iterator[DatasetRow]:
    """Yield the pages with descriptions and without active content. With all images, draw the boxes as well.

    Running heads and feet stay in the Markdown where they are the only place of a word (`with_only_places`).
    """
    for record in map(inert_page, with_only_places(rows)):
        boxes = None
        if images is Images.ALL and record.image is not None and record.image.data:
            try:
                boxes = boxes_image(record.image, record.blocks)
            except PageFailure as failure:  # Pillow cannot decode the image
                _log.warning("%s page %s: no picture with boxes: %s", record.source, record.page_number, failure)
        own = {figure.id: descriptions[figure.id] for figure in record.figures if figure.id in descriptions}
        yield DatasetRow(record, enriched_page(record, descriptions), own, boxes)


def without_images(record: PageRecord) -> PageRecord:
    """Return the page without image data, which a document's Markdown does not need."""
    figures = tuple(replace(figure, image=replace(figure.image, data=b"")) for figure in record.figures)
    return replace(record, image=replace(record.image, data=b"") if record.image else None, figures=figures)


def published_pages(workspace: Workspace, marker: Marker, images: Images, unit: Unit) -> Iterator[PageRecord]:
    """Yield the pages of a unit. Memory holds the unit's data, read completely to check their hash, and a few pages.

    Raises:
        StorageError: the data could not be read.
        DataDamaged: a row is of another unit, or the number of rows differs from the marker's.
    """
    parts = {part.document_id: frozenset[int]() for part in unit.parts}
    for part in unit.parts:
        parts[part.document_id] |= frozenset(part.pages)
    count = 0
    for record in iter_pages(io.BytesIO(read_data(workspace, marker)), images=images):
        count += 1
        pages = parts.get(record.document_id)
        # The plan has no pages of a document that was not opened.
        if pages is None or (pages and record.page_number not in pages):
            raise data_damaged(workspace, marker, f"of another unit (page {record.page_id})")
        yield record
    if count != marker.counts.expected:
        raise data_damaged(workspace, marker, f"incomplete ({count} rows for {plural(marker.counts.expected, 'page')})")


def published_figures(
    workspace: Workspace, markers: Iterable[Marker], chosen: Mapping[str, str] | None = None
) -> dict[str, FigureRecord]:
    """Return Describe's rows of the units by figure id, in the current form. Units without figures are not read.

    Args:
        workspace: the workspace.
        markers: Describe's markers of the units.
        chosen: the unit of each page's effective row. A figure of another reading of the page may have the same id.

    Raises:
        StorageError: the data could not be read.
    """
    found: dict[str, FigureRecord] = {}
    for marker in (marker for marker in markers if marker.figures.expected):
        records = figures_from_parquet(io.BytesIO(read_data(workspace, marker)))
        if len(records) != marker.figures.expected:
            figures = plural(marker.figures.expected, "figure")
            raise data_damaged(workspace, marker, f"incomplete ({len(records)} rows for {figures})")
        found |= {
            record.figure_id: current_form(record)
            for record in records
            if record.reason is not Reason.GIVEN_UP  # of a reading that does not count
            and (chosen is None or chosen.get(record.page_id) == marker.unit)
        }
    return found


def published_fields(workspace: Workspace, key: str, item: Item) -> list[FieldsRecord]:
    """Return the rows of an item's documents under a key of Fields; none if the item is not finished.

    Raises:
        StorageError: the data could not be read.
        DataDamaged: the rows are not those of the item's documents.
    """
    marker = find_marker(workspace, FIELDS, key, item.name)
    if marker is None:
        return []
    records = fields_from_parquet(io.BytesIO(read_data(workspace, marker)))
    if {record.document_id for record in records} != item.documents or len(records) != len(item.documents):
        raise data_damaged(workspace, marker, "of other documents")
    return records


def earlier_readings(workspace: Workspace, stage: str, key: str, item: Item) -> dict[str, list[PageRecord]]:
    """Return all rows of the pages that were read again, by page id, oldest first, without images or copies.

    Args:
        workspace: the workspace.
        stage: Extract, or a user-defined stage.
        key: its key.
        item: the item. Unfinished units are skipped.
    """
    again = {page_id(part.document_id, number) for unit in item.newer for part in unit.parts for number in part.pages}
    found: dict[str, list[PageRecord]] = {}
    for unit in item.unit_ids if again else ():
        marker = find_marker(workspace, stage, key, unit)
        for record in published_pages(workspace, marker, Images.NONE, item.unit(unit)) if marker else ():
            if record.page_id in again and record not in (earlier := found.setdefault(record.page_id, [])):
                earlier.append(record)
    return {page: records for page, records in found.items() if len(records) > 1}


def extracted_pages(
    workspace: Workspace, key: str, item: Item, images: Images, stage: str = EXTRACT
) -> Iterator[PageRecord]:
    """Yield the effective rows of an item under a key of Extract, or of a user-defined stage.

    Unfinished units are skipped.
    """
    markers = cache(partial(find_marker, workspace, stage, key))

    def pages(unit: str, wanted: Images) -> Iterator[PageRecord]:
        marker = markers(unit)
        return iter(()) if marker is None else published_pages(workspace, marker, wanted, item.unit(unit))

    if not item.newer:  # all rows are effective, and one pass is enough
        return (record for unit in item.unit_ids for record in pages(unit, images))
    chosen = choose(item.unit_ids, item.documents, pages, markers)
    return chosen_rows(item.layers, chosen, pages, images=images)
