"""A document in a worker process, which reads it through a file descriptor."""

import io
import os
from typing import Any

from llm_ocr.documents.file_types import HEAD_BYTES, kind_by_name, kind_of_head


class FdFile(io.RawIOBase):
    """A file of which only a descriptor is known; `name` tells what it is called, not where it may be opened.

    Keeps a descriptor and a position of its own.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__()
        self.name = name
        self._descriptor = os.dup(descriptor)
        self._at = 0

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._descriptor).st_size

    def kind(self) -> str:
        """The content decides; the name where the content says nothing, so that a damaged file is called unreadable."""
        return kind_of_head(os.pread(self._descriptor, HEAD_BYTES, 0)) or kind_by_name(self.name)

    def whole(self) -> bytes:
        """All bytes."""
        self.seek(0)
        return self.readall()

    def fileno(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if start + offset < 0:
            raise OSError("a position before the file's begin")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._descriptor, [buffer], self._at) if hasattr(os, "preadv") else self._copied(buffer)
        self._at += count
        return count

    def _copied(self, buffer: Any) -> int:
        """For systems without `preadv` (macOS before 11)."""
        data = os.pread(self._descriptor, len(buffer), self._at)
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def state(descriptor: int) -> tuple[int, ...]:
    """What changes when the file does, or is another."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
