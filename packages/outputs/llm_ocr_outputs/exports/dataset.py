"""Export with `format=dataset`: Parquet shards of even size and a card."""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from llm_ocr.errors import DatasetDamaged, ObjectNotFound, StorageError, UsageError, WorkspaceMismatch
from llm_ocr.exporting import Exported, ExportJob, NothingLeft, Output
from llm_ocr.results.dataset import CARD, OTHER_CARD, Standing, read_card
from llm_ocr.results.schema import release_memory
from llm_ocr.storage import ObjectInfo
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, Status
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.items import sha256_of
from llm_ocr_outputs.exports.card import card
from llm_ocr_outputs.exports.shards import (
    GLOB,
    PREFIX,
    Read,
    Shard,
    Source,
    UnreadableFile,
    cut,
    excluded_of,
    group_sizes,
    is_shard,
    write_shard,
)
from llm_ocr_outputs.files import DROPPED, json_line, refuse_texts
from llm_ocr_outputs.source import Assembled, facts, undamaged

# Documents dropped by their error rate, and pages left out: the dataset files that lose rows, and the list of dropped
# documents.


def without_excluded(
    workspace: Workspace, dataset: Assembled, most: float | None, *, balanced: bool
) -> tuple[Assembled, list[bytes], int]:
    """Return the dataset without documents whose share of bad pages is above `most` (0..1).

    With `balanced`, pages that are not balanced are left out. A file that loses rows has another content id, which
    renames its shards; all other files are unchanged. Reads eight small columns of every file.

    Returns:
        The dataset; a line of the list of dropped documents for each; and the number of pages that are left out.

    Raises:
        StorageError: a file could not be read.
    """
    sources: list[Source] = []
    lines: list[bytes] = []
    left_out = 0
    judged = [replace(source, most=most, balanced=balanced) for source in dataset.sources]
    found = codec.read_ahead(partial(excluded_of, workspace.store.read_range), judged, "export")
    for source, (bad, pages) in zip(judged, found, strict=True):
        lines += map(json_line, bad)
        left_out += pages
        content = source.content
        if bad:
            ids = "\n".join(sorted(document["document_id"] for document in bad))
            content += f" without {hashlib.sha256(ids.encode('utf-8', 'replace')).hexdigest()[:16]}"
        if pages:
            content += " only balanced"
        if left := source.rows - sum(document["pages"] for document in bad) - pages:
            changed = {"most": most if bad else None, "balanced": pages > 0, "rows": left}
            sources.append(replace(source, content=content, **changed))
    return replace(dataset, sources=tuple(sources)), lines, left_out


# Shards and card that `load_dataset` opens. Existing shards are kept, because a shard's name identifies its content.
# The card is written first, so that the files of an interrupted export are recognizable. Obsolete shards are removed
# last.


_MB = 1_000_000
#: Files in a folder of a repository (the Hub's documentation).
_MOST_FILES = 10_000


async def export_dataset(job: ExportJob) -> Exported:
    """Publish the workspace's dataset.

    Raises:
        StageMissing: the dataset is incomplete.
        WorkspaceMismatch: the output has the dataset of another workspace.
        NothingLeft: the setting `only` leaves out all pages.
        DatasetDamaged: files differ from the files that Assemble wrote.
    """
    try:
        return await _export_dataset(job)
    except UnreadableFile as error:
        raise DatasetDamaged(job.workspace.url, [error.key]) from error


async def _export_dataset(job: ExportJob) -> Exported:
    dataset = await asyncio.to_thread(undamaged, job.workspace, job.source_folder)
    dropped, left_out = list[bytes](), 0
    balanced = job.settings.only is not None
    if job.settings.drop_over_error_rate or balanced:
        most = job.settings.max_page_error_rate if job.settings.drop_over_error_rate else None
        given = (job.workspace, dataset, most)
        dataset, dropped, left_out = await asyncio.to_thread(without_excluded, *given, balanced=balanced)
        if left_out and not dataset.rows:
            raise NothingLeft(job.workspace.url, left_out)
    shards = await asyncio.to_thread(_plan, job, dataset)
    await asyncio.to_thread(job.output.check, job.workspace.url)
    await asyncio.to_thread(refuse_texts, job.output)
    place = await asyncio.to_thread(_look, job.output, dataset.identity, shards)
    known = await asyncio.to_thread(facts, job.workspace, dataset, job.output.name)
    documents = known.documents - len(dropped)
    known = replace(known, documents=documents, left_out=len(dropped), unbalanced=left_out)
    # `datasets` caches a folder by its name and the `configs` of its card. Two exports differ only by the names of
    # their shards, which contain a hash of the content. For a repository, `datasets` uses the commit.
    names = [shard.name for shard in shards]
    described = partial(card, known, place.standing.front, files=GLOB if job.output.repository else names or GLOB)
    await asyncio.to_thread(_begin, job, place, described(whole=False))
    written = await _write_shards(job, shards, place)
    await asyncio.to_thread(_finish, job.output, place, described(), b"".join(dropped))
    sizes = {name: info.size for name, info in place.shards.items()} | written
    files = [sizes[shard.name] for shard in shards]
    load = job.output.load_line(GLOB, described=place.card == CARD)
    place_of = (job.output.url, len(files), sum(files), dataset.rows, len(written), load)
    return Exported(*place_of, dropped=len(dropped), left_out=left_out)


@dataclass(frozen=True, slots=True)
class _Place:
    """Existing output: the key and content of the card, wanted shards that exist, and obsolete shards."""

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
            f"{len(shards):,} files exceed the limit of a folder of {job.output.url}, {_MOST_FILES:,} files",
            hint=f"Write larger files: `shard_size={enough}`",
        )
    return shards


def _look(output: Output, identity: str, wanted: Sequence[Shard]) -> _Place:
    """Inspect the output.

    Raises:
        WorkspaceMismatch: the output has another workspace's dataset.
    """
    found = {info.key: info for info in output.store.list(PREFIX) if is_shard(info.key)}
    name, text = CARD, _text(output, CARD)
    standing = read_card(text or "")
    if not standing.free:
        name, text = OTHER_CARD, _text(output, OTHER_CARD)
        standing = read_card(text or "")
    names = {shard.name for shard in wanted}
    stale = tuple(sorted(found.keys() - names))
    if standing.workspace != identity and (standing.workspace or stale):
        what = "the dataset of another workspace" if standing.workspace else f"an export without a {name}"
        raise WorkspaceMismatch(
            f"{output.url} holds {what}",
            hint=f"Set another `output`, or first remove {name} and {PREFIX}*.parquet there.",
        )
    return _Place(name, text, standing, {key: found[key] for key in found.keys() & names}, stale)


def _text(output: Output, key: str) -> str | None:
    try:
        return output.store.get(key).decode("utf-8", "replace")
    except ObjectNotFound:
        return None


def _begin(job: ExportJob, place: _Place, text: str) -> None:
    """Write a card before the first shard."""
    if place.card == OTHER_CARD:
        url = job.output.url
        job.progress.say(f"{CARD} at {url} is not by llm-ocr and remains; the dataset card is {OTHER_CARD}")
    if not place.standing.workspace:
        job.output.store.put(place.card, text.encode())


async def _write_shards(job: ExportJob, shards: Sequence[Shard], place: _Place) -> dict[str, int]:
    """Write the missing shards one at a time; return their sizes by name."""
    progress = job.progress
    missing = [shard for shard in shards if shard.name not in place.shards]
    progress.begin("export", len(shards), Counts(ok=len(shards) - len(missing)))
    total, done = sum(shard.size for shard in missing), 0
    written: dict[str, int] = {}
    files = _Proved(job.workspace, {part.source.key: part.source for shard in missing for part in shard.parts})
    for shard in missing:
        written[shard.name] = await asyncio.to_thread(_write, job, shard, files.read)
        done += shard.size
        progress.count(Status.OK)
        progress.say(f"{shard.name}: {written[shard.name] / _MB:,.1f} MB; {done / _MB:,.0f} of {total / _MB:,.0f} MB")
    progress.end()
    return written


class _Proved:
    """Reads ranges of dataset files; a file in a store is fetched, and its hash checked, before its first range.

    Shards use their files in order, so one file at a time is on the local disk.
    """

    def __init__(self, workspace: Workspace, sources: Mapping[str, Source]) -> None:
        self._workspace = workspace
        self._sources = sources
        self._path = workspace.spool / "export-source.parquet"
        self._key = ""

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return a range of a file, as `ObjectStore.read_range` does.

        Raises:
            DatasetDamaged: the file's hash is wrong.
        """
        store, source = self._workspace.store, self._sources[key]
        if isinstance(store, LocalStore):  # its files were checked before
            return store.read_range(key, start, length)
        if self._key != key:
            self._key = ""
            store.download(key, self._path)
            if source.sha256 and sha256_of(self._path) != source.sha256:  # older versions noted no hash
                _check_unchanged(self._workspace, [source])
                raise DatasetDamaged(self._workspace.url, [key])
            self._key = key
        with self._path.open("rb") as file:
            file.seek(start)
            return file.read(length)


def _write(job: ExportJob, shard: Shard, read: Read) -> int:
    path = job.workspace.spool / Path(shard.name).name
    try:
        write_shard(path, shard.parts, read)
        _check_unchanged(job.workspace, dict.fromkeys(part.source for part in shard.parts))
        job.output.store.upload(path, shard.name)
        return path.stat().st_size
    finally:
        path.unlink(missing_ok=True)
        release_memory()


def _check_unchanged(workspace: Workspace, sources: Iterable[Source]) -> None:
    for source in sources:
        info = workspace.store.stat(source.key)
        if info is None or info.version != source.version:
            raise StorageError(
                f"{workspace.url}: {source.key} changed during the export",
                hint="Wait until Assemble has finished, then export again.",
            )


def _finish(output: Output, place: _Place, text: str, dropped: bytes) -> None:
    """Write the list of dropped documents and the card, then remove obsolete files of older exports.

    On the Hub, this is the last commit.
    """
    try:
        standing = output.store.get(DROPPED)
    except ObjectNotFound:
        standing = b""
    if dropped and dropped != standing:
        output.store.put(DROPPED, dropped)
    elif standing and not dropped:
        output.store.delete(DROPPED)
    if place.text != text:
        output.store.put(place.card, text.encode())
    for name in place.stale:
        output.store.delete(name)
    output.flush()
