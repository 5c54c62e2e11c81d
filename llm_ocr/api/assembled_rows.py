"""The rows behind the views of an assembled workspace: what exports, the viewer and the report are made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from llm_ocr.api.assembly import markers_of, paths_of
from llm_ocr.api.published import published_figures, published_pages
from llm_ocr.documents.remote.urls import shown
from llm_ocr.errors import StageMissing
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.paths import DocumentNames
from llm_ocr.results.schema import Images
from llm_ocr.stages.assemble import choose, chosen_rows, dataset_row, finished_pages
from llm_ocr.types import PageRecord, Status
from llm_ocr.work.items import Item
from llm_ocr.work.keys import ASSEMBLE, DESCRIBE, EXTRACT, key_settings
from llm_ocr.work.planned_items import PlannedItems
from llm_ocr.work.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Document:
    """A document with all its rows, in page order.

    `names` are those of its files below `documents/` in the workspace, without `.md`; more than one where copies of it
    were found. `page_total` counts the pages of the file, of which `rows` may be a selection; it is their number where
    the plan only estimated it, and 0 for a document that did not open.
    """

    id: str
    source: str
    names: tuple[str, ...]
    page_total: int
    rows: tuple[DatasetRow, ...]

    @property
    def error_rate(self) -> float:
        """The share 0..1 of its rows that failed, or were read by another reader than the model that was asked."""
        bad = sum(row.record.status is Status.FAILED or row.record.is_fallback for row in self.rows)
        return bad / len(self.rows) if self.rows else 0.0


class AssembledRows:
    """Rows and documents of the items of a workspace, as Assemble saw them under one of its keys."""

    def __init__(self, workspace: Workspace, key: str) -> None:
        """Reads the whole plan, one part at a time. Raises `StageMissing` without a plan or without the key."""
        self._workspace = workspace
        made = key_settings(workspace, ASSEMBLE, key)
        if not made:
            raise StageMissing(
                f"nothing is assembled in {workspace.url}", hint=f"Run first: llm-ocr assemble -w {workspace.url}"
            )
        self._extracted = markers_of(workspace, made.get("pages_from", EXTRACT), made["extract"])
        self._described = markers_of(workspace, DESCRIBE, made["describe"])
        self._planned = PlannedItems(workspace)
        claims = ((part.document_id, path) for i in self._planned.read() for part in i.parts for path in paths_of(part))
        self._names = DocumentNames.of_plan(claims)

    def __len__(self) -> int:
        return len(self._planned)

    def item(self, place: int) -> Item:
        """The item at this place of the plan, from 0."""
        return self._planned[place]

    def rows(self, item: Item, images: Images = Images.NONE) -> Iterator[DatasetRow]:
        """The item's rows in the order of the dataset, a few in memory at a time; with the images that are asked for.

        Raises `StageMissing` when a unit of it is not done, `StorageError`.
        """
        if item.newer:
            chosen = choose(item.unit_ids, item.documents, self._pages)
            rows, units = chosen_rows(item.layers, chosen, self._pages, images=images), dict.fromkeys(chosen.values())
        else:  # then every row counts, and one reading will do
            units = dict.fromkeys(item.unit_ids)
            rows = (record for unit in units for record in self._pages(unit, images))
        figures = published_figures(self._workspace, map(self._described, units))
        wanted = Images.FIGURES if images is Images.FIGURES else Images.NONE
        for page in finished_pages(rows, figures, images=wanted):  # never all: no boxes are to be drawn
            yield dataset_row(page, figures)

    def documents(self, item: Item) -> Iterator[Document]:
        """The item's documents in the order of the plan, without image bytes; their texts are in memory."""
        rows: dict[str, list[DatasetRow]] = {}
        for row in self.rows(item):
            rows.setdefault(row.record.document_id, []).append(row)
        totals = page_totals(item)
        for document, parts in groupby(item.parts, key=lambda part: part.document_id):
            first, *rest = parts
            paths = dict.fromkeys(path for part in (first, *rest) for path in paths_of(part))
            names = tuple(dict.fromkeys(self._names.of(document, path) for path in paths))
            ordered = sorted(rows.pop(document, ()), key=_page_number)
            known = totals[document] or sum(row.record.page_number is not None for row in ordered)
            yield Document(document, shown(first.source), names, known, tuple(ordered))

    def _pages(self, unit: str, images: Images) -> Iterator[PageRecord]:
        return published_pages(self._workspace, self._extracted(unit), images)


def page_totals(item: Item) -> dict[str, int]:
    """The pages of each document's file as the plan knows them; a retry may have opened what did not open before."""
    totals: dict[str, int] = {}
    for unit in (*item.units, *item.newer):
        for part in unit.parts:
            totals[part.document_id] = max(totals.get(part.document_id, 0), part.page_total)
    return totals


def _page_number(row: DatasetRow) -> int:
    return row.record.page_number or 0
