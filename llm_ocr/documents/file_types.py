"""What a file is: by its first bytes, and by its name where the bytes say nothing."""

import os
from pathlib import Path

PDF, IMAGE = "pdf", "image"

#: What is taken, by suffix. `.jpe` and `.jfif` are JPEG under other names.
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
}
ACCEPTED = "PDF, PNG, JPEG, WebP, TIFF"

#: Readers accept a PDF whose header stands within the first 1024 bytes.
HEAD_BYTES = 1024
_IMAGE_SIGNS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


def kind_by_name(path: str | Path) -> str:
    """`pdf`, `image`, or empty for an unknown suffix."""
    return SUFFIXES.get(os.path.splitext(path)[1].lower(), "")  # noqa: PTH122 - a path made is dear for a million


def kind_by_content(path: str | Path) -> str:
    """`pdf`, `image`, or empty when the first bytes are of neither. Raises OSError when the file cannot be read."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
        return kind_of_head(file.read(HEAD_BYTES))


def kind_of_head(head: bytes) -> str:
    """`pdf`, `image`, or empty, by a file's first `HEAD_BYTES`."""
    if head.startswith(_IMAGE_SIGNS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return IMAGE
    return PDF if b"%PDF-" in head else ""


def kind_of(path: str | Path) -> str:
    """The content decides; the name where the content says nothing, so that a damaged file is called unreadable."""
    return kind_by_content(path) or kind_by_name(path)
