"""Store in a local folder or on a shared file system."""

import contextlib
import errno
import os
import random
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import BaseStore, Capabilities, ObjectInfo
from llm_ocr.storage.local.locks import LOCKS, NoLocks, exclusive, held, prepare, unreliable
from llm_ocr.storage.names import TEMPORARY, check_key, folder_of

# Version of a file: inode, time, and size. Files are never changed in place, so reading needs no lock.


def version_of(found: os.stat_result) -> str:
    """Return the version token of a file from its `stat` result."""
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


def version_at(path: Path) -> str | None:
    """Return the version token of the current file, or None if there is no file.

    The file is opened, because over NFS `stat` may return cached data that are seconds old, while `open` queries the
    server.
    """
    try:
        with path.open("rb") as file:
            return version_of(os.fstat(file.fileno()))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


#: Nanoseconds by which versions of a file are told apart at most.
_TICK = 1_000_000

_AGAIN = "Published results remain. Then run the same command again."
_MAY_NOT = "This user lacks a permission: change the permissions of the folder, or use another folder."
_HINTS = {
    errno.ENOSPC: f"The disk is full. Free space there, or use a folder on another disk. {_AGAIN}",
    errno.EDQUOT: f"The disk quota is used up. Free space there, or use a folder on another disk. {_AGAIN}",
    errno.EROFS: "The file system is mounted read-only: use a folder on another file system.",
    errno.EACCES: _MAY_NOT,
    errno.EPERM: _MAY_NOT,
    errno.EFBIG: "The file exceeds the limit of this process (ulimit -f) or of the file system.",
    errno.EMFILE: "Too many files are open: raise the limit (ulimit -n).",
    errno.ENAMETOOLONG: "The path is too long for this file system: use a workspace with a shorter path.",
    errno.ENOTDIR: "A file has the path of a required folder: use another folder.",
    errno.EEXIST: "A file has the path of a required folder: use another folder.",
    errno.EISDIR: "A folder has the path of a required file: use another folder.",
    errno.EIO: "The disk or the network file system failed: check it, then run the same command again.",
    errno.ESTALE: "The network file system lost the file: run the same command again.",
}
#: Errors of a full disk and of a used-up quota, and what to do if the disk is that of temporary files.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
TEMPORARY_FULL = "Free space there, or set TMPDIR to a folder on a larger disk. Run the same command again to continue."
_PASSING = frozenset({errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR, errno.EBUSY})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})

#: Errors of `link` without hard link support: FAT, exFAT, object stores mounted as folders, some network shares.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})

NO_LINKS_HINT = "Use a folder on another file system, or a bucket (s3://BUCKET/PREFIX, gs://…, or hf://buckets/…)."
NO_LOCKS_HINT = "Workers cannot claim units here. Divide the units with `shard_index` and `shard_count`."


@contextlib.contextmanager
def translated(action: str, where: str, *, reading: bool = False, temporary: bool = False) -> Iterator[None]:
    """Turn an OSError into a `StorageError` "cannot <action> <where>"; when `reading`, a missing file into its own.

    `temporary` is whether the file is in the folder of temporary files, which the user sets with TMPDIR.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        if reading and error.errno in _MISSING:
            raise ObjectNotFound(f"no object {where}") from error
        said = storage_error(error, action, where)
        if temporary and error.errno in DISK_FULL:
            said.hint = TEMPORARY_FULL
        raise said from error


def storage_error(error: OSError, action: str, where: str) -> StorageError:
    """Return the error to raise for `error`, which occurred during `action` on `where`."""
    said = StorageError(
        f"cannot {action} {where}: {error.strerror or error}",
        hint=_HINTS.get(error.errno or 0, ""),
        retryable=error.errno in _PASSING,
    )
    said.errno = error.errno
    return said


@contextlib.contextmanager
def replacing(path: Path, source: str) -> Iterator[Path]:
    """Yield the path of a temporary file for a copy of the object `source`; a complete copy replaces `path`."""
    temporary = path.with_name(_temporary_name())
    try:
        with translated(f"copy {source} to", str(path)):
            yield temporary
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


#: Entries at the root that are not content: `lost+found`, made by mkfs on ext file systems and readable by root only;
#: and our locks.
_NOT_CONTENT = frozenset({"lost+found/", f"{LOCKS}/"})


def walk(root: Path, folder: str = "", prefix: str = "", start_after: str = "") -> Iterator[str]:
    """Yield all files below `root`/`folder` in key order, except in subfolders without keys that are wanted.

    Args:
        root: folder of the store.
        folder: a key, or empty for the root itself.
        prefix: beginning of the wanted keys.
        start_after: key after which the wanted ones are.
    """
    with translated("list", str(root / folder)):
        try:
            with os.scandir(root / folder) as entries:
                names = []
                for entry in entries:
                    is_folder = False
                    with contextlib.suppress(OSError):  # circular links are not folders
                        is_folder = entry.is_dir()
                    names.append(f"{entry.name}/" if is_folder else entry.name)
        except (FileNotFoundError, NotADirectoryError):  # the folder is gone
            return
    for name in sorted(names):  # as keys: a folder's name includes its `/`
        if not folder and name in _NOT_CONTENT:
            continue
        key = f"{folder}/{name}" if folder else name
        if not name.endswith("/"):
            yield key
        elif (key.startswith(prefix) or prefix.startswith(key)) and (key > start_after or start_after.startswith(key)):
            yield from walk(root, key[:-1], prefix, start_after)


# Store in a local folder or on a file system mounted by many machines. An object appears under its name completely or
# not at all. `put` writes a temporary file in the same folder, syncs it, and renames it. `create` makes a hard link
# instead, which fails if the name exists. Exclusive creation of the object itself (`O_EXCL`) would let a crash leave an
# empty marker that counts permanently. Without hard links (FAT, exFAT), `create` checks and renames under a lock, which
# a crash releases. Without links and locks, such as in a mounted bucket, the last of two concurrent creators wins:
# `capabilities` reports this, and each worker must have its own units. (A crash would leave an exclusive claim file
# behind, and no worker could take it over safely.)


#: Errors of file systems that cannot sync a folder. Nothing more can be done for durability.
_CANNOT_SYNC_FOLDERS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF})


class LocalStore(BaseStore):
    """Store whose objects are files below `root`. Safe to use from several threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)
        self._capabilities: Capabilities | None = None

    def read_range(self, key: str, start: int, length: int) -> bytes:
        path = self._path(key)
        with translated("read", str(path), reading=True), path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def put(self, key: str, data: bytes) -> None:
        self._replace(key, lambda file: file.write(data))

    def upload(self, path: Path, key: str) -> None:
        def copy(file: BinaryIO) -> None:
            with path.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)

        self._replace(key, copy)

    def create(self, key: str, data: bytes) -> str:
        path = self._path(key)
        if self._info(key) is not None:  # saves a useless write; the link below decides
            raise ObjectExists(f"{path} exists")
        with translated("write", str(path)), self._temporary(path, lambda file: file.write(data)) as temporary:
            version = version_of(temporary.stat())
            try:
                self._link(temporary, path)
            except OSError as error:
                # Over NFS a response may be lost and the call repeated: two names of our file mean success.
                if temporary.stat().st_nlink < 2:
                    if error.errno == errno.EEXIST:
                        raise ObjectExists(f"{path} exists") from error
                    if error.errno not in _NO_LINKS:
                        raise
                    self._create_without_links(key, temporary)
            self._sync_folder(path.parent)
        return version

    def _create_without_links(self, key: str, temporary: Path) -> None:
        """Create under a lock. Without locks visible to all, the last concurrent creator wins (`capabilities`)."""
        path = self._path(key)
        with contextlib.nullcontext() if unreliable(self.root) else exclusive(self.root, key):
            if version_at(path) is not None:
                raise ObjectExists(f"{path} exists")
            self._rename(temporary, path)

    def fetch(self, key: str) -> tuple[bytes, str]:
        path = self._path(key)
        with translated("read", str(path), reading=True), path.open("rb") as file:
            return file.read(), version_of(os.fstat(file.fileno()))

    def swap(self, key: str, data: bytes, version: str) -> str:
        path = self._path(key)
        if not (can := self.capabilities()).swap:
            raise StorageError(f"cannot swap {path}: {can.note}", hint=NO_LOCKS_HINT)
        with translated("write", str(path)):
            _expect(path, version)  # saves a useless write; the check under the lock decides
            with self._temporary(path, lambda file: file.write(data)) as temporary:
                new = version_of(temporary.stat())
                with exclusive(self.root, key):
                    _expect(path, version)
                    self._rename(temporary, path)
                self._sync_folder(path.parent)
        return new

    def download(self, key: str, path: Path) -> None:
        info = self.stat(key)
        source = self.root / key
        if info is None:
            raise ObjectNotFound(f"no object {source}")
        with replacing(path, str(source)) as temporary:
            shutil.copyfile(source, temporary)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        for key in walk(self.root, folder_of(prefix), prefix, start_after):
            if key.startswith(prefix) and key > start_after and not key.rpartition("/")[2].startswith(TEMPORARY):
                info = self._info(key)
                if info is not None:
                    yield info

    def unfinished(self) -> Iterator[ObjectInfo]:
        for key in walk(self.root):
            if key.rpartition("/")[2].startswith(TEMPORARY):
                info = self._info(key)
                if info is not None:
                    yield info

    def stat(self, key: str) -> ObjectInfo | None:
        self._path(key)
        return self._info(key)

    def delete(self, key: str) -> None:
        folder, _, name = key.rpartition("/")
        path = self.root / folder / name if name.startswith(TEMPORARY) else self._path(key)
        if folder:
            check_key(folder)
        with (
            translated("remove", str(path)),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            contextlib.ExitStack() as stack,
        ):
            if (self.root / LOCKS).is_dir():  # once locks are used: a swap after its check would restore a removed file
                with contextlib.suppress(NoLocks):
                    stack.enter_context(exclusive(self.root, key))
            path.unlink()

    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            no_links, moves = self._try_writing()
            no_locks = unreliable(self.root)
            problem = ""
            if no_links and no_locks:
                problem = f"the file system has no hard links, and {no_locks}. For a mounted bucket, give its URL"
            elif no_links:
                problem = "without hard links, inodes are not stable: workers cannot claim units"
            elif no_locks:
                problem = f"{no_locks}: workers cannot claim units"
            elif not moves:
                problem = "a rename copies the file: workers cannot claim units"
            else:
                prepare(self.root)  # before the first swap, so that no concurrent `delete` can miss the lock
            self._capabilities = Capabilities(not (no_links and no_locks), not problem, problem)
        return self._capabilities

    def held(self, name: str, *, shared: bool) -> contextlib.AbstractContextManager[str]:
        """Hold a lock for the time of a command; see `locks.held`."""
        return held(self.root, name, shared=shared)

    def check(self) -> None:
        self._try_writing()

    def _try_writing(self) -> tuple[OSError | None, bool]:
        """Return the error of `link` without hard links, and whether a rename moves a file instead of copying it."""
        probe = self.root / f"{TEMPORARY}probe-{secrets.token_hex(8)}"
        with (
            translated("use the folder", str(self.root)),
            self._temporary(probe, lambda file: file.write(b"probe")) as temporary,
        ):
            try:
                no_links: OSError | None = None
                try:
                    self._link(temporary, probe)
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    no_links = error
                else:
                    try:
                        self._link(temporary, probe)
                    except FileExistsError:
                        pass
                    else:
                        where = f"cannot use the folder {self.root}"
                        raise StorageError(f"{where}: a hard link replaces a file", hint=NO_LINKS_HINT)
                probe.unlink(missing_ok=True)
                self._write_file(probe, lambda file: file.write(b"older"))
                version = version_of(temporary.stat())
                self._rename(temporary, probe)
                if probe.read_bytes() != b"probe":
                    raise StorageError(f"cannot use the folder {self.root}: a rename does not replace a file")
                return no_links, version_at(probe) == version
            finally:
                probe.unlink(missing_ok=True)
                self._sync_folder(self.root)

    # Steps of a write, as separate methods: tests interrupt a write between any two of them.

    def _replace(self, key: str, fill: Callable[[BinaryIO], object]) -> None:
        path = self._path(key)
        with translated("write", str(path)), self._temporary(path, fill) as temporary:
            self._rename(temporary, path)
            self._sync_folder(path.parent)

    @contextlib.contextmanager
    def _temporary(self, beside: Path, fill: Callable[[BinaryIO], object]) -> Iterator[Path]:
        """Yield a synced file written by `fill`, in the folder of `beside`; removed at the end unless renamed."""
        self._make_folder(beside.parent)
        temporary = beside.with_name(_temporary_name())
        try:
            self._write_file(temporary, fill)
            # Kernels before Linux 6.13 count file times in ticks of several milliseconds, and ext4 reuses inodes at
            # once: a third version written within a tick would look like the first. Another time, by less than a
            # millisecond, tells versions apart.
            written = temporary.stat()
            modified = written.st_mtime_ns - written.st_mtime_ns % _TICK + random.randrange(_TICK)
            with contextlib.suppress(PermissionError, NotImplementedError):  # a mount that sets its own times
                os.utime(temporary, ns=(written.st_atime_ns, modified))
            yield temporary
        finally:
            self._unlink(temporary)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder != folder.parent:
            self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        self._sync_folder(folder.parent)

    def _write_file(self, path: Path, fill: Callable[[BinaryIO], object]) -> None:
        with path.open("xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())

    def _link(self, temporary: Path, path: Path) -> None:
        os.link(temporary, path)

    def _rename(self, temporary: Path, path: Path) -> None:
        temporary.replace(path)

    def _unlink(self, temporary: Path) -> None:
        temporary.unlink(missing_ok=True)

    def _sync_folder(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC_FOLDERS:
                raise
        finally:
            os.close(handle)

    def _path(self, key: str) -> Path:
        check_key(key)
        return self.root / key

    def _info(self, key: str) -> ObjectInfo | None:
        path = self.root / key
        with translated("read", str(path)):
            try:
                found = path.stat()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # the target of a link may be missing
                    raise
                return None
        if not stat.S_ISREG(found.st_mode):
            return None
        return ObjectInfo(key, found.st_size, version_of(found), found.st_mtime)


def _temporary_name() -> str:
    return f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"


def _expect(path: Path, version: str) -> None:
    found = version_at(path)
    if found != version:
        raise ObjectChanged(f"{path} {'is gone' if found is None else 'has been replaced by another worker'}")
