"""Sections of a report: outcome, failures, quality, time, and costs."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from llm_ocr.costs.comparison import DOLLARS, money_text
from llm_ocr.costs.report import CostReport, Spent, spent_text
from llm_ocr.results.quality import shown_score
from llm_ocr.types import Counts, Reason, plural
from llm_ocr.workspace.metrics import Sample, Series
from llm_ocr.workspace.status import RunStatus
from llm_ocr.workspace.verdict import Cause, judge, overall
from llm_ocr_outputs.report.charts import (
    Bar,
    BarChart,
    Histogram,
    Layer,
    Section,
    Tile,
    TimeChart,
    colour,
    plain,
    share,
    short,
    span,
)
from llm_ocr_outputs.report.timeline import Timeline, levels, rates, timeline

# Sections from markers: outcome, failures, quality, repairs.


#: Upper limit of reasons with a bar; the others share one.
_MOST_REASONS = 15
_OUTCOMES = ("ok", "degraded", "failed", "not done yet")
_COLOURS = ("ok", "degraded", "failed", "left")
_KNOWN = frozenset(reason.value for reason in Reason)


def outcome_tiles(status: RunStatus) -> Iterator[Tile]:
    """Yield the tiles of pages by outcome, documents, figures, and tokens."""
    pages = status.pages
    of = f"of {'about ' if status.estimated else ''}{plural(pages.expected, 'page')}"
    yield Tile(f"{pages.ok:,}", f"ok, {share(pages.ok, pages.expected)} {of}", "ok")
    yield Tile(f"{pages.degraded:,}", f"degraded, {share(pages.degraded, pages.expected)}", "degraded")
    yield Tile(f"{pages.failed:,}", f"failed, {share(pages.failed, pages.expected)}", "failed")
    if left := _left(pages):
        yield Tile(f"{left:,}", "not done yet", "left")
    yield Tile(f"{status.documents:,}", "documents")
    yield Tile(f"{status.figures.expected:,}", f"figures, {status.figures.ok:,} described")
    if status.tokens_in or status.tokens_out:
        yield Tile(short(status.tokens_out), f"tokens of answers, {short(status.tokens_in)} of prompts")


def outcome_section(status: RunStatus) -> Section:
    """Return the section of pages and figures by outcome, and the progress of each stage."""
    if not status.generations:
        return Section("Outcome", ["This workspace has no plan yet. Start with llm-ocr plan or llm-ocr run."])
    names = {"pages": status.pages, "figures": status.figures}
    counted = [_outcome(name, counts) for name, counts in names.items() if counts.expected]
    stages = []
    for name, stage in status.stages.items():
        done = min(1.0, stage.done / stage.total) if stage.total else 0.0
        about = f"{stage.done:,} of {stage.total:,}" if stage.key else "not begun"
        stages.append(Bar(f"{name} ({about})", [done, 1 - done], ""))
    pages, figures = status.pages, status.figures
    words = (
        f"Of {plural(pages.expected, 'page')} {pages.ok:,} are ok, {pages.degraded:,} degraded (usable, but not as "
        f"requested), {pages.failed:,} failed and {_left(pages):,} not done yet."
    )
    if figures.expected:
        described = f"{figures.ok:,} are described, {figures.failed:,} failed."
        words += f" Of {plural(figures.expected, 'figure')} {described}"
    title = "Outcome of pages and figures"
    charts = [BarChart(title, words, "share", counted, names=_OUTCOMES, colours=_COLOURS, whole=True)]
    how_far = BarChart(
        "Progress of each stage",
        "The progress counts units of work; for Assemble, documents or groups of documents.",
        "share of the units",
        stages,
        names=("done", "not done yet"),
        colours=("c0", "left"),
        whole=True,
    )
    return Section("Outcome", list(_outcome_sentences(status)), [*(charts if counted else []), how_far])


def _outcome_sentences(status: RunStatus) -> Iterator[str]:
    for name, stage in status.stages.items():
        if not stage.key:
            yield f"{name.capitalize()} has not started."
        elif not stage.finished:
            yield f"{name.capitalize()} is not finished: {stage.done:,} of {stage.total:,} units are done."
    if filtered := status.filtered:
        causes = ", ".join(f"{count:,} {plain(cause, 60)}" for cause, count in filtered.items())
        yield f"{plural(sum(filtered.values()), 'document')} left out by filters: {causes}."
    if status.estimated:
        yield "The number of expected pages is an estimate: some page counts are unknown until reading."
    if retries := status.stages["extract"].retries:
        yield f"{plural(retries, 'request')} beyond the first request of a page (retries)."


def _outcome(name: str, counts: Counts) -> Bar:
    parts = (counts.ok, counts.degraded, counts.failed, _left(counts))
    about = ", ".join(f"{part:,} {outcome}" for part, outcome in zip(parts, _OUTCOMES, strict=True))
    total = max(1, sum(parts))
    return Bar(f"{name} ({counts.expected:,})", [part / total for part in parts], "", f"{name}: {about}")


def _left(counts: Counts) -> int:
    return max(0, counts.expected - counts.ended)


def failure_sections(status: RunStatus) -> Iterator[Section]:
    """Yield the section of failures by reason, with examples and the retry command; nothing without failures."""
    charts = [
        _reasons("Failed and degraded pages by reason", "pages", status.reasons),
        _reasons("Failed and degraded figures by reason", "figures", status.figure_reasons),
    ]
    drawn = [chart for chart in charts if chart.bars]
    if not drawn:
        return
    command = ""
    if status.pages.failed:
        place = shlex.quote(status.url)
        key = " --password-file FILE" if Reason.ENCRYPTED in status.reasons else ""
        command = f"llm-ocr retry-failed -w {place}{key} && llm-ocr run -w {place}{key}"
    sentences = ["The reasons include degraded pages; the examples are failed pages."]
    if command:
        sentences.append("The command below plans and reads the failed pages again.")
    examples = [_place(f"{page.reason}: ", page.source, page.page, page.detail) for page in status.examples]
    yield Section("Failures", sentences, drawn, examples, command)


def _reasons(title: str, unit: str, reasons: Mapping[str, int]) -> BarChart:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    shown = ordered[:_MOST_REASONS]
    rest = sum(count for _, count in ordered[_MOST_REASONS:])
    bars = [
        Bar(reason, [count], f"{count:,}", reason if reason in _KNOWN else f"{reason} (of another version)")
        for reason, count in (*shown, *([("others", rest)] if rest else []))
    ]
    words = "; ".join(f"{reason}: {count:,}" for reason, count in shown)
    return BarChart(title, f"{words}." if words else "", unit, bars, colours=("failed",))


def _place(start: str, source: str, page: int | None, detail: str) -> str:
    return start + source + ("" if page is None else f", page {page}") + (f" ({detail})" if detail else "")


def quality_section(status: RunStatus) -> Section | None:
    """Return the section of pages by score, with the worst pages; None if no page has a score."""
    counts = status.quality
    if not any(counts):
        return None
    total, below = sum(counts), sum(counts[: len(counts) // 2])
    size = len(counts)
    labels = [f"{place / size:g}" if place * 10 % size == 0 else "" for place in range(size + 1)]
    words = f"{plural(total, 'page')} with a score; {below:,} ({share(below, total)}) below 0.5."
    chart = Histogram("Quality of the pages", words, "pages", "score, 0 worst to 1 best", counts, labels)
    sentences = ["The score is an estimate without a reference text. Check the pages with the lowest scores first."]
    worst = [_place(f"{shown_score(page.score)}: ", page.source, page.page, page.wrong) for page in status.worst]
    return Section("Quality", sentences, [chart], worst)


def ledger_section(status: RunStatus) -> Section | None:
    """Return the section of ink and text that is not accounted for, with the worst pages; None without ledgers."""
    total = str(status.ledger)
    if not total:
        return None
    sentences = [f"{total[0].upper()}{total[1:]}. The shares are of the ink and the text of a page."]
    lines = [_place(f"{share(page.unread, 1)} unread: ", page.source, page.page, "") for page in status.unread]
    lines += [
        _place(f"{share(page.unsupported, 1)} unsupported: ", page.source, page.page, "") for page in status.unsupported
    ]
    return Section("Ledger", sentences, [], lines)


def repair_section(status: RunStatus) -> Section | None:
    """Return the section of repairs; None without repairs."""
    if not status.repairs:
        return None
    sentences = ["Of each page, the better of the two results counts."]
    return Section("Repairs", sentences, [], [str(one).replace("`", "") for one in status.repairs])


# Sections from the workers' time series: throughput, tokens, requests, limits.


#: Upper limit of workers with a color; the others share one.
_MOST_WORKERS = 7
_NOUNS = {"extract": "page", "describe": "figure", "assemble": "page", "fields": "document"}
#: Stages that may use a model.
_ASKED = ("extract", "describe", "fields")
_STARTED = re.compile(r"^\d{8}T\d{6}-")


def time_tiles(status: RunStatus, found: Sequence[Series]) -> Iterator[Tile]:
    """Yield the tiles of the speed of Extract and the total time."""
    read = [series for series in found if series.stage == "extract"]
    line = timeline(read)
    if line is not None and line.seconds and (pages := sum(series.items for series in read)):
        yield Tile(short(pages / line.seconds), f"pages/s, {60 * pages / line.seconds:,.0f} pages/min")
    elif seconds := sum(worker.seconds for worker in status.workers if worker.stage == "extract"):
        pages = sum(worker.items for worker in status.workers if worker.stage == "extract")
        yield Tile(short(pages / seconds), "pages/s of one worker")
    whole = timeline(found)
    if whole is not None:
        worked = sum(series.seconds for series in found)
        yield Tile(span(whole.seconds), f"at work, {worked / 3600:.3g} worker hours")


def time_sections(found: Sequence[Series]) -> Iterator[Section]:
    """Yield the sections of recorded values over time."""
    line = timeline(found)
    if line is None:
        yield Section("Over time", ["No values over time exist yet: no worker has finished a page."])
        return
    pauses = [(at, f"pause of {span(length)}") for at, length in line.pauses]
    sentences = [f"{plural(len(pauses), 'pause')} without a worker, shown as dashed lines."] if pauses else []
    charts = [_throughput(line, found, stage, pauses) for stage in _ASKED]
    drawn = [chart for chart in charts if chart.layers]
    yield Section("Throughput", sentences, [*drawn, *_tokens(line, found, pauses)])
    if any(sample.window is not None for series in found for sample in series.samples):
        yield _requests(line, found, pauses)
    yield from _limits(found)


def _limits(found: Sequence[Series]) -> Iterator[Section]:
    """Yield the section of what limited the stages; nothing without a verdict."""
    stages = {
        stage: verdict
        for stage in _ASKED
        if (verdict := overall(judge(series.samples) for series in found if series.stage == stage)) is not None
    }
    if not stages:
        return
    causes = [cause for cause in Cause if any(cause in verdict.causes for verdict in stages.values())]
    bars = [
        Bar(stage, [verdict.causes.get(cause, 0.0) / sum(verdict.seconds.values()) for cause in causes], "")
        for stage, verdict in stages.items()
    ]
    words = "; ".join(
        f"{stage}: " + ", ".join(f"{span(seconds)} {cause}" for cause, seconds in verdict.causes.items())
        for stage, verdict in stages.items()
    )
    colours = [colour(place) for place in range(len(causes))]
    chart = BarChart("Limits of the speed", f"{words}.", "share of the judged time", bars, causes, colours, whole=True)
    sentences = [f"{stage.capitalize()}: {verdict.sentence}." for stage, verdict in stages.items()]
    yield Section("What limited the speed", sentences, [chart])


Pauses = Sequence[tuple[float, str]]


def _throughput(line: Timeline, found: Sequence[Series], stage: str, pauses: Pauses) -> TimeChart:
    mine = [series for series in found if series.stage == stage and series.items]
    mine.sort(key=lambda series: -series.items)
    workers = sorted(mine[:_MOST_WORKERS], key=lambda series: (series.began, series.worker))
    groups = [(_label(series), [series], series.worker) for series in workers]
    if rest := mine[_MOST_WORKERS:]:
        groups.append((f"{len(rest):,} others", rest, ""))
    layers = [Layer(name, rates(line, series, lambda sample: sample.items), about) for name, series, about in groups]
    noun, ended = _NOUNS[stage], sum(series.items for series in mine)
    highest = max((sum(column) for column in zip(*(layer.values for layer in layers), strict=True)), default=0.0)
    own = timeline(mine)
    mean = ended / own.seconds if own and own.seconds else 0.0
    words = (
        f"{plural(ended, noun)} by {plural(len(mine), 'worker')}: {short(mean)} {noun}s/s on average, at most "
        f"{short(highest)} over {span(line.width)}."
    )
    return TimeChart(f"{stage.capitalize()}: {noun}s per second", words, f"{noun}s/s", line.seconds, layers, (), pauses)


def _tokens(line: Timeline, found: Sequence[Series], pauses: Pauses) -> Iterator[TimeChart]:
    lines = [
        Layer("answers", rates(line, found, lambda sample: sample.tokens_out)),
        Layer("prompts, images included", rates(line, found, lambda sample: sample.tokens_in)),
    ]
    if not any(any(layer.values) for layer in lines):
        return
    highest = max(lines[0].values)
    words = f"At most {short(highest)} tokens of answers per second over {span(line.width)}. Tokens count at the "
    yield TimeChart("Tokens per second", f"{words}end of an answer.", "tokens/s", line.seconds, (), lines, pauses)


def _requests(line: Timeline, found: Sequence[Series], pauses: Pauses) -> Section:
    asked = [series for series in found if any(sample.window is not None for sample in series.samples)]
    gauges = any(sample.running is not None for series in asked for sample in series.samples)
    shown: Mapping[str, Callable[[Sample], float | None]] = (
        {"running": _running, "waiting in the server": lambda sample: (sample.in_flight or 0.0) - _running(sample)}
        if gauges
        else {"in progress": lambda sample: sample.in_flight}
    )
    layers = [Layer(name, levels(line, asked, value)) for name, value in shown.items()]
    window = Layer("window: maximum of concurrent requests", levels(line, asked, lambda sample: sample.window))
    words = (
        "With a full window, the server limits the speed. With an empty window, the preparation of pages limits the "
        "speed, or the run ends."
    ) + (" The gauges of the servers give the running share of the requests." if gauges else "")
    chart = TimeChart("Requests at the servers", words, "requests", line.seconds, layers, [window], pauses)
    again = sum(sample.retries for series in asked for sample in series.samples)
    sentences = ["No request was refused or lost."]
    if again:
        sent = "refused (429, 503) or lost, and sent again, without an attempt for the page."
        sentences = [f"{plural(again, 'request')} {sent}"]
    restarts = sum(sample.restarts for series in asked for sample in series.samples)
    sentences += [f"Servers were restarted {plural(restarts, 'time')}."] if restarts else []
    return Section("Requests", sentences, [chart])


def _running(sample: Sample) -> float:
    """Return the worker's own running requests: its share of a server's gauges, which cover all workers."""
    running, waiting = sample.running or 0.0, sample.waiting or 0.0
    return (sample.in_flight or 0.0) * (running / (running + waiting) if waiting else 1.0)


def _label(series: Series) -> str:
    """Return a worker's name without its start time."""
    return plain(_STARTED.sub("", series.worker), 40)


def money_tile(costs: CostReport) -> Iterator[Tile]:
    """Yield the tile of the total in dollars; nothing without a known price."""
    known = [cost for cost in (costs.jobs.get(DOLLARS), costs.hours, costs.tokens) if cost is not None]
    if known:
        yield Tile(money_text(sum(known)), ", ".join(filter(None, ["spent", costs.rate_text])))


def cost_section(costs: CostReport, jobs: Sequence[Spent], found: Sequence[Series]) -> Section:
    """Return the section of what is known to be paid, and the start-up share of the time."""
    sums = {"tokens": costs.tokens, "machine hours": costs.hours, "jobs": costs.jobs.get(DOLLARS)}
    paid = "; ".join(f"{name} {money_text(value)}" for name, value in sums.items() if value is not None)
    sentences = [f"Paid: {paid}."] if paid else []
    if text := spent_text(jobs):
        sentences.append(f"{text[0].upper()}{text[1:]}.")
    if not (paid or costs.jobs):
        sentences.append("No price is known: neither of tokens, nor of machines, nor of jobs of a platform.")
    starting = _starting(costs, found)
    return Section("Cost", sentences, [starting] if starting.bars else [])


def _starting(costs: CostReport, found: Sequence[Series]) -> BarChart:
    """Return the start-up share: of the billed time if known, otherwise of the time until each worker's first page."""
    rented = [stage for stage in costs.stages if stage.hardware]
    billed = {stage.stage: stage.startup_share for stage in rented if stage.startup_share is not None}
    bars = [
        Bar(stage, [part, 1 - part], "", f"{stage}: {share(part, 1)} of the billed time")
        for stage, part in billed.items()
    ]
    for stage in () if bars else _ASKED:
        workers = [series for series in found if series.stage == stage and series.seconds > 0]
        whole = sum(series.seconds for series in workers)
        waited = sum(min(whole if series.first is None else series.first, series.seconds) for series in workers)
        if whole:
            words = f"{stage}: {span(waited)} of {span(whole)} until the first {_NOUNS[stage]}"
            parts = [waited / whole, 1 - waited / whole]
            bars.append(Bar(stage, parts, "", f"{words} ({share(waited, whole)})"))
    words = "; ".join(bar.about for bar in bars)
    title = "Start-up share of the time"
    return BarChart(title, f"{words}.", "share", bars, ("starting", "working"), ("c1", "c0"), whole=True)
