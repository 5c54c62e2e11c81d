"""The lists of documents that filters have left out of a plan.

plan/<generation>/<attempt>/filtered.jsonl   one a line: id, source, relative, version, reason, kind, detail
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from llm_ocr.documents.remote.urls import shown
from llm_ocr.errors import ObjectNotFound
from llm_ocr.work import codec
from llm_ocr.work.filtered import EXAMPLES, Filtered, Marked, cause_of
from llm_ocr.work.numbers import Numbers
from llm_ocr.work.planned import PlannedDocument
from llm_ocr.work.workspace import Workspace


class KnownFiltered:
    """The documents in the lists of a plan, with their causes. On the local disk; needs `close`."""

    def __init__(self) -> None:
        self._places = Numbers()
        self._causes: dict[str, int] = {}
        self._names: list[str] = []

    @classmethod
    def of(cls, workspace: Workspace, found: Iterable[Marked], filters: Mapping[str, Any] | None = None) -> Self:
        """Those of these generations; with `filters` only where the same ones were on. Blocking.

        Raises `WorkspaceError` for a list that is gone or changed.
        """
        known = cls()
        for one in found:
            filtered = one.filtered
            if filtered is not None and filtered.object and filters in (None, filtered.filters):
                for line in _lines(workspace, filtered):
                    known._add(line)
        return known

    def _add(self, line: Mapping[str, Any]) -> None:
        cause = cause_of(line["reason"], line["kind"])
        if cause not in self._causes:
            self._causes[cause] = len(self._names)
            self._names.append(cause)
        self._places[_key(line["id"], line["version"])] = self._causes[cause]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __bool__(self) -> bool:
        return bool(self._names)

    def cause(self, document_id: str, version: str) -> str:
        """Why the document with this content was left out; empty when it was not."""
        place = self._places.get(_key(document_id, version)) if self._names else None
        return "" if place is None else self._names[place]

    def close(self) -> None:
        """Forget them."""
        self._places.close()


class FilteredSpool:
    """Takes the documents of one planning that are left out, on the local disk. For one thread at a time."""

    def __init__(self, path: Path, filters: Mapping[str, Any]) -> None:
        self._path = path
        self._filters = filters
        self._file = path.open("xb")
        self._met = Numbers()

    def add(self, document: PlannedDocument) -> None:
        """Take one, the first of several with one id and content."""
        key = _key(document.id, document.version)
        if self._met.get(key) is None:
            self._met[key] = 1
            self._file.write(codec.dump(_to_json(document)))

    def new(self, is_known: Callable[[str, str], bool], list_path: Path) -> Filtered:
        """Those that are not known by id and version, counted, and written to `list_path`."""
        self._file.flush()
        counts: Counter[str] = Counter()
        examples: list[Mapping[str, str]] = []
        digest, size = hashlib.sha256(), 0
        with list_path.open("wb") as out:
            for line in self._path.open("rb"):
                value = codec.load(line, str(self._path))
                if is_known(value["id"], value["version"]):
                    continue
                counts[cause_of(value["reason"], value["kind"])] += 1
                if len(examples) < EXAMPLES:
                    examples.append(
                        {**{name: value[name] for name in ("reason", "detail")}, "source": shown(value["source"])}
                    )
                out.write(line)
                digest.update(line)
                size += len(line)
        return Filtered(dict(self._filters), dict(counts), {}, tuple(examples), "", digest.hexdigest(), size)

    def close(self) -> None:
        """Remove what was taken."""
        self._file.close()
        self._path.unlink(missing_ok=True)
        self._met.close()


def _lines(workspace: Workspace, filtered: Filtered) -> Iterator[dict[str, Any]]:
    where = f"{workspace.url}: {filtered.object}"
    path = workspace.spool / f"read-{filtered.sha256[:16]}.jsonl"
    try:
        workspace.store.download(filtered.object, path)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != filtered.sha256:
                raise codec.damaged(where, "its content was changed")
            file.seek(0)
            for line in file:
                yield codec.load(line, where)
    except ObjectNotFound as error:
        raise codec.damaged(where, "it is missing") from error
    finally:
        path.unlink(missing_ok=True)


def _to_json(document: PlannedDocument) -> dict[str, Any]:
    reason, _, kind = document.filtered.partition(" ")
    return {
        "id": document.id,
        "source": document.source,
        "relative": document.relative,
        "version": document.version,
        "reason": reason,
        "kind": kind,
        "detail": document.detail,
    }


def _key(document_id: str, version: str) -> str:
    return f"{document_id}\0{version}"
