"""Read a document in a worker process through a file descriptor."""

import io
import os
from typing import Any, NamedTuple

from llm_ocr.documents.file_types import HEAD_BYTES, kind_by_name, kind_of_head


class FdFile(io.RawIOBase):
    """File over a descriptor; `name` is a label, not a path to open.

    The object keeps its own duplicate of the descriptor and its own position.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__()
        self.name = name
        self._descriptor = os.dup(descriptor)
        self._at = 0

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return os.fstat(self._descriptor).st_size

    def kind(self) -> str:
        """Kind of the file by its content, or by its name for unknown content.

        So a damaged file counts as unreadable, not as unknown.
        """
        return kind_of_head(os.pread(self._descriptor, HEAD_BYTES, 0)) or kind_by_name(self.name)

    def whole(self) -> bytes:
        """Return all bytes."""
        self.seek(0)
        return self.readall()

    def fileno(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise OSError("a position before the file's begin")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        if hasattr(os, "preadv"):
            count = os.preadv(self._descriptor, [buffer], self._at)
        else:  # macOS before 11
            data = os.pread(self._descriptor, len(buffer), self._at)
            memoryview(buffer)[: len(data)] = data
            count = len(data)
        self._at += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class State(NamedTuple):
    """Values that change if a file changes or is replaced. Users can set the time of a write, but not of a change."""

    device: int
    number: int
    size: int
    written: int  # nanoseconds since 1970
    changed: int


def state(descriptor: int) -> State:
    """Return the state of an open file."""
    about = os.fstat(descriptor)
    return State(about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
