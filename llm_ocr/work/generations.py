"""The stored plan: an immutable list of units, in generations.

plan/<generation>/<attempt>/units-00000.jsonl   at most 1,000 units, one a line; the same input gives the same bytes
plan/<generation>/<attempt>/filtered.jsonl      documents that filters left out; see `filtered_lists`
plan/<generation>.done                          the marker: names the parts, with hashes and counts
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from llm_ocr.errors import ObjectNotFound, StageMissing, WorkspaceError
from llm_ocr.types import Unit
from llm_ocr.work import codec
from llm_ocr.work.filtered import Filtered, filtered_from_json
from llm_ocr.work.marker import attempt_id, remove_lost, settle, slept_since
from llm_ocr.work.room import need_room
from llm_ocr.work.units import CutUnit
from llm_ocr.work.workspace import Workspace, library_version

_UNITS_A_PART = 1000


class Kind(StrEnum):
    """Why a generation was written."""

    SOURCES = "sources"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A stored file of units."""

    object: str
    sha256: str
    size: int
    units: int


@dataclass(frozen=True, slots=True)
class Generation:
    """The marker of a generation. Counts are of this generation alone.

    `next_index` is the dataset index that the next generation begins with. A retry says what its units stand for:
    `replaced` by unit and reason, `touched` the items of Assemble whose documents it holds pages of.
    """

    number: int
    kind: Kind
    attempt: str
    pages_per_unit: int
    next_index: int
    documents: int = 0
    expected: int = 0
    items: int = 0
    units: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)  # files of unknown types by suffix
    replaced: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    touched: tuple[str, ...] = ()
    parts: tuple[PlanPart, ...] = ()
    created_by: str = ""
    estimated: int = 0  # documents that were not counted: what they are expected to have is in `expected`
    filtered: Filtered | None = None  # what filters left out; None where there were none, and nothing is to be said

    @property
    def objects(self) -> tuple[str, ...]:
        """What the marker names."""
        listed = (self.filtered.object,) if self.filtered and self.filtered.object else ()
        return (*(part.object for part in self.parts), *listed)

    @property
    def replaces(self) -> int:
        """Rows of older generations that this one's rows stand for."""
        return sum(sum(reasons.values()) for reasons in self.replaced.values())


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """A whole plan. `expected` counts a page once, however often it was retried.

    Of `estimated` documents the pages were not counted: then `expected` is what the plan takes them for.
    """

    generations: int
    documents: int
    units: int
    items: int
    expected: int
    next_index: int
    skipped: Mapping[str, int]
    estimated: int = 0


def generations(workspace: Workspace) -> list[Generation]:
    """All generations in order. Raises `WorkspaceError` for a damaged marker."""
    found: list[Generation] = []
    while True:
        generation = _find(workspace, len(found) + 1)
        if generation is None:
            return found
        found.append(generation)


def has_generation(workspace: Workspace, number: int) -> bool:
    """Whether the plan has this generation by now."""
    return workspace.store.stat(_marker_key(number)) is not None


def totals_of(found: Iterable[Generation]) -> PlanTotals:
    """Counts over these generations; all 0 without any."""
    count = documents = units = items = expected = estimated = next_index = 0
    skipped: dict[str, int] = {}
    for generation in found:
        count += 1
        documents += generation.documents
        units += generation.units
        items += generation.items
        expected += generation.expected - generation.replaces
        estimated += generation.estimated
        next_index = generation.next_index
        for suffix, number in generation.skipped.items():
            skipped[suffix] = skipped.get(suffix, 0) + number
    return PlanTotals(count, documents, units, items, expected, next_index, skipped, estimated)


def read_units(workspace: Workspace, *, kinds: Iterable[Kind] = tuple(Kind)) -> Iterator[Unit]:
    """All units of all generations in order, one part of the plan in memory at a time.

    Raises `StageMissing` at once when there is no plan, and `WorkspaceError` on the way for a damaged part.
    """
    found = generations(workspace)
    if not found:
        raise StageMissing(f"no plan in {workspace.url}", hint=f"Run first: llm-ocr plan SOURCE -w {workspace.url}")
    wanted = frozenset(kinds)
    return (unit for one in found if one.kind in wanted for unit in units_of(workspace, one))


def units_of(workspace: Workspace, generation: Generation) -> Iterator[Unit]:
    """The units of one generation. Raises `WorkspaceError` for a part that is gone or changed."""
    for part in generation.parts:
        where = f"{workspace.url}: {part.object}"
        try:
            data = workspace.store.get(part.object)
        except ObjectNotFound as error:
            raise codec.damaged(where, "it is missing") from error
        if hashlib.sha256(data).hexdigest() != part.sha256:
            raise codec.damaged(where, "its content was changed")
        for line in data.splitlines():
            yield codec.unit_from_json(codec.load(line, where))


def new_draft(
    number: int,
    kind: Kind,
    *,
    pages_per_unit: int,
    next_index: int,
    skipped: Mapping[str, int] | None = None,
    touched: Iterable[str] = (),
) -> Generation:
    """An empty generation with an attempt id of its own."""
    left_out = dict(sorted((skipped or {}).items()))
    return Generation(
        number,
        kind,
        attempt_id(),
        pages_per_unit,
        next_index,
        skipped=left_out,
        touched=tuple(touched),
        created_by=library_version(),
    )


def write_generation(
    workspace: Workspace, draft: Generation, cut: Callable[[], Iterable[CutUnit]], listed: Path | None = None
) -> Generation:
    """Store the units under the draft's number; the generation that stands, this one or the one that was first.

    Parts and counts are filled in; `next_index` of sources moves on by their pages. Compare `attempt` with the draft's
    to see whose generation it is. `cut` may be called more than once; `listed` is the list that `draft.filtered` names.
    Raises `WorkspaceError` for a plan that is too large for the store.
    """
    while True:
        begun = time.time()
        written = _write_parts(workspace, draft, cut(), listed)
        # A planner that was stopped for long may have lost its parts as leftovers: then they are written once more.
        if not slept_since(begun) or _stand(workspace, written):
            break
    _check_room(workspace, written)
    key = _marker_key(draft.number)
    where = f"{workspace.url}: {key}"
    standing = _from_json(codec.load(settle(workspace.store, key, codec.dump(_to_json(written))), where), where)
    if standing.attempt != written.attempt:
        _remove_parts(workspace, written)
    elif slept_since(begun) and not _stand(workspace, written):
        _write_parts(workspace, draft, cut(), listed)  # stopped between the look and the marker: `clean` took them away
    return standing


def _check_room(workspace: Workspace, written: Generation) -> None:
    most = workspace.store.most_files
    if most is None:
        return
    totals = totals_of([*generations(workspace), written])
    try:
        need_room(workspace.url, most, units=totals.units, documents=totals.documents)
    except WorkspaceError:
        _remove_parts(workspace, written)
        raise


def _remove_parts(workspace: Workspace, generation: Generation) -> None:
    for name in generation.objects:
        remove_lost(workspace.store, name)


def _stand(workspace: Workspace, generation: Generation) -> bool:
    """Whether all parts that it names are there."""
    return all(workspace.store.stat(name) for name in generation.objects)


def counted_generation(draft: Generation, cut: Iterable[CutUnit]) -> Generation:
    """The draft with its counts filled in; nothing is stored."""
    counted, rest = draft, iter(cut)
    while chunk := list(islice(rest, _UNITS_A_PART)):
        counted = _counted(counted, chunk)
    return counted


def _write_parts(workspace: Workspace, draft: Generation, cut: Iterable[CutUnit], listed: Path | None) -> Generation:
    if listed is not None and draft.filtered is not None and draft.filtered.object:
        workspace.store.upload(listed, draft.filtered.object)
    written = draft
    rest = iter(cut)
    while chunk := list(islice(rest, _UNITS_A_PART)):
        data = b"".join(codec.dump(codec.unit_to_json(one.unit)) for one in chunk)
        name = f"plan/{draft.number:04d}/{draft.attempt}/units-{len(written.parts):05d}.jsonl"
        workspace.store.put(name, data)
        part = PlanPart(name, hashlib.sha256(data).hexdigest(), len(data), len(chunk))
        written = _counted(replace(written, parts=(*written.parts, part)), chunk)
    return written


def _counted(draft: Generation, chunk: Sequence[CutUnit]) -> Generation:
    expected = sum(one.unit.expected for one in chunk)
    counted = replace(draft, units=draft.units + len(chunk), expected=draft.expected + expected)
    if draft.kind is Kind.RETRY:
        replaced = {one.unit.id: one.replaced for one in chunk if one.replaced}
        return replace(counted, replaced={**draft.replaced, **replaced})
    later_ranges = sum(one.continues for one in chunk)
    return replace(
        counted,
        documents=draft.documents + sum(len(one.unit.parts) for one in chunk) - later_ranges,
        items=draft.items + len(chunk) - later_ranges,
        next_index=draft.next_index + sum(part.reserved for one in chunk for part in one.unit.parts),
        estimated=draft.estimated + sum(one.unit.estimated for one in chunk),
    )


def _marker_key(number: int) -> str:
    return f"plan/{number:04d}.done"


def _find(workspace: Workspace, number: int) -> Generation | None:
    key = _marker_key(number)
    value = workspace.find_json(key)
    return None if value is None else _from_json(value, f"{workspace.url}: {key}")


def _to_json(generation: Generation) -> dict[str, Any]:
    value = asdict(generation) | {"replaces": generation.replaces}
    if not generation.estimated:
        del value["estimated"]
    if generation.filtered is None:
        del value["filtered"]
    return value


def _from_json(value: dict[str, Any], where: str) -> Generation:
    value = {name: given for name, given in value.items() if name != "replaces"}
    try:
        parts = tuple(PlanPart(**part) for part in value.pop("parts"))
        kind, touched = Kind(value.pop("kind")), tuple(value.pop("touched"))
        filtered = filtered_from_json(value.pop("filtered")) if value.get("filtered") else None
        return Generation(**value, kind=kind, touched=touched, parts=parts, filtered=filtered)
    except (KeyError, TypeError, ValueError) as error:
        raise codec.damaged(where, f"{type(error).__name__} {error}") from error
