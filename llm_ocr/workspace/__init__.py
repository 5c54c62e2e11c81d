"""Open and create workspaces. A workspace is one URL that holds all data of a run."""

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

#: Format that this version writes. This version reads this format and all older ones.
FORMAT = 1

_RUN = "run.json"


@cache
def library_version() -> str:
    """Return the installed version of llm-ocr, or `unknown` if it is not installed as a package."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("llm-ocr")
    return "unknown"


class Workspace:
    """Opened workspace, safe to use from several threads. `close` (or `with`) removes its spool folder."""

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
        """Open the workspace at `url` (see `on`).

        Args:
            url: URL or local path of the workspace.
            create: create the workspace if it does not exist.
            options: how to reach the store.

        Raises:
            UsageError: no store supports the URL.
        """
        return cls.on(open_store(url, options), create)

    @classmethod
    def missing(cls, url: str, options: StoreOptions) -> WorkspaceError | None:
        """Return why there is no workspace at `url`; None if there is one. See `open`.

        Raises:
            WorkspaceMismatch: the workspace has a newer format.
            StorageError: the store cannot be used.
        """
        try:
            cls.open(url, options=options).close()
        except WorkspaceMismatch:
            raise
        except WorkspaceError as error:
            return error
        return None

    @classmethod
    def on(cls, store: ObjectStore, create: bool = False) -> Self:
        """Open the workspace in `store`.

        Args:
            store: the store that holds the workspace.
            create: check that the store is fit for writing, and create the workspace if it does not exist. Without
                `create`, nothing is written and the workspace must exist.

        Raises:
            WorkspaceError: there is no workspace, or the folder has other content.
            WorkspaceMismatch: the workspace has a newer format.
            StorageError: the store cannot be used.
        """
        if create:
            store.check()
        workspace = cls(store, {})
        run = workspace.find_json(_RUN)
        if run is None and create:
            # Files of file managers, and the probes with which other workers test the store, are no content.
            keys = (info.key for info in store.list())
            content = (
                key for key in keys if key.rpartition("/")[2] not in OF_FILE_MANAGERS and not key.startswith(PROBES)
            )
            found = next(content, None)
            if found is not None and store.stat(_RUN) is None:  # otherwise another process has created it meanwhile
                raise WorkspaceError(
                    f"{store.url} has content ({found}), but is not a workspace: {_RUN} is missing",
                    hint="Set `workspace` to a new or empty folder.",
                )
            new = {"format": FORMAT, "created_by": library_version(), "settings": {}}
            run = workspace.create_json(_RUN, new)
        if run is None:
            raise WorkspaceError(
                f"no workspace at {store.url}",
                hint="Give the workspace of an earlier run, or start one: llm-ocr run SOURCE -w FOLDER",
            )
        number = run.get("format")
        if not isinstance(number, int) or number < 1:
            raise codec.damaged(f"{store.url}: {_RUN}", "the format number is missing")
        if number > FORMAT:
            raise WorkspaceMismatch(
                f"{store.url} was made by a newer version: llm-ocr {run.get('created_by', 'unknown')}, format "
                f"{number}; this is {library_version()} and reads formats up to {FORMAT}",
                hint="Update llm-ocr: run `git pull` in its checkout, or install the wheel of that version.",
            )
        workspace.run = run
        return workspace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """URL as shown to users."""
        return self.store.url

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the settings in `run.json` of older versions; `workspace.stored` now keeps settings in other files."""
        settings: Mapping[str, Any] = self.run.get("settings", {})
        return settings

    @property
    def spool(self) -> Path:
        """Return the folder for unfinished data of this process on the local disk (`TMPDIR`); see `OwnFolder`."""
        with self._lock:
            if self._spool is None:
                self._spool = OwnFolder("llm-ocr-workspace-")
            return self._spool.path

    def check_there(self) -> None:
        """Raise `WorkspaceError` if the workspace was removed after it was opened."""
        if self.find_json(_RUN) is None:
            raise WorkspaceError(
                f"{self.url} was removed during use: {_RUN} is missing, and the results are incomplete",
                hint="Remove the remaining files, and run again.",
            )

    def note_published(self, key: str) -> None:
        """Note the key of a marker that was published through this object."""
        with self._lock:
            self._published.add(key)

    def published(self, prefix: str) -> set[str]:
        """Return the noted keys that begin with `prefix`. A listing may lack recent keys temporarily."""
        with self._lock:
            return {key for key in self._published if key.startswith(prefix)}

    def flush(self) -> None:
        """Write all pending objects durably, in stores that batch writes (dataset repositories). Blocking.

        Raises:
            StorageError: the store could not write them.
        """
        self.store.flush()

    def close(self) -> None:
        """Remove the spool folder."""
        with self._lock:
            spool, self._spool = self._spool, None
        if spool is not None:
            spool.remove()

    def get_json(self, key: str) -> dict[str, Any]:
        """Return a stored JSON object.

        Raises:
            ObjectNotFound: there is no such object.
            WorkspaceError: the object is damaged.
        """
        return codec.load(self.store.get(key), f"{self.url}: {key}")

    def find_json(self, key: str) -> dict[str, Any] | None:
        """Return a stored JSON object, or None if there is no such object. See `get_json`."""
        try:
            return self.get_json(key)
        except ObjectNotFound:
            return None

    def create_json(self, key: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Store a JSON object unless the key exists; return the stored object, new or existing."""
        with contextlib.suppress(ObjectExists):
            self.store.create(key, codec.dump(value, indent=2))
        return self.get_json(key)
