"""What stages have published for units, as records again. Each unit's data are read whole: that proves their hash."""

import io
from collections.abc import Iterable, Iterator

from llm_ocr.results.schema import Images, figures_from_parquet, iter_pages
from llm_ocr.stages.assemble import choose, chosen_rows
from llm_ocr.types import FigureRecord, PageRecord
from llm_ocr.work.items import Item
from llm_ocr.work.keys import EXTRACT
from llm_ocr.work.publish import Marker, find_marker, read_data
from llm_ocr.work.workspace import Workspace


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
