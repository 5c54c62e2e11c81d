"""Costs of a run, computed from its own records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llm_ocr.costs.comparison import DOLLARS, Row, Table, Tables, money_span, money_text, share_text
from llm_ocr.costs.estimates import Span, estimate, machine_named, startup_of
from llm_ocr.costs.prices import machines
from llm_ocr.errors import ObjectNotFound, WorkspaceError
from llm_ocr.models.registry import DEFAULT
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.metrics import Series, hours_cost
from llm_ocr.workspace.status import RunStatus
from llm_ocr.workspace.stored import LAUNCHES

# Costs of jobs on platforms so far, from the records of ended submissions in the workspace:
# launches/<id>/<stage>-<n>.end.json


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


def spent(workspace: Workspace) -> list[Spent]:
    """Return every ended submission, in the order of launches, stages, and numbers. Damaged files are skipped.

    Raises:
        StorageError: The store cannot be read.
    """

    def number(value: object) -> float | None:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    submissions = []
    for info in workspace.store.list(f"{LAUNCHES}/"):
        if not info.key.endswith(".end.json"):
            continue
        try:
            value = workspace.get_json(info.key)
        except (WorkspaceError, ObjectNotFound):
            continue  # these numbers are secondary: damage must not prevent the status
        launch, _, name = info.key.removeprefix(f"{LAUNCHES}/").partition("/")
        submission = name.removesuffix(".end.json")
        count = number(value.get("machines"))
        found = Spent(
            launch,
            submission,
            stage=str(value.get("stage") or submission.rpartition("-")[0]),
            platform=str(value.get("platform") or "unknown"),
            hardware=str(value.get("hardware") or "unknown"),
            machines=None if count is None else int(count),
            seconds=number(value.get("seconds")),
            price_per_hour=number(value.get("price_per_hour")),
            currency=str(value.get("currency") or DOLLARS),
            cost=number(value.get("cost")),
            started=number(value.get("started")),
            ended=number(value.get("ended")),
        )
        submissions.append(found)

    def order(found: Spent) -> tuple[str, float, int, str]:
        stages = ("pipeline", *_STAGES)
        rank = stages.index(found.stage) if found.stage in stages else len(stages)
        return found.launch, found.started or 0.0, rank, found.submission

    return sorted(submissions, key=order)


def totals(found: Sequence[Spent]) -> Mapping[str, float]:
    """Return the sum of the known costs by currency."""
    sums: dict[str, float] = {}
    for job in found:
        if job.cost is not None:
            sums[job.currency] = sums.get(job.currency, 0.0) + job.cost
    return {currency: round(value, 6) for currency, value in sums.items()}


def unknown(found: Sequence[Spent]) -> int:
    """Return the number of submissions of unknown cost."""
    return sum(job.cost is None for job in found)


def spent_to_json(found: Sequence[Spent]) -> dict[str, Any]:
    """Return JSON values of the sums and of each submission, for the status."""
    return {"total": dict(totals(found)), "unknown": unknown(found), "jobs": [asdict(job) for job in found]}


def spent_text(found: Sequence[Spent]) -> str:
    """Return `$4.12 for jobs (extract $3.90 on hf-jobs:a100-large, describe $0.22 on …)`, and unknown costs."""
    sums: dict[tuple[str, str, str, str], float] = {}
    for job in found:
        if job.cost is not None:
            key = job.stage, job.platform, job.hardware, job.currency
            sums[key] = sums.get(key, 0.0) + job.cost
    parts = []
    if sums:
        money = " and ".join(money_text(value, currency) for currency, value in totals(found).items())
        jobs = (
            f"{stage} {money_text(value, currency)} on {platform}:{hardware}"
            for (stage, platform, hardware, currency), value in sums.items()
        )
        parts.append(f"{money} for jobs ({', '.join(jobs)})")
    if missing := unknown(found):
        parts.append(f"{missing} {'submission' if missing == 1 else 'submissions'} with unknown cost")
    return "; ".join(parts)


#: Pages for which the cost without start-up is shown.
_PROJECTED = (1_000, 10_000, 100_000)
_STAGES = ("extract", "describe", "assemble", "fields")


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One machine that reads the pages. `scaled`: from this run's own rate on the same GPU, otherwise a published rate.

    `hours` are billed ones, and `cost` is of this run's pages, both with start-up. `per_thousand` is the cost of 1,000
    pages without start-up.
    """

    hardware: str
    pages_per_minute: float
    hours: float
    cost: Span
    per_thousand: Span
    scaled: bool
    words: str

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "hardware": self.hardware,
            "pages_per_minute": round(self.pages_per_minute, 2),
            "hours": round(self.hours, 4),
            "cost": self.cost.to_json(),
            "per_1000_pages": self.per_thousand.to_json(),
            "scaled": self.scaled,
        }


def other_machines(
    hardware: str, model: str, pages: int, working: float | None, billed: float | None
) -> tuple[WhatIf, ...]:
    """Return every machine with a price and a GPU that was measured, by this run or by others, the cheapest first.

    Args:
        hardware: Hardware of Extract ("hf-jobs:a100-large", "" without a job).
        model: Model of the run.
        pages: Pages of the run.
        working: Working seconds of Extract. Machines with the same GPU have this rate times their number of GPUs; the
            others have published rates.
        billed: Billed seconds of Extract.
    """
    platform, _, name = hardware.partition(":")
    here = machine_named(platform, name) if name else None
    seconds = working or billed
    model = model or DEFAULT
    found = []
    for machine in machines():
        if not machine.gpus or machine.label == hardware or machine.price is None:
            continue
        price = machine.price.per_hour / 3600
        if here is not None and seconds and here.gpu == machine.gpu:
            likely = seconds * here.gpus / machine.gpus
            startup = max(0.0, billed - working) if billed and working else startup_of(machine)[0].likely
            work, billing = Span(likely / 2, likely, likely * 2), startup + likely
            cost, rate = (Span.of(startup) + work) * price, 60 * pages / likely
            words = (
                f"this run's rate on {here.label}, proportional to the number of GPUs, with the same start-up; the "
                "range is half to twice"
            )
            scaled = True
        else:
            expected = estimate("extract", model, machine, pages)
            if expected is None:
                continue
            work, billing = expected.work, expected.billed.likely
            cost, rate = expected.cost(machine.price), expected.rate.likely
            words, scaled = f"other GPUs: published rates of {model}", False
        per_thousand = work * (price * 1000 / pages)
        found.append(WhatIf(machine.label, rate, billing / 3600, cost, per_thousand, scaled, words))
    return tuple(sorted(found, key=lambda option: option.cost.likely))


#: Maximum number of cheaper machines shown.
_MOST = 10
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


@dataclass(frozen=True, slots=True)
class CostReport(Tables):
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
        counted = [stage for stage in self.stages if stage.startup_share is not None] or self.stages
        paid = [stage for stage in counted if stage.cost is not None and stage.currency == DOLLARS]
        startup = page = 0.0
        for stage in paid:
            startup += (stage.cost or 0.0) * (stage.startup_share or 0.0)
            # A stage on several kinds of hardware has no pages of its own.
            page += (stage.cost or 0.0) * (1 - (stage.startup_share or 0.0)) / (stage.pages or self.pages)
        page += (self.tokens or 0.0) / self.pages
        seconds = sum((stage.working or stage.billed or 0.0) / (stage.pages or self.pages) for stage in counted)
        known, timed = bool(paid) or self.tokens is not None, any(stage.startup_share is not None for stage in paid)
        return tuple(
            Projection(pages, pages * seconds / 3600, pages * page if known else None, startup if timed else None)
            for pages in _PROJECTED
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
            "stages": [stage.to_json() for stage in self.stages],
            "projected": [asdict(projection) for projection in self.projected],
            "what_if": [machine.to_json() for machine in self.what_if],
            "notes": list(self.notes),
        }

    def content(self) -> tuple[Sequence[Table], Sequence[str]]:
        """Return the tables of stages, of more pages, and of other machines, and the notes."""

        def money(value: float | None, missing: str, currency: str = DOLLARS) -> str:
            return missing if value is None else money_text(value, currency)

        rows: list[Row] = []
        for stage in self.stages:
            seconds = stage.billed or stage.working
            row = (
                stage.stage,
                stage.hardware or "-",
                str(stage.submissions) if stage.submissions else "-",
                "-" if seconds is None else f"{seconds / 3600:.3g}",
                "-" if stage.pages_per_minute is None else f"{stage.pages_per_minute:,.1f}",
                share_text(stage.startup_share),
                money(stage.cost, "not known", stage.currency),
                money(stage.per_thousand, "-", stage.currency),
            )
            rows.append(row)
        head: Row = (
            *("stage", "hardware", "submissions", "machine hours", "pages/min", "start-up", "cost"),
            "reading 1,000 pages",
        )
        tables: list[Table] = [(head, rows)]
        if any(projection.hours or projection.cost for projection in self.projected):
            head = ("pages", "machine hours", "cost without start-up", "start-up of the jobs")
            rows = [
                (
                    f"{more.pages:,}",
                    f"{more.hours:.3g}",
                    money(more.cost, "not known"),
                    money(more.startup, "not known"),
                )
                for more in self.projected
            ]
            tables.append((head, rows))
        if self.what_if:
            counts = (f"{pages:,} pages" for pages in _PROJECTED)
            head = ("hardware", "pages/min", "machine hours", "cost", *counts, "from")
            rows = [
                (
                    machine.hardware,
                    f"{machine.pages_per_minute:,.1f}",
                    f"{machine.hours:.3g}",
                    money_span(machine.cost),
                    *(money_text(machine.per_thousand.likely * pages / 1000) for pages in _PROJECTED),
                    "this run, scaled" if machine.scaled else "others' runs",
                )
                for machine in self.what_if
            ]
            tables.append((head, rows))
        return tables, self.notes


def cost_report(status: RunStatus, found: Sequence[Spent], series: Sequence[Series] = ()) -> CostReport:
    """Return the report for a workspace's status, the costs of its jobs (`spent`), and the series of its workers."""
    pages = status.pages.ended
    serving = {(worker.worker, worker.stage): worker.serving for worker in series}
    begun = [name for name in _STAGES if name in status.stages]
    stages = tuple(cost for name in begun for cost in _stage_costs(name, pages, status, found, serving))
    read = next((cost for cost in stages if cost.stage == "extract" and cost.pages), None)
    what_if: tuple[WhatIf, ...] = ()
    if read:
        what_if = other_machines(read.hardware, status.model, read.pages, read.working, read.billed)[:_MOST]
    notes = []
    if 0 < pages < _FEW:
        few = f"rates of {plural(pages, 'page')}"
        notes.append(f"{few}: a GPU works at its full rate only in a run of {_FEW:,} pages or more")
    if missing := unknown(found):
        notes.append(f"{missing} of {len(found)} submissions have an unknown cost")
    if not found:
        notes.append("this workspace has no jobs of a platform")
    unmeasured = " and ".join(
        cost.stage for cost in stages if cost.startup_share is None and cost.billed and cost.pages
    )
    if unmeasured:
        gap = "the working time is not recorded; pages/min is for the billed time, and the start-up is unknown"
        notes.append(f"{unmeasured}: {gap}")
    if unmeasured and any(cost.startup_share is not None for cost in stages):
        notes.append(f"costs of 1,000 pages and more are without {unmeasured}")
    if any(cost.hardware and not cost.pages for cost in stages):
        notes.append("a stage on several kinds of hardware has no pages/min: the hardware of each page is unknown")
    notes += dict.fromkeys(machine.words for machine in what_if)
    tokens = [cost for worker in status.workers if (cost := worker.token_cost) is not None]
    paid = sum(tokens) if tokens else None
    return CostReport(status.url, pages, stages, totals(found), paid, what_if, tuple(notes), status.hours_cost)


def _stage_costs(
    name: str, pages: int, status: RunStatus, found: Sequence[Spent], serving: Mapping[tuple[str, str], float]
) -> Iterator[StageCost]:
    """Yield the costs per kind of hardware.

    The pages of each kind are unknown, so that only a stage on a single kind has a rate.
    """
    stage = status.stages[name]
    pages = pages if name == "extract" else round(pages * stage.done / stage.total) if stage.total else 0
    workers = [worker for worker in status.workers if worker.stage == name]
    working = sum(serving.get((worker.worker, name), worker.seconds) for worker in workers) or None
    by_kind: dict[str, list[Spent]] = {}
    for job in found:
        if job.stage == name:
            by_kind.setdefault(f"{job.platform}:{job.hardware}", []).append(job)
    if not by_kind and (working or stage.done):
        cost = hours_cost(workers)
        paid = None if cost is None else sum(worker.paid for worker in workers)
        yield StageCost(name, pages, billed=paid, working=working, cost=cost)
    alone = len(by_kind) == 1
    for kind, jobs in by_kind.items():
        yield StageCost(
            name,
            pages if alone else 0,
            kind,
            len(jobs),
            _sum([job.seconds for job in jobs]),
            working if alone else None,
            _sum([job.cost for job in jobs]),
            jobs[0].currency,
        )


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum, or None if a value is unknown: a partial sum would mislead."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
