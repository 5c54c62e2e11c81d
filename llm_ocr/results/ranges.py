"""A stored object as a seekable file, so that readers of Parquet fetch only the ranges that they need."""

import io
from typing import TYPE_CHECKING

from llm_ocr.errors import ObjectNotFound

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from llm_ocr.storage import ObjectStore


class ObjectFile(io.RawIOBase):
    """Reads an object of a store by ranges: each `read` is one request. Not for several threads at once."""

    def __init__(self, store: "ObjectStore", key: str) -> None:
        """Raises `ObjectNotFound` when there is no such object."""
        info = store.stat(key)
        if info is None:
            raise ObjectNotFound(f"no object {key} in {store.url}")
        self._store, self._key, self._size = store, key, info.size
        self._position = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Bytes from the start."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, without a request; the new position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer from the current position; the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size - self._position)
        if length <= 0:
            return 0
        data = self._store.read_range(self._key, self._position, length)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)
