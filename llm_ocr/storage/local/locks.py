"""Locks between the processes, and where the file system carries them the machines, that use a folder.

`flock` on a sidecar, never on the object: a swap renames another file over the object, and a lock on a file that is
renamed over goes with it (over NFS the next one who waits gets ESTALE). The sidecars are never removed, for one that is
removed could be held by two who opened it before and after; so they are few and many keys share each.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import random
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from llm_ocr.errors import StorageError
from llm_ocr.storage.names import TEMPORARY

#: Below the root. No key has such a segment.
LOCKS = f"{TEMPORARY}locks"

#: Enough that two of 1,000 workers that write at the same moment seldom meet; few enough to look at.
_SIDECARS = 64

#: A lock is held for one look and one rename. A holder of a minute is a machine that is stopped or cut off.
_PATIENCE = 60.0

#: What `flock` answers where there are no locks: NFS without lockd, Lustre mounted without flock, some FUSE systems.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})

#: Mount options by which a network file system keeps locks to the machine: nfs(5), mount.cifs(8), Lustre's mount(8).
_KEPT_LOCAL = frozenset({"nolock", "local_lock=flock", "local_lock=all", "nobrl", "localflock"})


class NoLocks(OSError):
    """The file system has no `flock`."""


@contextlib.contextmanager
def exclusive(root: Path, key: str, *, patience: float = _PATIENCE) -> Iterator[None]:
    """Hold the lock of the key: no other thread, process or machine does at the same time; a death lets go of it.

    Raises `NoLocks` where there are none, `StorageError` (retryable) when it is not free within `patience` seconds, and
    `OSError` when the sidecar cannot be made.
    """
    prepare(root)
    folder = root / LOCKS
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) % _SIDECARS
    # For writing, because NFS makes of `flock` a lock of the whole file, which asks for that.
    handle = os.open(folder / f"{number:02x}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _take(handle, patience, str(folder / f"{number:02x}"))
        yield
    finally:
        os.close(handle)


def prepare(root: Path) -> None:
    """Make the folder of the sidecars: from then on `may_be_held`."""
    (root / LOCKS).mkdir(exist_ok=True)


def may_be_held(root: Path) -> bool:
    """Whether anyone who takes locks below `root` has come by."""
    return (root / LOCKS).is_dir()


def exclude(root: Path) -> bool:
    """Whether a lock that is held keeps another out, tried with a file that is removed again. `root` must be there."""
    probe = root / f"{TEMPORARY}lock-{secrets.token_hex(8)}"
    try:
        with probe.open("xb") as first, probe.open("r+b") as second:
            return _taken(first.fileno()) and not _taken(second.fileno())
    except NoLocks:
        return False
    finally:
        probe.unlink(missing_ok=True)


def _take(handle: int, patience: float, where: str) -> None:
    # Not a call that blocks: it could not be given up when the holder's machine is stopped.
    give_up = time.monotonic() + patience
    wait = 0.001
    while not _taken(handle):
        if time.monotonic() >= give_up:
            error = StorageError(
                f"{where} has been locked by another worker for {patience:.0f} s",
                hint="A worker on this folder is stopped or cut off: end it, or wait until it goes on.",
            )
            error.retryable = True
            raise error
        time.sleep(wait * random.uniform(0.5, 1.0))
        wait = min(wait * 1.5, 0.05)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno in _NO_LOCKS:
            raise NoLocks(error.errno, os.strerror(error.errno)) from error
        raise
    return True


def kept_on_this_machine(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Why locks in `folder` may not be seen by other machines; empty when they are, or nothing says otherwise.

    No test on one machine can find this out, so the mount is asked (Linux only). The kernel keeps the locks of FUSE
    file systems to itself unless their driver takes them over, which those for buckets do not.
    """
    if not sys.platform.startswith("linux"):
        return ""
    try:
        text = mounts.read_text(errors="surrogateescape")
    except OSError:
        return ""
    real = folder.resolve()
    best, answer = 0, ""
    for line in text.splitlines():
        point, kind, options = _mount(line)
        if kind and len(point.parts) >= best and real.is_relative_to(point):  # of equal ones the later covers the other
            best, answer = len(point.parts), _why_local(kind, options)
    return answer


def unreliable(root: Path) -> str:
    """Why locks below `root` do not decide between all workers; empty when they do. Tried by taking one."""
    if why := kept_on_this_machine(root):
        return f"file locks may hold on this machine only, for {why}"
    return "" if exclude(root) else "there are no file locks here"


def _mount(line: str) -> tuple[Path, str, frozenset[str]]:
    """Mount point, type and options of a line of mountinfo (proc(5)); an empty type for what is none."""
    left, _, right = line.partition(" - ")
    before, after = left.split(" "), right.split(" ")
    if len(before) < 6 or not after[0]:
        return Path("/"), "", frozenset()
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        before[4] = before[4].replace(code, sign)
    return Path(before[4]), after[0], frozenset(",".join([before[5], *after[2:]]).split(","))


def _why_local(kind: str, options: frozenset[str]) -> str:
    if kind == "fuse" or kind.startswith("fuse."):
        return f"it is a {kind} file system"
    kept = sorted(options & _KEPT_LOCAL)
    return f"it is mounted with {kept[0]}" if kept else ""
