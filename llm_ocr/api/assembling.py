"""The Assemble stage over a workspace: per item its dataset file and documents, then the marker.

The files are views: written whole, and only by the newest generation that touches the item. They stand before the
marker does, so a marker means that they are there.
"""

import asyncio
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llm_ocr.api.describing import finished_units
from llm_ocr.api.extracting import shard_of
from llm_ocr.api.threads import stepwise
from llm_ocr.api.views import begin_views, end_views, key_of_views
from llm_ocr.results.dataset import DatasetWriter, dataset_file
from llm_ocr.results.documents import document_markdown, figure_file, markdown_file
from llm_ocr.results.finals import finals_to_parquet
from llm_ocr.results.paths import DocumentNames
from llm_ocr.results.schema import Images, figures_from_parquet, iter_pages
from llm_ocr.settings.models import AssembleSettings, RunSettings
from llm_ocr.stages import Progress
from llm_ocr.stages.assemble import Finished, choose, chosen_rows, dataset_row, finished_pages, without_images
from llm_ocr.types import Counts, DocumentPart, FigureRecord, PageRecord, Status
from llm_ocr.work.items import Item, items
from llm_ocr.work.keys import ASSEMBLE, DESCRIBE, EXTRACT, claim_key, required_key
from llm_ocr.work.publish import Marker, Summary, markers, publish, read_data
from llm_ocr.work.workspace import Workspace

#: Raised when the same rows give other Markdown or another dataset.
RESULT_VERSION = 1
#: Items under way at a time: one reads and writes while the other draws.
_SIDE_BY_SIDE = 2


async def assemble(workspace: Workspace, settings: AssembleSettings | RunSettings, progress: Progress) -> None:
    """Write documents and dataset of this worker's items that are not assembled yet.

    Raises `StageMissing` when Extract or Describe has not finished all units.
    """
    job = await asyncio.to_thread(_job, workspace, settings)
    todo = await asyncio.to_thread(_begin, job, settings, progress)
    slots = asyncio.Semaphore(_SIDE_BY_SIDE)

    async def one(item: Item) -> None:
        try:
            statuses = await asyncio.to_thread(assemble_item, job, item)
            for status in statuses:
                progress.count(status)
        finally:
            slots.release()

    async with asyncio.TaskGroup() as tasks:
        async for item in stepwise(todo):
            await slots.acquire()
            tasks.create_task(one(item))
    progress.end()


@dataclass(frozen=True, slots=True)
class AssembleJob:
    """What all items of a run need."""

    workspace: Workspace
    key: str
    extracted: Mapping[str, Marker]
    described: Mapping[str, Marker]
    names: DocumentNames
    page_markers: bool
    images: Images

    def pages(self, unit: str, images: Images) -> Iterator[PageRecord]:
        """The rows of one unit of Extract."""
        return iter_pages(io.BytesIO(read_data(self.workspace, self.extracted[unit])), images=images)

    def descriptions(self, units: Iterable[str]) -> dict[str, FigureRecord]:
        """Describe's rows of these units by figure id."""
        described = (self.described[unit] for unit in units)
        wanted = (marker for marker in described if marker.figures.expected)
        data = (figures_from_parquet(io.BytesIO(read_data(self.workspace, marker))) for marker in wanted)
        return {record.figure_id: record for records in data for record in records}


def _job(workspace: Workspace, settings: AssembleSettings | RunSettings) -> AssembleJob:
    source = required_key(workspace, EXTRACT)
    extracted = finished_units(workspace, EXTRACT, source)
    describe = required_key(workspace, DESCRIBE, settings.describe_key or "")
    described = finished_units(workspace, DESCRIBE, describe)
    identity = {
        "describe": describe,
        "extract": source,
        "page_markers": settings.page_markers,
        "dataset_images": settings.dataset_images,
        "result_version": RESULT_VERSION,
    }
    claims = ((part.document_id, path) for item in items(workspace) for part in item.parts for path in _paths(part))
    return AssembleJob(
        workspace,
        claim_key(workspace, ASSEMBLE, identity),
        extracted,
        described,
        DocumentNames.of_plan(claims),
        settings.page_markers,
        Images(settings.dataset_images),
    )


def _paths(part: DocumentPart) -> tuple[str, ...]:
    return (part.relative, *part.aliases)


def _begin(job: AssembleJob, settings: AssembleSettings | RunSettings, progress: Progress) -> Iterator[Item]:
    """This worker's items whose marker or views are missing, or whose views are of another key."""
    done = markers(job.workspace, ASSEMBLE, job.key)
    store = job.workspace.store
    views = {info.key for info in store.list("dataset/")}
    views |= {info.key for info in store.list("documents/") if info.key.endswith(".md")}
    expected, finished, whole = 0, Counts(), set[str]()
    for item in shard_of(settings).of(items(job.workspace)):
        pages = sum(unit.expected for unit in (*item.units, *item.newer)) - sum(unit.replaces for unit in item.newer)
        expected += pages
        if item.name in done and views.issuperset(_files(job, item)) and key_of_views(job.workspace, item) == job.key:
            finished += done[item.name].counts
            whole.add(item.name)
    progress.begin(ASSEMBLE, expected, finished)
    return (item for item in shard_of(settings).of(items(job.workspace)) if item.name not in whole)


def _files(job: AssembleJob, item: Item) -> Iterator[str]:
    """The item's views, figures aside."""
    yield dataset_file(item.id)
    for part in item.parts:
        yield from (markdown_file(job.names.of(part.document_id, path)) for path in _paths(part))


def assemble_item(job: AssembleJob, item: Item) -> list[Status]:
    """Write one item's views and publish its Markdown; the statuses of its pages."""
    chosen = choose(item.unit_ids, item.documents, job.pages)
    descriptions = job.descriptions(dict.fromkeys(chosen.values()))
    writer = _Views(job, item, descriptions)
    wanted = job.images if job.images is Images.ALL else Images.FIGURES  # documents need the figures whatever
    rows = chosen_rows(item.layers, chosen, job.pages, images=wanted)
    path = job.workspace.spool / f"{item.name}.parquet"
    begin_views(job.workspace, item)
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
            names += [n for path in _paths(part) if (n := job.names.of(part.document_id, path)) not in names]
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
        store.upload(dataset, dataset_file(self._item.id))
        end_views(job.workspace, self._item, job.key)
        rows = [(page.record.page_id, page.markdown) for page in self.pages]
        summary = Summary(counts=_counts([page.record.status for page in self.pages]))
        publish(job.workspace, ASSEMBLE, job.key, self._item.name, finals_to_parquet(rows), summary)
