"""`export --format dataset`: Parquet shards of an even size and a card, which `load_dataset` opens.

Shards that are there are left alone, for a name says what is in the file. A card stands from the beginning, so that
what an export that died has left can be told from the files of others. Shards that are of no use any more go last.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llm_ocr.api.export_dropping import Kept, put_list, without_bad_documents
from llm_ocr.api.export_job import Exported, ExportJob
from llm_ocr.api.export_notes import refuse_texts
from llm_ocr.api.export_output import Output
from llm_ocr.api.export_source import Assembled, assembled, facts
from llm_ocr.errors import ObjectNotFound, StorageError, UsageError, WorkspaceMismatch
from llm_ocr.results.export.card import CARD, OTHER_CARD, Standing, card, read_card
from llm_ocr.results.export.regroup import group_sizes, write_shard
from llm_ocr.results.export.shards import GLOB, PREFIX, Shard, cut, is_shard
from llm_ocr.results.parquet import release_memory
from llm_ocr.storage import ObjectInfo
from llm_ocr.types import Counts, Status
from llm_ocr.work.workspace import Workspace

_MB = 1_000_000
#: Files in a folder of a repository (the Hub's documentation).
_MOST_FILES = 10_000


async def export_dataset(job: ExportJob) -> Exported:
    """Publish the workspace's dataset.

    Raises `StageMissing` when it is not whole, `WorkspaceMismatch` when the output holds that of another workspace.
    """
    dataset = await asyncio.to_thread(assembled, job.workspace)
    kept: Kept | None = None
    if job.settings.drop_over_error_rate:
        most = job.settings.max_page_error_rate
        kept = await asyncio.to_thread(without_bad_documents, job.workspace, dataset, most)
        dataset = kept.dataset
    shards = await asyncio.to_thread(_plan, job, dataset)
    await asyncio.to_thread(job.output.check, job.workspace.url)
    await asyncio.to_thread(refuse_texts, job.output)
    place = await asyncio.to_thread(_look, job.output, dataset.identity, shards)
    known = await asyncio.to_thread(facts, job.workspace, dataset, job.output.name)
    if kept is not None:
        known = replace(known, documents=known.documents - kept.dropped, left_out=kept.dropped)
    await asyncio.to_thread(_begin, job, place, card(known, place.standing.front, whole=False))
    written = await _write_shards(job, shards, place)
    await asyncio.to_thread(_finish, job.output, place, card(known, place.standing.front), kept)
    sizes = {name: info.size for name, info in place.shards.items()} | written
    files = [sizes[shard.name] for shard in shards]
    load = job.output.load_line(GLOB, described=place.card == CARD)
    dropped = kept.dropped if kept is not None else 0
    return Exported(job.output.url, len(files), sum(files), dataset.rows, len(written), load, dropped=dropped)


@dataclass(frozen=True, slots=True)
class _Place:
    """The output as it was found: where our card goes and what stands there; the shards that are wanted and others."""

    card: str
    text: str | None
    standing: Standing
    shards: dict[str, ObjectInfo]
    stale: tuple[str, ...]


def _plan(job: ExportJob, dataset: Assembled) -> list[Shard]:
    store = job.workspace.store
    shards = list(cut(dataset.sources, job.settings.shard_size * _MB, lambda one: group_sizes(store.read_range, one)))
    if job.output.repository is not None and len(shards) > _MOST_FILES:
        enough = 1 + sum(source.size for source in dataset.sources) // (_MB * _MOST_FILES // 2)
        raise UsageError(
            f"{len(shards):,} files are more than the {_MOST_FILES:,} that a folder of {job.output.url} may hold",
            hint=f"Make them larger: --shard-size {enough}",
        )
    return shards


def _look(output: Output, identity: str, wanted: Sequence[Shard]) -> _Place:
    """Raises `WorkspaceMismatch` when another workspace's dataset is there."""
    found = {info.key: info for info in output.store.list(PREFIX) if is_shard(info.key)}
    name, text = CARD, _text(output, CARD)
    standing = read_card(text or "")
    if not standing.free:
        name, text = OTHER_CARD, _text(output, OTHER_CARD)
        standing = read_card(text or "")
    names = {shard.name for shard in wanted}
    stale = tuple(sorted(found.keys() - names))
    if standing.workspace != identity and (standing.workspace or stale):
        what = "the dataset of another workspace" if standing.workspace else f"an export of which no {name} tells"
        raise WorkspaceMismatch(
            f"{output.url} holds {what}",
            hint=f"Give another --output, or remove {name} and {PREFIX}*.parquet there first.",
        )
    return _Place(name, text, standing, {key: found[key] for key in found.keys() & names}, stale)


def _text(output: Output, key: str) -> str | None:
    try:
        return output.store.get(key).decode("utf-8", "replace")
    except ObjectNotFound:
        return None


def _begin(job: ExportJob, place: _Place, text: str) -> None:
    """Have a card there before the first shard."""
    if place.card == OTHER_CARD:
        url = job.output.url
        job.progress.say(f"{CARD} at {url} was not written by llm-ocr and stays; the dataset card is {OTHER_CARD}")
    if not place.standing.workspace:
        job.output.store.put(place.card, text.encode())


async def _write_shards(job: ExportJob, shards: Sequence[Shard], place: _Place) -> dict[str, int]:
    """The sizes of the shards that were written, by name. Each is made, sent and removed before the next one."""
    progress = job.progress
    missing = [shard for shard in shards if shard.name not in place.shards]
    progress.begin("export", len(shards), Counts(ok=len(shards) - len(missing)))
    total, done = sum(shard.size for shard in missing), 0
    written: dict[str, int] = {}
    for shard in missing:
        written[shard.name] = await asyncio.to_thread(_write, job, shard)
        done += shard.size
        progress.count(Status.OK)
        progress.say(f"{shard.name}: {written[shard.name] / _MB:,.1f} MB; {done / _MB:,.0f} of {total / _MB:,.0f} MB")
    progress.end()
    return written


def _write(job: ExportJob, shard: Shard) -> int:
    path = job.workspace.spool / Path(shard.name).name
    try:
        write_shard(path, shard.parts, job.workspace.store.read_range)
        _check_unchanged(job.workspace, shard)
        job.output.store.upload(path, shard.name)
        return path.stat().st_size
    finally:
        path.unlink(missing_ok=True)
        release_memory()


def _check_unchanged(workspace: Workspace, shard: Shard) -> None:
    for source in dict.fromkeys(part.source for part in shard.parts):
        info = workspace.store.stat(source.key)
        if info is None or info.version != source.version:
            raise StorageError(
                f"{workspace.url}: {source.key} was written anew while it was exported",
                hint="Wait until Assemble has ended, then run the same command again.",
            )


def _finish(output: Output, place: _Place, text: str, kept: Kept | None) -> None:
    """The card, then what older exports of ours have left; on the Hub it is one last commit."""
    put_list(output.store, kept)
    if place.text != text:
        output.store.put(place.card, text.encode())
    for name in place.stale:
        output.store.delete(name)
    output.flush()
