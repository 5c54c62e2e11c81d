"""Lists and search index of the site, in a temporary SQLite file."""

import json
import re
import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from llm_ocr.results.markdown import clean

# Visible text of a page's HTML, and its search terms. `site/search.js` has the same function `terms`: both must split a
# text identically.


#: Tags and the text between them, in HTML written by nh3, which escapes `<` and `>` in texts and attributes.
PIECES = re.compile(r"<[^>]*>|[^<]+")
_INLINE = re.compile(r"</?(?:b|i|em|strong|u|s|del|sub|sup|code|a|mark)[\s>]")
_TERM = re.compile(r"[^\W_]+")
#: Scripts without spaces, as ranges of a regular expression: Thai to Myanmar, kana, Han.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{UNSPACED}]+")
#: Characters of a term; longer terms are cut, in searches too.
LONGEST_TERM = 40


def visible_text(html: str) -> str:
    """Return the text of a page's HTML with single spaces."""
    parts = (
        unescape(piece) if piece[0] != "<" else "" if _INLINE.match(piece) else " " for piece in PIECES.findall(html)
    )
    return " ".join("".join(parts).split())


def terms(text: str) -> Iterator[str]:
    """Yield the search terms of a text, with repetitions.

    Terms are words in lowercase without accents, and pairs of characters in scripts without spaces.
    """
    plain = unicodedata.normalize("NFKD", text).lower()
    plain = plain if plain.isascii() else "".join(one for one in plain if unicodedata.category(one)[0] != "M")
    for word in _TERM.findall(plain):
        if word.isascii():
            yield word[:LONGEST_TERM]
        else:
            at = 0
            for run in _RUN.finditer(word):
                if run.start() > at:
                    yield word[at : run.start()][:LONGEST_TERM]
                text = run[0]
                yield from (text[place : place + 2] for place in range(max(1, len(text) - 1)))
                at = run.end()
            if at < len(word):
                yield word[at:][:LONGEST_TERM]


# Data as scripts: `llmOcr("rows/0", [...]);`. A page opened from disk may load scripts, but not fetch files.


#: Text that could end a script or begin a comment in HTML, and line ends of old JavaScript.
_ESCAPED = {"</": "<\\/", "<!--": "\\u003c!--", "<script": "\\u003cscript", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def script(name: str, value: Any) -> str:
    """Return the text of a data file. Use lists, or objects with our own keys: in a literal, `__proto__` is no key."""
    text = clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    for mark, escaped in _ESCAPED.items():
        text = text.replace(mark, escaped)
    return f'llmOcr("{name}",{text});\n'


def write_data(folder: Path, name: str, value: Any) -> None:
    """Write the data file `<name>.js` below a folder. Names consist of our own words and numbers."""
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(name, value), encoding="utf-8", newline="\n")


def fnv1a(text: str) -> int:
    """Return 32 bits of FNV-1a over UTF-8. `site/data.js` has the same function, to find a page's bucket."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


# Lists of the site in a temporary SQLite file, so that memory does not grow with the pages.


#: Upper limit of values that a filter offers.
_OFFERED = 100

_TABLES = """
CREATE TABLE documents (d INTEGER PRIMARY KEY, id TEXT UNIQUE, name TEXT, source TEXT);
CREATE TABLE pages (
    n INTEGER PRIMARY KEY, d INTEGER, id TEXT UNIQUE, number INTEGER, badness REAL, status TEXT, reason TEXT,
    engine TEXT, quality REAL, share REAL, side TEXT, row TEXT
);
CREATE TABLE readings (n INTEGER PRIMARY KEY, first TEXT, second TEXT);
CREATE INDEX by_name ON documents (name);
CREATE INDEX by_document ON pages (d, number);
"""
_COUNTED = "COUNT(*), SUM(status = 'ok'), SUM(status = 'degraded'), SUM(status = 'failed')"


class Catalogue:
    """Pages and documents of one site. `close` (or `with`) closes it; the caller removes the file."""

    def __init__(self, file: Path) -> None:
        self.database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self.database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_TABLES}")
        self.database.execute("BEGIN")

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def document(self, document: str, name: str, source: str) -> int:
        """Return the document's number, from 0."""
        found = self.database.execute("SELECT d FROM documents WHERE id = ?", (document,)).fetchone()
        if found:
            return int(found[0])
        insert = "INSERT INTO documents (d, id, name, source) VALUES ((SELECT COUNT(*) FROM documents), ?, ?, ?)"
        return int(self.database.execute(f"{insert} RETURNING d", (document, name, source)).fetchone()[0])

    def put(self, row: list[Any], badness: float) -> None:
        """Insert a page: the values of its line in the list, in the order of `SiteWriter._put`, and its sort key."""
        n, page_id, d, _, number, status, reason, engine, _, quality, _, share, side, _ = row
        values = (n, d, page_id, number, badness, status, reason, engine, quality, share, side)
        marks = ", ".join("?" * 12)
        text = json.dumps(row, ensure_ascii=False)
        self.database.execute(f"INSERT OR REPLACE INTO pages VALUES ({marks})", (*values, text))

    def combine(self, n: int, share: float, status: str) -> None:
        """Add the second reading's status, and the share (0..1) of words that are equal in both, to a page."""
        row = json.loads(self.database.execute("SELECT row FROM pages WHERE n = ?", (n,)).fetchone()[0])
        text = json.dumps([*row[:-3], round(share, 4), "", status], ensure_ascii=False)
        update = "UPDATE pages SET badness = ?, share = ?, side = '', row = ? WHERE n = ?"
        self.database.execute(update, (share, share, text, n))

    def has(self, page_id: str) -> bool:
        """Return whether there is a page with this id."""
        return self.database.execute("SELECT 1 FROM pages WHERE id = ?", (page_id,)).fetchone() is not None

    def match(self, page_id: str, name: str, number: int | None) -> tuple[int, str] | None:
        """Return the number of a page in the first reading, and this reading as JSON; None if it has no such page.

        It is the page with the same id, otherwise that of the same document and page number.
        """
        tables = "pages JOIN documents USING (d) JOIN readings USING (n)"
        query = f"SELECT n, first FROM {tables} WHERE side = 'first' AND "
        by_id = self.database.execute(f"{query} pages.id = ?", (page_id,)).fetchone()
        found = by_id or self.database.execute(f"{query} name = ? AND number IS ?", (name, number)).fetchone()
        return (int(found[0]), str(found[1])) if found else None

    def keep(self, n: int, first: str | None, second: str | None) -> None:
        """Store the readings of a page, as JSON, until all are known."""
        self.database.execute("INSERT OR REPLACE INTO readings VALUES (?, ?, ?)", (n, first, second))

    def readings(self) -> Iterator[tuple[int, str | None, str | None]]:
        """Yield all stored readings, in the order of their numbers."""
        yield from self.database.execute("SELECT n, first, second FROM readings ORDER BY n")

    def rows(self) -> Iterator[list[Any]]:
        """Yield the row of each page, worst first."""
        for (row,) in self.database.execute("SELECT row FROM pages ORDER BY badness, n"):
            yield json.loads(row)

    def documents(self) -> Iterator[list[Any]]:
        """Yield each document with its counts and means, worst first."""
        yield from map(
            list,
            self.database.execute(
                f"SELECT d, name, source, {_COUNTED}, ROUND(AVG(quality), 4), ROUND(AVG(share), 4) "
                "FROM pages JOIN documents USING (d) GROUP BY d ORDER BY MIN(badness), AVG(badness), d"
            ),
        )

    def places(self, buckets: int) -> Iterator[tuple[int, str, int, int]]:
        """Yield bucket, id, number, and position in the list of each page, by bucket."""
        self.database.create_function("bucket_of", 1, lambda page_id: fnv1a(page_id) % buckets)
        position = "ROW_NUMBER() OVER (ORDER BY badness, n) - 1"
        yield from self.database.execute(f"SELECT bucket_of(id), id, n, {position} FROM pages ORDER BY 1, id")

    def counts(self) -> list[int]:
        """Return the number of all, ok, degraded, and failed pages, and of pages with a quality score."""
        query = f"SELECT {_COUNTED}, COUNT(quality) FROM pages"
        return [int(count or 0) for count in self.database.execute(query).fetchone()]

    def values(self, column: str) -> list[list[Any]]:
        """Return the most frequent nonempty values of reason, engine, or side with their counts."""
        query = f"SELECT {column}, COUNT(*) FROM pages WHERE {column} != '' GROUP BY 1 ORDER BY 2 DESC LIMIT {_OFFERED}"
        return list(map(list, self.database.execute(query)))


# Search index: the pages of each term. Terms are sorted, in files of about a hundred kilobytes. A browser loads the
# list of the files' first terms, and then only the files that may contain the searched terms. Postings are collected in
# memory up to a limit, then moved to a temporary database, which sorts them.


#: Postings in memory, of about 40 bytes each.
_HELD = 1_000_000
#: Approximate size of a file in bytes: numbers and terms as JSON.
_FILE = 100_000
#: Upper limit of pages of a term; more frequent terms carry no information.
MOST = 200_000


class SearchIndex:
    """Search index: takes pages by ascending number, then writes the files `terms/<n>` and `directory`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._held: defaultdict[str, list[int]] = defaultdict(list)
        self._count = 0
        database.execute(
            "CREATE TABLE postings (term TEXT, part INTEGER, pages TEXT, PRIMARY KEY (term, part)) WITHOUT ROWID"
        )
        self._parts = 0

    def add(self, page: int, text: str) -> None:
        """Add the terms of a page. A page may be added again before the next page."""
        for term in set(terms(text)):
            held = self._held[term]
            if not held or held[-1] != page:
                held.append(page)
                self._count += 1
        if self._count >= _HELD:
            self._lay_down()

    def write(self, folder: Path) -> int:
        """Write all files; return the number of term files."""
        self._lay_down()
        firsts: list[str] = []
        for chunk in _by_size(self._entries()):
            write_data(folder, f"terms/{len(firsts)}", chunk)
            firsts.append(chunk[0][0])
        write_data(folder, "directory", firsts)
        return len(firsts)

    def _lay_down(self) -> None:
        rows = ((term, self._parts, " ".join(map(str, self._held[term]))) for term in sorted(self._held))
        self._database.executemany("INSERT INTO postings VALUES (?, ?, ?)", rows)
        self._held.clear()
        self._count = 0
        self._parts += 1

    def _entries(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each term with its pages (the first, then differences to the next), in the order of code points."""
        rows = self._database.execute("SELECT term, pages FROM postings ORDER BY term, part")
        for term, parts in groupby(rows, key=itemgetter(0)):
            found = (int(page) for _, text in parts for page in text.split())
            pages = sorted(set(islice(found, MOST)))
            yield term, [page - before for before, page in zip([0, *pages], pages, strict=False)]


def _by_size(entries: Iterator[tuple[str, list[int]]]) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    size = 0
    for entry in entries:
        chunk.append(entry)
        size += len(entry[0]) + 2 * len(entry[1]) + 6
        if size >= _FILE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
