"""Publish the result of a unit: data first, then the marker.

Each attempt writes its data under its own name. Readers follow markers only. Two attempts may process a unit; the first
marker counts permanently.

<stage>/<key>/<xx>/<unit>/<attempt>.parquet  <xx>: two hex digits of a hash of the unit's id, to keep folders small
<stage>/<key>/<xx>/<unit>.done

Copies of many markers in one object let readers of a large run need few requests:

<stage>/<key>/markers/<group>-<units>.json   {"format": 1, "markers": {key: [version, marker]}}
<stage>/<key>/markers/<group>-<units>.claim  the worker that writes it

A group has the markers of the folders `<xx>` that begin with the same digits, or all. In Assemble, the notes on views
of its items are copied as well. A copy counts only if the listing shows the object with the version of the copy. The
objects therefore decide alone what is published. Without copies, or with copies of another format, readers get each
object.
"""

import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictFloat, StrictInt, TypeAdapter

from llm_ocr.errors import ObjectExists, ObjectNotFound, StageMissing, StorageError, WorkspaceError
from llm_ocr.storage import ObjectInfo, ObjectStore
from llm_ocr.types import Counts
from llm_ocr.workspace import Workspace, codec, library_version
from llm_ocr.workspace.codec import read_ahead
from llm_ocr.workspace.summaries import Example, Extra, Summary, varied

_log = logging.getLogger(__name__)

_DONE = ".done"

#: `clean` removes old data without a marker as leftovers (see `stages.clean`). A process that was suspended longer than
#: this number of seconds between data and marker checks that its data still exist.
LOOK_AGAIN_AFTER = 60.0

# The publishing rule.


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


# Markers.


class NotConserved(WorkspaceError):
    """Error for counts that violate `expected == ok + degraded + failed`: a page was lost or counted twice."""


class DataDamaged(StorageError):
    """Error for data of a marker that are missing or changed."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Marker of a finished unit. `object` is the key of its data, `size` is in bytes."""

    unit: str
    stage: str
    key: str
    attempt: str
    object: str
    sha256: str
    size: int
    summary: Summary
    created_by: str

    @property
    def counts(self) -> Counts:
        return self.summary.counts

    @property
    def figures(self) -> Counts:
        return self.summary.figures


def publish(workspace: Workspace, stage: str, key: str, unit: str, data: bytes, summary: Summary) -> Marker:
    """Publish the unit's data and return the marker that counts: this attempt's, or an earlier attempt's.

    Raises:
        NotConserved: the summary loses rows; nothing was written.
    """
    check_conserved(summary.counts, f"unit {unit} of {stage}")
    if stage == "describe":
        check_conserved(summary.figures, f"unit {unit} of {stage}", "figures")
    attempt = attempt_id()
    name = f"{_base(stage, key, unit)}/{attempt}.parquet"
    digest = hashlib.sha256(data).hexdigest()
    marker = Marker(unit, stage, key, attempt, name, digest, len(data), summary, library_version())
    begun = time.time()
    workspace.store.put(name, data)
    if slept_since(begun) and workspace.store.stat(name) is None:
        workspace.store.put(name, data)
    place = marker_key(stage, key, unit)
    published = _marker_of(settle(workspace.store, place, codec.dump(_marker_to_json(marker))), workspace, place)
    workspace.note_published(place)
    if published.attempt != attempt:
        _log.info("unit %s of %s was published by another attempt, whose result counts", unit, stage)
        remove_lost(workspace.store, name)
    elif slept_since(begun) and workspace.store.stat(name) is None:
        # The process was suspended between this check and the marker: `clean` may have removed the data as a leftover.
        workspace.store.put(name, data)
    return published


def marker_key(stage: str, key: str, unit: str) -> str:
    """Return the key of a unit's marker."""
    return _base(stage, key, unit) + _DONE


def is_done(workspace: Workspace, stage: str, key: str, unit: str) -> bool:
    """Return whether the unit has a marker now."""
    return workspace.store.stat(marker_key(stage, key, unit)) is not None


def find_marker(workspace: Workspace, stage: str, key: str, unit: str) -> Marker | None:
    """Return the unit's marker, or None if the unit is not finished."""
    place = marker_key(stage, key, unit)
    try:
        data = workspace.store.get(place)
    except ObjectNotFound:
        return None
    return _marker_of(data, workspace, place)


def standing_marker(workspace: Workspace, stage: str, key: str, unit: str) -> Marker:
    """Return the marker of a finished unit.

    Raises:
        StageMissing: the marker is gone.
    """
    marker = find_marker(workspace, stage, key, unit)
    if marker is None:
        raise StageMissing(
            f"{workspace.url}: {stage} has not done unit {unit}",
            hint=f"Run first: llm-ocr {stage} -w {workspace.url}",
        )
    return marker


def done_units(workspace: Workspace, stage: str, key: str) -> set[str]:
    """Return the ids of all units that have a marker. Only object names are read."""
    return {_unit_of(info.key) for info in _marker_infos(workspace, stage, key)}


def _marker_infos(workspace: Workspace, stage: str, key: str) -> Iterator[ObjectInfo]:
    """Yield the listed markers, then existing markers of this command that a stale listing lacks."""
    prefix = f"{stage}/{key}/"
    unlisted = workspace.published(prefix)
    for info in workspace.store.list(prefix):
        if info.key.endswith(_DONE):
            unlisted.discard(info.key)
            yield info
    yield from filter(None, map(workspace.store.stat, sorted(unlisted)))


def iter_markers(workspace: Workspace, stage: str, key: str, among: Container[str] | None = None) -> Iterator[Marker]:
    """Yield all markers of a stage, or those of the units `among`, in arbitrary order. Markers are prefetched."""
    copies = CompactedMarkers(workspace.store, stage, key)
    wanted = (
        (info.key, copies.find(info.key, info.version))
        for info in _marker_infos(workspace, stage, key)
        if among is None or _unit_of(info.key) in among
    )

    def read(found: tuple[str, dict[str, Any] | None]) -> Marker:
        name, copied = found
        if copied is not None:
            with contextlib.suppress(WorkspaceError):  # a damaged copy: the marker itself decides
                return _marker_of(copied, workspace, name)
        return _marker_of(workspace.store.get(name), workspace, name)

    yield from read_ahead(read, wanted, "markers")


def markers(workspace: Workspace, stage: str, key: str) -> dict[str, Marker]:
    """Return all markers of a stage by unit id."""
    return {marker.unit: marker for marker in iter_markers(workspace, stage, key)}


def read_data(workspace: Workspace, marker: Marker) -> bytes:
    """Return the data of a marker after a check of size and hash.

    Raises:
        DataDamaged: the data are missing or changed.
    """
    try:
        data = workspace.store.get(marker.object)
    except ObjectNotFound as error:
        raise data_damaged(workspace, marker, "missing") from error
    if len(data) != marker.size or hashlib.sha256(data).hexdigest() != marker.sha256:
        raise data_damaged(workspace, marker, f"damaged ({len(data)} of {marker.size} bytes, or other content)")
    return data


def data_damaged(workspace: Workspace, marker: Marker, how: str) -> DataDamaged:
    """Return the error for data of a marker that are missing, changed, or of another unit."""
    return DataDamaged(
        f"{workspace.url}: the data of unit {marker.unit} of {marker.stage} is {how}: {marker.object}",
        hint=_without_marker(marker_key(marker.stage, marker.key, marker.unit)),
    )


def _without_marker(place: str) -> str:
    return (
        f"Remove the marker {place} from the workspace, and run the same command again, which processes only this unit "
        "again."
    )


def _base(stage: str, key: str, unit: str) -> str:
    return f"{stage}/{key}/{hashlib.sha256(unit.encode()).hexdigest()[:2]}/{unit}"


def _unit_of(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(_DONE)


def check_conserved(counts: Counts, where: str, what: str = "pages") -> None:
    """Raise `NotConserved` unless `expected == ok + degraded + failed`."""
    if counts.expected != counts.ended:
        raise NotConserved(
            f"{where}: expected {counts.expected} {what}, but {counts.ok} ok + {counts.degraded} degraded + "
            f"{counts.failed} failed = {counts.ended}",
            hint="This is a bug of llm-ocr, or a manual change of the workspace: please report it.",
        )


def _marker_to_json(marker: Marker) -> dict[str, Any]:
    summary = marker.summary
    value = {column.name: getattr(marker, column.name) for column in fields(Marker) if column.name != "summary"}
    return {
        **value,
        **{column.name: getattr(summary, column.name) for column in fields(Summary)},
        "counts": asdict(summary.counts),
        "figures": asdict(summary.figures),
        "seconds": round(summary.seconds, 3),
        "reasons": dict(summary.reasons),
        "examples": [asdict(example) for example in varied(summary.examples)],
        "extra": summary.extra.model_dump(mode="json", exclude_defaults=True),
    }


class _Stored(BaseModel):
    """Content of a marker: the fields of `Marker`, with those of its summary at the same level."""

    unit: str
    stage: str
    key: str
    attempt: str
    object: str
    sha256: str
    size: StrictInt
    created_by: str
    counts: Annotated[dict[Literal["expected", "ok", "degraded", "failed"], StrictInt], Field(min_length=4)]
    figures: Annotated[dict[Literal["expected", "ok", "degraded", "failed"], StrictInt], Field(min_length=4)]
    tokens_in: StrictInt
    tokens_out: StrictInt
    seconds: StrictFloat
    reasons: dict[str, StrictInt]
    examples: tuple[Example, ...]
    replaces: StrictInt
    extra: Extra


_STORED = TypeAdapter(_Stored)


def _marker_of(stored: bytes | Mapping[str, Any], workspace: Workspace, place: str) -> Marker:
    """Return a marker from the object with the key `place`, or from a copy of its JSON.

    Raises:
        WorkspaceError: the marker is damaged.
    """
    unit = _unit_of(place)
    where = f"{workspace.url}: the marker of unit {unit}"
    try:
        value = codec.typed(_STORED, codec.load(stored, where) if isinstance(stored, bytes) else stored, where)
        if value.unit != unit:
            raise codec.damaged(where, f"it is of unit {value.unit}")
    except WorkspaceError as error:
        raise WorkspaceError(error.args[0], hint=_without_marker(place)) from error
    found = dict(value) | {"counts": Counts(**value.counts), "figures": Counts(**value.figures)}
    summary = Summary(**{column.name: found.pop(column.name) for column in fields(Summary)})
    return Marker(**found, summary=summary)


# Copies of markers.

#: Format of objects with copies.
FORMAT = 1
#: Fewest markers of an object: fewer are read as fast one by one.
LEAST = 200
#: Name of the group of a plan with a single group.
ALL = "all"

_FOLDER = "markers"
_SUFFIX, _CLAIM = ".json", ".claim"


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

    def among(self, versions: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the content, by key, of each object of these versions, by key, that has a copy."""
        found: dict[str, dict[str, Any]] = {}
        for name in self._objects.values():
            for key, copied in self._read(name).items():
                match copied:
                    case [str(version), dict(content)] if versions.get(key) == version:
                        found[key] = content
        return found

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
