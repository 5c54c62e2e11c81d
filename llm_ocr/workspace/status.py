"""Progress of a run, computed from markers only. No row is read."""

import heapq
import html
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from llm_ocr.types import Counts, InkTotals, Status, page_id, plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.codec import parse_item_name, parse_unit_id
from llm_ocr.workspace.generations import (
    Generation,
    Kind,
    Repair,
    counts_of,
    examples_of,
    filtered_to_json,
    generations,
    totals_of,
    units_of,
)
from llm_ocr.workspace.keys import (
    ASSEMBLE,
    DESCRIBE,
    EXTRACT,
    FIELDS,
    NO_KEYS,
    STAGES,
    KnownKeys,
    assembled_key,
    key_settings,
    newest_key,
    stage_keys,
    stages_in,
)
from llm_ocr.workspace.metrics import Records, Spending, hours_cost, total_cost
from llm_ocr.workspace.publish import check_conserved, done_units, iter_markers, objects
from llm_ocr.workspace.summaries import (
    BINS,
    LOW_QUALITY,
    WORST,
    Again,
    Example,
    Extra,
    UnbalancedPage,
    WeakPage,
    correction,
    rank,
    read_again,
    varied,
    worst_sides,
)
from llm_ocr.workspace.verdict import Verdict, overall, verdict_from_json

NamedT = TypeVar("NamedT", Example, WeakPage, UnbalancedPage)

#: Most markers that one of several workers reads one by one at its end, to show the totals of the run.
_FEW = 1000

#: Failures kept while markers are read. Failures that a retry has superseded are removed afterward.
_MOST_CANDIDATES = 1000


@dataclass(frozen=True, slots=True)
class StageStatus:
    """Progress of a stage under a key ("" if it has not begun). `done` and `total` are units; items in Assemble."""

    key: str
    done: int
    total: int
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    retries: int = 0  # requests beyond the first of each page; Extract only
    sent: tuple[int, int] | None = None  # hybrid runs: pages that a model read, and those whose row is the model's

    @property
    def finished(self) -> bool:
        return self.key != "" and self.done >= self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStatus(Again):
    """Repair with its planned `pages`, and the result of those that are finished."""

    generation: int
    repair: Repair
    pages: int

    @property
    def better(self) -> int:
        return self.read - self.kept - self.equal

    @property
    def is_finished(self) -> bool:
        return self.read + self.given_up >= self.pages

    def __str__(self) -> str:
        """Return `repair 0002: 10 pages read again with text_layer=never: 8 better, 2 kept`."""
        done = plural(self.pages, "page") if self.read >= self.pages else f"{self.read:,} of {self.pages:,} pages"
        text = f"repair {self.generation:04d}: {done} read again with {self.repair.text or 'unchanged settings'}"
        given_up = f", {self.given_up:,} given up" if self.given_up else ""
        equal = f"{self.equal:,} equal, " if self.equal else ""
        failed = f" ({self.failed:,} of them could not be read)" if self.failed else ""
        return f"{text}: {self.better:,} better, {equal}{self.kept:,} kept{failed}{given_up}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        counts = {"pages": self.pages, "read": self.read, "better": self.better, "equal": self.equal, "kept": self.kept}
        named = {"generation": self.generation, "key": self.repair.key, "settings": dict(self.repair.options)}
        return named | counts | {"given_up": self.given_up, "failed": self.failed}


@dataclass(frozen=True, slots=True)
class RunStatus:
    """State of a workspace. Counts cover effective rows: a retried page is counted once.

    `pages.expected` is of the whole plan; the other counts are of finished units. If Assemble has taken the pages of a
    user-defined stage, pages and reasons are those of this stage. If `estimated` is true, `pages.expected` is
    approximate, because some documents are counted only when they are read. `figures.expected` is the number of figures
    found so far on effective rows of the stage that Describe reads. `reasons` counts pages that are not ok now;
    `figure_reasons` counts figures. Tokens and seconds include superseded work; seconds are summed over all workers.
    """

    url: str
    generations: int
    documents: int
    pages: Counts
    figures: Counts
    stages: Mapping[str, StageStatus]  # extract, describe, assemble, and fields if it has begun
    reasons: Mapping[str, int]
    figure_reasons: Mapping[str, int]
    examples: tuple[Example, ...]
    skipped: Mapping[str, int]  # number of files of unknown types, by suffix
    workers: tuple[Spending, ...] = ()  # spending of each worker, with superseded and lost work
    estimated: bool = False
    model: str = ""  # model that read the pages; "" for the embedded engine
    filtered: Mapping[str, int] = field(default_factory=dict)  # number of documents excluded from the plan, by cause
    filtered_examples: tuple[Mapping[str, str], ...] = ()  # source, reason, detail
    quality: tuple[int, ...] = ()  # pages by score, in 20 bins from 0 to 1; () if no page has a score
    worst: tuple[WeakPage, ...] = ()  # worst first; at most the 20 worst pages of a unit
    undescribed: int = 0  # figures that are ok without a description, because the CPU engine read them
    ledger: InkTotals = field(default_factory=InkTotals)  # no pages if none has a ledger
    unread: tuple[UnbalancedPage, ...] = ()  # pages with the most unread ink, worst first; at most 20 of a unit
    unsupported: tuple[UnbalancedPage, ...] = ()  # the same for unsupported text
    repairs: tuple[RepairStatus, ...] = ()  # oldest first
    fields: Counts = field(default_factory=Counts)  # documents of Fields under its newest key
    field_reasons: Mapping[str, int] = field(default_factory=dict)  # number of documents that are not ok, by reason

    def __str__(self) -> str:
        """Return one line: `out: 412 pages: 408 ok, 3 degraded, 1 failed (encrypted 1); 40 figures: 40 ok`."""
        texts: list[str] = []
        for counts, noun in ((self.pages, "page"), (self.figures, "figure")):
            if counts.expected:
                waiting = counts.expected - counts.ended
                others = ((counts.degraded, "degraded"), (counts.failed, "failed"), (waiting, "not done yet"))
                shown = [f"{counts.ok:,} ok", *(f"{count:,} {name}" for count, name in others if count > 0)]
                texts.append(f"{plural(counts.expected, noun)}: {', '.join(shown)}")
        if self.undescribed:
            texts[-1] += f", {self.undescribed:,} without a description"
        if self.reasons and texts:
            texts[0] += f" ({', '.join(f'{reason} {count:,}' for reason, count in self.reasons.items())})"
        if self.fields.expected:
            texts.append(f"fields of {plural(self.fields.expected, 'document')}: {self.fields.ok:,} ok")
        for name, stage in self.stages.items():
            if not stage.finished:
                texts.append(f"{name} {stage.done:,} of {stage.total:,} units")
        return f"{self.url}: {'; '.join(texts) or 'no pages'}"

    def _repr_html_(self) -> str:
        """Return the state as tables, for notebooks."""
        head = "<tr><th></th><th>expected</th><th>ok</th><th>degraded</th><th>failed</th></tr>"
        rows = "".join(
            f"<tr><th>{name}</th><td>{counts.expected:,}</td><td>{counts.ok:,}</td><td>{counts.degraded:,}</td>"
            f"<td>{counts.failed:,}</td></tr>"
            for name, counts in (("pages", self.pages), ("figures", self.figures), ("fields", self.fields))
            if counts.expected or name != "fields"
        )
        stages = ", ".join(f"{name}: {stage.done:,} of {stage.total:,} units" for name, stage in self.stages.items())
        reasons = ", ".join(f"{html.escape(reason)}: {count:,}" for reason, count in self.reasons.items())
        lines = [f"<b>{html.escape(self.url)}</b>", stages, *([f"Not ok: {reasons}"] if reasons else [])]
        lines += [html.escape(str(repair)) for repair in self.repairs]
        return f"<p>{'<br>'.join(lines)}</p><table>{head}{rows}</table>"

    @property
    def tokens_in(self) -> int:
        return sum(stage.tokens_in for stage in self.stages.values())

    @property
    def tokens_out(self) -> int:
        return sum(stage.tokens_out for stage in self.stages.values())

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages.values())

    @property
    def cost(self) -> float | None:
        """Cost of tokens and machines at the prices given to the workers; None if no prices were given."""
        return total_cost(self.workers)

    @property
    def pages_per_second(self) -> float | None:
        """Mean speed of a worker in Extract, without its start-up; None before the first page."""
        readers = [one for one in self.workers if one.stage == EXTRACT and one.items and one.seconds > 0]
        return sum(one.items for one in readers) / sum(one.seconds for one in readers) if readers else None

    @property
    def limit(self) -> Verdict | None:
        """What limited Extract, over all workers; None before it is known."""
        return overall(verdict_from_json(worker.limits) for worker in self.workers if worker.stage == EXTRACT)

    @property
    def hours_cost(self) -> float | None:
        """Part of the cost that is for machines by the hour."""
        return hours_cost(self.workers)

    @property
    def finished(self) -> bool:
        """Whether the stages Extract, Describe, and Assemble are finished."""
        return all(self.stages[name].finished for name in STAGES)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        asked = {"fields": {**asdict(self.fields), "reasons": dict(self.field_reasons)}}
        ledger = None
        if self.ledger.accounted is not None:
            ledger = {
                "ink_accounted": round(self.ledger.accounted, 6),
                "pages": self.ledger.pages,
                "unread_pages": self.ledger.unread_pages,
                "unsupported_pages": self.ledger.unsupported_pages,
                "worst_unread": [asdict(page) for page in self.unread],
                "worst_unsupported": [asdict(page) for page in self.unsupported],
            }
        return {
            "workspace": self.url,
            "model": self.model or None,
            "generations": self.generations,
            "documents": self.documents,
            "pages": asdict(self.pages) | ({"estimated": True} if self.estimated else {}),
            "figures": asdict(self.figures) | ({"undescribed": self.undescribed} if self.undescribed else {}),
            **(asked if FIELDS in self.stages else {}),
            "units": {name: asdict(stage) for name, stage in self.stages.items()},
            "tokens": {"in": self.tokens_in, "out": self.tokens_out},
            "seconds": round(self.seconds, 3),
            "reasons": dict(self.reasons),
            "figure_reasons": dict(self.figure_reasons),
            "examples": [asdict(example) for example in self.examples],
            "skipped": dict(self.skipped),
            "filtered": filtered_to_json(self.filtered, self.filtered_examples),
            "quality": list(self.quality) or None,
            "worst": [asdict(page) for page in self.worst],
            "ledger": ledger,
            "repairs": [repair.to_json() for repair in self.repairs],
            "pages_per_second": None if self.pages_per_second is None else round(self.pages_per_second, 3),
            "limit": None if self.limit is None else self.limit.to_json(),
            "cost": self.cost,
            "workers": [worker.to_json() for worker in self.workers],
        }


@dataclass(slots=True)
class _Superseded:
    """Sum over superseded rows. `kept`: pairs of a unit and a page that it repeated, whose older row stays effective.

    `figures`: number of figures on pages of these rows, by the row's unit and page.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bins: Counter[int] = field(default_factory=Counter)
    ledger: InkTotals = field(default_factory=InkTotals)
    kept: set[tuple[str, str]] = field(default_factory=set)
    figures: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Sum:
    """Sum over the markers of a stage."""

    done: set[str] = field(default_factory=set)
    counts: Counts = field(default_factory=Counts)
    figures: Counts = field(default_factory=Counts)
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    retries: int = 0
    sent: tuple[int, int] | None = None
    estimated: int = 0  # documents that the plan had not counted
    undescribed: int = 0  # figures
    correction: int = 0  # correction of the pages that the plan expected of them
    reasons: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, Example]] = field(default_factory=list)  # each with its unit
    bins: list[int] = field(default_factory=lambda: [0] * BINS)  # pages by score
    weak: list[tuple[str, WeakPage]] = field(default_factory=list)  # the worst pages, each with its unit
    ledger: InkTotals = field(default_factory=InkTotals)
    unbalanced: list[tuple[str, UnbalancedPage]] = field(default_factory=list)  # each with its unit
    superseded: _Superseded = field(default_factory=_Superseded)
    again: dict[int, Again] = field(default_factory=dict)  # by generation, of repairs

    def stage(self, key: str | None, total: int) -> StageStatus:
        done = len(self.done)
        return StageStatus(
            key or "", done, total, self.tokens_in, self.tokens_out, self.seconds, self.retries, self.sent
        )


@dataclass(slots=True)
class Worked:
    """What a command has finished itself: pages by stage, and figures in Describe.

    `shared` is whether other workers may process units of the same stages. `held` is the number of units of its last
    stage that others still held when no other was left.
    """

    counts: dict[str, Counts] = field(default_factory=dict)
    shared: bool = False
    held: int = 0


def known_status(workspace: Workspace, worked: Worked) -> RunStatus | None:
    """Return the state of the workspace; None if one of several workers would have to read too many markers for it.

    Args:
        workspace: the workspace.
        worked: what the worker has finished.

    Raises:
        NotConserved: a finished stage has lost or duplicated a row.
    """
    found = generations(workspace)
    units = totals_of(found).units
    if worked.shared and units > _FEW:
        pages_from, used_key = pages_used(workspace, assembled_key(workspace))
        keys = {stage: newest_key(workspace, stage) for stage in (EXTRACT, DESCRIBE)} | {pages_from: used_key}
        for stage, key in keys.items():
            copied = objects(workspace.store, stage, key).values() if key else [(units, "")]
            if units - sum(count for count, _ in copied) > _FEW:
                return None
    return run_status(workspace)


def run_status(workspace: Workspace, *, describe: str = "", worst: int = WORST) -> RunStatus:
    """Return the state of the workspace.

    Args:
        workspace: the workspace.
        describe: key of Describe for the figures; empty for the newest key.
        worst: upper limit of the worst pages to return.

    Raises:
        NotConserved: a finished stage has lost or duplicated a row.
        UsageError: the key is unknown.
    """
    found = generations(workspace)
    totals = totals_of(found)
    known = {stage: stage_keys(workspace, stage) for stage in STAGES}
    keys = {
        EXTRACT: newest_key(workspace, EXTRACT, known=known),
        DESCRIBE: newest_key(workspace, DESCRIBE, describe, known),
        ASSEMBLE: newest_key(workspace, ASSEMBLE, known=known),
    }
    repairs = {one.number for one in found if one.repair is not None}
    extracted = _sum(workspace, EXTRACT, keys[EXTRACT], worst, repairs=repairs)
    assembled = _current(workspace, ASSEMBLE, keys[ASSEMBLE], found)
    views_key = assembled_key(workspace)
    pages_from, used_key = pages_used(workspace, views_key, known)
    used = extracted if pages_from == EXTRACT else _sum(workspace, pages_from, used_key)
    described_key = keys[DESCRIBE]
    source_key = (
        key_settings(workspace, DESCRIBE, described_key, known).get("extract", keys[EXTRACT])
        if described_key
        else used_key
    )
    pictured = {keys[EXTRACT]: extracted, used_key: used}.get(source_key)
    if pictured is None:  # the key is of a user-defined stage that Assemble did not take
        others = (stage for stage in stages_in(workspace) if stage not in STAGES)
        source = next((stage for stage in others if key_settings(workspace, stage, str(source_key))), "")
        pictured = _sum(workspace, source, str(source_key)) if source else _Sum()
    described = _sum(workspace, DESCRIBE, keys[DESCRIBE], without=pictured.superseded)
    again = extracted.superseded
    superseded: Counter[str] = Counter()  # failed rows that finished retries supersede, by reason
    for unit, reasons in (entry for generation in found for entry in generation.replaced.items()):
        if unit in extracted.done:
            superseded.update({reason: count for reason, count in reasons.items() if reason != LOW_QUALITY})
    pages = Counts(
        totals.expected + extracted.correction,
        extracted.counts.ok - again.statuses["ok"],
        extracted.counts.degraded - again.statuses["degraded"],
        extracted.counts.failed - again.statuses["failed"] - superseded.total(),
    )
    gone = sum(count for counts in pictured.superseded.figures.values() for count in counts.values())
    figures = replace(described.figures, expected=pictured.figures.expected - gone)
    stages = {
        EXTRACT: extracted.stage(keys[EXTRACT], totals.units),
        DESCRIBE: described.stage(keys[DESCRIBE], totals.units),
        ASSEMBLE: StageStatus(keys[ASSEMBLE] or "", len(assembled), totals.items),
    }
    asked = _Sum()
    if (asked_key := newest_key(workspace, FIELDS)) is not None:
        asked = _sum(workspace, FIELDS, asked_key, current=_current(workspace, FIELDS, asked_key, found))
        stages[FIELDS] = asked.stage(asked_key, totals.items)
    failures = used.examples
    weak = [(unit, page) for unit, page in extracted.weak if (unit, page.page_id) not in again.kept]
    unbalanced = [(unit, page) for unit, page in extracted.unbalanced if (unit, page.page_id) not in again.kept]
    named = {entry.page_id for entries in (failures, weak, unbalanced) for _, entry in entries}
    newest = _newest_units(workspace, found, extracted, named)
    unread, unsupported = worst_sides(_effective(unbalanced, newest), worst)
    if found and stages[EXTRACT].finished:
        check_conserved(pages, workspace.url)
        if stages[DESCRIBE].finished:
            check_conserved(figures, workspace.url, "figures")
    if used is not extracted:  # Assemble's own counts: the stage may have changed the status of a row
        rows = _current(workspace, ASSEMBLE, views_key, found)
        counts = (marker.counts for marker in iter_markers(workspace, ASSEMBLE, views_key or "", rows))
        pages = replace(sum(counts, Counts()), expected=pages.expected)
    return RunStatus(
        url=workspace.url,
        generations=totals.generations,
        documents=totals.documents,
        pages=pages,
        figures=figures,
        stages=stages,
        reasons=_sorted(used.reasons - superseded - used.superseded.reasons),
        figure_reasons=_sorted(described.reasons),
        undescribed=described.undescribed,
        examples=varied(_effective(failures, newest)),
        skipped=totals.skipped,
        filtered=counts_of(found),
        filtered_examples=examples_of(found),
        workers=tuple(Records(workspace).read()),
        estimated=totals.estimated > extracted.estimated,
        model=str(key_settings(workspace, EXTRACT, keys[EXTRACT] or "", known).get("reader", {}).get("model") or ""),
        quality=tuple(count - again.bins[place] for place, count in enumerate(extracted.bins) if any(extracted.bins)),
        worst=tuple(sorted(_effective(weak, newest), key=rank)[:worst]),
        ledger=extracted.ledger - again.ledger,
        unread=tuple(unread),
        unsupported=tuple(unsupported),
        fields=replace(asked.counts, expected=totals.documents if asked_key else 0),
        field_reasons=_sorted(asked.reasons),
        repairs=tuple(
            RepairStatus(
                **asdict(extracted.again.get(one.number, Again())),
                generation=one.number,
                repair=one.repair,
                pages=one.expected,
            )
            for one in found
            if one.repair is not None
        ),
    )


def _sum(
    workspace: Workspace,
    stage: str,
    key: str | None,
    worst: int = WORST,
    without: _Superseded | None = None,
    repairs: Container[int] = (),
    current: Container[str] | None = None,
) -> _Sum:
    """Sum the markers of a stage.

    `without` has the figures on superseded rows, which Describe subtracts. `repairs` are generations to sum apart. Of
    units that are not `current`, only the costs are summed.
    """
    total = _Sum()
    most_weak = max(_MOST_CANDIDATES, 2 * worst)  # newer rows may supersede many of them
    old = total.superseded
    for marker in iter_markers(workspace, stage, key) if key else ():
        unit, summary, extra = marker.unit, marker.summary, marker.summary.extra
        total.tokens_in += summary.tokens_in
        total.tokens_out += summary.tokens_out
        total.seconds += summary.seconds
        if current is not None and unit not in current:
            continue
        total.done.add(unit)
        total.counts += summary.counts
        total.figures += summary.figures
        total.retries += extra.retries
        if extra.sent:
            before = total.sent or (0, 0)
            total.sent = before[0] + extra.sent[0], before[1] + extra.sent[1]
        if repairs and (generation := parse_unit_id(unit)[0]) in repairs:
            total.again[generation] = total.again.get(generation, Again()) + read_again(summary)
        total.estimated += extra.estimated
        total.correction += correction(summary)
        total.reasons.update(summary.reasons)
        total.ledger += extra.ledger
        if quality := extra.quality:
            total.bins = [count + more for count, more in zip(total.bins, quality.bins, strict=True)]
            total.weak += [(unit, page) for page in quality.worst]
            if len(total.weak) > 2 * most_weak:
                total.weak = heapq.nsmallest(most_weak, total.weak, key=lambda entry: rank(entry[1]))
        total.unbalanced += [(unit, page) for page in extra.unbalanced]
        if len(total.unbalanced) > 4 * _MOST_CANDIDATES:
            sides = worst_sides([page for _, page in total.unbalanced], _MOST_CANDIDATES)
            kept = {id(page) for side in sides for page in side}
            total.unbalanced = [entry for entry in total.unbalanced if id(entry[1]) in kept]
        if superseded := extra.superseded:
            old.statuses.update(superseded.statuses)
            old.reasons.update(superseded.reasons)
            old.bins.update(superseded.bins)
            old.kept.update((unit, page) for page in superseded.kept)
            old.ledger += superseded.ledger
            for by, page, count in superseded.figures:
                old.figures.setdefault(by, {})[page] = count
        if without is not None:
            replaced = without.figures.get(unit, {})
            gone, reasons = _described(extra, replaced)
            total.figures -= gone
            total.reasons -= reasons
            total.undescribed += sum(count for page, count in extra.undescribed.items() if page not in replaced)
        if len(total.examples) < _MOST_CANDIDATES:
            total.examples += [(unit, example) for example in summary.examples]
    return total


def superseded_figures(workspace: Workspace, stage: str, key: str) -> dict[str, dict[str, int]]:
    """Return the number of figures on superseded rows of pages that were read again, by the row's unit and page.

    Only markers of retries are read. A superseded row never counts again.

    Args:
        workspace: the workspace.
        stage: the stage of the pages.
        key: its key.
    """
    found: dict[str, dict[str, int]] = {}
    retries = (one for one in generations(workspace) if one.kind is Kind.RETRY)
    units = {unit.id for generation in retries for unit in units_of(workspace, generation)}
    for marker in iter_markers(workspace, stage, key, units) if units else ():
        for unit, page, count in marker.summary.extra.superseded.figures if marker.summary.extra.superseded else ():
            found.setdefault(unit, {})[page] = count
    return found


def figures_to_describe(
    workspace: Workspace, stage: str, source: str, key: str, mine: Container[str]
) -> tuple[int, Counts]:
    """Return the number of figures of a worker's share, and the counts of those that are described.

    Figures of rows that a repair has superseded are in neither.

    Args:
        workspace: the workspace.
        stage: the stage whose pages have the figures.
        source: the key of that stage.
        key: the key of Describe.
        mine: the ids of the units of the share.
    """
    pictured = _sum(workspace, stage, source, current=mine)
    superseded = superseded_figures(workspace, stage, source)  # also by units of other workers
    described = _sum(workspace, DESCRIBE, key, without=_Superseded(figures=superseded), current=mine)
    gone = sum(sum(superseded[unit].values()) for unit in superseded.keys() & pictured.done)
    return pictured.figures.expected - gone, described.figures


def _described(extra: Extra, pages: Mapping[str, int]) -> tuple[Counts, Counter[str]]:
    """Return the status counts of the figures of these pages, from a marker of Describe, and reasons of those not ok.

    `pages` has the number of figures on each page.
    """
    statuses: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for page, status, reason, count in extra.not_ok if pages else ():
        if page in pages:
            statuses[status] += count
            reasons.update({reason: count} if reason else {})
    found, degraded, failed = sum(pages.values()), statuses[Status.DEGRADED], statuses[Status.FAILED]
    return Counts(found, found - degraded - failed, degraded, failed), reasons


def _newest_units(
    workspace: Workspace, found: Iterable[Generation], extracted: _Sum, pages: Collection[str]
) -> dict[str, str]:
    """Return the newest finished retry that supersedes each of these pages; pages without a retry are missing.

    Entries for these pages in older markers are outdated.
    """
    newest: dict[str, str] = {}
    retries = (generation for generation in found if pages and generation.kind is Kind.RETRY)
    for unit in (unit for generation in retries for unit in units_of(workspace, generation)):
        if unit.id not in extracted.done:
            continue
        # Ids of documents too: pages supersede the row of a document that could not be opened.
        repeated = (page_id(part.document_id, number) for part in unit.parts for number in (None, *part.pages))
        kept = extracted.superseded.kept
        effective = (page for page in repeated if page in pages and (unit.id, page) not in kept)
        newest.update(dict.fromkeys(effective, unit.id))
    return newest


def pages_used(workspace: Workspace, key: str | None, known: KnownKeys = NO_KEYS) -> tuple[str, str | None]:
    """Return the stage and the key of the pages that Assemble took under its key; of Extract if it has not begun.

    `known` keys are not read again.
    """
    made = key_settings(workspace, ASSEMBLE, key, known) if key else {}
    if "pages_from" not in made:
        return EXTRACT, newest_key(workspace, EXTRACT, known=known)
    return str(made["pages_from"]), str(made["extract"])


def _current(workspace: Workspace, stage: str, key: str | None, found: Sequence[Generation]) -> set[str]:
    """Return the names of the items whose newest generation the stage, Assemble or Fields, has published."""
    if key is None:
        return set()
    newest: dict[str, tuple[int, str]] = {}
    for name in done_units(workspace, stage, key):
        item, generation = parse_item_name(name)
        newest[item] = max((generation, name), newest.get(item, (0, "")))
    needed = {item: generation.number for generation in found for item in generation.touched}
    return {name for item, (generation, name) in newest.items() if generation >= needed.get(item, 0)}


def _effective(entries: Iterable[tuple[str, NamedT]], newest: Mapping[str, str]) -> list[NamedT]:
    """Return the entry of each page from its newest unit, in the order of the plan."""
    by_page = {entry.page_id: (unit, entry) for unit, entry in sorted(entries, key=lambda pair: pair[0])}
    return [entry for page, (unit, entry) in by_page.items() if unit >= newest.get(page, "")]


def _sorted(reasons: Counter[str]) -> dict[str, int]:
    return dict(sorted(reasons.items(), key=lambda reason: (-reason[1], reason[0])))
