"""Render pages with poppler's pdftoppm, the alternative to pdfium and the fallback for files that pdfium cannot open.

The code runs in the worker process. pdftoppm is its child, under the same limits, in the same process group. Neither
may open a file: the child reads the document from its standard input.
"""

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llm_ocr.documents.files import FdFile
from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason

if TYPE_CHECKING:
    from PIL import Image


PROGRAMS = ("pdftoppm", "pdfinfo")
_STDIN = 0


def installed() -> bool:
    """Return whether pdftoppm and pdfinfo are on the PATH."""
    return all(map(shutil.which, PROGRAMS))


def page_count(file: FdFile, password: str, timeout: float) -> int:
    """Return poppler's page count of a PDF. Raises `PageFailure` if poppler cannot open it."""
    from pdf2image import pdfinfo_from_path

    info = _asked(pdfinfo_from_path, file, userpw=password or None, timeout=timeout)
    return int(info.get("Pages", 0))


def render(file: FdFile, number: int, longest: int, *, password: str, timeout: float) -> "Image.Image":
    """Return page `number` as RGB, its longest side `longest` pixels."""
    from pdf2image import convert_from_path

    images: list[Image.Image] = _asked(
        convert_from_path,
        file,
        first_page=number,
        last_page=number,
        size=longest,
        use_cropbox=True,
        userpw=password or None,
        timeout=timeout,
    )
    if not images:
        raise PageFailure(Reason.UNREADABLE, f"poppler rendered nothing for page {number}")
    return images[0] if images[0].mode == "RGB" else images[0].convert("RGB")


def page_size(file: FdFile, number: int, *, password: str, timeout: float) -> tuple[float, float]:
    """Return width and height in points, as shown."""
    from pdf2image import pdfinfo_from_path

    info = _asked(
        pdfinfo_from_path, file, userpw=password or None, first_page=number, last_page=number, timeout=timeout
    )
    size = str(info.get(f"Page {number:>4} size", info.get("Page size", ""))).split()
    turned = str(info.get(f"Page {number:>4} rot", info.get("Page rot", "0"))).strip()
    try:
        width, height = float(size[0]), float(size[2])
    except (IndexError, ValueError) as error:
        raise PageFailure(Reason.UNREADABLE, f"poppler gives no size for page {number}") from error
    return (height, width) if turned in ("90", "270") else (width, height)


def _asked(function: Any, file: FdFile, *, timeout: float, **options: Any) -> Any:
    """Call pdf2image; convert its errors to `PageFailure`."""
    from pdf2image import exceptions

    try:
        with _given_to_children(file, timeout) as path:
            return function(path, timeout=max(1, int(timeout)), **options)
    except exceptions.PDFPopplerTimeoutError as error:
        raise PageFailure(Reason.RENDER_TIMEOUT, f"poppler was killed after {timeout:g} s") from error
    except exceptions.PDFInfoNotInstalledError as error:
        raise PageFailure(
            Reason.UNREADABLE,
            "poppler is not installed",
            hint="Install it (Debian: apt-get install poppler-utils, macOS: brew install poppler).",
        ) from error
    except (exceptions.PDFPageCountError, exceptions.PDFSyntaxError, OSError, ValueError) as error:
        words = " ".join(str(error).split())
        reason = Reason.ENCRYPTED if "Incorrect password" in words else Reason.UNREADABLE
        raise PageFailure(reason, f"poppler: {words[:200]}") from error


@contextmanager
def _given_to_children(file: FdFile, timeout: float) -> Iterator[str]:
    """Yield a path under which child processes can open the document repeatedly, with limited processor seconds.

    Children inherit the limit even if this process exits.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    wanted = int(usage.ru_utime + usage.ru_stime + timeout) + 10
    ceiling = min(value for value in (soft, hard, wanted) if value != resource.RLIM_INFINITY)
    document, before = _openable(file), os.dup(_STDIN)
    resource.setrlimit(resource.RLIMIT_CPU, (ceiling, hard))
    try:
        os.dup2(document, _STDIN)
        yield "/dev/stdin"
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        os.dup2(before, _STDIN)
        os.close(before)
        os.close(document)


def _openable(file: FdFile) -> int:
    """Return a descriptor that a confined process may open: on Linux, a memory copy outside Landlock's rules."""
    if not hasattr(os, "memfd_create"):
        return os.dup(file.fileno())  # on macOS, opening the path duplicates the descriptor
    copy = os.memfd_create("document")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    try:
        at, size = 0, file.size
        while at < size and (sent := os.sendfile(copy, file.fileno(), at, size - at)):
            at += sent
    except BaseException:
        os.close(copy)
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return copy
