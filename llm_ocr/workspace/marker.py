"""The publishing rule: write the data first, then create the marker if it does not exist.

Copies of many markers in one object let readers of a large run need few requests:

<stage>/<key>/markers/<group>-<units>.json   {"format": 1, "markers": {key: [version, marker]}}
<stage>/<key>/markers/<group>-<units>.claim  the worker that writes it

A group has the markers of the folders `<xx>` that begin with the same digits, or all. In Assemble, the notes on views
of its items are copied as well. A copy counts only if the listing shows the object with the version of the copy. The
objects therefore decide alone what is published. Without copies, or with copies of another format, readers get each
object.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llm_ocr.errors import ObjectExists, ObjectNotFound, StorageError, WorkspaceError
from llm_ocr.storage import ObjectStore
from llm_ocr.workspace import codec

_log = logging.getLogger(__name__)

#: `clean` removes old data without a marker as leftovers (see `stages.clean`). A process that was suspended longer than
#: this number of seconds between data and marker checks that its data still exist.
LOOK_AGAIN_AFTER = 60.0


def attempt_id() -> str:
    """Return a unique id: 16 hex digits from the system's source of randomness."""
    return secrets.token_hex(8)


def slept_since(begun: float) -> bool:
    """Return whether data written at `begun` (`time.time()`) must be checked again before a marker names them."""
    return time.time() - begun > LOOK_AGAIN_AFTER


def settle(store: ObjectStore, key: str, marker: bytes) -> bytes:
    """Create the marker and return the stored one: `marker` itself, or an earlier attempt's.

    `marker` must contain an attempt id, so that no other attempt's marker is equal. After an error that leaves the
    outcome open, the marker is read back. The error is raised only if there is no marker.
    """
    try:
        store.create(key, marker)
    except StorageError as error:
        try:
            return store.get(key)
        except ObjectNotFound:
            if not isinstance(error, ObjectExists):
                raise error from None
            raise StorageError(f"{store.url}: {key} disappeared", hint="Run the same command again.") from error
    return marker


def remove_lost(store: ObjectStore, key: str) -> None:
    """Remove an object that another attempt's marker has made useless. On failure, leave it to `clean`."""
    try:
        store.delete(key)
    except StorageError as error:
        _log.warning("%s remains until `llm-ocr clean`: %s", key, error)


#: Format of objects with copies.
FORMAT = 1
#: Fewest markers of an object: fewer are read as fast one by one.
LEAST = 200
#: Name of the group of a plan with a single group.
ALL = "all"

_FOLDER = "markers"
_DONE, _SUFFIX, _CLAIM = ".done", ".json", ".claim"


class CompactedMarkers:
    """The copies of a stage's markers. Memory holds those of one group; ask for the markers in key order."""

    def __init__(self, store: ObjectStore, stage: str, key: str) -> None:
        self._store = store
        self._objects = {group: name for group, (_, name) in objects(store, stage, key).items()}
        self._group = ""
        self._copies: Mapping[str, Any] = {}

    def find(self, marker: str, version: str) -> dict[str, Any] | None:
        """Return the content of the marker with this key and version; None if there is no copy."""
        folder = marker.split("/")[2]
        group = next((name for name in (folder, folder[:1], ALL) if name in self._objects), "")
        if not group:
            return None
        if group != self._group:
            self._group, self._copies = group, self._read(self._objects[group])
        match self._copies.get(marker):
            case [str(copied), dict(content)] if copied == version:
                return content
        return None

    def among(self, versions: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the key and the content of each object of these versions, by key, that has a copy."""
        for name in self._objects.values():
            for key, copied in self._read(name).items():
                match copied:
                    case [str(version), dict(content)] if versions.get(key) == version:
                        yield key, content

    def _read(self, name: str) -> Mapping[str, Any]:
        try:
            value = codec.load(self._store.get(name), name)
        except (ObjectNotFound, WorkspaceError):  # `clean` removed it, or it is damaged: the markers themselves remain
            return {}
        markers = value.get("markers")
        return markers if value.get("format") == FORMAT and isinstance(markers, dict) else {}


def objects(store: ObjectStore, stage: str, key: str) -> dict[str, tuple[int, str]]:
    """Return the object with the most markers of each group: the number of its markers, and its key."""
    found: dict[str, tuple[int, str]] = {}
    for info in store.list(f"{stage}/{key}/{_FOLDER}/"):
        group, _, units = info.key.rpartition("/")[2].removesuffix(_SUFFIX).partition("-")
        if info.key.endswith(_SUFFIX) and units.isdecimal():
            found[group] = max(found.get(group, (0, "")), (int(units), info.key))
    return found


def is_copy(name: str) -> bool:
    """Return whether a key is of an object with copies, or of a claim of one."""
    segments = name.split("/")
    return len(segments) == 4 and segments[2] == _FOLDER


def is_outdated(store: ObjectStore, name: str) -> bool:
    """Return whether no reader needs an object: claims, and copies of fewer markers than another object has."""
    stage, key, _, file = name.split("/")
    return objects(store, stage, key).get(file.partition("-")[0], (0, ""))[1] != name


def compact(
    store: ObjectStore, stage: str, key: str, digits: str, units: int, beside: Callable[[str], str] | None = None
) -> None:
    """Copy the markers of a group into one object, unless units are unfinished or another worker copies them.

    Args:
        store: the store.
        stage: the stage.
        key: its key.
        digits: the first digits of the group's folders; empty for all.
        units: the number of units that the plan has in the group.
        beside: returns the key of an object to copy as well, if it exists, from the unit's name.

    Raises:
        StorageError: the markers could not be read, or the copies not written.
        WorkspaceError: a marker is damaged.
    """
    folder = f"{stage}/{key}/"
    prefix = folder + digits + ("/" if len(digits) == 2 else "")
    versions = {info.key: info.version for info in store.list(prefix) if info.key.endswith(_DONE)}
    if len(versions) < units:
        return
    name = f"{folder}{_FOLDER}/{digits or ALL}-{units:07d}"
    try:
        store.create(name + _CLAIM, b"")
    except ObjectExists:
        return

    def copy(key: str) -> tuple[str, list[object]] | None:
        try:
            data, version = store.fetch(key)
        except ObjectNotFound:  # removed meanwhile, or the item has no note
            return None
        return key, [version, codec.load(data, f"{store.url}: {key}")]

    keys = list(versions)
    if beside is not None:
        keys += (beside(marker.rpartition("/")[2].removesuffix(_DONE)) for marker in versions)
    copies = dict(filter(None, codec.read_ahead(copy, keys, "markers")))
    store.create(name + _SUFFIX, codec.dump({"format": FORMAT, "markers": copies}))
