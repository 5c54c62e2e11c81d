"""Finished rows of units that are not whole yet: in memory up to a limit, the rest in files of this machine."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from llm_ocr.storage.own_folder import OwnFolder

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Kept(Generic[RowT]):
    """A row, whole or without what stands in `file`."""

    row: RowT
    size: int
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class RowFiles(Generic[RowT]):
    """How a row is split into a light one that stays in memory and the bytes of a file, and put together again.

    `size` is what the bytes take.
    """

    split: Callable[[RowT], tuple[RowT, bytes]]
    join: Callable[[RowT, bytes], RowT]
    size: Callable[[RowT], int]


@dataclass(slots=True)
class Spool(Generic[RowT]):
    """Keeps rows until their unit is published: all in memory, or `limit` bytes and the rest as `files` make them.

    One stuck page can hold a unit open for minutes while thousands of others are read; their images must not pile up
    in memory.
    """

    files: "RowFiles[RowT] | None" = None
    limit: int = 0
    held: int = 0  # bytes in memory
    _folder: OwnFolder | None = None
    _written: int = field(default=0)

    async def keep(self, row: RowT) -> Kept[RowT]:
        """Put a row away."""
        files = self.files
        if files is None:
            return Kept(row, 0)
        size = files.size(row)
        if self.held + size <= self.limit:
            self.held += size
            return Kept(row, size)
        if self._folder is None:
            self._folder = OwnFolder("llm-ocr-spool-")
        self._written += 1
        file = self._folder.path / str(self._written)
        light, heavy = files.split(row)
        await asyncio.to_thread(file.write_bytes, heavy)
        return Kept(light, size, file)

    async def take(self, kept: Sequence[Kept[RowT]]) -> list[RowT]:
        """The rows again, in this order; they are no longer kept."""
        self.held -= sum(one.size for one in kept if one.file is None)
        if all(one.file is None for one in kept):
            return [one.row for one in kept]
        return await asyncio.to_thread(lambda: [self._taken(one) for one in kept])

    def _taken(self, kept: Kept[RowT]) -> RowT:
        if kept.file is None or self.files is None:
            return kept.row
        row = self.files.join(kept.row, kept.file.read_bytes())
        kept.file.unlink()
        return row

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
