"""A workspace: one URL that holds everything of a run."""

import contextlib
import threading
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from llm_ocr.errors import ObjectExists, ObjectNotFound, WorkspaceError, WorkspaceMismatch
from llm_ocr.storage import ObjectStore, StoreOptions, open_store
from llm_ocr.storage.names import OF_FILE_MANAGERS, PROBES
from llm_ocr.storage.own_folder import OwnFolder
from llm_ocr.workspace import codec

#: The format that this version writes. It reads this one and all older ones.
FORMAT = 1

_RUN = "run.json"


@cache
def library_version() -> str:
    """The version of llm-ocr that runs; `unknown` where it was not installed."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("llm-ocr")
    return "unknown"


class Workspace:
    """An opened workspace. Usable from any number of threads; `close` (or `with`) removes its spool folder."""

    def __init__(self, store: ObjectStore, run: Mapping[str, Any]) -> None:
        self.store = store
        self.run = run
        self._lock = threading.Lock()
        self._spool: OwnFolder | None = None
        self._published: set[str] = set()

    @classmethod
    def open(
        cls,
        url: str,
        create: bool = False,
        *,
        options: StoreOptions = StoreOptions(),  # noqa: B008 - frozen
    ) -> Self:
        """Open the workspace at `url`; see `on`. Raises `UsageError` for a URL that no store has."""
        return cls.on(open_store(url, options), create)

    @classmethod
    def on(cls, store: ObjectStore, create: bool = False) -> Self:
        """Open the workspace in `store`.

        Without `create` nothing is written, and there must be one. With it the store is first proved to be fit for
        writing, and a workspace is made unless there is one already.

        Raises `WorkspaceError` for no workspace or a folder with other content, `WorkspaceMismatch` for a newer format,
        `StorageError` for a store that cannot be used.
        """
        if create:
            store.check()
        run = _read_run(store)
        if run is None and create:
            run = _make_run(store)
        if run is None:
            raise WorkspaceError(
                f"no workspace at {store.url}",
                hint="Give the workspace of an earlier run, or begin one: llm-ocr run SOURCE -w FOLDER",
            )
        _check_format(run, store.url)
        return cls(store, run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """As it is shown to users."""
        return self.store.url

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return what a workspace of an earlier version was made with; now `work.stored` keeps settings elsewhere."""
        settings: Mapping[str, Any] = self.run.get("settings", {})
        return settings

    @property
    def spool(self) -> Path:
        """A folder of this process alone on the local disk (`TMPDIR`), for what is not finished; see `OwnFolder`."""
        with self._lock:
            if self._spool is None:
                self._spool = OwnFolder("llm-ocr-workspace-")
            return self._spool.path

    def check_there(self) -> None:
        """Raise `WorkspaceError` when the workspace was removed since it was opened."""
        if _read_run(self.store) is None:
            raise WorkspaceError(
                f"{self.url} was removed while it was in use: its {_RUN} is gone, results are incomplete",
                hint="Remove what is left there, and run again.",
            )

    def note_published(self, key: str) -> None:
        """Note the key of a marker that was published through this object."""
        with self._lock:
            self._published.add(key)

    def published(self, prefix: str) -> set[str]:
        """Return the noted keys that begin with `prefix`: a listing may lack them for a while."""
        with self._lock:
            return {key for key in self._published if key.startswith(prefix)}

    def flush(self) -> None:
        """Have all that was put written durably, where a store gathers writes (dataset repositories). Blocking.

        Raises `StorageError`.
        """
        self.store.flush()

    def close(self) -> None:
        """Remove the spool folder."""
        with self._lock:
            spool, self._spool = self._spool, None
        if spool is not None:
            spool.remove()

    def get_json(self, key: str) -> dict[str, Any]:
        """A stored JSON object. Raises `ObjectNotFound`, and `WorkspaceError` when it is damaged."""
        return codec.load(self.store.get(key), f"{self.url}: {key}")

    def find_json(self, key: str) -> dict[str, Any] | None:
        """`get_json`, and None when there is no such object."""
        try:
            return self.get_json(key)
        except ObjectNotFound:
            return None

    def create_json(self, key: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Store a JSON object unless one is there; the one that stands then, this or the older one."""
        with contextlib.suppress(ObjectExists):
            self.store.create(key, codec.dump(value, indent=2))
        return self.get_json(key)


def _read_run(store: ObjectStore) -> dict[str, Any] | None:
    try:
        return codec.load(store.get(_RUN), f"{store.url}: {_RUN}")
    except ObjectNotFound:
        return None


def _make_run(store: ObjectStore) -> dict[str, Any]:
    found = next((info.key for info in store.list() if _is_content(info.key)), None)
    if found is not None and store.stat(_RUN) is None:  # else another process has made it since
        raise WorkspaceError(
            f"{store.url} has content ({found}) and is no workspace: it has no {_RUN}",
            hint="Give a new or empty folder with -w.",
        )
    run = {"format": FORMAT, "created_by": library_version(), "settings": {}}
    with contextlib.suppress(ObjectExists):
        store.create(_RUN, codec.dump(run, indent=2))
    return codec.load(store.get(_RUN), f"{store.url}: {_RUN}")


def _is_content(key: str) -> bool:
    """Not what another worker writes just now to find out what the store honours."""
    return key.rpartition("/")[2] not in OF_FILE_MANAGERS and not key.startswith(PROBES)


def _check_format(run: Mapping[str, Any], url: str) -> None:
    number = run.get("format")
    if not isinstance(number, int) or number < 1:
        raise codec.damaged(f"{url}: {_RUN}", "it has no format number")
    if number > FORMAT:
        raise WorkspaceMismatch(
            f"{url} was made by a newer version: llm-ocr {run.get('created_by', 'unknown')}, format {number}; "
            f"this is {library_version()} and reads formats up to {FORMAT}",
            hint="Update llm-ocr here: `git pull` in its checkout, or install the wheel of that version.",
        )
