"""What a run has cost, for its report."""

from collections.abc import Iterator, Sequence

from llm_ocr.costs.report import CostReport
from llm_ocr.costs.spent import Spent, unknown
from llm_ocr.costs.tables import DOLLARS, money_text
from llm_ocr.results.report.charts import Bar, BarChart, Section, Tile
from llm_ocr.results.report.texts import plural, share, span
from llm_ocr.work.series import Series

#: Jobs that are drawn; the others become one bar.
_MOST_JOBS = 20


def money_tile(costs: CostReport) -> Iterator[Tile]:
    """Dollars for all; nothing where no price is known."""
    known = [one for one in (costs.jobs.get(DOLLARS), costs.hours, costs.tokens) if one is not None]
    if known:
        rate = costs.per_thousand
        label = "spent" if rate is None else f"spent, {money_text(rate)} per 1,000 pages"
        yield Tile(money_text(sum(known)), label)


def cost_section(costs: CostReport, jobs: Sequence[Spent], found: Sequence[Series]) -> Section:
    """Money by job and stage, and what starting took of the time that was paid."""
    charts = [chart for chart in (*_by_kind(costs), _by_job(jobs), _starting(costs, found)) if chart.bars]
    sentences = list(_sentences(costs, jobs))
    return Section("Cost", sentences, charts)


def _sentences(costs: CostReport, jobs: Sequence[Spent]) -> Iterator[str]:
    if costs.tokens is None and costs.hours is None and not costs.jobs:
        yield (
            "No price is on record: neither of tokens (--price-in, --price-out), nor of machines (--price-per-hour), "
            "nor of jobs of a platform."
        )
    if missing := unknown(jobs):
        yield f"Of {missing} of {plural(len(jobs), 'submission')} the cost is not known; the sums are without them."


def _by_kind(costs: CostReport) -> Iterator[BarChart]:
    sums = {"tokens": costs.tokens, "machine hours": costs.hours, "jobs": costs.jobs.get(DOLLARS)}
    bars = [Bar(name, [value], money_text(value)) for name, value in sums.items() if value is not None]
    words = "; ".join(f"{bar.label} {bar.text}" for bar in bars)
    yield BarChart("What the money was for", f"{words}.", "US dollars", bars)


def _by_job(jobs: Sequence[Spent]) -> BarChart:
    priced = sorted((one for one in jobs if one.cost and one.currency == DOLLARS), key=lambda one: -(one.cost or 0.0))
    bars = [
        Bar(f"{one.submission} on {one.hardware}", [one.cost or 0.0], money_text(one.cost or 0.0), _about(one))
        for one in priced[:_MOST_JOBS]
    ]
    if rest := sum(one.cost or 0.0 for one in priced[_MOST_JOBS:]):
        bars.append(Bar(f"{len(priced) - _MOST_JOBS:,} others", [rest], money_text(rest)))
    words = f"{plural(len(priced), 'job')} with a known cost; the dearest first."
    return BarChart("Cost by job", words, "US dollars", bars)


def _about(one: Spent) -> str:
    machines = "" if one.machines is None else f", {plural(one.machines, 'machine')}"
    billed = "" if one.seconds is None else f", {span(one.seconds)} billed"
    return f"{one.launch} {one.submission} on {one.platform}:{one.hardware}{machines}{billed}"


def _starting(costs: CostReport, found: Sequence[Series]) -> BarChart:
    """By what platforms billed where that is known, else from each worker's start to its first page."""
    billed = {one.stage: one.startup_share for one in costs.stages if one.startup_share is not None and one.hardware}
    bars = [
        Bar(stage, [part, 1 - part], "", f"{stage}: {share(part, 1)} of the billed time")
        for stage, part in billed.items()
    ]
    if not bars:
        bars = list(_to_first_page(found))
    words = "; ".join(bar.about for bar in bars)
    title = "What starting took of the time"
    return BarChart(title, f"{words}.", "share", bars, ("starting", "working"), ("c1", "c0"), whole=True)


def _to_first_page(found: Sequence[Series]) -> Iterator[Bar]:
    for stage in ("extract", "describe"):
        series = [one for one in found if one.stage == stage and one.seconds > 0]
        whole = sum(one.seconds for one in series)
        waited = sum(min(one.seconds if one.first is None else one.first, one.seconds) for one in series)
        if whole:
            words = f"{stage}: {span(waited)} of {span(whole)} until the first {_NOUNS[stage]}"
            yield Bar(stage, [waited / whole, 1 - waited / whole], "", f"{words} ({share(waited, whole)})")


_NOUNS = {"extract": "page", "describe": "figure"}
