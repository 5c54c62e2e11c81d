"""What an export of texts says of itself at its output: whose it is, and which files each of its batches has written.

_llm-ocr/export.json                 the workspace and the format
_llm-ocr/batches/<batch>.json        files and sizes of a batch that is done
_llm-ocr/begun/<batch>-<n>.json      names of files, written before them: what a batch that died may have left

A note goes before any of its files is written over or removed, so a note always tells the truth; the names of its files
stand among those that were begun until the export is whole.

Names of files are kept on the local disk while an export runs: there may be millions.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from llm_ocr.api.export_output import Output
from llm_ocr.errors import ObjectNotFound, WorkspaceMismatch
from llm_ocr.types import Counts
from llm_ocr.work import codec

#: The folder of the notes, and the names below it.
NOTES = "_llm-ocr"
_CLAIM, _DONE, _BEGUN = f"{NOTES}/export.json", f"{NOTES}/batches/", f"{NOTES}/begun/"

#: The list of documents that were left out.
DROPPED = "dropped-documents.jsonl"
#: Lists of files that are held in memory at a time.
_TOGETHER = 64

#: Left by file managers, and made by the Hub, in places that their user sees as empty.
_NOT_CONTENT = frozenset({"README.md", "Thumbs.db", "desktop.ini"})


@dataclass(slots=True)
class Note:
    """What one batch has written: sizes in bytes by key, rows of the format, how its pages had ended.

    `dropped` are the documents that were left out, as the list of them shows them.
    """

    files: dict[str, int] = field(default_factory=dict)
    records: int = 0
    pages: dict[str, int] = field(default_factory=dict)
    dropped: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Done:
    """A batch that is done, in numbers."""

    files: int
    size: int
    records: int
    dropped: int
    counts: Counts


def _done(note: Note) -> Done:
    counts = Counts(sum(note.pages.values()), *(note.pages.get(name, 0) for name in ("ok", "degraded", "failed")))
    return Done(len(note.files), sum(note.files.values()), note.records, len(note.dropped), counts)


class Notes:
    """The notes of one output. Its methods block."""

    def __init__(self, output: Output, spool: Path, pool: Executor) -> None:
        """`spool`: a folder of the local disk, made here; `pool` runs requests to the store side by side."""
        self._output = output
        self._spool = spool
        self._pool = pool
        self._begun: list[str] = []
        self.done: dict[str, Done] = {}

    def claim(self, workspace: str, form: str) -> None:
        """Make the output that of this workspace and format; reads the notes that are there.

        Raises `WorkspaceMismatch` when it holds an export of another, or files of others.
        """
        own = {"workspace": workspace, "format": form}
        found = self._claimed()
        if found is None:
            self._refuse_content()
            self._output.store.put(_CLAIM, codec.dump(own))
        elif found != own:
            what = "another workspace" if found.get("workspace") != workspace else f"the format {found.get('format')}"
            raise self._mismatch(
                f"an export of {what}", f"Give another --output, or remove what is there, {NOTES}/ too"
            )
        self._spool.mkdir(parents=True, exist_ok=True)
        keys = [info.key for info in self._output.store.list(f"{NOTES}/")]
        self._begun = [key for key in keys if key.startswith(_BEGUN)]
        done = [key for key in keys if key.startswith(_DONE)]
        for key, note in zip(done, self._pool.map(self._read, done), strict=True):
            self._keep(key.removeprefix(_DONE).removesuffix(".json"), note)

    def _claimed(self) -> dict[str, Any] | None:
        try:
            return codec.load(self._output.store.get(_CLAIM), f"{self._output.url}/{_CLAIM}")
        except ObjectNotFound:
            return None

    def _refuse_content(self) -> None:
        keys = (info.key for info in self._output.store.list())
        found = next((key for key in keys if not _is_hidden(key)), None)
        if found is not None:
            raise self._mismatch(f"files that no such export has written ({found})", "Give --output a place of its own")

    def _mismatch(self, what: str, hint: str) -> WorkspaceMismatch:
        return WorkspaceMismatch(f"{self._output.url} holds {what}", hint=f"{hint}.")

    def _read(self, key: str) -> Note:
        where = f"{self._output.url}/{key}"
        try:
            return Note(**codec.load(self._output.store.get(key), where))
        except TypeError as error:
            raise codec.damaged(where, "it is no note of an export") from error

    def _keep(self, batch: str, note: Note) -> None:
        (self._spool / batch).write_bytes(codec.dump(asdict(note)))
        self.done[batch] = _done(note)

    def begin(self, batch: str, number: int, keys: Iterable[str]) -> None:
        """These files are about to be written; `number` counts such groups of a batch."""
        key = f"{_BEGUN}{batch}-{number:05d}.json"
        self._output.store.put(key, codec.dump({"files": sorted(keys)}))
        self._begun.append(key)

    def end(self, batch: str, note: Note) -> None:
        """All files of the batch are there."""
        self._output.store.put(f"{_DONE}{batch}.json", codec.dump(asdict(note)))
        self._keep(batch, note)
        own = [key for key in self._begun if key.rpartition("-")[0] == _BEGUN + batch]
        self._remove(own)
        self._begun = [key for key in self._begun if key not in own]

    def dropped(self, batches: Iterable[str]) -> Iterator[Mapping[str, Any]]:
        """The documents that these batches have left out, in their order."""
        for batch in batches:
            if self.done[batch].dropped:
                yield from self._kept(batch).dropped

    def retire(self, batches: Iterable[str]) -> None:
        """Take back the notes of all other batches than these: their files may be written over from now on."""
        stale = sorted(self.done.keys() - set(batches))
        self._begun += self._pool.map(self._retire, stale)
        for batch in stale:
            del self.done[batch]

    def _retire(self, batch: str) -> str:
        note, key = self._kept(batch), f"{_BEGUN}{batch}-retired.json"
        names = [*note.files, *([DROPPED] if note.dropped else [])]
        self._output.store.put(key, codec.dump({"files": names}))
        self._output.store.delete(f"{_DONE}{batch}.json")
        return key

    def tidy(self) -> None:
        """Remove the files that were begun, unless they are of a batch that is done."""
        keys = iter(sorted(set(self._begun)))
        while some := list(islice(keys, _TOGETHER)):
            files = {name for names in self._pool.map(self._names, some) for name in names}
            for batch, done in self.done.items():
                files.difference_update(self._kept(batch).files, [DROPPED] if done.dropped else [])
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
    """Raise `WorkspaceMismatch` when the output holds an export of texts: a dataset is not put among it."""
    if output.store.stat(_CLAIM) is not None:
        raise WorkspaceMismatch(
            f"{output.url} holds an export in another format", hint="Give --output a place of its own."
        )


def _is_hidden(key: str) -> bool:
    return any(part.startswith(".") for part in key.split("/")) or key in _NOT_CONTENT
