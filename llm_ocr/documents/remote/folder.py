"""The folder of local copies: removed when its process ends, and by the next process when that was killed."""

import contextlib
import fcntl
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO

_PREFIX = "llm-ocr-documents-"
_LOCK = ".lock"


class CopyFolder:
    """A folder of this process's own below `parent`, locked for as long as the process lives."""

    def __init__(self, parent: Path | None = None) -> None:
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        within = parent or Path(tempfile.gettempdir())
        _sweep(within)
        self.path, self._lock = _locked_folder(within)
        self._end = weakref.finalize(self, _remove, self.path, self._lock)  # at the interpreter's exit, too

    def remove(self) -> None:
        """Remove the folder and everything in it; nothing when it is gone."""
        self._end()


def _locked_folder(within: Path) -> tuple[Path, IO[str]]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=within))
        lock = (path / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (path / _LOCK).exists():
            return path, lock
        lock.close()  # another process took it for a dead one's before it was locked


def _remove(path: Path, lock: IO[str]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    lock.close()


def _sweep(within: Path) -> None:
    """Remove what killed processes have left: folders whose lock nobody holds. Others' folders are left alone."""
    for folder in within.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
