"""The stored plan: immutable lists of units, one per generation."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter

from llm_ocr.errors import ObjectNotFound, StageMissing, WorkspaceError
from llm_ocr.types import DocumentPart, Repeated, Unit, plural
from llm_ocr.workspace import Workspace, codec, library_version
from llm_ocr.workspace.marker import attempt_id, remove_lost, settle, slept_since

# Units are either whole documents or a page range of exactly one long document.


@dataclass(frozen=True, slots=True)
class Piece:
    """Pages of a document to put into units.

    `indices` has the dataset index of each expected row (one for a document that could not be opened). For a document
    that was not counted, it has the reserved indices. `replaced` has, for a retry, the reason of the failed row that
    each row supersedes; "" for a row that supersedes none. `repeats` has, by page number, the superseded rows that were
    not failed.
    """

    part: DocumentPart
    indices: Sequence[int]
    replaced: Sequence[str] = ()
    repeats: Mapping[int, Repeated] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of expected rows."""
        return self.part.estimate or len(self.indices)

    def cut(self, most: int) -> Iterator["Piece"]:
        """Split into pieces of nearly equal size with at most `most` pages each."""
        rows = len(self.indices)
        count = -(-rows // most)
        for number in range(count):
            chosen = slice(rows * number // count, rows * (number + 1) // count)
            part = replace(self.part, pages=self.part.pages[chosen])
            yield Piece(part, self.indices[chosen], self.replaced[chosen], self.repeats)

    def parts(self) -> Iterator[DocumentPart]:
        """Yield a part for each run of consecutive indices: page index = `first_index` + position in the part.

        Repeated pages and other pages are in separate parts.
        """
        pages = self.part.pages
        if not pages:
            yield replace(self.part, first_index=self.indices[0])
            return
        begin = 0
        for end in range(1, len(self.indices) + 1):
            if end == len(self.indices) or self._parted(end):
                again = pages[begin] in self.repeats
                yield replace(self.part, pages=pages[begin:end], first_index=self.indices[begin], again=again)
                begin = end

    def _parted(self, at: int) -> bool:
        one, other = self.part.pages[at - 1 : at + 1]
        return self.indices[at] != self.indices[at - 1] + 1 or (one in self.repeats) != (other in self.repeats)


@dataclass(frozen=True, slots=True)
class CutUnit:
    """Unit with the number of superseded rows by reason. `continues`: a later range of the previous unit's document."""

    unit: Unit
    replaced: Mapping[str, int]
    continues: bool = False


def cut_units(pieces: Iterable[Piece], *, generation: int, pages_per_unit: int) -> Iterator[CutUnit]:
    """Yield units of about `pages_per_unit` pages, in the order of the pieces. The same pieces give the same units."""
    for index, (group, continues) in enumerate(_groups(pieces, pages_per_unit)):
        parts = tuple(part for piece in group for part in piece.parts())
        reasons = Counter(reason for piece in group for reason in piece.replaced if reason)
        repeats = tuple(piece.repeats[page] for piece in group for page in piece.part.pages if page in piece.repeats)
        unit = Unit(f"{generation:04d}-{index:06d}", generation, index, parts, reasons.total(), repeats)
        yield CutUnit(unit, dict(reasons), continues)


def _groups(pieces: Iterable[Piece], most: int) -> Iterator[tuple[list[Piece], bool]]:
    group: list[Piece] = []
    filled = 0
    for piece in pieces:
        rows = piece.rows
        if group and filled + rows > most:
            yield group, False
            group, filled = [], 0
        if rows > most and piece.part.counted:
            for number, cut in enumerate(piece.cut(most)):
                yield [cut], number > 0
        else:
            group.append(piece)
            filled += rows
    if group:
        yield group, False


# Documents excluded by filters: counted in the generation's marker, listed in a file next to its units.


#: Upper limit of documents named in a marker.
EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Filtered:
    """Documents that filters excluded, as recorded in a generation's marker.

    `counts` and `readmitted` are by cause: the filter's name, followed by a space and the detected kind for filters
    that have kinds (`language de`). `readmitted` counts documents in the lists of older generations that this
    generation plans nevertheless, because other filters were on. `filters` are the active filters.
    """

    filters: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    readmitted: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[Mapping[str, str], ...] = ()  # source, reason, detail
    object: str = ""  # key of the list; "" if the list is empty
    sha256: str = ""
    size: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


class Marked(Protocol):
    """Generation with an optional record of excluded documents."""

    @property
    def filtered(self) -> Filtered | None:
        """Record of excluded documents; None if there are none."""


def cause_of(reason: str, kind: str) -> str:
    """Return the cause under which documents are counted."""
    return f"{reason} {kind}" if kind else reason


def counts_of(found: Iterable[Marked]) -> dict[str, int]:
    """Return the number of documents excluded now, by cause, most frequent first."""
    counts: Counter[str] = Counter()
    for generation in found:
        if generation.filtered is not None:
            counts.update(generation.filtered.counts)
            counts.subtract(generation.filtered.readmitted)
    return {cause: count for cause, count in sorted(counts.items(), key=_most_first) if count > 0}


def examples_of(found: Iterable[Marked]) -> tuple[Mapping[str, str], ...]:
    """Return up to `EXAMPLES` excluded documents, starting with the first generation."""
    every = (example for one in found if one.filtered is not None for example in one.filtered.examples)
    return tuple(example for example, _ in zip(every, range(EXAMPLES), strict=False))


def filtered_text(counts: Mapping[str, int]) -> str:
    """Return `12 filtered: 9 language (de 7, fr 2), 3 forms`, from counts by cause; empty without counts."""
    if not counts:
        return ""
    by_reason: dict[str, dict[str, int]] = {}
    for cause, count in sorted(counts.items(), key=_most_first):
        reason, _, kind = cause.partition(" ")
        by_reason.setdefault(reason, {})[kind] = count
    sums = sorted(((reason, sum(kinds.values())) for reason, kinds in by_reason.items()), key=_most_first)
    parts = (f"{count} {reason}{_kinds_text(by_reason[reason])}" for reason, count in sums)
    return f"{sum(counts.values())} filtered: {', '.join(parts)}"


def filtered_to_json(counts: Mapping[str, int], examples: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the JSON object for the status."""
    reasons: Counter[str] = Counter()
    languages: dict[str, int] = {}
    for cause, count in counts.items():
        reason, _, kind = cause.partition(" ")
        reasons[reason] += count
        if kind:
            languages[kind] = count
    return {
        "documents": reasons.total(),
        "reasons": dict(reasons),
        "languages": languages,
        "examples": [dict(example) for example in examples],
    }


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


def _kinds_text(kinds: Mapping[str, int]) -> str:
    named = {kind: count for kind, count in kinds.items() if kind}
    shown = named if len(named) == 1 else [f"{kind} {count}" for kind, count in named.items()]
    return f" ({', '.join(shown)})" if named else ""


# Number of files that a run writes, for stores with a file limit.


#: Files per unit after all stages: data and marker of each stage, the dataset file, and the note on the views.
_OF_A_UNIT = 8


def files_of(units: int, documents: int) -> int:
    """Return the number of files of a finished run, without figure files, whose number is unknown in advance."""
    return _OF_A_UNIT * units + documents


def need_file_quota(url: str, most: int, *, units: int, documents: int) -> None:
    """Raise `WorkspaceError` if a run of such a plan would write more than `most` files to `url`."""
    needed = files_of(units, documents)
    if needed > most:
        raise WorkspaceError(
            f"{plural(documents, 'document')} in {plural(units, 'unit')} need at least {needed:,} files; the limit of "
            f"{url} is {most:,}",
            hint="Use a bucket (hf://buckets/NS/NAME/PREFIX, s3://…, or gs://…), fewer documents, or larger units "
            "(`pages_per_unit`).",
        )


# The stored plan: an immutable list of units, in generations.
#
# plan/<generation>/<attempt>/units-00000.jsonl   at most 1,000 units, one per line; the same input gives the same bytes
# plan/<generation>/<attempt>/filtered.jsonl      documents that filters excluded; see `plan.KnownFiltered`
# plan/<generation>.done                          the marker: names the parts, with hashes and counts


_UNITS_A_PART = 1000


class Kind(StrEnum):
    """Reason for writing a generation."""

    SOURCES = "sources"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class PlanPart:
    """Stored file of units."""

    object: str
    sha256: str
    size: int
    units: int


@dataclass(frozen=True, slots=True)
class Generation:
    """Marker of a generation. Counts are of this generation alone.

    `next_index` is the first dataset index of the next generation. A retry records the rows it supersedes: `replaced`
    by unit and reason, and in `touched` the items of Assemble with pages in the retry.
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
    skipped: Mapping[str, int] = field(default_factory=dict)  # number of files of unknown types, by suffix
    replaced: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    touched: tuple[str, ...] = ()
    parts: tuple[PlanPart, ...] = ()
    created_by: str = ""
    estimated: int = 0  # documents that were not counted; their estimated pages are in `expected`
    filtered: Filtered | None = None  # documents that filters excluded; None if there is nothing to record

    @property
    def objects(self) -> tuple[str, ...]:
        """Keys of the objects that the marker names."""
        listed = (self.filtered.object,) if self.filtered and self.filtered.object else ()
        return (*(part.object for part in self.parts), *listed)

    @property
    def replaces(self) -> int:
        """Number of rows of older generations that this generation supersedes."""
        return sum(sum(reasons.values()) for reasons in self.replaced.values())


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """Totals of a plan. `expected` counts a page once, however often it was retried.

    The pages of `estimated` documents were not counted; `expected` then contains estimates.
    """

    generations: int
    documents: int
    units: int
    items: int
    expected: int
    next_index: int
    skipped: Mapping[str, int]
    estimated: int = 0


#: Fields that each marker of a generation has.
_NAMED = {"parts", "kind", "touched"}
_GENERATION = TypeAdapter(Generation)


def generations(workspace: Workspace) -> list[Generation]:
    """Return all generations in order.

    Raises:
        WorkspaceError: a marker is damaged.
    """
    found: list[Generation] = []
    while True:
        generation = _find(workspace, len(found) + 1)
        if generation is None:
            return found
        found.append(generation)


def has_generation(workspace: Workspace, number: int) -> bool:
    """Return whether the plan has this generation now."""
    return workspace.store.stat(_marker_key(number)) is not None


def totals_of(found: Iterable[Generation]) -> PlanTotals:
    """Return the totals of these generations; all 0 without any."""
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
    """Return an iterator over the units of all generations in order. Memory holds one part of the plan at a time.

    Raises:
        StageMissing: there is no plan. Raised at once.
        WorkspaceError: a part is damaged. Raised during iteration.
    """
    found = generations(workspace)
    if not found:
        raise StageMissing(f"no plan in {workspace.url}", hint=f"Run first: llm-ocr plan SOURCE -w {workspace.url}")
    wanted = frozenset(kinds)
    return (unit for one in found if one.kind in wanted for unit in units_of(workspace, one))


def units_of(workspace: Workspace, generation: Generation) -> Iterator[Unit]:
    """Yield the units of a generation.

    Raises:
        WorkspaceError: a part is missing or changed.
    """
    for part in generation.parts:
        where = f"{workspace.url}: {part.object}"
        try:
            data = workspace.store.get(part.object)
        except ObjectNotFound as error:
            raise codec.damaged(where, "the object is missing") from error
        if hashlib.sha256(data).hexdigest() != part.sha256:
            raise codec.damaged(where, "the content has changed")
        for line in data.splitlines():
            try:
                yield codec.unit_from_json(codec.load(line, where))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise codec.damaged(where, f"{type(error).__name__} {error}") from error


def new_draft(
    number: int,
    kind: Kind,
    *,
    pages_per_unit: int,
    next_index: int,
    skipped: Mapping[str, int] | None = None,
    touched: Iterable[str] = (),
) -> Generation:
    """Return an empty generation with a new attempt id."""
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
    """Store the units under the draft's number, and return the published generation, which may be another attempt's.

    Compare the result's `attempt` with the draft's to detect another attempt. The function fills in parts and counts;
    `next_index` of sources advances by their pages.

    Args:
        workspace: the workspace.
        draft: the generation to write (`new_draft`).
        cut: returns the units; may be called more than once.
        listed: the list that `draft.filtered` names.

    Raises:
        WorkspaceError: the plan is too large for the store.
    """
    while True:
        begun = time.time()
        written = _write_parts(workspace, draft, cut(), listed)
        # `clean` may have removed the parts of a planner that was suspended for a long time. Write them again.
        if not slept_since(begun) or _stand(workspace, written):
            break
    _check_room(workspace, written)
    key = _marker_key(draft.number)
    where = f"{workspace.url}: {key}"
    standing = _from_json(codec.load(settle(workspace.store, key, codec.dump(_to_json(written))), where), where)
    if standing.attempt != written.attempt:
        _remove_parts(workspace, written)
    elif slept_since(begun) and not _stand(workspace, written):
        _write_parts(workspace, draft, cut(), listed)  # suspended before the marker: `clean` removed the parts
    return standing


def _check_room(workspace: Workspace, written: Generation) -> None:
    most = workspace.store.most_files
    if most is None:
        return
    totals = totals_of([*generations(workspace), written])
    try:
        need_file_quota(workspace.url, most, units=totals.units, documents=totals.documents)
    except WorkspaceError:
        _remove_parts(workspace, written)
        raise


def _remove_parts(workspace: Workspace, generation: Generation) -> None:
    for name in generation.objects:
        remove_lost(workspace.store, name)


def _stand(workspace: Workspace, generation: Generation) -> bool:
    """Return whether all objects that the generation names exist."""
    return all(workspace.store.stat(name) for name in generation.objects)


def counted_generation(draft: Generation, cut: Iterable[CutUnit]) -> Generation:
    """Return the draft with its counts filled in. Nothing is stored."""
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
    known = {one.name for one in fields(Generation)}
    if not known.issuperset(value) or not _NAMED.issubset(value):
        raise codec.damaged(where, "a field is missing or unknown")
    return codec.typed(_GENERATION, value, where)
