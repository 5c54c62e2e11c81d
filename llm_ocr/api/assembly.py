"""One item of Assemble: its dataset file and documents, then the marker.

The files are views: written whole, and only by the newest generation that touches the item. They stand before the
marker does, so a marker means that they are there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from llm_ocr.api.published import published_figures, published_pages
from llm_ocr.api.views import ViewsNote, begin_views, end_views, sha256_of
from llm_ocr.results.dataset import DatasetWriter, dataset_file
from llm_ocr.results.documents import document_markdown, figure_file, markdown_file
from llm_ocr.results.finals import finals_to_parquet
from llm_ocr.results.paths import DocumentNames
from llm_ocr.results.schema import Images
from llm_ocr.stages.assemble import Finished, choose, chosen_rows, dataset_row, finished_pages, without_images
from llm_ocr.types import Counts, DocumentPart, FigureRecord, PageRecord, Status
from llm_ocr.work.items import Item
from llm_ocr.work.keys import ASSEMBLE, DESCRIBE, EXTRACT
from llm_ocr.work.planned_items import PlannedItems
from llm_ocr.work.publish import Marker, Summary, publish, standing_marker
from llm_ocr.work.workspace import Workspace

#: Markers of units that are kept, a few items' worth.
_KEPT = 4096


@dataclass(frozen=True, slots=True)
class AssembleJob:
    """What all items of a plan need. `extracted` and `described` give a unit's marker."""

    workspace: Workspace
    key: str
    planned: PlannedItems
    names: DocumentNames
    extracted: Callable[[str], Marker]
    described: Callable[[str], Marker]
    page_markers: bool
    images: Images

    def pages(self, unit: str, images: Images) -> Iterator[PageRecord]:
        """The rows of one unit of Extract."""
        return published_pages(self.workspace, self.extracted(unit), images)

    def descriptions(self, units: Iterable[str]) -> dict[str, FigureRecord]:
        """Describe's rows of these units by figure id."""
        return published_figures(self.workspace, map(self.described, units))

    def expected(self, item: Item) -> int:
        """The item's pages, each counted once."""
        rows = sum(self.extracted(unit).counts.expected for unit in item.unit_ids)
        return rows - sum(unit.replaces for unit in item.newer)

    def files(self, item: Item) -> Iterator[str]:
        """The item's views, figures aside."""
        yield dataset_file(item.id)
        for part in item.parts:
            yield from (markdown_file(self.names.of(part.document_id, path)) for path in paths_of(part))


def assemble_job(workspace: Workspace, key: str, made: Mapping[str, Any]) -> AssembleJob:
    """Return what all items need under a key of Assemble that is made of `made`. Reads the whole plan once."""
    planned = PlannedItems(workspace)
    claims = ((part.document_id, path) for item in planned.read() for part in item.parts for path in paths_of(part))
    return AssembleJob(
        workspace,
        key,
        planned,
        DocumentNames.of_plan(claims),
        markers_of(workspace, made.get("pages_from", EXTRACT), made["extract"]),
        markers_of(workspace, DESCRIBE, made["describe"]),
        made["page_markers"],
        Images(made["dataset_images"]),
    )


def markers_of(workspace: Workspace, stage: str, key: str) -> Callable[[str], Marker]:
    """The marker of a unit that the stage has done, by the unit's id. Raises `StageMissing`."""
    return lru_cache(_KEPT)(partial(standing_marker, workspace, stage, key))


def paths_of(part: DocumentPart) -> tuple[str, ...]:
    """Where the part's document is found below its source roots."""
    return (part.relative, *part.aliases)


def assemble_item(job: AssembleJob, item: Item) -> list[Status]:
    """Write one item's views and publish its Markdown; the statuses of its pages."""
    chosen = choose(item.unit_ids, item.documents, job.pages)
    descriptions = job.descriptions(dict.fromkeys(chosen.values()))
    writer = _Views(job, item, descriptions)
    wanted = job.images if job.images is Images.ALL else Images.FIGURES  # documents need the figures whatever
    rows = chosen_rows(item.layers, chosen, job.pages, images=wanted)
    path = job.workspace.spool / f"{item.name}.parquet"
    begin_views(job.workspace, item.id)
    try:
        with DatasetWriter(path, job.images) as dataset:
            for page in finished_pages(rows, descriptions, images=wanted):
                dataset.add(dataset_row(page, descriptions))
                writer.add(page)
        writer.publish(path)
    finally:
        path.unlink(missing_ok=True)
    return [page.record.status for page in writer.pages]


def _counts(statuses: Sequence[Status]) -> Counts:
    return Counts(len(statuses), *(statuses.count(status) for status in (Status.OK, Status.DEGRADED, Status.FAILED)))


class _Views:
    """The files of one item, gathered page by page; figures are written as they come, texts at the end."""

    def __init__(self, job: AssembleJob, item: Item, descriptions: Mapping[str, FigureRecord]) -> None:
        self._job = job
        self._item = item
        self._descriptions = descriptions
        self._names: dict[str, list[str]] = {}
        for part in item.parts:
            names = self._names.setdefault(part.document_id, [])
            names += [n for path in paths_of(part) if (n := job.names.of(part.document_id, path)) not in names]
        self.pages: list[Finished] = []

    def add(self, page: Finished) -> None:
        """Write the page's figures beside each path of its document, and keep its texts."""
        for name in self._names[page.record.document_id]:
            for figure in page.record.figures:
                self._job.workspace.store.put(figure_file(name, figure), figure.image.data)
        self.pages.append(without_images(page))

    def publish(self, dataset: Path) -> None:
        """The documents and the dataset file, then the marker."""
        store, job = self._job.workspace.store, self._job
        for document, names in self._names.items():
            pages = [(page.record, page.markdown) for page in self.pages if page.record.document_id == document]
            for name in names:
                text = document_markdown(pages, name, page_markers=job.page_markers)
                store.put(markdown_file(name), text.encode())
        views = ViewsNote(job.key, sha256_of(dataset), dataset.stat().st_size)  # the upload may move the file
        store.upload(dataset, dataset_file(self._item.id))
        end_views(job.workspace, self._item, views)
        rows = [(page.record.page_id, page.markdown) for page in self.pages]
        summary = Summary(counts=_counts([page.record.status for page in self.pages]))
        publish(job.workspace, ASSEMBLE, job.key, self._item.name, finals_to_parquet(rows), summary)
