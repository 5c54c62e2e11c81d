"""Which of the workspace's dataset files, or row groups of them, go into which shard of an exported dataset.

Shards are cut by what the workspace holds and by nothing else: the same state gives the same shards with the same
names, and a change gives new names only to the shards that it touches.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

#: Raised when the same parts give other bytes.
EXPORT_VERSION = 1

#: What the names of shards begin with. Their number follows, so that readers get the plan's order.
PREFIX = "data/train-"
#: All shards of an export, and no file as others call theirs (`data/train-00000-of-00001.parquet`).
GLOB = f"{PREFIX}*-{'?' * 16}.parquet"

_SHARD = re.compile(r"data/train-\d{5,}-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset file of the workspace: `size` in bytes, `version` the store's token of it.

    `content` is the same for the same content, wherever the workspace is. With `most`, documents with a larger share
    (0..1) of bad pages are left out, and `content` says which. `sha256` is what the whole file must have, where known.
    """

    key: str
    size: int
    content: str
    version: str
    most: float | None = None
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A file, whole or (`groups`: first and end) some row groups of it, which are about `size` bytes."""

    source: Source
    size: int
    groups: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of an exported dataset, at its place in the order."""

    index: int
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """About the size of the file, in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def name(self) -> str:
        """`data/train-00007-<16 hex of what is in it>.parquet`."""
        about = [EXPORT_VERSION, [(part.source.content, part.groups) for part in self.parts]]
        return f"{PREFIX}{self.index:05d}-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}.parquet"


def is_shard(key: str) -> bool:
    """Whether a file is called as a shard is."""
    return _SHARD.fullmatch(key) is not None


def cut(sources: Iterable[Source], size: int, group_sizes: Callable[[Source], Sequence[int]]) -> Iterator[Shard]:
    """Shards of at most `size` bytes, in the order of the files; larger only where one row group is.

    `group_sizes` gives the bytes of each row group of a file; it is asked for files that alone are larger than a shard.
    """
    index, waiting, total = 0, list[Part](), 0
    for source in sources:
        whole = source.size <= size
        for part in [Part(source, source.size)] if whole else _divided(source, size, group_sizes(source)):
            if waiting and total + part.size > size:
                yield Shard(index, tuple(waiting))
                index, waiting, total = index + 1, [], 0
            waiting.append(part)
            total += part.size
    if waiting:
        yield Shard(index, tuple(waiting))


def _divided(source: Source, size: int, groups: Sequence[int]) -> Iterator[Part]:
    first, total = 0, 0
    for number, group in enumerate(groups):
        if number > first and total + group > size:
            yield Part(source, total, (first, number))
            first, total = number, 0
        total += group
    yield Part(source, total, (first, len(groups)))
