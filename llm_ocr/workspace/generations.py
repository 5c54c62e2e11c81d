"""The stored plan: immutable lists of units, one per generation.

plan/<generation>/<attempt>/units-00000.jsonl  at most 1,000 units, one per line; the same input gives the same bytes
plan/<generation>/<attempt>/filtered.jsonl     documents that filters excluded; see `plan.KnownFiltered`
plan/<generation>.done                         the marker: names the parts, with hashes and counts
"""

import hashlib
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from llm_ocr.errors import ObjectNotFound, StageMissing, WorkspaceError
from llm_ocr.types import DocumentPart, Repeated, Unit, plural
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.publish import remove_lost, settle, slept_since


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
            again = pages[begin] in self.repeats
            if end < len(self.indices):
                follows = self.indices[end] == self.indices[end - 1] + 1
                if follows and (pages[end] in self.repeats) == again:
                    continue
            yield replace(self.part, pages=pages[begin:end], first_index=self.indices[begin], again=again)
            begin = end


def _grouped(pieces: Iterable[Piece], most: int) -> Iterator[tuple[list[Piece], bool]]:
    """Yield the pieces of each unit, and whether they are a later range of the previous unit's document.

    Units have about `most` pages: either whole documents, or a page range of exactly one long document. The same pieces
    give the same units.
    """
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


#: Upper limit of documents named in a marker.
EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Filtered:
    """Documents that filters excluded, as recorded in a generation's marker; a file next to its units lists them.

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


def cause_of(reason: str, kind: str) -> str:
    """Return the cause under which documents are counted."""
    return f"{reason} {kind}" if kind else reason


def counts_of(found: Iterable["Generation"]) -> dict[str, int]:
    """Return the number of documents excluded now, by cause, most frequent first."""
    counts: Counter[str] = Counter()
    for generation in found:
        if generation.filtered is not None:
            counts.update(generation.filtered.counts)
            counts.subtract(generation.filtered.readmitted)
    return {cause: count for cause, count in sorted(counts.items(), key=_most_first) if count > 0}


def examples_of(found: Iterable["Generation"]) -> tuple[Mapping[str, str], ...]:
    """Return up to `EXAMPLES` excluded documents, starting with the first generation."""
    examples = (example for generation in found if generation.filtered for example in generation.filtered.examples)
    return tuple(islice(examples, EXAMPLES))


def filtered_text(counts: Mapping[str, int]) -> str:
    """Return `12 filtered: 9 language (de 7, fr 2), 3 forms`, from counts by cause; empty without counts."""
    if not counts:
        return ""
    by_reason: dict[str, dict[str, int]] = {}
    for cause, count in sorted(counts.items(), key=_most_first):
        reason, _, kind = cause.partition(" ")
        by_reason.setdefault(reason, {})[kind] = count
    parts: list[str] = []
    for reason, count in sorted(
        ((reason, sum(kinds.values())) for reason, kinds in by_reason.items()), key=_most_first
    ):
        kinds = {kind: number for kind, number in by_reason[reason].items() if kind}
        shown = kinds if len(kinds) == 1 else [f"{kind} {number}" for kind, number in kinds.items()]
        parts.append(f"{count} {reason}" + (f" ({', '.join(shown)})" if kinds else ""))
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


#: Files per unit after all stages: data and marker of each stage, the dataset file, and the note on the views.
_FILES_OF_A_UNIT = 8

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
class Repair:
    """Settings with which a retry reads its pages.

    `key` and `settings` are those of Extract, as in `keys`. `options` has the settings of the command that differ from
    the workspace's, for messages: they are never applied, because others may write into the workspace. `launch` is the
    id of the launch whose job planned the repair; its other jobs plan no second one.
    """

    key: str
    settings: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    launch: str = ""

    @property
    def text(self) -> str:
        """Return the options for messages: `` `text_layer=never` ``. Values are quoted for a shell."""
        texts = {name: shlex.quote(str(value)) for name, value in sorted(self.options.items())}
        return " ".join(f"`{name}={text}`" for name, text in texts.items() if name.isidentifier() and "`" not in text)


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
    repair: Repair | None = None  # of a retry with settings of its own, or by the command `repair`

    def key(self, base: str) -> str:
        """Return the key of the settings that read the units; `base` is the key of the workspace."""
        return base if self.repair is None else self.repair.key

    def of_launch(self, launch: str) -> bool:
        """Return whether a job of this launch planned the generation."""
        return self.repair is not None and launch != "" and self.repair.launch == launch

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


_GENERATION = TypeAdapter(Generation)


def generations(workspace: Workspace) -> list[Generation]:
    """Return all generations in order.

    Raises:
        WorkspaceError: a marker is damaged.
    """
    found: list[Generation] = []
    while (value := workspace.find_json(key := _marker_key(len(found) + 1))) is not None:
        where = f"{workspace.url}: {key}"
        generation = _from_json(value, where)
        if generation.number != len(found) + 1:
            raise codec.damaged(where, f"it is of generation {generation.number}")
        found.append(generation)
    return found


def planned_generations(workspace: Workspace) -> list[Generation]:
    """Return all generations in order, at least one.

    Raises:
        StageMissing: there is no plan.
        WorkspaceError: a marker is damaged.
    """
    found = generations(workspace)
    if not found:
        raise StageMissing(f"no plan in {workspace.url}", hint=f"Run first: llm-ocr plan SOURCE -w {workspace.url}")
    return found


def has_generation(workspace: Workspace, number: int) -> bool:
    """Return whether the plan has this generation now."""
    return workspace.store.stat(_marker_key(number)) is not None


def totals_of(found: Iterable[Generation]) -> PlanTotals:
    """Return the totals of these generations; all 0 without any."""
    listed = list(found)
    skipped: Counter[str] = Counter()
    for generation in listed:
        skipped.update(generation.skipped)
    return PlanTotals(
        generations=len(listed),
        documents=sum(generation.documents for generation in listed),
        units=sum(generation.units for generation in listed),
        items=sum(generation.items for generation in listed),
        expected=sum(generation.expected - generation.replaces for generation in listed),
        next_index=listed[-1].next_index if listed else 0,
        skipped=dict(skipped),
        estimated=sum(generation.estimated for generation in listed),
    )


def read_units(workspace: Workspace, *, kinds: Iterable[Kind] = tuple(Kind)) -> Iterator[Unit]:
    """Return an iterator over the units of all generations in order. Memory holds one part of the plan at a time.

    Raises:
        StageMissing: there is no plan. Raised at once.
        WorkspaceError: a part is damaged. Raised during iteration.
    """
    found = planned_generations(workspace)
    wanted = frozenset(kinds)
    return (unit for generation in found if generation.kind in wanted for unit in units_of(workspace, generation))


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


def write_generation(
    workspace: Workspace, draft: Generation, pieces: Callable[[], Iterable[Piece]], listed: Path | None = None
) -> Generation:
    """Store the units under the draft's number, and return the published generation, which may be another attempt's.

    Compare the result's `attempt` with the draft's to detect another attempt. The function fills in parts and counts;
    `next_index` of sources advances by their pages.

    Args:
        workspace: the workspace.
        draft: the generation to write, with its own attempt id.
        pieces: returns the pieces to cut into units; may be called more than once.
        listed: the list that `draft.filtered` names.

    Raises:
        WorkspaceError: the plan is too large for the store.
    """

    def write() -> Generation:
        if listed is not None and draft.filtered is not None and draft.filtered.object:
            workspace.store.upload(listed, draft.filtered.object)
        return filled_generation(draft, pieces(), workspace)

    while True:
        begun = time.time()
        written = write()
        # `clean` may have removed the parts of a planner that was suspended for a long time. Write them again.
        if not slept_since(begun) or _all_exist(workspace, written):
            break
    most = workspace.store.most_files
    if most is not None:
        totals = totals_of([*generations(workspace), written])
        needed = _FILES_OF_A_UNIT * totals.units + totals.documents  # the number of figure files is unknown in advance
        if needed > most:
            for name in written.objects:
                remove_lost(workspace.store, name)
            raise WorkspaceError(
                f"{plural(totals.documents, 'document')} in {plural(totals.units, 'unit')} need at least {needed:,} "
                f"files; the limit of {workspace.url} is {most:,}",
                hint="Use a bucket (hf://buckets/NS/NAME/PREFIX, s3://…, or gs://…), fewer documents, or larger units "
                "(`pages_per_unit`).",
            )
    value = asdict(written) | {"replaces": written.replaces}
    if not written.estimated:
        del value["estimated"]
    for name in ("filtered", "repair"):  # older versions know neither
        if value[name] is None:
            del value[name]
    key = _marker_key(draft.number)
    where = f"{workspace.url}: {key}"
    published = _from_json(codec.load(settle(workspace.store, key, codec.dump(value)), where), where)
    if published.attempt != written.attempt:
        for name in written.objects:
            remove_lost(workspace.store, name)
    elif slept_since(begun) and not _all_exist(workspace, written):
        write()  # suspended before the marker: `clean` removed the parts
    return published


def _all_exist(workspace: Workspace, generation: Generation) -> bool:
    """Return whether all objects that the generation names exist."""
    return all(workspace.store.stat(name) for name in generation.objects)


def filled_generation(draft: Generation, pieces: Iterable[Piece], workspace: Workspace | None = None) -> Generation:
    """Return the draft with its counts; with a workspace, also with its parts, which are written there."""
    filled, groups = draft, enumerate(_grouped(pieces, draft.pages_per_unit))
    while chunk := list(islice(groups, _UNITS_A_PART)):
        units: list[Unit] = []
        replaced: dict[str, Mapping[str, int]] = {}
        for index, (group, _) in chunk:
            parts = tuple(part for piece in group for part in piece.parts())
            reasons = Counter(reason for piece in group for reason in piece.replaced if reason)
            repeats = tuple(
                piece.repeats[page] for piece in group for page in piece.part.pages if page in piece.repeats
            )
            unit = Unit(f"{draft.number:04d}-{index:06d}", draft.number, index, parts, reasons.total(), repeats)
            units.append(unit)
            if reasons:
                replaced[unit.id] = dict(reasons)
        if workspace is not None:
            data = b"".join(codec.dump(codec.unit_to_json(unit)) for unit in units)
            name = f"plan/{draft.number:04d}/{draft.attempt}/units-{len(filled.parts):05d}.jsonl"
            workspace.store.put(name, data)
            part = PlanPart(name, hashlib.sha256(data).hexdigest(), len(data), len(units))
            filled = replace(filled, parts=(*filled.parts, part))
        expected = filled.expected + sum(unit.expected for unit in units)
        filled = replace(filled, units=filled.units + len(units), expected=expected)
        if draft.kind is Kind.RETRY:
            filled = replace(filled, replaced={**filled.replaced, **replaced})
            continue
        later_ranges = sum(continues for _, (_, continues) in chunk)
        filled = replace(
            filled,
            documents=filled.documents + sum(len(unit.parts) for unit in units) - later_ranges,
            items=filled.items + len(units) - later_ranges,
            next_index=filled.next_index + sum(part.reserved for unit in units for part in unit.parts),
            estimated=filled.estimated + sum(unit.estimated for unit in units),
        )
    return filled


def _marker_key(number: int) -> str:
    return f"plan/{number:04d}.done"


def _from_json(value: dict[str, Any], where: str) -> Generation:
    value = {name: given for name, given in value.items() if name != "replaces"}
    known = {column.name for column in fields(Generation)}
    if not known.issuperset(value) or not value.keys() >= {"parts", "kind", "touched"}:
        raise codec.damaged(where, "a field is missing or unknown")
    return codec.typed(_GENERATION, value, where)
