"""Publish the result of a unit: data first, then the marker.

Each attempt writes its data under its own name. Readers follow markers only. Two attempts may process a unit; the first
marker counts permanently.

<stage>/<key>/<xx>/<unit>/<attempt>.parquet  <xx>: two hex digits of a hash of the unit's id, to keep folders small
<stage>/<key>/<xx>/<unit>.done
"""

import contextlib
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictFloat, StrictInt, TypeAdapter

from llm_ocr.errors import ObjectNotFound, StageMissing, StorageError, WorkspaceError
from llm_ocr.results.routing import GAIN
from llm_ocr.storage import ObjectInfo
from llm_ocr.types import Counts, FieldsRecord, FigureRecord, PageRecord, Status, Unit
from llm_ocr.workspace import Workspace, codec, library_version
from llm_ocr.workspace.codec import read_ahead
from llm_ocr.workspace.marker import CompactedMarkers, attempt_id, remove_lost, settle, slept_since
from llm_ocr.workspace.superseding import (
    SUPERSEDED,
    Extra,
    ledger_extra,
    not_ok_extra,
    quality_extra,
    superseded_extra,
    undescribed_extra,
)

_log = logging.getLogger(__name__)

_DONE = ".done"

#: Upper limit of failures in a marker; the rows contain all of them.
MOST_EXAMPLES = 5


class NotConserved(WorkspaceError):
    """Error for counts that violate `expected == ok + degraded + failed`: a page was lost or counted twice."""


class DataDamaged(StorageError):
    """Error for data of a marker that are missing or changed."""


@dataclass(frozen=True, slots=True)
class Example:
    """Failed page, for messages. `page` is None for a document that could not be opened."""

    page_id: str
    source: str
    page: int | None
    reason: str
    detail: str = ""


def varied(examples: Iterable[Example]) -> tuple[Example, ...]:
    """Return at most `MOST_EXAMPLES` in their order: one of each reason before a second one of any reason."""
    found = list(examples)
    seen: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []  # number of earlier examples of the reason, and place
    for place, example in enumerate(found):
        turns.append((seen[example.reason], place))
        seen[example.reason] += 1
    return tuple(found[place] for place in sorted(place for _, place in sorted(turns)[:MOST_EXAMPLES]))


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a unit's rows in its marker, sufficient for `status` of a million pages.

    `counts` are pages (in Assemble too); in Fields, documents. `figures` are figures: Extract fills `expected` only,
    Describe all counts. `reasons` counts rows that are not ok by reason. `seconds` is the sum over the rows.
    """

    counts: Counts = field(default_factory=Counts)
    figures: Counts = field(default_factory=Counts)
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    reasons: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    replaces: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)  # JSON values that only this stage uses


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
    published = _marker_from(settle(workspace.store, place, codec.dump(_marker_to_json(marker))), workspace, unit)
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
    try:
        data = workspace.store.get(marker_key(stage, key, unit))
    except ObjectNotFound:
        return None
    return _marker_from(data, workspace, unit)


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
                return _marker_of(copied, workspace, _unit_of(name))
        return _marker_from(workspace.store.get(name), workspace, _unit_of(name))

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
        hint=f"Remove the marker {marker_key(marker.stage, marker.key, marker.unit)} from the workspace, and run the "
        f"same command again, which processes only this unit again.",
    )


def _base(stage: str, key: str, unit: str) -> str:
    return f"{stage}/{key}/{hashlib.sha256(unit.encode()).hexdigest()[:2]}/{unit}"


def _unit_of(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(_DONE)


def check_conserved(counts: Counts, where: str, what: str = "pages") -> None:
    """Raise `NotConserved` unless `expected == ok + degraded + failed`."""
    if counts.expected != counts.ok + counts.degraded + counts.failed:
        raise NotConserved(
            f"{where}: expected {counts.expected} {what}, but {counts.ok} ok + {counts.degraded} degraded + "
            f"{counts.failed} failed = {counts.ok + counts.degraded + counts.failed}",
            hint="This is a bug of llm-ocr, or a manual change of the workspace: please report it.",
        )


def _marker_to_json(marker: Marker) -> dict[str, Any]:
    summary = marker.summary  # without `asdict`, which breaks a `Counter` in `extra`
    value = {column.name: getattr(marker, column.name) for column in fields(Marker) if column.name != "summary"}
    return {
        **value,
        **{column.name: getattr(summary, column.name) for column in fields(Summary)},
        "counts": asdict(summary.counts),
        "figures": asdict(summary.figures),
        "seconds": round(summary.seconds, 3),
        "reasons": dict(summary.reasons),
        "examples": [asdict(example) for example in varied(summary.examples)],
        "extra": dict(summary.extra),
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


def _marker_from(data: bytes, workspace: Workspace, unit: str) -> Marker:
    return _marker_of(codec.load(data, f"{workspace.url}: the marker of unit {unit}"), workspace, unit)


def _marker_of(value: Mapping[str, Any], workspace: Workspace, unit: str) -> Marker:
    where = f"{workspace.url}: the marker of unit {unit}"
    stored = codec.typed(_STORED, value, where)
    if stored.unit != unit:
        raise codec.damaged(where, f"it is of unit {stored.unit}")
    found = dict(stored) | {
        "counts": Counts(**stored.counts),
        "figures": Counts(**stored.figures),
        "extra": value["extra"],
    }
    summary = Summary(**{column.name: found.pop(column.name) for column in fields(Summary)})
    return Marker(**found, summary=summary)


#: In `Summary.extra` of Extract: requests beyond the first of each page.
RETRIES = "retries"
#: In `Summary.extra` of Extract in hybrid runs: pages that a model read after the CPU engine, and those of them whose
#: row is the model's.
SENT = "sent"
#: In `Summary.extra` of Extract, if documents were not counted in the plan: their number, and the pages that the plan
#: assumed for the unit.
ESTIMATED, PLANNED = "estimated", "planned"
#: In `Summary.extra` of Extract: true for a unit of a retry that was given up.
GIVEN_UP = "given_up"


def pages_summary(unit: Unit, records: Sequence[PageRecord]) -> Summary:
    """Return the summary of a unit of Extract. `expected` comes from the plan, so that publishing detects a lost row.

    Documents of the unit that the plan did not count have been counted by now.
    """
    repeated = {row.page_id for row in unit.repeats}  # where these failed, an older row is effective
    failed = [record for record in records if record.status is Status.FAILED and record.page_id not in repeated]
    examples = (
        Example(
            record.page_id,
            record.source,
            record.page_number,
            record.reason.value if record.reason else "",
            record.detail,
        )
        for record in failed
    )
    retries = sum(max(0, sum(GAIN not in attempt for attempt in record.attempts) - 1) for record in records)
    hybrid = [record for record in records if record.attempts and GAIN in record.attempts[0]]
    sent = [record for record in hybrid if GAIN not in record.attempts[-1]]
    return replace(
        _summary(records),
        counts=_counts(unit.expected, records),
        figures=Counts(expected=sum(len(record.figures) for record in records)),
        examples=varied(examples),
        replaces=unit.replaces,
        extra={
            **({ESTIMATED: unit.estimated, PLANNED: unit.planned} if unit.estimated else {}),
            **({RETRIES: retries} if retries else {}),
            **({SENT: [len(sent), sum(record.text_source == "model" for record in sent)]} if hybrid else {}),
            **quality_extra(records),
            **ledger_extra(records),
            **superseded_extra(unit, records),
        },
    )


@dataclass(frozen=True, slots=True)
class Again:
    """Pages that finished units of a retry read again, and pages that were given up before.

    The older row of `kept` pages is effective, or both rows are failed. The rows of `equal` pages are equally good.
    """

    read: int = 0
    kept: int = 0
    equal: int = 0
    given_up: int = 0

    def __add__(self, other: "Again") -> "Again":
        kept, equal, given_up = self.kept + other.kept, self.equal + other.equal, self.given_up + other.given_up
        return Again(self.read + other.read, kept, equal, given_up)


def read_again(summary: Summary) -> Again:
    """Return the result of a finished unit of a retry."""
    if summary.extra.get(GIVEN_UP):
        return Again(given_up=summary.counts.expected)
    entry = summary.extra.get(SUPERSEDED, {})
    kept: Sequence[str] = entry.get("kept", ())
    failed = summary.counts.failed - int(entry.get("statuses", {}).get(Status.FAILED.value, 0))
    return Again(summary.counts.expected, len(kept) + failed, int(entry.get("equal", 0)))


def correction(summary: Summary) -> int:
    """Return the rows of a finished unit of Extract minus the rows that the plan assumed. May be negative."""
    return summary.counts.expected - int(summary.extra.get(PLANNED, summary.counts.expected))


def figures_summary(expected: int, records: Sequence[FigureRecord], *, replaces: int = 0) -> Summary:
    """Return the summary of a unit of Describe. `expected` is the number of figures that Extract found in the unit."""
    extra = {**not_ok_extra(records), **undescribed_extra(records)}
    return replace(_summary(records), figures=_counts(expected, records), replaces=replaces, extra=extra)


def fields_summary(expected: int, records: Sequence[FieldsRecord]) -> Summary:
    """Return the summary of an item of Fields, whose counts are documents. `expected` comes from the plan."""
    failed = (record for record in records if record.status is Status.FAILED)
    examples = varied(Example(one.document_id, one.source, None, str(one.reason), one.detail) for one in failed)
    return replace(_summary(records), counts=_counts(expected, records), examples=examples)


def _summary(records: Sequence[PageRecord | FigureRecord | FieldsRecord]) -> Summary:
    """Return what the summaries of all stages have: costs, and the reasons of rows that are not ok."""
    return Summary(
        tokens_in=sum(record.tokens_in for record in records),
        tokens_out=sum(record.tokens_out for record in records),
        seconds=sum(record.seconds for record in records),
        reasons=dict(Counter(record.reason.value for record in records if record.reason is not None)),
    )


def _counts(expected: int, records: Sequence[PageRecord | FigureRecord | FieldsRecord]) -> Counts:
    found = Counter(record.status for record in records)
    return Counts(expected, found[Status.OK], found[Status.DEGRADED], found[Status.FAILED])
