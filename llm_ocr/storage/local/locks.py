"""File locks between the processes that use a folder, and between machines if the file system supports that.

The locks of keys use `flock` on a sidecar, never on the object: a swap renames another file over it, and the lock
disappears with the old file (over NFS, the next waiter receives ESTALE). Sidecars are never removed, because two
processes that open a sidecar before and after its removal could both hold it. Therefore they are few, and many keys
share each.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import random
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from llm_ocr.errors import StorageError
from llm_ocr.storage.names import TEMPORARY

#: Folder of the sidecars below the root. No key has such a segment.
LOCKS = f"{TEMPORARY}locks"

#: Large enough that two of 1,000 concurrent writers seldom collide, small enough to inspect.
_SIDECARS = 64

#: Seconds. A lock is held for one check and one rename. A holder of a minute is a suspended or disconnected machine.
_TIMEOUT = 60.0

#: Errors of `flock` without lock support: NFS without lockd, Lustre mounted without flock, some FUSE systems.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})

#: Mount options that keep a network file system's locks local: nfs(5), mount.cifs(8), Lustre's mount(8).
_KEPT_LOCAL = frozenset({"nolock", "local_lock=flock", "local_lock=all", "nobrl", "localflock"})


class NoLocks(OSError):
    """Error for a file system without `flock`."""


@contextlib.contextmanager
def exclusive(root: Path, key: str, *, timeout: float = _TIMEOUT) -> Iterator[None]:
    """Hold the lock of the key, exclusively among threads, processes, and machines. A crash releases it.

    Args:
        root: folder of the store.
        key: key to lock; other keys may share its sidecar.
        timeout: seconds to wait for the lock.

    Raises:
        NoLocks: the file system has no locks.
        StorageError: the lock is not free within `timeout` seconds (retryable).
        OSError: the sidecar cannot be created.
    """
    prepare(root)
    folder = root / LOCKS
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) % _SIDECARS
    # Opened for writing, because NFS implements `flock` as a lock of the whole file, which requires that.
    handle = os.open(folder / f"{number:02x}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        # A blocking call could not be abandoned while the holder's machine is suspended.
        give_up = time.monotonic() + timeout
        wait = 0.001
        while not _taken(handle):
            if time.monotonic() >= give_up:
                raise StorageError(
                    f"{folder / f'{number:02x}'} has been locked by another worker for {timeout:.0f} s",
                    hint="A worker on this folder is suspended or disconnected: end that worker, or wait for it.",
                    retryable=True,
                )
            time.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(wait * 1.5, 0.05)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def held(root: Path, name: str, *, shared: bool) -> Iterator[str]:
    """Hold a lock with a sidecar of its own for the time of a command. A crash releases it.

    If the file system has no locks, or the user may not open the sidecar, no command is excluded.

    Args:
        root: folder of the store.
        name: name of the sidecar.
        shared: whether others may hold the lock as well, if they share it too.

    Yields:
        Text about the process that last took the lock, if it is not free; else empty.
    """
    with contextlib.ExitStack() as stack:
        try:
            prepare(root)
            handle = os.open(root / LOCKS / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, handle)
            free = _taken(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            text = f"process {os.getpid()} on {socket.gethostname()}"
            if free:
                os.ftruncate(handle, 0)
                os.pwrite(handle, text.encode(), 0)
            other = "" if free else os.pread(handle, 1000, 0).decode(errors="replace") or "a process"
        except OSError:
            other = ""
        yield other


def prepare(root: Path) -> None:
    """Create the folder of the sidecars: `delete` uses locks from then on."""
    (root / LOCKS).mkdir(exist_ok=True)


def _taken(handle: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno in _NO_LOCKS:
            raise NoLocks(error.errno, os.strerror(error.errno)) from error
        raise
    return True


def kept_on_this_machine(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the reason why other machines may not see locks in `folder`; empty if there is no known reason.

    No test on one machine can detect this, so the mount options are read (Linux only). The kernel keeps the locks of
    FUSE file systems local unless their driver handles them, which drivers for buckets do not.
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
        # Mount point, type, and options of a line: proc(5).
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if len(before) < 6 or not after[0]:
            continue
        for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            before[4] = before[4].replace(code, sign)
        point, kind = Path(before[4]), after[0]
        if len(point.parts) < best or not real.is_relative_to(point):  # of equal ones, the later is on top
            continue
        best = len(point.parts)
        kept = sorted(_KEPT_LOCAL.intersection(",".join([before[5], *after[2:]]).split(",")))
        if kind == "fuse" or kind.startswith("fuse."):
            answer = f"it is a {kind} file system"
        else:
            answer = f"it is mounted with {kept[0]}" if kept else ""
    return answer


def unreliable(root: Path) -> str:
    """Return the reason why locks below `root` are unreliable between workers; empty if they work.

    Tests with a temporary file whether a held lock excludes another. `root` must exist.
    """
    if why := kept_on_this_machine(root):
        return f"file locks may hold on this machine only, for {why}"
    probe, excludes = root / f"{TEMPORARY}lock-{secrets.token_hex(8)}", False
    try:
        with probe.open("xb") as first, probe.open("r+b") as second, contextlib.suppress(NoLocks):
            excludes = _taken(first.fileno()) and not _taken(second.fileno())
    finally:
        probe.unlink(missing_ok=True)
    return "" if excludes else "there are no file locks here"
