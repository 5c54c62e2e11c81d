"""The Assemble stage over a workspace: which items are this worker's, and which of them are done."""

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from llm_ocr.api.assembly import AssembleJob, assemble_item, assemble_job
from llm_ocr.api.following import follows, key_before, pages_stage
from llm_ocr.api.job import Job
from llm_ocr.api.sharing import SMALL, Sharing, Split, sharing, shows_all, split_of
from llm_ocr.api.stage_dataset import is_repository, name_dataset
from llm_ocr.api.threads import stepwise
from llm_ocr.api.views import NOTES, is_damaged, note_key, note_of_views
from llm_ocr.errors import DatasetDamaged, StageMissing
from llm_ocr.results.dataset import FOLDER, dataset_file
from llm_ocr.settings.models import AssemblyCommand
from llm_ocr.stages import Progress
from llm_ocr.types import Counts
from llm_ocr.work.generations import totals_of
from llm_ocr.work.items import Item, items, parse_item_name
from llm_ocr.work.keys import ASSEMBLE, DESCRIBE, EXTRACT, claim_key, key_settings, stage_keys
from llm_ocr.work.publish import done_units, iter_markers
from llm_ocr.work.ready import Published, ReadyItems
from llm_ocr.work.summary import correction
from llm_ocr.work.workspace import Workspace

#: Raised when the same rows give other Markdown or another dataset.
RESULT_VERSION = 5
#: Items under way at a time: one reads and writes while the other draws.
_SIDE_BY_SIDE = 2
#: Notes on views that are read at a time, and how many of them before the next are begun.
_AT_ONCE, _AHEAD = 16, 128


async def assemble(command: Job[AssemblyCommand]) -> None:
    """Write documents and dataset of this worker's items that are not assembled yet.

    With `follow` each item when its units are described. Raises `StageMissing`, unless it follows, when Extract or
    Describe has not finished all units.
    """
    workspace, settings, progress = command.workspace, command.settings, command.progress
    pages_from = pages_stage(settings)
    source = await key_before(command, pages_from)
    describe = await _described(command, pages_from, source)
    made = _identity(pages_from, source, describe, settings)
    key = await asyncio.to_thread(claim_key, workspace, ASSEMBLE, made)
    split = await split_of(command, ASSEMBLE)
    async with sharing(command, split, ASSEMBLE, key) as hands:
        job = await asyncio.to_thread(assemble_job, workspace, key, made)
        whole = not follows(settings) and await asyncio.to_thread(shows_all, command, split, ASSEMBLE)
        broken = await asyncio.to_thread(_begin, job, split, (pages_from, source), progress, whole=whole)
        todo = chain(_again(job, broken, split), _todo(job, command, hands, describe))
        await _assemble(job, todo, hands, progress, whole)
        while hands.grown:  # all items of the older plan are through: a newer generation may hold pages of the same
            job = await asyncio.to_thread(assemble_job, workspace, key, made)
            await _assemble(job, _todo(job, command, hands, describe), hands, progress, whole)
    await asyncio.to_thread(_show, command, job)
    progress.end()


def _show(command: Job[AssemblyCommand], job: AssembleJob) -> None:
    """In a repository of the Hub, `load_dataset` opens the dataset once all workers have done their items."""
    if is_repository(command.workspace):
        done = done_units(job.workspace, ASSEMBLE, job.key)
        if all(job.planned.name(place) in done for place in range(len(job.planned))):
            name_dataset(command)


async def _described(command: Job[AssemblyCommand], pages_from: str, source: str) -> str:
    """The key of the descriptions; for pages that a user's stage has changed, one made of those.

    Descriptions of Extract's pages may say what that stage took out.
    """
    wanted = command.settings.describe_key or ""
    newest = await key_before(command, DESCRIBE, wanted)
    if wanted or pages_from == EXTRACT:
        return newest
    fitting = [one.key for one in stage_keys(command.workspace, DESCRIBE) if one.settings.get("extract") == source]
    if not fitting:
        raise StageMissing(
            f"the figures of {pages_from} are not described",
            hint=f"Run first: llm-ocr describe --pages-from {pages_from} -w {command.workspace.url}",
        )
    return await key_before(command, DESCRIBE, fitting[-1])


def _identity(pages_from: str, source: str, describe: str, settings: AssemblyCommand) -> dict[str, object]:
    return {
        **({} if pages_from == EXTRACT else {"pages_from": pages_from}),
        "describe": describe,
        "extract": source,
        "page_markers": settings.page_markers,
        "dataset_images": settings.dataset_images,
        "result_version": RESULT_VERSION,
    }


async def _assemble(job: AssembleJob, todo: Iterator[Item], hands: Sharing, progress: Progress, whole: bool) -> None:
    slots = asyncio.Semaphore(_SIDE_BY_SIDE)

    async def one(item: Item) -> None:
        try:
            if not whole:
                progress.correct(await asyncio.to_thread(job.expected, item), exact=True)
            statuses = await asyncio.to_thread(assemble_item, job, item)
            await asyncio.to_thread(hands.done, item.name)
            for status in statuses:
                progress.count(status)
        finally:
            slots.release()

    async with asyncio.TaskGroup() as tasks:
        async for item in stepwise(todo):
            await slots.acquire()
            tasks.create_task(one(item))


def _todo(job: AssembleJob, command: Job[AssemblyCommand], hands: Sharing, describe: str) -> Iterator[Item]:
    """This worker's items that have no marker."""
    if not follows(command.settings):
        yield from hands.take(job.planned)
        return
    # Describe does a unit after Extract, so its marker is enough.
    published = Published(job.workspace.store, job.planned.units, DESCRIBE, describe)
    generations = len(job.planned.units.generations)
    yield from hands.follow(job.planned, ReadyItems(job.planned, published), generations)


def _begin(job: AssembleJob, split: Split, source: tuple[str, str], progress: Progress, *, whole: bool) -> list[int]:
    """This worker's items with a marker whose views are missing, or of another key."""
    done = done_units(job.workspace, ASSEMBLE, job.key)
    finished = [place for place in split.shard.of(range(len(job.planned))) if job.planned.name(place) in done]
    # Many workers do not all read all notes of a large plan, unless there is another key that may have written views.
    looks = split.alone or len(job.planned) <= SMALL or len(stage_keys(job.workspace, ASSEMBLE)) > 1
    broken = _broken(job, finished, looks=looks)
    if not whole:
        progress.begin(ASSEMBLE, 0, Counts())
        return broken
    names = {job.planned.name(place) for place in set(finished).difference(broken)}
    counts = (marker.counts for marker in iter_markers(job.workspace, ASSEMBLE, job.key, names))
    progress.begin(ASSEMBLE, _expected(job, split, source), sum(counts, Counts()))
    return broken


def _expected(job: AssembleJob, split: Split, source: tuple[str, str]) -> int:
    """Pages of this worker's items; those of documents that the plan did not count are known since Extract."""
    planned = job.planned
    totals = totals_of(planned.units.generations)
    markers = iter_markers(job.workspace, *source) if totals.estimated else ()
    corrections = {marker.unit: correction(marker.summary) for marker in markers}
    if split.alone:
        return totals.expected + sum(corrections.values())
    mine = [planned[place] for place in split.shard.of(range(len(planned)))]
    units = [unit for item in mine for unit in (*item.units, *item.newer)]
    rows = sum(unit.planned + corrections.get(unit.id, 0) for unit in units)
    return rows - sum(unit.replaces for item in mine for unit in item.newer)


def _broken(job: AssembleJob, finished: list[int], *, looks: bool) -> list[int]:
    """The items without their note or dataset file; with `looks` also those whose views are not as the note says."""
    if not finished:
        return []
    store = job.workspace.store
    views = {info.key: info for info in store.list(f"{FOLDER}/")}
    notes = {info.key for info in store.list(NOTES)}

    def is_listed(place: int) -> bool:
        item, _ = parse_item_name(job.planned.name(place))
        return note_key(item) in notes and dataset_file(item) in views

    if not looks:
        return [place for place in finished if not is_listed(place)]
    views |= {info.key: info for info in store.list("documents/") if info.key.endswith(".md")}

    def is_whole(item: Item) -> bool:
        note = note_of_views(job.workspace, item) if views.keys() >= set(job.files(item)) else None
        if note is None or note.key != job.key:
            return False
        return not is_damaged(job.workspace, note, views[dataset_file(item.id)])

    broken = []
    rest = iter(finished)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="llm-ocr views") as readers:
        while some := [(place, job.planned[place]) for place in islice(rest, _AHEAD)]:
            whole = readers.map(is_whole, (item for _, item in some))
            broken += [place for (place, _), one in zip(some, whole, strict=True) if not one]
    return broken


def rebuild_views(workspace: Workspace, damage: DatasetDamaged, say: Callable[[str], None]) -> None:
    """Make the views of items with a damaged dataset file again, from the results of the stages.

    Raises `damage` itself for what another version of the library has assembled.
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
        say(f"{dataset_file(item.id)} was damaged: made again from the results of the stages")
    workspace.flush()


def _again(job: AssembleJob, broken: list[int], split: Split) -> Iterator[Item]:
    """The items; of workers that share by leases, which done items have none of, each begins at a place of its own."""
    begin = random.randrange(len(broken)) if broken and split.leases else 0
    for place in (*broken[begin:], *broken[:begin]):
        yield job.planned[place]
