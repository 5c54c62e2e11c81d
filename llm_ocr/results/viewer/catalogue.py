"""What the site's lists are made of, in a temporary SQLite file: memory does not grow with the pages."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Values of a filter that are offered.
_OFFERED = 100

_TABLES = """
CREATE TABLE documents (d INTEGER PRIMARY KEY, id TEXT UNIQUE, name TEXT, source TEXT);
CREATE TABLE pages (
    n INTEGER PRIMARY KEY, d INTEGER, id TEXT UNIQUE, number INTEGER, badness REAL, status TEXT, reason TEXT,
    engine TEXT, quality REAL, share REAL, side TEXT, row TEXT
);
CREATE TABLE places (bucket INTEGER, id TEXT, n INTEGER, rank INTEGER);
CREATE TABLE readings (n INTEGER PRIMARY KEY, first TEXT, second TEXT);
CREATE INDEX by_name ON documents (name);
CREATE INDEX by_document ON pages (d, number);
"""
_COUNTED = "COUNT(*), SUM(status = 'ok'), SUM(status = 'degraded'), SUM(status = 'failed')"


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of the list. `row` is what its line shows; `side` tells which readings there are: "", first or second.

    `share` of equal words and `quality` are 0..1, None where there is none.
    """

    n: int
    d: int
    id: str
    number: int | None
    badness: float
    status: str
    reason: str
    engine: str
    quality: float | None
    row: list[Any]
    share: float | None = None
    side: str = ""


class Catalogue:
    """The pages and documents of one site; `close` (or `with`) ends it, the file is the caller's."""

    def __init__(self, file: Path) -> None:
        self.database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self.database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLES}")
        self.database.execute("BEGIN")

    def close(self) -> None:
        """No more is asked."""
        self.database.close()

    def document(self, document: str, name: str, source: str) -> int:
        """The document's number, from 0."""
        found = self.database.execute("SELECT d FROM documents WHERE id = ?", (document,)).fetchone()
        if found:
            return int(found[0])
        insert = "INSERT INTO documents (d, id, name, source) VALUES ((SELECT COUNT(*) FROM documents), ?, ?, ?)"
        return int(self.database.execute(f"{insert} RETURNING d", (document, name, source)).fetchone()[0])

    def put(self, page: Listed) -> None:
        """A page, or a page anew."""
        values = (page.n, page.d, page.id, page.number, page.badness, page.status, page.reason, page.engine)
        row = json.dumps(page.row, ensure_ascii=False)
        marks = ", ".join("?" * 12)
        more = (page.quality, page.share, page.side, row)
        self.database.execute(f"INSERT OR REPLACE INTO pages VALUES ({marks})", (*values, *more))

    def get(self, n: int) -> Listed:
        """The page of this number."""
        query = (
            "SELECT d, id, number, badness, status, reason, engine, quality, row, share, side FROM pages WHERE n = ?"
        )
        d, page_id, number, badness, status, reason, engine, quality, row, share, side = self.database.execute(
            query, (n,)
        ).fetchone()
        return Listed(n, d, page_id, number, badness, status, reason, engine, quality, json.loads(row), share, side)

    def has(self, page_id: str) -> bool:
        """Whether a page of this id is there."""
        return self.database.execute("SELECT 1 FROM pages WHERE id = ?", (page_id,)).fetchone() is not None

    def scored(self) -> bool:
        """Whether any page has a quality score."""
        return self.database.execute("SELECT 1 FROM pages WHERE quality IS NOT NULL LIMIT 1").fetchone() is not None

    def match(self, page_id: str, name: str, number: int | None) -> tuple[int, int] | None:
        """Number and document of the page that this one is another reading of: by id, else by document and number."""
        query = "SELECT n, pages.d FROM pages JOIN documents USING (d) WHERE side = 'first' AND "
        by_id = self.database.execute(f"{query} pages.id = ?", (page_id,)).fetchone()
        found = by_id or self.database.execute(f"{query} name = ? AND number IS ?", (name, number)).fetchone()
        return (int(found[0]), int(found[1])) if found else None

    def keep(self, n: int, first: str | None, second: str | None) -> None:
        """The readings of a page, as JSON, until all are known."""
        self.database.execute("INSERT OR REPLACE INTO readings VALUES (?, ?, ?)", (n, first, second))

    def first_reading(self, n: int) -> str:
        """What `keep` was given for the page."""
        return str(self.database.execute("SELECT first FROM readings WHERE n = ?", (n,)).fetchone()[0])

    def readings(self) -> Iterator[tuple[int, str | None, str | None]]:
        """All that were kept, in the order of their numbers."""
        yield from self.database.execute("SELECT n, first, second FROM readings ORDER BY n")

    def rows(self) -> Iterator[tuple[int, str, list[Any]]]:
        """Number, id and row of each page, the worst first."""
        for n, page_id, row in self.database.execute("SELECT n, id, row FROM pages ORDER BY badness, n"):
            yield n, page_id, json.loads(row)

    def documents(self) -> Iterator[list[Any]]:
        """Each document with its counts and means, the worst first."""
        yield from map(
            list,
            self.database.execute(
                f"SELECT d, name, source, {_COUNTED}, ROUND(AVG(quality), 4), ROUND(AVG(share), 4) "
                "FROM pages JOIN documents USING (d) GROUP BY d ORDER BY MIN(badness), AVG(badness), d"
            ),
        )

    def place(self, bucket: int, page_id: str, n: int, rank: int) -> None:
        """Where a page stands in the list, the worst first."""
        self.database.execute("INSERT INTO places VALUES (?, ?, ?, ?)", (bucket, page_id, n, rank))

    def places(self) -> Iterator[tuple[int, str, int, int]]:
        """All of them, by bucket."""
        yield from self.database.execute("SELECT bucket, id, n, rank FROM places ORDER BY bucket, id")

    def counts(self) -> list[int]:
        """Pages in all, ok, degraded, failed."""
        return [int(count or 0) for count in self.database.execute(f"SELECT {_COUNTED} FROM pages").fetchone()]

    def values(self, column: str) -> list[list[Any]]:
        """The most frequent values of reason, engine or side with their counts, empty ones aside."""
        query = f"SELECT {column}, COUNT(*) FROM pages WHERE {column} != '' GROUP BY 1 ORDER BY 2 DESC LIMIT {_OFFERED}"
        return list(map(list, self.database.execute(query)))
