"""The search index: which pages hold a term. Terms in order, in files of about a hundred kilobytes.

A browser loads the list of the files' first terms and then only the files that may hold what is looked for. Postings
are gathered in memory up to a limit, then laid down in a temporary database, which keeps them in order.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from llm_ocr.results.viewer.data_files import DataFiles
from llm_ocr.results.viewer.text import terms

#: Postings in memory, of about 40 bytes each.
_HELD = 1_000_000
#: Bytes of a file, about: numbers and terms as JSON.
_FILE = 100_000
#: Pages that a term is found on; what stands on more of them tells nothing.
MOST = 200_000
#: First terms in one file of the directory.
_DIRECTORY = 4_000


class SearchIndex:
    """Takes pages by ascending number, then writes the files `terms/<n>` and `directory/<n>`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._held: defaultdict[str, list[int]] = defaultdict(list)
        self._count = 0
        database.execute(
            "CREATE TABLE postings (term TEXT, part INTEGER, pages TEXT, PRIMARY KEY (term, part)) WITHOUT ROWID"
        )
        self._parts = 0

    def add(self, page: int, text: str) -> None:
        """The terms of a page; a page may be added again before the next one is."""
        for term in set(terms(text)):
            held = self._held[term]
            if not held or held[-1] != page:
                held.append(page)
                self._count += 1
        if self._count >= _HELD:
            self._lay_down()

    def write(self, files: DataFiles) -> tuple[int, int]:
        """All files: how many there are of terms, and of the directory."""
        self._lay_down()
        firsts: list[str] = []
        number = 0
        for chunk in _by_size(self._entries()):
            firsts.append(chunk[0][0])
            files.write(f"terms/{number}", chunk)
            number += 1
        directories = [firsts[at : at + _DIRECTORY] for at in range(0, len(firsts), _DIRECTORY)]
        for at, part in enumerate(directories):
            files.write(f"directory/{at}", part)
        return number, len(directories)

    def _lay_down(self) -> None:
        rows = ((term, self._parts, " ".join(map(str, self._held[term]))) for term in sorted(self._held))
        self._database.executemany("INSERT INTO postings VALUES (?, ?, ?)", rows)
        self._held.clear()
        self._count = 0
        self._parts += 1

    def _entries(self) -> Iterator[tuple[str, list[int]]]:
        """Each term with its pages: the first one, then the steps to the next ones. In the order of code points."""
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
