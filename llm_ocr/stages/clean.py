"""Remove objects that no marker names. Plans, settings, markers, and the objects that they name are never removed."""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from llm_ocr.errors import ObjectNotFound
from llm_ocr.scheduling.leases import is_lease, lease_seconds
from llm_ocr.storage import ObjectInfo
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import generations
from llm_ocr.workspace.keys import stages_in
from llm_ocr.workspace.publish import find_marker, is_copy, is_outdated

#: Seconds. A worker writes its marker right after its data, so older data without a marker belong to a dead worker.
OLD = 86400.0

_DATA, _DONE = ".parquet", ".done"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The removed objects, or with `dry_run` the objects that would be removed."""

    objects: tuple[ObjectInfo, ...]
    dry_run: bool

    @property
    def size(self) -> int:
        """Bytes of the objects."""
        return sum(info.size for info in self.objects)


def clean(workspace: Workspace, *, older_than: float = OLD, dry_run: bool = False, now: float | None = None) -> Cleaned:
    """Remove leftovers that were written more than `older_than` seconds before `now`.

    Args:
        workspace: The workspace.
        older_than: Seconds.
        dry_run: Whether leftovers are only listed.
        now: Seconds since 1970. By default the time by the clock of the store, which also dates the objects.

    Raises:
        WorkspaceError: A marker is damaged. Nothing of its unit is removed.
        StorageError: The workspace cannot be read or written.
    """
    now = store_time(workspace) if now is None else now
    removed: list[ObjectInfo] = []
    for info in _leftovers(workspace, now, now - older_than):
        if not dry_run:
            workspace.store.delete(info.key)
        removed.append(info)
    return Cleaned(tuple(removed), dry_run)


def store_time(workspace: Workspace) -> float:
    """Return the time by the store's clock, from a probe; 0 for a store that does not date its objects.

    This machine's clock may be hours ahead, and leftovers would seem too old. A killed `clean` may leave its probe,
    which is then a leftover of the plan.
    """
    store = workspace.store
    if (run := store.stat("run.json")) is not None and not run.modified:  # saves a dataset repository two commits
        return 0.0
    probe = f"plan/clock-{secrets.token_hex(8)}.jsonl"
    store.put(probe, b"")
    try:
        found = store.stat(probe)
    finally:
        store.delete(probe)
    return found.modified if found is not None else 0.0


def _leftovers(workspace: Workspace, now: float, limit: float) -> Iterator[ObjectInfo]:
    yield from _old(workspace.store.unfinished(), limit)
    # Parts of planners that crashed or were not the first.
    parts = [info for info in _old(workspace.store.list("plan/"), limit) if info.key.endswith(".jsonl")]
    named = {name for generation in generations(workspace) for name in generation.objects}
    yield from (info for info in parts if info.key not in named)
    for stage in stages_in(workspace):
        for _, found in groupby(workspace.store.list(f"{stage}/"), key=_unit_of):
            unit = list(found)
            keys = [info.key for info in unit]
            # A unit with a marker and the data of one attempt only is settled: the marker need not be read.
            data = sum(key.endswith(_DATA) for key in keys)
            settled = data == 1 and any(key.endswith(_DONE) for key in keys)
            for info in _old(unit, limit):
                if is_lease(info.key):  # a live holder rewrites its lease five times in its duration
                    try:
                        dead = info.modified + lease_seconds(workspace.store.get(info.key)) < now
                    except ObjectNotFound:  # released meanwhile
                        dead = False
                elif is_copy(info.key):
                    dead = is_outdated(workspace.store, info.key)
                else:
                    dead = not settled and _unnamed(workspace, stage, info)
                if dead:
                    yield info


def _old(found: Iterable[ObjectInfo], limit: float) -> Iterator[ObjectInfo]:
    """Yield old objects. An object whose age the store does not know (0) is never old."""
    return (info for info in found if 0 < info.modified < limit)


def _unit_of(info: ObjectInfo) -> str:
    """Return the common part of the keys of a unit's marker, lease, and data, which are adjacent in a list."""
    folder, _, name = info.key.rpartition("/")
    return folder if name.endswith(_DATA) else info.key.rpartition(".")[0]


def _unnamed(workspace: Workspace, stage: str, info: ObjectInfo) -> bool:
    """Return whether data belong to an attempt that crashed or was not the first.

    The key has the form <stage>/<key>/<xx>/<unit>/<attempt>.parquet.
    """
    segments = info.key.split("/")
    if len(segments) != 5 or not info.key.endswith(_DATA):
        return False
    # The marker is read after the data were listed, so data published in between count as published.
    marker = find_marker(workspace, stage, segments[1], segments[3])
    return marker is None or marker.object != info.key
