"""Types of documents by their first bytes or names, and reading a document through a file descriptor."""

import io
import os
import re
from pathlib import Path
from typing import Any

PDF, IMAGE = "pdf", "image"

#: Supported suffixes. `.jpe` and `.jfif` are other suffixes of JPEG.
SUFFIXES = {
    ".pdf": PDF,
    ".png": IMAGE,
    ".jpg": IMAGE,
    ".jpeg": IMAGE,
    ".jpe": IMAGE,
    ".jfif": IMAGE,
    ".webp": IMAGE,
    ".tif": IMAGE,
    ".tiff": IMAGE,
    ".gif": IMAGE,
    ".bmp": IMAGE,
    ".jp2": IMAGE,
    ".j2k": IMAGE,
    ".jpf": IMAGE,
    ".jpx": IMAGE,
    ".avif": IMAGE,
}
_SEVERAL_PAGES = (".tif", ".tiff")
ACCEPTED = "PDF, PNG, JPEG, WebP, TIFF, GIF, BMP, JPEG 2000, AVIF"

#: Readers accept a PDF whose header is within the first 1024 bytes.
HEAD_BYTES = 1024
_IMAGE_SIGNS = (
    *(b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"),
    *(b"GIF87a", b"GIF89a", b"\x00\x00\x00\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
)
#: Sizes of the header of a BMP. Its sign, BM, is also the beginning of texts.
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
_AVIF = (b"avif", b"avis")
#: Count of a node of a page tree, and more bytes than it has.
_COUNT, _LONGEST_COUNT = re.compile(rb"(/Count\s*)(\d+)"), 24
#: Limits of a file whose page tree is corrected: its bytes, those of a node, and its counts.
_MOST_BYTES, _LONGEST_NODE, _MOST_COUNTS = 1 << 27, 1 << 16, 10_000


def kind_by_name(path: str | Path) -> str:
    """Return `pdf`, `image`, or "" for an unknown suffix."""
    return SUFFIXES.get(os.path.splitext(path)[1].lower(), "")  # noqa: PTH122 - creating a million paths is slow


def is_one_page(path: str) -> bool:
    """Return whether a file of this name has one page: an image, but not a TIFF."""
    suffix = os.path.splitext(path)[1].lower()  # noqa: PTH122 - as above
    return SUFFIXES.get(suffix) == IMAGE and suffix not in _SEVERAL_PAGES


def kind_by_content(path: str | Path) -> str:
    """Return `pdf`, `image`, or "" by the first bytes. Raises `OSError` if the file cannot be read."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
        return kind_of_head(file.read(HEAD_BYTES))


def kind_of_head(head: bytes) -> str:
    """Return `pdf`, `image`, or "" by a file's first `HEAD_BYTES`."""
    if head.startswith(_IMAGE_SIGNS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return IMAGE
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return IMAGE
    if head[4:8] == b"ftyp" and any(brand in head[8:32] for brand in _AVIF):
        return IMAGE
    return PDF if b"%PDF-" in head else ""


class FdFile(io.RawIOBase):
    """Document in a worker process, over a descriptor; `name` is a label, not a path to open.

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
        """Return all bytes. The position stays, because a buffered reader of this file does not ask for it again."""
        before = self.tell()
        self.seek(0)
        data = self.readall()
        self.seek(before)
        return data

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
        data = os.pread(self._descriptor, len(buffer), self._at)
        memoryview(buffer).cast("B")[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class UncountedFile(FdFile):
    """PDF in which every `/Count` is 0, so that pdfium counts the pages of its page tree. Not for reading pages.

    A tree in compressed objects keeps its number.
    """

    def readinto(self, buffer: Any) -> int:
        before = min(self._at, _LONGEST_COUNT)
        data = os.pread(self._descriptor, before + len(buffer) + _LONGEST_COUNT, self._at - before)
        data = _COUNT.sub(_zeros, data)[before : before + len(buffer)]
        memoryview(buffer).cast("B")[: len(data)] = data
        self._at += len(data)
        return len(data)


def without_counts(file: FdFile) -> bytes:
    """Return a PDF with 0 as the number of pages of its page tree, and all else as it is; empty if it is too large."""
    if file.size > _MOST_BYTES:
        return b""
    data = file.whole()

    def counted(found: re.Match[bytes]) -> bytes:
        node = data[max(0, found.start() - _LONGEST_NODE) : found.start()]
        node = node[node.rfind(b"obj") :] + data[found.end() : found.end() + _LONGEST_NODE].partition(b"endobj")[0]
        return found[0] if b"stream" in node or b"/Kids" not in node else _zeros(found)

    return _COUNT.sub(counted, data, count=_MOST_COUNTS)


def _zeros(found: re.Match[bytes]) -> bytes:
    return found[1] + b"0" * len(found[2])


def state(descriptor: int) -> tuple[int, ...]:
    """Return values that change if an open file changes: device, number, size, and times of the write and the change.

    The times are in nanoseconds since 1970. Users can set the time of a write, but not of a change, which is last.
    """
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
