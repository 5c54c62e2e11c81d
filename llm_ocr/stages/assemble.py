"""Assemble: put descriptions into the Markdown, pages into documents, and rows into the dataset.

An item is the group of documents that share one dataset file. Its files are views: they are written whole, and
only by the newest generation that contains the item. The marker follows the files, so a marker means that they exist.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any

from llm_ocr.config.models import AssemblyCommand
from llm_ocr.errors import DatasetDamaged, StageMissing, WorkspaceError
from llm_ocr.results.dataset import FOLDER, DatasetWriter, dataset_file
from llm_ocr.results.documents import DocumentNames, document_markdown, figure_file, markdown_file, name_claims
from llm_ocr.results.schema import Images, finals_to_parquet
from llm_ocr.scheduling.follow import Published, ReadyItems
from llm_ocr.scheduling.scanner import PlannedItems
from llm_ocr.scheduling.shards import Split
from llm_ocr.stages import Progress
from llm_ocr.stages.job import Job
from llm_ocr.stages.loop import stepwise
from llm_ocr.stages.sharing import (
    SMALL,
    Expected,
    Sharing,
    begin,
    follows,
    key_before,
    pages_stage,
    sharing,
    split_of,
)
from llm_ocr.types import Counts, DocumentPart, FigureRecord, PageRecord, Status, plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.codec import parse_item_name, read_ahead
from llm_ocr.workspace.generations import totals_of
from llm_ocr.workspace.items import (
    Item,
    ViewsNote,
    end_views,
    is_damaged,
    items,
    note_beside,
    note_key,
    note_of_views,
    sha256_of,
)
from llm_ocr.workspace.keys import ASSEMBLE, DESCRIBE, EXTRACT, VIEW_NOTES, Claim, key_settings, stage_keys
from llm_ocr.workspace.publish import (
    CompactedMarkers,
    Marker,
    NotConserved,
    done_units,
    iter_markers,
    publish,
    standing_marker,
)
from llm_ocr.workspace.published import (
    choose,
    chosen_rows,
    finished_pages,
    published_figures,
    published_pages,
    without_images,
)
from llm_ocr.workspace.summaries import Summary, correction

#: Increased when the same rows give other Markdown or another dataset.
RESULT_VERSION = 11
#: Items in progress at a time: while an item reads and writes, the other computes.
_CONCURRENT_ITEMS = 2
#: Unit markers kept in memory.
_MARKERS_KEPT = 4096


async def assemble(command: Job[AssemblyCommand]) -> None:
    """Write the documents and the dataset files of this worker's unpublished items.

    With `follow`, an item is assembled as soon as its units are described.

    Args:
        command: The command, with an open workspace.

    Raises:
        StageMissing: Extract or Describe has not finished all units, and `follow` is not set.
        StorageError: The workspace cannot be read or written.
    """
    workspace, settings, progress = command.workspace, command.settings, command.progress
    pages_from = pages_stage(settings)
    source = await key_before(command, pages_from)
    describe = await _described(command, pages_from, source)
    made: dict[str, object] = {
        **({} if pages_from == EXTRACT else {"pages_from": pages_from}),
        "describe": describe,
        "extract": source,
        "page_markers": settings.page_markers,
        "dataset_images": settings.dataset_images,
        "result_version": RESULT_VERSION,
    }
    claim = Claim(workspace, ASSEMBLE, made)
    key = await asyncio.to_thread(claim.take)
    split = await split_of(command, ASSEMBLE)
    async with sharing(command, split, claim) as share:
        job = await asyncio.to_thread(assemble_job, workspace, key, made)
        broken, intact = await asyncio.to_thread(_finished, job, split)
        count = partial(_expected, job, split, (pages_from, source), intact)
        whole = (await asyncio.to_thread(begin, command, split, ASSEMBLE, count)).whole
        # Published items have no leases, so each of several workers starts at a random item.
        first = random.randrange(len(broken)) if broken and split.leases else 0
        again = (job.planned[place] for place in (*broken[first:], *broken[:first]))
        todo = chain(again, _todo(job, command, share, describe))
        await _assemble(job, todo, share, progress, whole)
        while share.grown:  # a newer generation may contain pages of the same items
            job = await asyncio.to_thread(assemble_job, workspace, key, made)
            await _assemble(job, _todo(job, command, share, describe), share, progress, whole)
        await asyncio.to_thread(share.finish, job.planned, note_beside)
    await asyncio.to_thread(_finish_dataset, command, job)
    progress.end()


async def _described(command: Job[AssemblyCommand], pages_from: str, source: str) -> str:
    """Return the key of the descriptions.

    For pages of a user-defined stage, the descriptions must be made of those pages. Descriptions of Extract's pages may
    contain content that the stage removed.
    """
    wanted = command.settings.describe_key or ""
    newest = await key_before(command, DESCRIBE, wanted)
    if wanted or pages_from == EXTRACT:
        return newest
    fitting = [one.key for one in stage_keys(command.workspace, DESCRIBE) if one.settings.get("extract") == source]
    if not fitting:
        raise StageMissing(
            f"the figures of {pages_from} are not described",
            hint=f"Run Describe with `pages_from={pages_from}` first.",
        )
    return await key_before(command, DESCRIBE, fitting[-1])


@dataclass(frozen=True, slots=True)
class AssembleJob:
    """State that all items of a plan share."""

    workspace: Workspace
    key: str
    planned: PlannedItems
    names: DocumentNames
    extracted: Callable[[str], Marker]  # returns the marker of a unit of the stage whose pages are assembled
    described: Callable[[str], Marker]  # returns the marker of a unit of Describe
    page_markers: bool  # whether the Markdown contains page markers
    images: Images  # in the dataset

    def pages(self, item: Item, unit: str, images: Images) -> Iterator[PageRecord]:
        """Read the page rows of one unit of an item."""
        return published_pages(self.workspace, self.extracted(unit), images, item.unit(unit))

    def descriptions(self, chosen: Mapping[str, str]) -> dict[str, FigureRecord]:
        """Read Describe's rows of the pages, given with the units of their effective rows, by figure id."""
        return published_figures(self.workspace, map(self.described, dict.fromkeys(chosen.values())), chosen)

    def expected(self, item: Item) -> int:
        """Return the number of pages of the item. A page that was read again counts once."""
        return sum(self.extracted(unit.id).counts.expected for unit in item.units) + item.opened

    def files(self, item: Item) -> Iterator[str]:
        """Yield the keys of the item's views, except figures."""
        yield dataset_file(item.id)
        for part in item.parts:
            yield from (markdown_file(self.names.of(part.document_id, path)) for path in paths_of(part))


def assemble_job(workspace: Workspace, key: str, made: Mapping[str, Any]) -> AssembleJob:
    """Return the state that all items share. Reads the whole plan once.

    Args:
        workspace: The workspace.
        key: The key of Assemble.
        made: The settings that the key is the hash of.
    """
    planned = PlannedItems(workspace)
    claims = (claim for item in planned.read() for part in item.parts for claim in name_claims(part))
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
    """Return a function from unit id to marker. It raises `StageMissing` for a unit without a marker."""
    return lru_cache(_MARKERS_KEPT)(partial(standing_marker, workspace, stage, key))


def paths_of(part: DocumentPart) -> tuple[str, ...]:
    """Return the paths of the part's document below its source roots."""
    return (part.relative, *part.aliases)


async def _assemble(job: AssembleJob, todo: Iterator[Item], share: Sharing, progress: Progress, whole: bool) -> None:
    slots = asyncio.Semaphore(_CONCURRENT_ITEMS)

    async def one(item: Item) -> None:
        try:
            if not whole:
                progress.correct(await asyncio.to_thread(job.expected, item), exact=True)
            statuses = await asyncio.to_thread(assemble_item, job, item)
            await asyncio.to_thread(share.done, item.name)
            for status in statuses:
                progress.count(status)
        finally:
            slots.release()

    async with asyncio.TaskGroup() as tasks:
        async for item in stepwise(todo):
            await slots.acquire()
            tasks.create_task(one(item))


def _finish_dataset(command: Job[AssemblyCommand], job: AssembleJob) -> None:
    """Make `load_dataset` open the dataset of a Hub repository once all workers have assembled their items.

    Raises:
        WorkspaceError: The dataset's folder has a file of another origin, which readers take for pages.
    """
    names = [job.planned.name(place) for place in range(len(job.planned))]
    own = {dataset_file(parse_item_name(name)[0]) for name in names}
    for info in job.workspace.store.list(f"{FOLDER}/"):
        if info.key.endswith(".parquet") and info.key not in own:
            raise WorkspaceError(
                f"{job.workspace.url}: {info.key} is no file of this run, but load_dataset would read its rows",
                hint=f"Move {info.key} out of the workspace, and run the same command again.",
            )
    from llm_ocr.compat.stage_dataset import is_repository, name_dataset

    if is_repository(command.workspace) and done_units(job.workspace, ASSEMBLE, job.key).issuperset(names):
        name_dataset(command)


def assemble_item(job: AssembleJob, item: Item) -> list[Status]:
    """Write one item's views, publish its Markdown, and return the statuses of its pages.

    Raises:
        NotConserved: The item has more or fewer rows than pages. Nothing was written.
        DataDamaged: The rows of a unit are missing, changed, or of another unit.
    """
    pages = partial(job.pages, item)
    chosen = choose(item.unit_ids, item.documents, pages, job.extracted)
    expected = job.expected(item)
    if len(chosen) != expected:
        raise NotConserved(
            f"{job.workspace.url}: item {item.name} has {len(chosen)} rows for {plural(expected, 'page')}",
            hint="This is a bug of llm-ocr, or a manual change of the workspace: please report it.",
        )
    descriptions = job.descriptions(chosen)
    names: dict[str, list[str]] = {}  # file names of each document, without repetition
    for part in item.parts:
        paths = (job.names.of(part.document_id, path) for path in paths_of(part))
        names[part.document_id] = list(dict.fromkeys([*names.get(part.document_id, ()), *paths]))
    wanted = job.images if job.images is Images.ALL else Images.FIGURES  # documents always contain the figures
    rows = chosen_rows(item.layers, chosen, pages, images=wanted)
    path, store = job.workspace.spool / f"{item.name}.parquet", job.workspace.store
    written: list[tuple[PageRecord, str]] = []  # pages without images, and their Markdown
    store.delete(note_key(item.id))  # so that the next Assemble rewrites views that are incomplete
    try:
        with DatasetWriter(path, job.images) as dataset:
            for page in finished_pages(rows, descriptions, images=wanted):
                dataset.add(page)
                for name in names[page.record.document_id]:
                    for figure in page.record.figures:
                        store.put(figure_file(name, figure), figure.image.data)
                written.append((without_images(page.record), page.final_markdown))
        for document, own in names.items():
            texts = [page for page in written if page[0].document_id == document]
            for name in own:
                text = document_markdown(texts, name, page_markers=job.page_markers)
                store.put(markdown_file(name), text.encode())
        views = ViewsNote(job.key, sha256_of(path), path.stat().st_size)  # the upload may move the file
        store.upload(path, dataset_file(item.id))
    finally:
        path.unlink(missing_ok=True)
    end_views(job.workspace, item, views)
    statuses = [record.status for record, _ in written]
    counts = Counts(len(statuses), *(statuses.count(one) for one in (Status.OK, Status.DEGRADED, Status.FAILED)))
    finals = finals_to_parquet([(record.page_id, markdown) for record, markdown in written])
    publish(job.workspace, ASSEMBLE, job.key, item.name, finals, Summary(counts=counts))
    return statuses


def _todo(job: AssembleJob, command: Job[AssemblyCommand], share: Sharing, describe: str) -> Iterator[Item]:
    """Yield this worker's items that have no marker."""
    if not follows(command.settings):
        yield from share.take(job.planned)
        return
    # Describe publishes a unit after Extract, so its marker is enough.
    published = Published(job.workspace.store, job.planned.units, DESCRIBE, describe)
    generations = len(job.planned.units.generations)
    yield from share.take(job.planned, ReadyItems(job.planned, published), generations)


def _finished(job: AssembleJob, split: Split) -> tuple[list[int], list[int]]:
    """Return this worker's published items: those whose views are missing or of another key, and the others."""
    done = done_units(job.workspace, ASSEMBLE, job.key)
    finished = [place for place in split.shard.of(range(len(job.planned))) if job.planned.name(place) in done]
    # Of a large plan, several workers read all notes only if another key may have written views.
    looks = split.alone or len(job.planned) <= SMALL or len(stage_keys(job.workspace, ASSEMBLE)) > 1
    broken = _broken(job, finished, looks=looks)
    return broken, sorted(set(finished).difference(broken))


def _expected(job: AssembleJob, split: Split, source: tuple[str, str], intact: list[int]) -> Expected:
    """Return the pages of this worker's items. Extract has counted the documents that the plan estimated."""
    planned = job.planned
    names = {planned.name(place) for place in intact}
    done = sum((marker.counts for marker in iter_markers(job.workspace, ASSEMBLE, job.key, names)), Counts())
    totals = totals_of(planned.units.generations)
    markers = iter_markers(job.workspace, *source) if totals.estimated else ()
    corrections = {marker.unit: correction(marker.summary) for marker in markers}
    if split.alone:
        return Expected(totals.expected + sum(corrections.values()), done)
    mine = [planned[place] for place in split.shard.of(range(len(planned)))]
    units = [unit for item in mine for unit in (*item.units, *item.newer)]
    rows = sum(unit.planned + corrections.get(unit.id, 0) for unit in units)
    return Expected(rows - sum(unit.replaces for item in mine for unit in item.newer), done)


def _broken(job: AssembleJob, finished: list[int], *, looks: bool) -> list[int]:
    """Return the items without note or dataset file; with `looks` also those whose views differ from their note."""
    if not finished:
        return []
    store = job.workspace.store
    views = {info.key: info for info in store.list(f"{FOLDER}/")}
    notes = {info.key: info.version for info in store.list(VIEW_NOTES)}

    def is_listed(place: int) -> bool:
        item, _ = parse_item_name(job.planned.name(place))
        return note_key(item) in notes and dataset_file(item) in views

    if not looks:
        return [place for place in finished if not is_listed(place)]
    views |= {info.key: info for info in store.list("documents/") if info.key.endswith(".md")}

    copied = CompactedMarkers(store, ASSEMBLE, job.key).among(notes)

    def is_whole(item: Item) -> bool:
        note = note_of_views(job.workspace, item, copied) if views.keys() >= set(job.files(item)) else None
        if note is None or note.key != job.key:
            return False
        return not is_damaged(job.workspace, note, views[dataset_file(item.id)])

    found = (job.planned[place] for place in finished)
    whole = read_ahead(is_whole, found, "views")
    return [place for place, is_kept in zip(finished, whole, strict=True) if not is_kept]


def rebuild_views(workspace: Workspace, damage: DatasetDamaged, say: Callable[[str], None]) -> None:
    """Write the views of items with a damaged dataset file again, from the results of the stages.

    Args:
        workspace: The workspace.
        damage: The damaged files.
        say: Receives a message for each file.

    Raises:
        DatasetDamaged: Another version of the library assembled an item. The error is `damage`.
    """
    jobs: dict[str, AssembleJob] = {}
    for item in items(workspace):
        if dataset_file(item.id) not in damage.keys:
            continue
        note = note_of_views(workspace, item)
        made = key_settings(workspace, ASSEMBLE, note.key) if note else {}
        if note is None or made.get("result_version") != RESULT_VERSION:
            raise damage
        if note.key not in jobs:
            jobs[note.key] = assemble_job(workspace, note.key, made)
        assemble_item(jobs[note.key], item)
        say(f"{dataset_file(item.id)} was damaged: rebuilt from the results of the stages")
    workspace.flush()
