"""The sections of a report that come from the workers' series: throughput, tokens, requests, waits."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from llm_ocr.results.report.charts import Bar, BarChart, Layer, Section, Tile, TimeChart
from llm_ocr.results.report.texts import plain, plural, short, span
from llm_ocr.work.series import Sample, Series
from llm_ocr.work.status import RunStatus
from llm_ocr.work.timeline import Timeline, levels, rates, timeline

#: Workers with a colour of their own; the others are one.
_MOST_WORKERS = 7
#: Waits that are drawn, and the shortest of them in seconds.
_MOST_WAITS, _SHORTEST = 6, 2.0
#: From this share of its window a server is taken to be full: a few places are always just being given away.
_FULL = 0.85

_NOUNS = {"extract": "page", "describe": "figure", "assemble": "page"}
_STARTED = re.compile(r"^\d{8}T\d{6}-")


def time_tiles(status: RunStatus, found: Sequence[Series]) -> Iterator[Tile]:
    """Speed of Extract and the time that all took."""
    read = [one for one in found if one.stage == "extract"]
    line = timeline(read)
    if line is not None and line.seconds and (pages := sum(one.items for one in read)):
        yield Tile(short(pages / line.seconds), f"pages/s, {60 * pages / line.seconds:,.0f} pages/min")
    elif seconds := sum(one.seconds for one in status.workers if one.stage == "extract"):
        pages = sum(one.items for one in status.workers if one.stage == "extract")
        yield Tile(short(pages / seconds), "pages/s of one worker")
    whole = timeline(found)
    if whole is not None:
        worked = sum(one.seconds for one in found)
        yield Tile(span(whole.seconds), f"at work, {worked / 3600:.3g} worker hours")


def time_sections(found: Sequence[Series]) -> Iterator[Section]:
    """What is on record over time."""
    line = timeline(found)
    if line is None:
        yield Section("Over time", ["No numbers over time are on record: no worker has finished a page yet."])
        return
    pauses = [(at, f"pause of {span(length)}") for at, length in line.pauses]
    sentences = [f"{plural(len(pauses), 'pause')} without a worker left out, shown as dashed lines."] if pauses else []
    charts = [_throughput(line, found, stage, pauses) for stage in ("extract", "describe")]
    drawn = [chart for chart in charts if chart.layers]
    yield Section("Throughput", sentences, [*drawn, *_tokens(line, found, pauses)])
    if any(sample.window is not None for one in found for sample in one.samples):
        yield _requests(line, found, pauses)
    yield _waits(found)


Pauses = Sequence[tuple[float, str]]


def _throughput(line: Timeline, found: Sequence[Series], stage: str, pauses: Pauses) -> TimeChart:
    mine = sorted((one for one in found if one.stage == stage and one.items), key=lambda one: -one.items)
    workers = sorted(mine[:_MOST_WORKERS], key=lambda one: (one.began, one.worker))
    groups = [(_label(one), [one], one.worker) for one in workers]
    if rest := mine[_MOST_WORKERS:]:
        groups.append((f"{len(rest):,} others", rest, ""))
    layers = [Layer(name, rates(line, series, _items), about) for name, series, about in groups]
    noun, ended = _NOUNS[stage], sum(one.items for one in mine)
    highest = max((sum(column) for column in zip(*(one.values for one in layers), strict=True)), default=0.0)
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
    if not any(any(one.values) for one in lines):
        return
    highest = max(lines[0].values)
    words = f"At most {short(highest)} tokens of answers per second over {span(line.width)}. They count when an "
    yield TimeChart("Tokens per second", f"{words}answer has ended.", "tokens/s", line.seconds, (), lines, pauses)


def _requests(line: Timeline, found: Sequence[Series], pauses: Pauses) -> Section:
    asked = [one for one in found if any(sample.window is not None for sample in one.samples)]
    gauges = any(sample.running is not None for one in asked for sample in one.samples)
    shown: Mapping[str, Callable[[Sample], float | None]] = (
        {"running": _running, "waiting in the server": lambda one: (one.in_flight or 0.0) - _running(one)}
        if gauges
        else {"under way": lambda one: one.in_flight}
    )
    layers = [Layer(name, levels(line, asked, value)) for name, value in shown.items()]
    window = Layer("window: the most that are sent at once", levels(line, asked, lambda one: one.window))
    full, seconds = _sums(asked).get("full", 0.0), sum(one.seconds for one in asked)
    words = (
        f"Of {span(seconds)} that workers asked servers, {span(full)} had the window full. A full window means that "
        "the server sets the pace; an empty one, that pages did not come fast enough, or that the run came to its end."
    ) + (" The servers' gauges say which part of our requests was running." if gauges else "")
    charts = [
        TimeChart("Requests at the servers", words, "requests", line.seconds, layers, [window], pauses),
        *_prepared(line, asked, pauses),
        *_again(line, asked, pauses),
    ]
    sentences = [] if len(_again(line, asked, pauses)) else ["No request was refused or lost."]
    restarts = sum(sample.restarts for one in asked for sample in one.samples)
    sentences += [f"Servers were restarted {plural(restarts, 'time')}."] if restarts else []
    return Section("Requests", sentences, charts)


def _running(sample: Sample) -> float:
    """Requests of the worker's own that run: its share of a server's gauges, which count those of all workers."""
    running, waiting = sample.running or 0.0, sample.waiting or 0.0
    return (sample.in_flight or 0.0) * (running / (running + waiting) if waiting else 1.0)


def _prepared(line: Timeline, found: Sequence[Series], pauses: Pauses) -> list[TimeChart]:
    values = [value / 1e6 for value in levels(line, found, lambda one: one.bytes_waiting)]
    if not any(values):
        return []
    words = f"Rendered pages that wait for a place in the window: at most {short(max(values))} MB over all workers."
    layer = [Layer("prepared", values)]
    return [TimeChart("Pages prepared and not sent yet", words, "MB", line.seconds, layer, (), pauses)]


def _again(line: Timeline, found: Sequence[Series], pauses: Pauses) -> list[TimeChart]:
    total = sum(sample.retries for one in found for sample in one.samples)
    if not total:
        return []
    values = [60 * value for value in rates(line, found, lambda one: one.retries)]
    words = f"{plural(total, 'request')} refused (429, 503) or lost, and sent again. That costs a page no try."
    layer = [Layer("sent again", values)]
    return [TimeChart("Requests that were sent again", words, "requests/min", line.seconds, layer, (), pauses)]


_KINDS = {
    "starting": "until the first page",
    "gone": "no server ready",
    "full": "window full: the server sets the pace",
    "short": "window not full: pages are being made, or the end",
    "idle": "nothing asked",
    "working": "reading",
}


def _waits(found: Sequence[Series]) -> Section:
    stages = [stage for stage in ("extract", "describe") if any(one.stage == stage for one in found)]
    sums = {stage: _sums(one for one in found if one.stage == stage) for stage in stages}
    kinds = [kind for kind in _KINDS if any(one.get(kind) for one in sums.values())]
    bars = [Bar(stage, _parts(sums[stage], kinds), "") for stage in stages]
    words = "; ".join(
        f"{stage}: " + ", ".join(f"{span(sums[stage][kind])} {_KINDS[kind]}" for kind in kinds if sums[stage].get(kind))
        for stage in stages
    )
    colours = {"starting": "c1", "gone": "c5", "full": "c0", "short": "c4", "idle": "c8", "working": "c0"}
    where = BarChart(
        "Where the workers' time went",
        f"{words}.",
        "share of the time of all workers",
        bars,
        [_KINDS[kind] for kind in kinds],
        [colours[kind] for kind in kinds],
        whole=True,
    )
    return Section("Waits", (), [chart for chart in (where, _longest(found)) if chart.bars])


def _parts(sums: Mapping[str, float], kinds: Sequence[str]) -> list[float]:
    whole = sum(sums.values()) or 1.0
    return [sums.get(kind, 0.0) / whole for kind in kinds]


def _sums(found: Iterable[Series]) -> dict[str, float]:
    """Seconds by what a worker did in them."""
    sums: dict[str, float] = {}
    for series in found:
        since = 0.0
        for sample in series.samples:
            kind = "starting" if series.first is None or since + sample.seconds <= series.first else _kind(sample)
            sums[kind] = sums.get(kind, 0.0) + sample.seconds
            since += sample.seconds
    return sums


def _kind(sample: Sample) -> str:
    if sample.window is None or sample.in_flight is None:
        return "working"
    if sample.servers is not None and sample.servers < 0.5:
        return "gone"
    if sample.in_flight <= 0.05:
        return "idle"
    return "full" if sample.in_flight >= _FULL * sample.window else "short"


def _longest(found: Sequence[Series]) -> BarChart:
    """The longest times in which a worker finished nothing."""
    waits = sorted((wait for one in found if one.stage in ("extract", "describe") for wait in _gaps(one)), reverse=True)
    bars = [Bar(label, [seconds], span(seconds), about) for seconds, label, about in waits[:_MOST_WAITS] if seconds > 0]
    words = "Times in which a worker finished nothing; one page that takes long counts when nothing ended beside it."
    return BarChart("The longest waits", words, "seconds", bars)


def _gaps(series: Series) -> Iterator[tuple[float, str, str]]:
    """Seconds, a short label, and all about it."""
    name, since, begun, seen = _label(series), 0.0, 0.0, False
    noun = _NOUNS.get(series.stage, "page")
    for sample in (*series.samples, Sample(0.0, ok=1)):
        if sample.items and since - begun >= _SHORTEST:
            when = f"after {span(begun)}" if seen else f"until the first {noun}"
            yield since - begun, f"{series.stage}, {when}", f"{series.stage} by {name}, {when}"
        since += sample.seconds
        if sample.items:
            begun, seen = since, True


def _items(sample: Sample) -> float:
    return sample.items


def _label(series: Series) -> str:
    """A worker's name without the moment of its start."""
    return plain(_STARTED.sub("", series.worker), 40)
