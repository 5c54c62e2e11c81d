"""Return of free memory to the system, so that a process with many images does not keep its peak size."""

import contextlib
import ctypes
import functools
import os
import resource
import sys

_M_MMAP_THRESHOLD = -3  # glibc's mallopt
#: Size in bytes from which blocks are mapped separately, and unmapped when freed.
_MAPPED_FROM = 128 << 10


def map_large_blocks() -> None:
    """Prevent glibc from raising its threshold when the first large block is freed, as it does by default.

    Page images of different sizes and lifetimes would otherwise fragment the heap, which never shrinks.
    """
    # glibc has it; other C libraries may not.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)


def give_back_memory(above: int = 0) -> None:
    """Return freed memory to the system if more than `above` bytes are resident (Linux with glibc)."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    with contextlib.suppress(OSError):  # no /proc here: no memory is returned
        resident = int(os.pread(sizes(), 100, 0).split()[1]) * resource.getpagesize()
        if trim is not None and resident > above:
            trim(0)


@functools.cache
def sizes() -> int:
    """Return the descriptor of this process's sizes. It is opened once, because a confined worker may not open it.

    Raises:
        OSError: there is no /proc.
    """
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
