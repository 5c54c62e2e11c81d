"""Memory that is free is given back: who passes many images on must not stay as large as the largest moment."""

import contextlib
import ctypes
import functools
import os
import resource
import sys

_M_MMAP_THRESHOLD = -3  # glibc's mallopt
#: Blocks from this size on, in bytes, are mapped on their own and unmapped when they are freed.
_MAPPED_FROM = 128 << 10


def map_large_blocks() -> None:
    """Keep glibc from raising its threshold at the first large block that is freed, as it does by default.

    Page images of different sizes and lives would then tear holes into the heap, which only ever grows.
    """
    # glibc has it; other C libraries may not.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)


def give_back_memory(above: int = 0) -> None:
    """Hand freed memory back to the system where more than `above` bytes are resident (Linux with glibc)."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    with contextlib.suppress(OSError):  # no /proc here: nothing is given back
        resident = int(os.pread(sizes(), 100, 0).split()[1]) * resource.getpagesize()
        if trim is not None and resident > above:
            trim(0)


@functools.cache
def sizes() -> int:
    """The descriptor of this process's sizes, opened once: a confined worker may not open them. Raises OSError."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
