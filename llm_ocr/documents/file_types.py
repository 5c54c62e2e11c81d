"""Detect the type of a file by its first bytes, or by its name if the bytes are inconclusive."""

import os
from pathlib import Path

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
