"""A dictionary from texts to whole numbers that may have millions of entries: most of it is on the local disk."""

import hashlib
import sqlite3
from typing import Self

#: Of it in memory, in KiB.
_MEMORY = 8192


class Numbers:
    """Remembers a number, 0 to 2**63 - 1, for each text; of the texts a hash of 15 bytes.

    Among a million texts two are taken for one once in 10^24 runs. For one thread at a time.
    """

    def __init__(self) -> None:
        # Without a name the file is gone with the connection; nothing of it need survive, so nothing is synced.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_MEMORY}"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("CREATE TABLE numbers (hash BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, text: str) -> int | None:
        """The number of the text; None when it has none."""
        row = self._database.execute("SELECT number FROM numbers WHERE hash = ?", (_hash(text),)).fetchone()
        return None if row is None else int(row[0])

    def __setitem__(self, text: str, number: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO numbers VALUES (?, ?)", (_hash(text), number))

    def close(self) -> None:
        """Forget everything."""
        self._database.close()


def number_of(text: str) -> int:
    """63 bits of a hash: to compare two texts, not to look one up among many."""
    return int.from_bytes(_hash(text)[:8]) >> 1


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:15]
