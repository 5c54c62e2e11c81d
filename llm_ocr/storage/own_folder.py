"""Temporary folders of one process: removed when it ends, and by the next process when it was killed."""

import contextlib
import fcntl
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO

_LOCK = ".lock"


class OwnFolder:
    """A new folder in `parent` (made if need be; default: `TMPDIR`), locked for as long as the process lives.

    What killed processes have left there under the same `prefix`, which ends in a dash, is removed first.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        within = parent or Path(tempfile.gettempdir())
        _sweep(within, prefix)
        self.path, self._lock = _locked_folder(within, prefix)
        self._end = weakref.finalize(self, _remove, self.path, self._lock)  # at the interpreter's exit, too

    def remove(self) -> None:
        """Remove the folder and everything in it; nothing when it is gone."""
        self._end()


def _locked_folder(within: Path, prefix: str) -> tuple[Path, IO[str]]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
        lock = (path / _LOCK).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # no locks here: without the file nobody takes it for a dead one's
            (path / _LOCK).unlink(missing_ok=True)
            if path.exists():
                return path, lock
        if (path / _LOCK).exists():
            return path, lock
        lock.close()  # another process took it for a dead one's before it was locked


def _remove(path: Path, lock: IO[str]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    lock.close()


def _sweep(within: Path, prefix: str) -> None:
    """Remove what killed processes have left: folders whose lock nobody holds. Others' folders are left alone."""
    for folder in within.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
