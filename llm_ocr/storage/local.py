"""A workspace in a local folder, or on a file system that many machines have mounted.

An object appears under its name whole or not at all. `put` writes a temporary file beside it, syncs it and renames it;
`create` makes a hard link instead, which fails when the name is taken. Creating the object itself exclusively
(`O_EXCL`) would let a crash leave an empty marker that wins for ever. Where there are no hard links (FAT, exFAT) a lock
around a look and the rename decides as well, and a crash lets go of it. In a folder with neither, such as a bucket that
is mounted, of two creators at the same moment the last one wins: its `capabilities` say so, and each worker has to be
given units of its own. (An exclusive claim file would be left behind by a crash, and nobody could take it over safely.)
"""

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import BaseStore, Capabilities, ObjectInfo
from llm_ocr.storage.local_errors import NO_LINKS_HINT, NO_LOCKS_HINT, has_no_links, translated
from llm_ocr.storage.local_listing import is_temporary, may_hold, walk
from llm_ocr.storage.local_locks import NoLocks, exclusive, may_be_held, prepare, unreliable
from llm_ocr.storage.local_versions import set_apart, version_at, version_of
from llm_ocr.storage.names import TEMPORARY, check_key, folder_of, local_folder

#: What a file system answers that cannot sync a folder; there is nothing more that could be done for durability.
_CANNOT_SYNC_FOLDERS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF})


def open_local(url: str) -> "LocalStore":
    """The store for a path or `file://` URL; nothing is read or made. Raises `UsageError` for any other scheme."""
    return LocalStore(local_folder(url))


class LocalStore(BaseStore):
    """Objects are files below `root`. It can be used from any number of threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._capabilities: Capabilities | None = None

    @property
    def url(self) -> str:
        """The folder's absolute path."""
        return str(self.root)

    def get(self, key: str) -> bytes:
        path = self._path(key)
        with translated("read", str(path), reading=True):
            return path.read_bytes()

    def read_range(self, key: str, start: int, length: int) -> bytes:
        path = self._path(key)
        with translated("read", str(path), reading=True), path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def put(self, key: str, data: bytes) -> None:
        self._replace(key, lambda file: _write(file, data))

    def upload(self, path: Path, key: str) -> None:
        def copy(file: BinaryIO) -> None:
            with path.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)

        self._replace(key, copy)

    def create(self, key: str, data: bytes) -> str:
        path = self._path(key)
        if self._info(key) is not None:  # spares writing what would lose; the link below is what decides
            raise ObjectExists(f"{path} exists")
        with translated("write", str(path)), self._temporary(path, lambda file: _write(file, data)) as temporary:
            version = version_of(temporary.stat())
            try:
                self._link(temporary, path)
            except OSError as error:
                # Over NFS an answer may be lost and the call repeated: two names of our file mean that it worked.
                if temporary.stat().st_nlink < 2:
                    if error.errno == errno.EEXIST:
                        raise ObjectExists(f"{path} exists") from error
                    if not has_no_links(error):
                        raise
                    self._create_without_links(key, temporary)
            self._sync_folder(path.parent)
        return version

    def _create_without_links(self, key: str, temporary: Path) -> None:
        """Under a lock; where there are none that all see, of two at the same moment the last wins (`capabilities`)."""
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
            _expect(path, version)  # spares writing what would lose; the look under the lock is what decides
            with self._temporary(path, lambda file: _write(file, data)) as temporary:
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
        temporary = path.with_name(_temporary_name())
        try:
            with translated(f"copy {source} to", str(path)):
                shutil.copyfile(source, temporary)
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        folder = folder_of(prefix)
        for key in walk(self.root, folder, lambda inside: may_hold(inside, prefix, start_after)):
            if key.startswith(prefix) and key > start_after and not is_temporary(key):
                info = self._info(key)
                if info is not None:
                    yield info

    def unfinished(self) -> Iterator[ObjectInfo]:
        for key in walk(self.root, "", lambda _: True):
            if is_temporary(key):
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
            self._between_swaps(key),
        ):
            path.unlink()

    @contextlib.contextmanager
    def _between_swaps(self, key: str) -> Iterator[None]:
        """Without it a swap that has just looked would bring back what is removed."""
        with contextlib.ExitStack() as stack:
            if may_be_held(self.root):
                with contextlib.suppress(NoLocks):
                    stack.enter_context(exclusive(self.root, key))
            yield

    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            no_links, moves = self._try_writing()
            no_locks = unreliable(self.root)
            found = _judged(no_links is None, moves, no_locks)
            if found.swap:
                prepare(self.root)  # before the first swap, so that no `delete` beside it can miss the lock
            self._capabilities = found
        return self._capabilities

    def check(self) -> None:
        self._try_writing()

    def _try_writing(self) -> tuple[OSError | None, bool]:
        """What `link` says when there are no hard links, and whether a rename moves a file rather than copy it."""
        probe = self.root / f"{TEMPORARY}probe-{secrets.token_hex(8)}"
        with (
            translated("use the folder", str(self.root)),
            self._temporary(probe, lambda file: _write(file, b"probe")) as temporary,
        ):
            try:
                no_links = self._try_links(temporary, probe)
                probe.unlink(missing_ok=True)
                self._write_file(probe, lambda file: _write(file, b"older"))
                version = version_of(temporary.stat())
                self._rename(temporary, probe)
                if probe.read_bytes() != b"probe":
                    raise StorageError(f"cannot use the folder {self.root}: a rename does not replace a file here")
                return no_links, version_at(probe) == version
            finally:
                probe.unlink(missing_ok=True)
                self._sync_folder(self.root)

    def _try_links(self, temporary: Path, probe: Path) -> OSError | None:
        try:
            self._link(temporary, probe)
        except OSError as error:
            if has_no_links(error):
                return error
            raise
        try:
            self._link(temporary, probe)
        except FileExistsError:
            return None
        where = f"cannot use the folder {self.root}"
        raise StorageError(f"{where}: a hard link replaces a file here", hint=NO_LINKS_HINT)

    # The steps of a write, one by one: what can be cut off between any two of them is what must be survived.

    def _replace(self, key: str, fill: Callable[[BinaryIO], None]) -> None:
        path = self._path(key)
        with translated("write", str(path)), self._temporary(path, fill) as temporary:
            self._rename(temporary, path)
            self._sync_folder(path.parent)

    @contextlib.contextmanager
    def _temporary(self, beside: Path, fill: Callable[[BinaryIO], None]) -> Iterator[Path]:
        """A synced file that `fill` has written, in the folder of `beside`; removed at the end unless renamed."""
        self._make_folder(beside.parent)
        temporary = beside.with_name(_temporary_name())
        try:
            self._write_file(temporary, fill)
            set_apart(temporary)
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

    def _write_file(self, path: Path, fill: Callable[[BinaryIO], None]) -> None:
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
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # a link may lead nowhere
                    raise
                return None
        if not stat.S_ISREG(found.st_mode):
            return None
        return ObjectInfo(key, found.st_size, version_of(found), found.st_mtime)


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _temporary_name() -> str:
    return f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"


def _expect(path: Path, version: str) -> None:
    found = version_at(path)
    if found != version:
        raise ObjectChanged(f"{path} {'is gone' if found is None else 'has been replaced by another worker'}")


def _judged(links: bool, moves: bool, no_locks: str) -> Capabilities:
    if not links and no_locks:
        note = f"There are no hard links here, and {no_locks}. Give a bucket that is mounted here by its URL"
        return Capabilities(False, False, note)
    if not links:
        return Capabilities(True, False, "without hard links a file's inode does not last: units cannot be claimed")
    if no_locks:
        return Capabilities(True, False, f"{no_locks}: units cannot be claimed")
    if not moves:
        return Capabilities(True, False, "a rename copies the file here: units cannot be claimed")
    return Capabilities(True, True)
