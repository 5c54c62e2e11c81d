"""What the formats of `export` have in common that write files of texts: batches of documents, one after the other.

A batch is so many items of the plan, and its name says what is in it. What a batch has written stands in a note at the
output, after its files; an export that is run again does the batches without a note, and at the end removes the files
of batches that are of no use any more. Notes are also what tells our files from those of others: see `export_notes`.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llm_ocr.api.assembled_rows import AssembledRows, Document
from llm_ocr.api.export_job import Exported, ExportJob
from llm_ocr.api.export_notes import DROPPED, Note, Notes
from llm_ocr.api.export_source import Assembled, undamaged
from llm_ocr.errors import ObjectNotFound, StorageError
from llm_ocr.results.export.lines import json_line
from llm_ocr.results.parquet import release_memory
from llm_ocr.types import Counts, Status

#: Pages of a batch: enough for a file that is worth opening, few enough for memory.
PAGES = 5000
#: Files, and bytes in memory, that are written side by side before the next ones are made.
_FILES, _BYTES = 256, 32_000_000
#: Requests to the stores at the same time.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class File:
    """One file of an export. `records` is how many rows of the format are in it.

    `fetch` gives the bytes instead of `data` where they need not be made: it is called in a thread, once.
    """

    key: str
    data: bytes = field(default=b"", repr=False)
    records: int = 1
    fetch: Callable[[], bytes] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """Items of the plan that are written together; `name` is `00007-<16 hex of all that decides what is in it>`.

    `key` is that of Assemble.
    """

    name: str
    places: range
    pages: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """One format. `settings` are those that change its files, `version` is raised when the same rows give others.

    `write` makes the files of a batch from its documents, which come one by one; keys are relative to the output.
    `opened` gives the line of Python or shell that opens the result at a URL; `unit` is what a record is: `pages`.
    """

    name: str
    version: int
    write: Callable[[Batch, Iterator[Document]], Iterator[File]]
    opened: Callable[[str], str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "documents"


class _Stopped(Exception):
    """The export is over for this thread: it was interrupted."""


@dataclass(frozen=True, slots=True)
class _Work:
    """One export at work. `stop` is set when nobody waits for it any longer."""

    job: ExportJob
    form: Form
    rows: AssembledRows
    notes: Notes
    pool: ThreadPoolExecutor
    stop: threading.Event = field(default_factory=threading.Event)


async def export_files(job: ExportJob, form: Form) -> Exported:
    """Write the workspace's documents in the form.

    Raises `StageMissing` when it is not whole, `WorkspaceMismatch` when the output holds another export or files of
    others.
    """
    dataset = await asyncio.to_thread(undamaged, job.workspace)
    rows = await asyncio.to_thread(AssembledRows, job.workspace, dataset.key)
    batches = list(_batches(dataset, form, _policy(job)))
    await asyncio.to_thread(job.output.check, job.workspace.url)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="llm-ocr-export") as pool:
        notes = Notes(job.output, job.workspace.spool / "export-notes", pool)
        work = _Work(job, form, rows, notes, pool)
        try:
            await asyncio.to_thread(notes.claim, dataset.identity, form.name)
            await asyncio.to_thread(notes.retire, [batch.name for batch in batches])
            written = await _write(work, batches)
            await asyncio.to_thread(_finish, work, batches)
        finally:
            work.stop.set()
    done = [notes.done[batch.name] for batch in batches]
    return Exported(
        url=job.output.url,
        files=sum(one.files for one in done),
        size=sum(one.size for one in done),
        rows=sum(one.records for one in done),
        written=written,
        load=form.opened(job.output.url),
        unit=form.unit,
        dropped=sum(one.dropped for one in done),
    )


def _policy(job: ExportJob) -> float | None:
    """The share of bad pages beyond which a document is left out; None: all documents are in."""
    settings = job.settings
    return settings.max_page_error_rate if settings.drop_over_error_rate else None


def _batches(dataset: Assembled, form: Form, policy: float | None) -> Iterator[Batch]:
    about = json.dumps([form.name, form.version, dict(form.settings), policy], sort_keys=True).encode()
    start, pages, digest, number = 0, 0, hashlib.sha256(about), 0
    for place, (source, count) in enumerate(zip(dataset.sources, dataset.counts, strict=True)):
        if pages and pages + count > PAGES:
            yield Batch(f"{number:05d}-{digest.hexdigest()[:16]}", range(start, place), pages, dataset.key)
            start, pages, digest, number = place, 0, hashlib.sha256(about), number + 1
        pages += count
        digest.update(source.content.encode())
    yield Batch(f"{number:05d}-{digest.hexdigest()[:16]}", range(start, len(dataset.sources)), pages, dataset.key)


async def _write(work: _Work, batches: list[Batch]) -> int:
    """Do the batches that have no note; how many files were written."""
    progress, done = work.job.progress, work.notes.done
    before = sum((done[batch.name].counts for batch in batches if batch.name in done), Counts())
    progress.begin(work.form.name, sum(batch.pages for batch in batches), before)
    written = 0
    for batch in batches:
        if batch.name not in done:
            await asyncio.to_thread(_write_batch, work, batch)
            written += done[batch.name].files
    progress.end()
    return written


def _write_batch(work: _Work, batch: Batch) -> None:
    note = Note()
    files = work.form.write(batch, _kept(work, batch, note))
    for number, group in enumerate(_groups(files)):
        for file in group:
            if file.key in note.files:
                raise StorageError(f"{work.job.output.url}: two documents want the file {file.key}")
            note.files[file.key] = len(file.data)
            note.records += file.records
        work.notes.begin(batch.name, number, [file.key for file in group])
        note.files.update(work.pool.map(lambda file: _put(work, file), group))
    work.notes.end(batch.name, note)
    release_memory()


def _groups(files: Iterable[File]) -> Iterator[list[File]]:
    """Files that are in memory together."""
    group: list[File] = []
    size = 0
    for file in files:
        group.append(file)
        size += len(file.data)
        if len(group) >= _FILES or size >= _BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _put(work: _Work, file: File) -> tuple[str, int]:
    if work.stop.is_set():
        raise _Stopped
    data = file.data if file.fetch is None else file.fetch()
    work.job.output.store.put(file.key, data)
    return file.key, len(data)


def _kept(work: _Work, batch: Batch, note: Note) -> Iterator[Document]:
    """The batch's documents; those with too many bad pages go into the note instead."""
    most = _policy(work.job)
    for place in batch.places:
        for document in work.rows.documents(work.rows.item(place)):
            if work.stop.is_set():
                raise _Stopped
            for row in document.rows:
                status = row.record.status
                note.pages[status.value] = note.pages.get(status.value, 0) + 1
                work.job.progress.count(status)
            if most is not None and document.error_rate > most:
                note.dropped.append(_dropped(document))
            else:
                yield document


def _dropped(document: Document) -> dict[str, Any]:
    records = [row.record for row in document.rows]
    return {
        "document_id": document.id,
        "source": document.source,
        "pages": len(records),
        "failed": sum(record.status is Status.FAILED for record in records),
        "error_rate": round(document.error_rate, 6),
        "reasons": sorted({record.reason.value for record in records if record.reason}),
    }


def _finish(work: _Work, batches: list[Batch]) -> None:
    """The list of what was left out; then what older exports of ours have left goes."""
    _list_dropped(work, [batch.name for batch in batches])
    work.notes.tidy()
    work.job.output.flush()


def _list_dropped(work: _Work, names: list[str]) -> None:
    output = work.job.output
    if not any(work.notes.done[name].dropped for name in names):
        return
    path: Path = work.job.workspace.spool / DROPPED
    with path.open("wb") as file:
        file.writelines(json_line(one) for one in work.notes.dropped(names))
    if _digest_at(work) != hashlib.sha256(path.read_bytes()).digest():
        output.store.upload(path, DROPPED)
    path.unlink()


def _digest_at(work: _Work) -> bytes:
    try:
        return hashlib.sha256(work.job.output.store.get(DROPPED)).digest()
    except ObjectNotFound:
        return b""
