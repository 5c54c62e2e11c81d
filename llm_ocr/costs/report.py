"""Costs of a run, computed from its own records."""

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llm_ocr.costs.comparison import (
    DOLLARS,
    PROJECTED,
    Row,
    WhatIf,
    html_table,
    markdown_table,
    money_text,
    other_machines,
    share_text,
    text_table,
)
from llm_ocr.errors import ObjectNotFound, WorkspaceError
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.metrics import Series, hours_cost
from llm_ocr.workspace.status import RunStatus
from llm_ocr.workspace.stored import LAUNCHES

# Costs of jobs on platforms so far, from the records of ended submissions in the workspace:
# launches/<id>/<stage>-<n>.end.json


_END = ".end.json"


@dataclass(frozen=True, slots=True)
class Spent:
    """Ended submission of a stage. None means unknown.

    `seconds` are the billed ones, summed over its machines. `price_per_hour` applies to one machine. Times are in
    seconds since 1970.
    """

    launch: str
    submission: str  # "extract-1"
    stage: str
    platform: str
    hardware: str
    machines: int | None = None
    seconds: float | None = None
    price_per_hour: float | None = None
    currency: str = DOLLARS
    cost: float | None = None
    started: float | None = None
    ended: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values for the status."""
        return asdict(self)


def spent(workspace: Workspace) -> list[Spent]:
    """Return every ended submission, in the order of launches, stages, and numbers. Damaged files are skipped.

    Raises:
        StorageError: The store cannot be read.
    """
    return sorted(_found(workspace), key=_order)


def totals(found: Sequence[Spent]) -> Mapping[str, float]:
    """Return the sum of the known costs by currency."""
    sums: Counter[str] = Counter()
    for one in found:
        if one.cost is not None:
            sums[one.currency] += one.cost  # type: ignore[assignment]  # a Counter adds floats as well
    return {currency: round(float(value), 6) for currency, value in sums.items()}


def unknown(found: Sequence[Spent]) -> int:
    """Return the number of submissions of unknown cost."""
    return sum(one.cost is None for one in found)


def spent_to_json(found: Sequence[Spent]) -> dict[str, Any]:
    """Return JSON values of the sums and of each submission, for the status."""
    return {"total": dict(totals(found)), "unknown": unknown(found), "jobs": [one.to_json() for one in found]}


def spent_text(found: Sequence[Spent]) -> str:
    """Return `$4.12 for jobs (extract $3.90 on hf-jobs:a100-large, describe $0.22 on …)`, and unknown costs."""
    parts = []
    if sums := totals(found):
        money = " and ".join(money_text(value, currency) for currency, value in sums.items())
        parts.append(f"{money} for jobs ({', '.join(_stages(found))})")
    if missing := unknown(found):
        parts.append(f"{missing} {'submission' if missing == 1 else 'submissions'} with unknown cost")
    return "; ".join(parts)


def _stages(found: Sequence[Spent]) -> Iterator[str]:
    sums: dict[tuple[str, str, str, str], float] = {}
    for one in found:
        if one.cost is not None:
            key = one.stage, one.platform, one.hardware, one.currency
            sums[key] = sums.get(key, 0.0) + one.cost
    for (stage, platform, hardware, currency), value in sums.items():
        yield f"{stage} {money_text(value, currency)} on {platform}:{hardware}"


def _found(workspace: Workspace) -> Iterator[Spent]:
    for info in workspace.store.list(f"{LAUNCHES}/"):
        if not info.key.endswith(_END):
            continue
        try:
            value = workspace.get_json(info.key)
        except (WorkspaceError, ObjectNotFound):
            continue  # these numbers are secondary: damage must not prevent the status
        launch, _, name = info.key.removeprefix(f"{LAUNCHES}/").partition("/")
        yield _spent(launch, name.removesuffix(_END), value)


def _spent(launch: str, submission: str, value: Mapping[str, Any]) -> Spent:
    machines = _number(value.get("machines"))
    return Spent(
        launch,
        submission,
        stage=str(value.get("stage") or submission.rpartition("-")[0]),
        platform=str(value.get("platform") or "unknown"),
        hardware=str(value.get("hardware") or "unknown"),
        machines=None if machines is None else int(machines),
        seconds=_number(value.get("seconds")),
        price_per_hour=_number(value.get("price_per_hour")),
        currency=str(value.get("currency") or DOLLARS),
        cost=_number(value.get("cost")),
        started=_number(value.get("started")),
        ended=_number(value.get("ended")),
    )


def _order(one: Spent) -> tuple[str, float, int, str]:
    stages = ("pipeline", "extract", "describe", "assemble")
    rank = stages.index(one.stage) if one.stage in stages else len(stages)
    return one.launch, one.started or 0.0, rank, one.submission


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# Costs of a run from its own record: throughput, money per 1,000 pages, start-up, and other hardware.


#: Maximum number of cheaper machines shown.
_MOST = 10
_STAGES = ("extract", "describe", "assemble")
_HEAD = ("stage", "hardware", "submissions", "machine hours", "pages/min", "start-up", "cost", "reading 1,000 pages")
_PROJECTED = ("pages", "machine hours", "cost without start-up", "start-up of the jobs")
_WHAT_IF = ("hardware", "pages/min", "machine hours", "cost", *(f"{pages:,} pages" for pages in PROJECTED), "from")
#: Pages below which the measured rate says little: a GPU reads hundreds of pages at the same time.
_FEW = 500


@dataclass(frozen=True, slots=True)
class StageCost:
    """One stage on one kind of hardware. None means not recorded.

    `billed` are the seconds that the platform bills, summed over machines; `working` are the seconds in which its
    workers had a server that was ready. `pages` are the finished pages of the stage; `cost` is in `currency`.
    """

    stage: str
    pages: int
    hardware: str = ""  # "hf-jobs:a100-large"; "" without a job
    submissions: int = 0
    billed: float | None = None
    working: float | None = None
    cost: float | None = None
    currency: str = "USD"

    @property
    def pages_per_minute(self) -> float | None:
        """Return the pages per minute of one working machine; start-up is included if only that time is known."""
        seconds = self.working or self.billed
        return 60 * self.pages / seconds if seconds and self.pages else None

    @property
    def startup_share(self) -> float | None:
        """Return the share of the billed time without work, 0..1; None if either time is unknown."""
        if not self.billed or self.working is None:
            return None
        return max(0.0, 1 - self.working / self.billed)

    @property
    def per_thousand(self) -> float | None:
        """Return the money for 1,000 pages without start-up; None if the cost or the start-up is unknown."""
        if self.cost is None or self.startup_share is None or not self.pages:
            return None
        return 1000 * self.cost * (1 - self.startup_share) / self.pages

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "stage": self.stage,
            "hardware": self.hardware or None,
            "submissions": self.submissions,
            "pages": self.pages,
            "billed_seconds": self.billed,
            "working_seconds": self.working,
            "pages_per_minute": _rounded(self.pages_per_minute),
            "startup_share": _rounded(self.startup_share),
            "cost": self.cost,
            "currency": self.currency,
            "per_1000_pages": _rounded(self.per_thousand),
        }


@dataclass(frozen=True, slots=True)
class Projection:
    """Cost of a number of pages at the rates of a run. None without known costs.

    `cost` and `hours`, of machines, are without start-up. `startup` is the money for the start of this run's jobs.
    """

    pages: int
    hours: float
    cost: float | None
    startup: float | None

    def row(self) -> Row:
        """Return the row for a table."""
        money = ("not known" if one is None else money_text(one) for one in (self.cost, self.startup))
        return (f"{self.pages:,}", f"{self.hours:.3g}", *money)


@dataclass(frozen=True, slots=True)
class CostReport:
    """Costs of a run, as far as known; `notes` state the gaps.

    `jobs` is money by currency that platforms bill, `tokens` the costs at providers, and `hours` dollars for machines
    with a price that workers received (None: no prices).
    """

    workspace: str
    pages: int  # finished pages
    stages: tuple[StageCost, ...]
    jobs: Mapping[str, float]
    tokens: float | None
    what_if: tuple[WhatIf, ...]
    notes: tuple[str, ...]
    hours: float | None = None

    @property
    def per_thousand(self) -> float | None:
        """Return dollars for 1,000 pages without start-up: jobs, hours, and tokens; None without known costs."""
        return self.projected[0].cost if self.pages else None

    @property
    def projected(self) -> tuple[Projection, ...]:
        """Return the cost of 1,000, 10,000, and 100,000 pages without start-up; nothing before the first page."""
        if not self.pages:
            return ()
        # A stage of unknown start-up, such as a job of Assemble, would count its start-up for each page.
        counted = [one for one in self.stages if one.startup_share is not None] or self.stages
        paid = [one for one in counted if one.cost is not None and one.currency == DOLLARS]
        startup = sum((one.cost or 0.0) * (one.startup_share or 0.0) for one in paid)
        # A stage on several kinds of hardware has no pages of its own.
        page = sum((one.cost or 0.0) * (1 - (one.startup_share or 0.0)) / (one.pages or self.pages) for one in paid)
        page += (self.tokens or 0.0) / self.pages
        seconds = sum((one.working or one.billed or 0.0) / (one.pages or self.pages) for one in counted)
        known, timed = bool(paid) or self.tokens is not None, any(one.startup_share is not None for one in paid)
        return tuple(
            Projection(pages, pages * seconds / 3600, pages * page if known else None, startup if timed else None)
            for pages in PROJECTED
        )

    @property
    def rate_text(self) -> str:
        """Return `$0.40 per 1,000 pages without start-up`; "" without known costs."""
        if self.per_thousand is None:
            return ""
        known = self.projected[0].startup is not None
        return f"{money_text(self.per_thousand)} per 1,000 pages{' without start-up' if known else ''}"

    @property
    def title(self) -> str:
        """Return `1,024 pages; $0.61 for jobs; $0.40 per 1,000 pages without start-up`."""
        parts = [plural(self.pages, "page")]
        parts += [f"{money_text(value, currency)} for jobs" for currency, value in self.jobs.items()]
        parts += [f"{money_text(self.tokens)} for tokens"] if self.tokens is not None else []
        parts += [f"{money_text(self.hours)} for machine hours"] if self.hours is not None else []
        return "; ".join([*parts, *filter(None, [self.rate_text])])

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "workspace": self.workspace,
            "pages": self.pages,
            "cost": {"jobs": dict(self.jobs), "tokens": self.tokens, "hours": self.hours},
            "per_1000_pages": _rounded(self.per_thousand),
            "stages": [one.to_json() for one in self.stages],
            "projected": [asdict(one) for one in self.projected],
            "what_if": [one.to_json() for one in self.what_if],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        tables = [text_table(head, rows) for head, rows in self._tables()]
        return "\n\n".join([self.title, *tables, "\n".join(self.notes)]).rstrip()

    def _repr_markdown_(self) -> str:
        tables = [markdown_table(head, rows) for head, rows in self._tables()]
        return "\n\n".join([f"**{self.title}**", *tables, "\n".join(f"- {line}" for line in self.notes)]).rstrip()

    def _repr_html_(self) -> str:
        tables = "".join(html_table(head, rows) for head, rows in self._tables())
        notes = "".join(f"<li>{html.escape(line)}</li>" for line in self.notes)
        return f"<p><b>{html.escape(self.title)}</b></p>{tables}<ul>{notes}</ul>"

    def _tables(self) -> Iterator[tuple[Row, list[Row]]]:
        yield _HEAD, [_stage_row(one) for one in self.stages]
        if any(one.hours or one.cost for one in self.projected):
            yield _PROJECTED, [one.row() for one in self.projected]
        if self.what_if:
            yield _WHAT_IF, [one.row() for one in self.what_if]


def cost_report(status: RunStatus, found: Sequence[Spent], series: Sequence[Series] = ()) -> CostReport:
    """Return the report for a workspace's status, the costs of its jobs (`spent`), and the series of its workers."""
    pages = status.pages.ok + status.pages.degraded + status.pages.failed
    serving = {(one.worker, one.stage): one.serving for one in series}
    stages = tuple(one for name in _STAGES for one in _stage_costs(name, pages, status, found, serving))
    read = next((one for one in stages if one.stage == "extract" and one.pages), None)
    others = other_machines(read.hardware, status.model, read.pages, read.working, read.billed) if read else ()
    what_if = others[:_MOST]
    tokens = [cost for one in status.workers if (cost := one.token_cost) is not None]
    return CostReport(
        status.url,
        pages,
        stages,
        totals(found),
        sum(tokens) if tokens else None,
        what_if,
        tuple(_notes(pages, stages, found, what_if)),
        status.hours_cost,
    )


def _stage_costs(
    name: str, pages: int, status: RunStatus, found: Sequence[Spent], serving: Mapping[tuple[str, str], float]
) -> Iterator[StageCost]:
    """Yield the costs per kind of hardware.

    The pages of each kind are unknown, so that only a stage on a single kind has a rate.
    """
    stage = status.stages[name]
    pages = pages if name == "extract" else round(pages * stage.done / stage.total) if stage.total else 0
    mine = [one for one in found if one.stage == name]
    workers = [one for one in status.workers if one.stage == name]
    working = sum(serving.get((one.worker, name), one.seconds) for one in workers) or None
    kinds = list(dict.fromkeys(f"{one.platform}:{one.hardware}" for one in mine))
    if not kinds and (working or stage.done):
        cost = hours_cost(workers)
        paid = None if cost is None else sum(one.paid for one in workers)
        yield StageCost(name, pages, billed=paid, working=working, cost=cost)
    for kind in kinds:
        jobs = [one for one in mine if f"{one.platform}:{one.hardware}" == kind]
        alone = len(kinds) == 1
        yield StageCost(
            name,
            pages if alone else 0,
            kind,
            len(jobs),
            _sum([one.seconds for one in jobs]),
            working if alone else None,
            _sum([one.cost for one in jobs]),
            jobs[0].currency,
        )


def _notes(pages: int, stages: Sequence[StageCost], found: Sequence[Spent], what_if: Sequence[WhatIf]) -> Iterator[str]:
    if 0 < pages < _FEW:
        yield f"rates of {plural(pages, 'page')}: a GPU works at its full rate only in a run of {_FEW:,} pages or more"
    if missing := unknown(found):
        yield f"{missing} of {len(found)} submissions have an unknown cost"
    if not found:
        yield "this workspace has no jobs of a platform"
    unmeasured = [one.stage for one in stages if one.startup_share is None and one.billed and one.pages]
    if unmeasured:
        yield (
            f"{' and '.join(unmeasured)}: the working time is not recorded; pages/min is for the billed time, and the "
            "start-up is unknown"
        )
    if unmeasured and any(one.startup_share is not None for one in stages):
        yield f"costs of 1,000 pages and more are without {' and '.join(unmeasured)}"
    if any(one.hardware and not one.pages for one in stages):
        yield "a stage on several kinds of hardware has no pages/min: the hardware of each page is unknown"
    yield from dict.fromkeys(one.words for one in what_if)


def _stage_row(one: StageCost) -> Row:
    return (
        one.stage,
        one.hardware or "-",
        str(one.submissions) if one.submissions else "-",
        "-" if (one.billed or one.working) is None else f"{(one.billed or one.working or 0.0) / 3600:.3g}",
        "-" if one.pages_per_minute is None else f"{one.pages_per_minute:,.1f}",
        share_text(one.startup_share),
        "not known" if one.cost is None else money_text(one.cost, one.currency),
        "-" if one.per_thousand is None else money_text(one.per_thousand, one.currency),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum, or None if a value is unknown: a partial sum would mislead."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
