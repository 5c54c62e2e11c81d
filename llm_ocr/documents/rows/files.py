"""Data files on the Hub, opened so that only what is asked for is fetched."""

import io
import threading
from collections.abc import Callable
from functools import cached_property
from typing import IO, TYPE_CHECKING

from llm_ocr.documents.rows.address import DataFile
from llm_ocr.errors import ObjectNotFound
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.hub_address import Place
from llm_ocr.storage.hub_client import PATIENCE, HubClient, Patience

if TYPE_CHECKING:
    from huggingface_hub import HfFileSystem


class HubFiles:
    """Opens data files, for any number of threads. Nothing is asked before the first one is opened.

    What may pass is tried again as `patience` says; `pause` is how to wait for that.
    """

    def __init__(self, patience: Patience = PATIENCE, pause: Callable[[float], object] | None = None) -> None:
        self._patience = patience
        self._pause = pause or threading.Event().wait
        self._lock = threading.Lock()

    @cached_property
    def _system(self) -> "HfFileSystem":
        from huggingface_hub import HfFileSystem

        # Not the instance that others in this process share: what it remembers goes with this object.
        return HfFileSystem(skip_instance_cache=True)

    def open(self, file: DataFile) -> io.RawIOBase:
        """The file for reading; each read fetches its bytes and no more.

        This and each read raise `StorageError`, `ObjectNotFound` for a file that is not there.
        """
        client = HubClient(Place("dataset", file.repository, "", file.commit), StoreOptions())

        def opened() -> IO[bytes]:
            # One listing of its folder says the sizes of all files in it; several at once would each make it.
            with client.doing("read", file.path, reading=True), self._lock:
                path = f"datasets/{file.repository}@{file.commit}/{file.path}"
                try:
                    made: IO[bytes] = self._system.open(path, "rb", cache_type="none")
                except FileNotFoundError as error:
                    if error.__cause__ is None:  # else the repository or the commit is not there
                        raise ObjectNotFound(f"no object {file.url}") from error
                    raise
                return made

        def keep_trying(call: Callable[[], bytes]) -> bytes:
            def attempt() -> bytes:
                with client.doing("read", file.path, reading=True):
                    return call()

            return self._patience.keep_trying(attempt, self._pause)

        return _Patient(self._patience.keep_trying(opened, self._pause), keep_trying)


class _Patient(io.RawIOBase):
    """A remote file whose reads are tried again, and fail with errors of ours."""

    def __init__(self, file: IO[bytes], keep_trying: Callable[[Callable[[], bytes]], bytes]) -> None:
        self._file = file
        self._keep_trying = keep_trying

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        return self._keep_trying(lambda: self._file.read(size))

    def close(self) -> None:
        self._file.close()
        super().close()
