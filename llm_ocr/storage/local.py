"""A workspace in a local folder, or on a file system that many machines have mounted.

An object appears under its name whole or not at all. `put` writes a temporary file beside it, syncs it and renames it;
`create` makes a hard link instead, which fails when the name is taken. Creating the object itself exclusively
(`O_EXCL`) would let a crash leave an empty marker that wins for ever.
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from llm_ocr.errors import ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import ObjectInfo
from llm_ocr.storage.local_errors import NO_LINKS_HINT, link_error, translated
from llm_ocr.storage.names import TEMPORARY, check_key, local_folder

#: What a file system answers that cannot sync a folder; there is nothing more that could be done for durability.
_CANNOT_SYNC_FOLDERS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF})

#: Made by mkfs at the root of ext file systems, readable by root only; never the user's.
_LOST_AND_FOUND = "lost+found"


def open_local(url: str) -> "LocalStore":
    """The store for a path or `file://` URL; nothing is read or made. Raises `UsageError` for any other scheme."""
    return LocalStore(local_folder(url))


class LocalStore:
    """Objects are files below `root`. Without state, so it can be used from any number of threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

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

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        if self._info(key) is not None:  # spares writing what would lose; the link below is what decides
            raise ObjectExists(f"{path} exists")
        with translated("write", str(path)), self._temporary(path, lambda file: _write(file, data)) as temporary:
            try:
                self._link(temporary, path)
            except OSError as error:
                # Over NFS an answer may be lost and the call repeated: two names of our file mean that it worked.
                if temporary.stat().st_nlink < 2:
                    if error.errno == errno.EEXIST:
                        raise ObjectExists(f"{path} exists") from error
                    raise link_error(error, str(path)) from error
            self._sync_folder(path.parent)

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
        folder = prefix.rpartition("/")[0]
        if folder:
            check_key(folder)
        for key in self._walk(folder, lambda inside: _may_hold(inside, prefix, start_after)):
            if key.startswith(prefix) and key > start_after and not _is_temporary(key):
                info = self._info(key)
                if info is not None:
                    yield info

    def unfinished(self) -> Iterator[ObjectInfo]:
        for key in self._walk("", lambda _: True):
            if _is_temporary(key):
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
        with translated("remove", str(path)), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()

    def check(self) -> None:
        probe = self.root / f"{TEMPORARY}check-{secrets.token_hex(8)}"
        with (
            translated("use the folder", str(self.root)),
            self._temporary(probe, lambda file: _write(file, b"check")) as temporary,
        ):
            try:
                self._prove_links(temporary, probe)
            finally:
                probe.unlink(missing_ok=True)
            self._sync_folder(self.root)

    def _prove_links(self, temporary: Path, probe: Path) -> None:
        try:
            self._link(temporary, probe)
        except OSError as error:
            raise link_error(error, str(self.root)) from error
        try:
            self._link(temporary, probe)
        except FileExistsError:
            return
        raise StorageError(f"cannot use the folder {self.root}: a hard link replaces a file here", hint=NO_LINKS_HINT)

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
            except (FileNotFoundError, NotADirectoryError):
                return None
        if not path.is_file():
            return None
        version = f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
        return ObjectInfo(key, found.st_size, version, found.st_mtime)

    def _walk(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        """All files below `folder` in key order, without the subfolders (given with a `/` at the end) not `wanted`."""
        for name in _sorted_names(self.root / folder, root=not folder):
            key = f"{folder}/{name}" if folder else name
            if not name.endswith("/"):
                yield key
            elif wanted(key):
                yield from self._walk(key[:-1], wanted)


def _sorted_names(folder: Path, *, root: bool) -> list[str]:
    """Sorted as keys are: a folder's name counts with the `/` that follows it. Empty for a folder that is gone."""
    with translated("list", str(folder)):
        try:
            with os.scandir(folder) as entries:
                names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []
    return sorted(name for name in names if not root or name != f"{_LOST_AND_FOUND}/")


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _temporary_name() -> str:
    return f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"


def _is_temporary(key: str) -> bool:
    return key.rpartition("/")[2].startswith(TEMPORARY)


def _may_hold(folder: str, prefix: str, start_after: str) -> bool:
    """Whether a folder (with `/` at the end) may hold keys with the prefix and after `start_after`."""
    fits = folder.startswith(prefix) or prefix.startswith(folder)
    return fits and (folder > start_after or start_after.startswith(folder))
