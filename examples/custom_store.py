"""A store of one's own: a workspace in one SQLite file, usable wherever a workspace URL is.

    python examples/custom_store.py examples/invoice.png run.db

A store is one class with the methods of `llm_ocr.storage.ObjectStore`, some of them inherited from `BaseStore`.
Registered under a scheme it serves the Python API; an installed package that names its opener in the entry point group
`llm_ocr.stores` serves `llm-ocr` as well:

    [project.entry-points."llm_ocr.stores"]
    sqlite = "custom_store:open_sqlite"
"""

import contextlib
import hashlib
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import BaseStore, Capabilities, ObjectInfo, StoreOptions, register_store
from llm_ocr.storage.names import check_key

_TABLE = (
    "CREATE TABLE IF NOT EXISTS objects (key TEXT PRIMARY KEY, data BLOB, serial INTEGER, modified REAL) WITHOUT ROWID"
)
_PUT = "REPLACE INTO objects VALUES (?, ?, (SELECT coalesce(max(serial), 0) + 1 FROM objects), ?)"
_PAGE = 1000


class SqliteStore(BaseStore):
    """Keys and bytes in one table. SQLite's transactions make `create` and `swap` what they have to be."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.url = f"sqlite://{file}"

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection for one step: threads and processes may come at the same time, and wait for each other."""
        try:
            connection = sqlite3.connect(self._file, timeout=60, isolation_level=None)
            with contextlib.closing(connection):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_TABLE)
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(f"{self.url}: {error}") from error

    def get(self, key: str) -> bytes:
        return self.fetch(key)[0]

    def fetch(self, key: str) -> tuple[bytes, str]:
        check_key(key)
        with self._transaction() as db:
            row = db.execute("SELECT data, serial FROM objects WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise ObjectNotFound(f"no object {self.url}: {key}")
        return row[0], _version(*row)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def put(self, key: str, data: bytes) -> None:
        check_key(key)
        with self._transaction() as db:
            db.execute(_PUT, (key, data, time.time()))

    def create(self, key: str, data: bytes) -> str:
        check_key(key)
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM objects WHERE key = ?", (key,)).fetchone():
                raise ObjectExists(f"{self.url}: {key} exists")
            return self._written(db, key, data)

    def swap(self, key: str, data: bytes, version: str) -> str:
        check_key(key)
        with self._transaction() as db:
            row = db.execute("SELECT data, serial FROM objects WHERE key = ?", (key,)).fetchone()
            if row is None or _version(*row) != version:
                raise ObjectChanged(f"{self.url}: {key} has changed")
            return self._written(db, key, data)

    def _written(self, db: sqlite3.Connection, key: str, data: bytes) -> str:
        db.execute(_PUT, (key, data, time.time()))
        return _version(*db.execute("SELECT data, serial FROM objects WHERE key = ?", (key,)).fetchone())

    def upload(self, path: Path, key: str) -> None:
        self.put(key, path.read_bytes())

    def download(self, key: str, path: Path) -> None:
        path.write_bytes(self.get(key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        if prefix.strip("/"):
            check_key(prefix.rstrip("/"))
        while True:
            with self._transaction() as db:
                rows = db.execute(
                    "SELECT key, data, serial, modified FROM objects WHERE key > ? AND substr(key, 1, ?) = ? "
                    "ORDER BY key LIMIT ?",
                    (start_after, len(prefix), prefix, _PAGE),
                ).fetchall()
            yield from (ObjectInfo(key, len(data), _version(data, serial), when) for key, data, serial, when in rows)
            if len(rows) < _PAGE:
                return
            start_after = rows[-1][0]

    def unfinished(self) -> Iterator[ObjectInfo]:
        return iter(())  # transactions leave nothing behind

    def stat(self, key: str) -> ObjectInfo | None:
        check_key(key)
        with self._transaction() as db:
            row = db.execute("SELECT data, serial, modified FROM objects WHERE key = ?", (key,)).fetchone()
        return ObjectInfo(key, len(row[0]), _version(row[0], row[1]), row[2]) if row else None

    def delete(self, key: str) -> None:
        check_key(key)
        with self._transaction() as db:
            db.execute("DELETE FROM objects WHERE key = ?", (key,))

    def capabilities(self) -> Capabilities:
        return Capabilities(create=True, swap=True)

    def check(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction():
            pass


def _version(data: bytes, serial: int) -> str:
    """Two contents of a key never have the same one, not even after it was deleted."""
    return f"{serial}-{hashlib.sha256(data).hexdigest()[:16]}"


def open_sqlite(url: str, options: StoreOptions) -> SqliteStore:
    """The store of `sqlite:///FILE` (absolute) or `sqlite://FILE`."""
    return SqliteStore(Path(url.partition("://")[2]).absolute())


def main(source: str, file: str) -> None:
    import llm_ocr

    register_store("sqlite", open_sqlite)
    run = llm_ocr.run(source, workspace=f"sqlite://{Path(file).absolute()}", engine="embedded")
    print(run.status.pages)
    for document in run.documents():
        print(document.markdown)


if __name__ == "__main__":
    main(*sys.argv[1:])
