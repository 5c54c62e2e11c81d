"""Formats that write text files: document batches, and the notes that protect an existing output."""

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from llm_ocr.errors import ObjectNotFound, PageFailure, StorageError, WorkspaceMismatch
from llm_ocr.exporting import Exported, ExportJob, NothingLeft, Output
from llm_ocr.results.balance import is_balanced
from llm_ocr.results.markdown import clean
from llm_ocr.results.schema import release_memory
from llm_ocr.types import Counts, Reason, Status
from llm_ocr.workspace import codec
from llm_ocr_outputs.source import Assembled, AssembledRows, Document, undamaged

# JSON of an export: UTF-8 for any reader; equal values give equal bytes.


#: Line separators of Python's `splitlines` and others, which JSON does not escape; they occur only in its texts.
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")


def json_line(value: object) -> bytes:
    """Return a line of JSON with its newline; lone surrogates in texts become U+FFFD. Keys keep their order.

    Raises:
        ValueError: a number has no JSON form.
    """
    return _escaped(json_text(value))


def json_document(value: Mapping[str, object]) -> bytes:
    """Return an object with a line for each field, and for each item of its lists. See `json_line`."""

    def text(content: object) -> str:
        if isinstance(content, list) and content:
            return "[\n" + ",\n".join(map(json_text, content)) + "\n]"
        return json_text(content)

    return _escaped("{\n" + ",\n".join(f"{json_text(name)}:{text(content)}" for name, content in value.items()) + "\n}")


def json_text(value: object) -> str:
    """Return compact JSON; see `json_line`."""
    # Cleaned as a whole: surrogates occur only in texts, and one check is faster than one per text.
    return clean(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def json_value(text: str) -> Any:
    """Parse the JSON in `text`; None for an empty text, and the text itself if it is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse) if text else None
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _escaped(text: str) -> bytes:
    return _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode() + b"\n"


# Notes of a text export at its output: its workspace and format, and the files that each batch has written.
#
# _llm-ocr/export.json                 the workspace and the format
# _llm-ocr/batches/<batch>.json        files and sizes of a finished batch
# _llm-ocr/begun/<batch>-<n>.json      names of files, written before them: possible leftovers of a crashed batch
#
# A note is removed before any of its files is overwritten or removed, so a note is always correct. The names of its
# files are listed among the begun ones until the export is complete. During an export, file names are kept on the local
# disk: there may be millions.


#: Folder of the notes, and the names below it.
NOTES = "_llm-ocr"
_CLAIM, _DONE, _BEGUN = f"{NOTES}/export.json", f"{NOTES}/batches/", f"{NOTES}/begun/"

#: Lists of dropped documents, and of those whose source could not be used.
DROPPED, FAILED = "dropped-documents.jsonl", "failed-documents.jsonl"
#: Number of file lists in memory at a time.
_TOGETHER = 64

#: Files of file managers and of the Hub, in outputs that look empty to their user.
_NOT_CONTENT = frozenset({"README.md", "Thumbs.db", "desktop.ini"})


@dataclass(slots=True)
class Note:
    """Result of a batch: sizes in bytes by key, number of records, pages by status.

    `dropped` and `failed` are documents in the form of their lists; `again` is the number of failed ones whose source
    could be opened before. `left_out` is the number of pages left out by the setting `only`.
    """

    files: dict[str, int] = field(default_factory=dict)
    records: int = 0
    pages: dict[str, int] = field(default_factory=dict)
    dropped: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)
    again: int = 0

    @property
    def lists(self) -> list[str]:
        """Keys of the lists that name documents of the batch."""
        return [*([DROPPED] if self.dropped else []), *([FAILED] if self.failed else [])]


@dataclass(frozen=True, slots=True)
class Done:
    """Totals of a finished batch."""

    files: int
    size: int
    records: int
    dropped: int
    counts: Counts
    left_out: int
    failed: int
    again: int


class Notes:
    """Notes of one output. Its methods block."""

    def __init__(self, output: Output, spool: Path, pool: Executor) -> None:
        """Prepare the notes.

        Args:
            output: the output of the export.
            spool: folder on the local disk, created here.
            pool: runs concurrent requests to the store.
        """
        self._output = output
        self._spool = spool
        self._pool = pool
        self._begun: list[str] = []
        self.done: dict[str, Done] = {}

    def claim(self, workspace: str, form: str) -> None:
        """Claim the output for this workspace and format, and read the existing notes.

        Raises:
            WorkspaceMismatch: the output has another export, or files of other origin.
        """
        own = {"workspace": workspace, "format": form}
        store, url = self._output.store, self._output.url
        try:
            found = codec.load(store.get(_CLAIM), f"{url}/{_CLAIM}")
        except ObjectNotFound:
            foreign = next((info.key for info in store.list() if not _is_hidden(info.key)), None)
            if foreign is not None:
                raise WorkspaceMismatch(
                    f"{url} holds files of another origin ({foreign})", hint="Set `output` to an unused place."
                ) from None
            store.put(_CLAIM, codec.dump(own))
            found = own
        if found != own:
            what = "another workspace" if found.get("workspace") != workspace else f"the format {found.get('format')}"
            raise WorkspaceMismatch(
                f"{url} holds an export of {what}",
                hint=f"Set another `output`, or remove the files there, including {NOTES}/.",
            )
        self._spool.mkdir(parents=True, exist_ok=True)
        keys = [info.key for info in store.list(f"{NOTES}/")]
        self._begun = [key for key in keys if key.startswith(_BEGUN)]
        done = [key for key in keys if key.startswith(_DONE)]
        for key, note in zip(done, self._pool.map(self._read, done), strict=True):
            self._keep(key.removeprefix(_DONE).removesuffix(".json"), note)

    def _read(self, key: str) -> Note:
        where = f"{self._output.url}/{key}"
        try:
            return Note(**codec.load(self._output.store.get(key), where))
        except TypeError as error:
            raise codec.damaged(where, "it is not a note of an export") from error

    def _keep(self, batch: str, note: Note) -> None:
        (self._spool / batch).write_bytes(codec.dump(asdict(note)))
        counts = Counts(sum(note.pages.values()), *(note.pages.get(name, 0) for name in ("ok", "degraded", "failed")))
        size, dropped, failed = sum(note.files.values()), len(note.dropped), len(note.failed)
        self.done[batch] = Done(len(note.files), size, note.records, dropped, counts, note.left_out, failed, note.again)

    def begin(self, batch: str, number: int, keys: Iterable[str]) -> None:
        """Note that these files are about to be written; `number` counts such groups of a batch."""
        key = f"{_BEGUN}{batch}-{number:05d}.json"
        self._output.store.put(key, codec.dump({"files": sorted(keys)}))
        self._begun.append(key)

    def end(self, batch: str, note: Note) -> None:
        """Note that all files of the batch exist."""
        self._output.store.put(f"{_DONE}{batch}.json", codec.dump(asdict(note)))
        self._keep(batch, note)
        own = [key for key in self._begun if key.rpartition("-")[0] == _BEGUN + batch]
        self._remove(own)
        self._begun = [key for key in self._begun if key not in own]

    def listed(self, name: str, batches: Iterable[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the documents of these batches in the list of this name, in their order."""
        for batch in batches:
            if self.done[batch].dropped or self.done[batch].failed:
                note = self._kept(batch)
                yield from note.dropped if name == DROPPED else note.failed

    def files(self, batch: str) -> Collection[str]:
        """Return the keys of the files of a finished batch."""
        return self._kept(batch).files.keys()

    def retire(self, batches: Iterable[str]) -> None:
        """Remove the notes of all other batches: their files may be overwritten from now on."""
        stale = sorted(self.done.keys() - set(batches))
        self._begun += self._pool.map(self._retire, stale)
        for batch in stale:
            del self.done[batch]

    def _retire(self, batch: str) -> str:
        note, key = self._kept(batch), f"{_BEGUN}{batch}-retired.json"
        names = [*note.files, *note.lists]
        self._output.store.put(key, codec.dump({"files": names}))
        self._output.store.delete(f"{_DONE}{batch}.json")
        return key

    def tidy(self) -> None:
        """Remove the begun files that do not belong to a finished batch."""
        keys = iter(sorted(set(self._begun)))
        while some := list(islice(keys, _TOGETHER)):
            files = {name for names in self._pool.map(self._names, some) for name in names}
            for note in map(self._kept, self.done):
                files.difference_update(note.files, note.lists)
            self._remove(sorted(files))
            self._remove(some)
        self._begun = []

    def _names(self, key: str) -> list[str]:
        found = codec.load(self._output.store.get(key), f"{self._output.url}/{key}").get("files", [])
        return [str(name) for name in found]

    def _kept(self, batch: str) -> Note:
        return Note(**codec.load((self._spool / batch).read_bytes(), batch))

    def _remove(self, keys: Iterable[str]) -> None:
        for _ in self._pool.map(self._output.store.delete, keys):
            pass


def refuse_texts(output: Output) -> None:
    """Raise `WorkspaceMismatch` if the output has a text export: a dataset must not be mixed with it."""
    if output.store.stat(_CLAIM) is not None:
        raise WorkspaceMismatch(
            f"{output.url} holds an export in another format", hint="Set `output` to an unused place."
        )


def _is_hidden(key: str) -> bool:
    return any(part.startswith(".") for part in key.split("/")) or key in _NOT_CONTENT


# Common part of the formats that write text files: batches of documents, in order. A batch is a range of items of the
# plan, and its name identifies its content. After the files of a batch, a note at the output lists them. A repeated
# export writes the batches without a note, and finally removes the files of obsolete batches. Notes also distinguish
# our files from others (`Notes`).


#: Pages of a batch: enough for a file worth opening, few enough for memory.
PAGES = 5000
#: Limits of files, and bytes in memory, that are written concurrently.
_FILES, _BYTES = 256, 32_000_000
#: Number of concurrent requests to the stores.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class File:
    """File of an export. `records` is the number of records in it.

    `fetch` returns the bytes instead of `data` if they are copied: it is called once, in a thread.
    """

    key: str
    data: bytes = field(default=b"", repr=False)
    records: int = 1
    fetch: Callable[[], bytes] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """Document without a file, because its source could not be used.

    The next export tries its batch again if the source could be opened when the document was read.
    """

    document: Document
    failure: PageFailure | StorageError


@dataclass(frozen=True, slots=True)
class Batch:
    """Items of the plan that are written together; `name` is `00007-<16 hex digits of everything that affects them>`.

    `key` is Assemble's.
    """

    name: str
    places: range
    pages: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """Format. `settings` are those that change its files; `version` is increased when the same rows give other files.

    `write` makes the files of a batch from its documents, which arrive one by one. Keys are relative to the output, and
    no two batches have a key in common: a file with many documents has `batch.name` in its key.
    `opened` returns a line of Python or shell that opens the result at a URL. `unit` is the name of a record: `pages`.
    `pages` is the largest number of pages of a batch, which an interrupted export repeats; None for `PAGES`.
    """

    name: str
    version: int
    write: Callable[[Batch, Iterator[Document]], Iterator[File | Failed]]
    opened: Callable[[str], str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "documents"
    pages: int | None = None


class _Stopped(Exception):
    """The export was interrupted; ends this thread's work."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Running export. `stop` is set when its caller has gone."""

    job: ExportJob
    form: Form
    rows: AssembledRows
    notes: Notes
    pool: ThreadPoolExecutor
    stop: threading.Event = field(default_factory=threading.Event)


async def export_files(job: ExportJob, form: Form) -> Exported:
    """Write the workspace's documents in the format.

    Raises:
        StageMissing: the dataset is incomplete.
        WorkspaceMismatch: the output has another export, or files of other origin.
        NothingLeft: the setting `only` leaves out all pages.
    """
    dataset = await asyncio.to_thread(undamaged, job.workspace, job.source_folder)
    rows = await asyncio.to_thread(AssembledRows, job.workspace, dataset.key, job.source_folder)
    batches = list(_batches(dataset, form, _policy(job), job.settings.only))
    await asyncio.to_thread(job.output.check, job.workspace.url)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="llm-ocr-export") as pool:
        notes = Notes(job.output, job.workspace.spool / "export-notes", pool)
        work = _Work(job, form, rows, notes, pool)
        try:
            await asyncio.to_thread(notes.claim, dataset.identity, form.name)
            whole = [batch.name for batch in batches if batch.name in notes.done and not notes.done[batch.name].again]
            await asyncio.to_thread(notes.retire, whole)
            before = sum((notes.done[name].counts for name in whole), Counts())
            job.progress.begin(f"export {form.name}", sum(batch.pages for batch in batches), before)
            written = 0
            for place, batch in enumerate(batches):
                if batch.name not in notes.done:
                    await asyncio.to_thread(_write_batch, work, batch, batches[place - 1] if place else None)
                    written += notes.done[batch.name].files
            job.progress.end()
            done = [notes.done[batch.name] for batch in batches]
            left_out = sum(batch.left_out for batch in done)
            if left_out and not any(batch.records for batch in done):  # the files of an older export stay
                raise NothingLeft(job.workspace.url, left_out)
            await asyncio.to_thread(_finish, work, batches)
        finally:
            work.stop.set()
    return Exported(
        url=job.output.url,
        files=sum(batch.files for batch in done),
        size=sum(batch.size for batch in done),
        rows=sum(batch.records for batch in done),
        written=written,
        load=form.opened(job.output.url),
        unit=form.unit,
        dropped=sum(batch.dropped for batch in done),
        left_out=left_out,
        failed=sum(batch.failed for batch in done),
    )


def _policy(job: ExportJob) -> float | None:
    """Return the share of bad pages above which a document is dropped; None to keep all documents."""
    settings = job.settings
    return settings.max_page_error_rate if settings.drop_over_error_rate else None


def _batches(dataset: Assembled, form: Form, policy: float | None, only: str | None) -> Iterator[Batch]:
    facts = [form.name, form.version, dict(form.settings), policy, *([only] if only else [])]
    about = json.dumps(facts, sort_keys=True).encode()
    start, pages, digest, number = 0, 0, hashlib.sha256(about), 0
    for place, source in enumerate(dataset.sources):
        if pages and pages + source.rows > (form.pages or PAGES):
            yield Batch(f"{number:05d}-{digest.hexdigest()[:16]}", range(start, place), pages, dataset.key)
            start, pages, digest, number = place, 0, hashlib.sha256(about), number + 1
        pages += source.rows
        digest.update(source.content.encode())
    yield Batch(f"{number:05d}-{digest.hexdigest()[:16]}", range(start, len(dataset.sources)), pages, dataset.key)


def _write_batch(work: _Work, batch: Batch, before: Batch | None) -> None:
    note, url = Note(), work.job.output.url
    files = _without_failed(work, work.form.write(batch, _kept(work, batch, note)), note)
    earlier = work.notes.files(before.name) if before else frozenset()
    for number, group in enumerate(_groups(files)):
        for file in group:
            if file.key in note.files:
                raise StorageError(f"{url}: two documents have the same file name, {file.key}")
            if file.key in earlier:  # of a format that gives each batch the same name
                raise StorageError(
                    f"{url}: two batches have the same file name, {file.key}",
                    hint=f"The format {work.form.name} must use `batch.name` in names of files with many documents.",
                )
            note.files[file.key] = len(file.data)
            note.records += file.records
        work.notes.begin(batch.name, number, [file.key for file in group])
        note.files.update(work.pool.map(lambda file: _put(work, file), group))
    work.notes.end(batch.name, note)
    release_memory()


def _without_failed(work: _Work, files: Iterable[File | Failed], note: Note) -> Iterator[File]:
    """Yield the files; add the documents without one to the note, and say why."""
    for file in files:
        if isinstance(file, File):
            yield file
            continue
        source, failure = file.document.source, file.failure
        gone = Reason.NOT_FOUND if isinstance(failure, ObjectNotFound) else Reason.UNREADABLE
        reason = failure.reason if isinstance(failure, PageFailure) else gone
        text = str(failure).replace(file.document.part.source, source)  # no private path
        detail = text.removeprefix(f"{reason.value}: ")
        note.failed.append(
            {"document_id": file.document.id, "source": source, "reason": reason.value, "detail": detail}
        )
        note.again += file.document.failure is None
        work.job.progress.say(f"{source} has no {work.form.name} file: {text}")


def _groups(files: Iterable[File]) -> Iterator[list[File]]:
    """Yield groups of files that are in memory together."""
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
    """Yield the batch's documents; add those with too many bad pages to the note instead.

    With the setting `only`, documents lack the other pages. A document without any is left out.
    """
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
                records = [row.record for row in document.rows]
                note.dropped.append(
                    {
                        "document_id": document.id,
                        "source": document.source,
                        "pages": len(records),
                        "failed": sum(record.status is Status.FAILED for record in records),
                        "error_rate": round(document.error_rate, 6),
                        "reasons": sorted({record.reason.value for record in records if record.reason}),
                    }
                )
                continue
            if work.job.settings.only is not None:
                kept = tuple(row for row in document.rows if is_balanced(row.record.status, row.record.ledger))
                note.left_out += len(document.rows) - len(kept)
                document = replace(document, rows=kept)
            if document.rows or work.job.settings.only is None:
                yield document


def _finish(work: _Work, batches: list[Batch]) -> None:
    """Write the lists of documents without files, then remove obsolete files of older exports."""
    output, notes, names = work.job.output, work.notes, [batch.name for batch in batches]
    for name in (DROPPED, FAILED):
        path: Path = work.job.workspace.spool / name
        with path.open("wb") as file:
            file.writelines(map(json_line, notes.listed(name, names)))
        if path.stat().st_size:
            try:
                existing = output.store.get(name)
            except ObjectNotFound:
                existing = b""
            if path.read_bytes() != existing:
                output.store.upload(path, name)
        path.unlink()
    notes.tidy()
    output.flush()
