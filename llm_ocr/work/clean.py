"""`clean`: removes what no marker names. Plans, settings, markers and what they name are never touched."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llm_ocr.storage import ObjectInfo
from llm_ocr.work.generations import generations
from llm_ocr.work.keys import STAGES
from llm_ocr.work.publish import find_marker
from llm_ocr.work.workspace import Workspace

#: Seconds. A running worker makes its marker right after its data, so older data without one are of a dead worker.
OLD = 3600.0

_DATA = ".parquet"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was removed, or with `dry_run` would be."""

    objects: tuple[ObjectInfo, ...]
    dry_run: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(info.size for info in self.objects)


def clean(workspace: Workspace, *, older_than: float = OLD, dry_run: bool = False, now: float | None = None) -> Cleaned:
    """Remove leftovers that were written more than `older_than` seconds before `now` (seconds since 1970).

    Raises `WorkspaceError` for a damaged marker, before anything of its unit is removed.
    """
    limit = (time.time() if now is None else now) - older_than
    removed: list[ObjectInfo] = []
    for info in _leftovers(workspace, limit):
        if not dry_run:
            workspace.store.delete(info.key)
        removed.append(info)
    return Cleaned(tuple(removed), dry_run)


def _leftovers(workspace: Workspace, limit: float) -> Iterator[ObjectInfo]:
    yield from _old(workspace.store.unfinished(), limit)
    yield from _plan_leftovers(workspace, limit)
    for stage in STAGES:
        yield from _stage_leftovers(workspace, stage, limit)


def _old(found: Iterable[ObjectInfo], limit: float) -> Iterator[ObjectInfo]:
    """An object whose age the store does not know (0) is never old."""
    return (info for info in found if 0 < info.modified < limit)


def _plan_leftovers(workspace: Workspace, limit: float) -> Iterator[ObjectInfo]:
    """Parts of planners that died or were not the first."""
    old = [info for info in _old(workspace.store.list("plan/"), limit) if info.key.endswith(".jsonl")]
    named = {part.object for generation in generations(workspace) for part in generation.parts}
    return (info for info in old if info.key not in named)


def _stage_leftovers(workspace: Workspace, stage: str, limit: float) -> Iterator[ObjectInfo]:
    """Data of attempts that died or were not the first: <stage>/<key>/<xx>/<unit>/<attempt>.parquet."""
    for info in _old(workspace.store.list(f"{stage}/"), limit):
        segments = info.key.split("/")
        if len(segments) != 5 or not info.key.endswith(_DATA):
            continue
        # The marker is read after the data were seen: what is published in between is seen as published.
        marker = find_marker(workspace, stage, segments[1], segments[3])
        if marker is None or marker.object != info.key:
            yield info
