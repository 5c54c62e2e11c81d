"""Folders for temporary files of one process; after a kill, the next process removes them."""

import contextlib
import fcntl
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO

#: File that a process locks in its folder of temporary files.
_LOCK = ".lock"


class OwnFolder:
    """Folder for temporary files of this process: removed on exit, or by the next process after a kill.

    It is a new folder in `parent` (created if needed; default: `TMPDIR`), locked while the process runs.

    Folders of killed processes with the same `prefix`, which ends in a dash, are removed first.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        within = parent or Path(tempfile.gettempdir())
        for folder in within.glob(f"{prefix}*"):  # of killed processes, whose lock is free
            with contextlib.suppress(OSError), (folder / _LOCK).open("r+") as lock:  # without a lock file: kept
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        while True:
            path = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
            held = (path / _LOCK).open("w")
            try:
                fcntl.flock(held, fcntl.LOCK_EX)
            except OSError:  # no locks here: without the file, no process mistakes the folder for a leftover
                (path / _LOCK).unlink(missing_ok=True)
                if path.exists():
                    break
            if (path / _LOCK).exists():
                break
            held.close()  # another process mistook the folder for a leftover before it was locked
        self.path = path
        self._end = weakref.finalize(self, _remove, path, held)  # runs at the interpreter's exit, too

    def remove(self) -> None:
        """Remove the folder and its contents. Does nothing if the folder is gone."""
        self._end()


def _remove(path: Path, lock: IO[str]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    lock.close()
