"""The version of a file: inode, time and size. Files are never changed in place, so no lock is needed to read one."""

import contextlib
import os
import random
from pathlib import Path


def version_of(found: os.stat_result) -> str:
    """The token of a file that was looked at."""
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


def version_at(path: Path) -> str | None:
    """The token of the file that stands there now, None for none.

    By opening it: over NFS `stat` may answer from a cache what was true some seconds ago, `open` asks.
    """
    try:
        with path.open("rb") as file:
            return version_of(os.fstat(file.fileno()))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def set_apart(path: Path) -> None:
    """Make the time of a new file a little other than all others', by less than a millisecond.

    Kernels before Linux 6.13 count file times in ticks of some milliseconds, and ext4 uses inodes again at once: a
    third version written within a tick would look like the first.
    """
    written = path.stat()
    tick = 1_000_000
    modified = written.st_mtime_ns - written.st_mtime_ns % tick + random.randrange(tick)
    with contextlib.suppress(PermissionError, NotImplementedError):  # a mount that keeps its own times
        os.utime(path, ns=(written.st_atime_ns, modified))
