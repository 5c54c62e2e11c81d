"""Costs and time series of workers: one small file of each per worker and stage, replaced while the worker runs.

metrics/<worker>-<stage>.json         `Spending`
metrics/<worker>-<stage>.series.json  `Series`: the same over time

Markers record published work. These files record paid work, including failed attempts and pages lost in a crash.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from llm_ocr.errors import ObjectNotFound, WorkspaceError
from llm_ocr.storage import ObjectInfo
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.codec import read_ahead
from llm_ocr.workspace.keys import EXTRACT

FOLDER = "metrics/"
#: Suffix of time series files.
SERIES = ".series.json"


@dataclass(frozen=True, slots=True)
class Spending:
    """Spending of a worker in a stage.

    `items` are finished pages or figures, `seconds` wall-clock time, prices per million tokens (None if unknown).
    `engine` holds the numbers of `engines.Load`, and `limits` the `verdict.Verdict`; {} without one. `price_per_hour`
    is of the worker's machine, and `paid` its seconds: since the worker's start, or the end of its preceding stage,
    start-up included.
    """

    worker: str
    stage: str
    batch_id: str = ""
    updated: str = ""  # ISO 8601, UTC
    items: int = 0
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    price_in: float | None = None
    price_out: float | None = None
    price_per_hour: float | None = None
    paid: float = 0.0
    engine: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> float | None:
        """Cost of tokens and machine, in the currency of the prices; None without prices."""
        return _sum([self.token_cost, self.hour_cost])

    @property
    def hour_cost(self) -> float | None:
        """Cost of the machine; None if its price is unknown."""
        return None if self.price_per_hour is None else self.paid / 3600 * self.price_per_hour

    @property
    def token_cost(self) -> float | None:
        """Cost of the tokens; None if they have no price."""
        if self.price_in is None and self.price_out is None:
            return None
        return (self.tokens_in * (self.price_in or 0.0) + self.tokens_out * (self.price_out or 0.0)) / 1e6

    def to_json(self) -> dict[str, Any]:
        """Return JSON values for the status."""
        cost = self.cost
        speed = round(self.items / self.seconds, 3) if self.seconds else 0.0
        return {**asdict(self), "items_per_second": speed, "cost": None if cost is None else round(cost, 6)}


def write_spending(workspace: Workspace, spending: Spending) -> None:
    """Replace the worker's file.

    Raises:
        StorageError: the file could not be written.
    """
    workspace.store.put(f"{FOLDER}{spending.worker}-{spending.stage}.json", codec.dump(asdict(spending)))


def spendings(workspace: Workspace) -> Iterator[Spending]:
    """Yield the spending of all workers that have started, ordered by name. Files of other versions are skipped."""
    yield from Records(workspace).read()


class Records:
    """Files of all workers, for repeated reading. Unchanged files are not fetched again."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, tuple[str, Spending | None]] = {}  # by key: the object's version and its content

    def read(self) -> list[Spending]:
        """Return the current spending of all workers, as `spendings` does.

        Raises:
            StorageError: the store could not be read.
        """
        found = [info for info in self._workspace.store.list(FOLDER) if not info.key.endswith(SERIES)]
        values = list(read_ahead(self._spending, found, "metrics"))
        self._known = {info.key: (info.version, value) for info, value in zip(found, values, strict=True)}
        return [value for value in values if value is not None]

    def _spending(self, info: ObjectInfo) -> Spending | None:
        version, value = self._known.get(info.key, ("", None))
        if version and version == info.version:
            return value
        try:
            return _spending_from_json(self._workspace.get_json(info.key))
        except (ObjectNotFound, WorkspaceError, TypeError, ValueError):
            return None  # auxiliary numbers: a damaged file must not prevent the status from being read


def _spending_from_json(value: Mapping[str, Any]) -> Spending:
    """Parse a worker's file.

    Raises:
        ValueError: a value has another type than its field.
    """
    usual = asdict(Spending(worker="", stage=""))
    kinds = {name: type(default) for name, default in usual.items() if name in value}
    for name, kind in kinds.items():
        numbers = kind in (int, float) or (kind is type(None) and value[name] is not None)
        wanted: Any = (int, float) if numbers else kind
        if not isinstance(value[name], wanted) or isinstance(value[name], bool):
            raise ValueError(f"{name}: {value[name]!r}")
    return Spending(**{name: value[name] for name in kinds})


def pages_per_second(found: Sequence[Spending]) -> float | None:
    """Return the mean speed of a worker in Extract, without its start-up; None before the first page."""
    readers = [worker for worker in found if worker.stage == EXTRACT and worker.items and worker.seconds > 0]
    return sum(worker.items for worker in readers) / sum(worker.seconds for worker in readers) if readers else None


def total_cost(found: Sequence[Spending]) -> float | None:
    """Return the cost of all workers with known prices; None without any."""
    return _sum(worker.cost for worker in found)


def hours_cost(found: Sequence[Spending]) -> float | None:
    """Return the part of `total_cost` for machines by the hour; None if no machine's price is known."""
    return _sum(worker.hour_cost for worker in found)


def _sum(costs: Iterable[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


#: Most samples of a file: three minutes by the second, or a week by about half an hour. Neighbors are merged above it.
MOST = 360
#: Initial seconds of a sample.
FIRST = 1.0
#: Upper limit of samples of all files that are held in memory.
_MOST_HELD = 100_000
#: Lower limit of samples per file under that limit.
_FEWEST = 30


@dataclass(frozen=True, slots=True)
class Sample:
    """Span of `seconds`.

    Counts are of this span alone. Gauges are means over the span, None without a report from an engine. `retries` are
    requests that were sent again, after 429 and 503 or because they were lost. The gauges in `LOADS` are those of
    `engines.Load`. Those in `USES` are of this machine: processor cores of this process, means per process of the
    renderers, of the API servers and engine cores that this worker started, and the utilization of their GPUs (0..1).
    """

    seconds: float
    ok: int = 0
    degraded: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    retries: int = 0
    restarts: int = 0
    servers: float | None = None
    window: float | None = None
    in_flight: float | None = None
    queued: float | None = None
    running: float | None = None
    waiting: float | None = None
    bytes_waiting: float | None = None
    kv_usage: float | None = None
    max_num_seqs: float | None = None
    client_cores: float | None = None
    renderer_cores: float | None = None
    intake_cores: float | None = None
    engine_cores: float | None = None
    gpu: float | None = None

    @property
    def items(self) -> int:
        """Number of finished pages or figures."""
        return self.ok + self.degraded + self.failed


# `getattr` reads the fields of these names, which are the columns: `asdict` takes eight times as long.
COUNTS = ("ok", "degraded", "failed", "tokens_in", "tokens_out", "retries", "restarts")
LOADS = (
    "servers", "window", "in_flight", "queued", "running", "waiting", "bytes_waiting", "kv_usage", "max_num_seqs",
)  # fmt: skip
USES = ("client_cores", "renderer_cores", "intake_cores", "engine_cores", "gpu")
GAUGES = (*LOADS, *USES)
_COLUMNS = tuple(field.name for field in fields(Sample))


@dataclass(frozen=True, slots=True)
class Series:
    """Time series of a worker in a stage: samples without a gap from `began`.

    `began` is in seconds since 1970 by the worker's clock. `before`: seconds between the command's start and `began`.
    `first`: seconds from `began` until the first item finished; None before that.
    """

    worker: str
    stage: str
    batch_id: str = ""
    began: float = 0.0
    before: float = 0.0
    first: float | None = None
    samples: tuple[Sample, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds from `began` to the end of the last sample."""
        return sum(sample.seconds for sample in self.samples)

    @property
    def items(self) -> int:
        """Number of finished pages or figures."""
        return sum(sample.items for sample in self.samples)

    @property
    def serving(self) -> float:
        """Seconds since the first server was ready; all seconds if no engine reports servers."""
        if all(sample.servers is None for sample in self.samples):
            return self.seconds
        ready = itertools.dropwhile(lambda sample: not sample.servers, self.samples)
        return sum(sample.seconds for sample in ready)


def merged(first: Sample, second: Sample) -> Sample:
    """Return the two spans as one: counts are summed, gauges weighted by time."""
    seconds = first.seconds + second.seconds
    counts = {name: getattr(first, name) + getattr(second, name) for name in COUNTS}
    gauges: dict[str, Any] = {}
    for name in GAUGES:
        before: float | None = getattr(first, name)
        after: float | None = getattr(second, name)
        if before is None or after is None:
            gauges[name] = after if before is None else before
        else:
            gauges[name] = (before * first.seconds + after * second.seconds) / seconds if seconds else after
    return Sample(seconds, **counts, **gauges)


def thinned(samples: Sequence[Sample], most: int) -> tuple[Sample, ...]:
    """Return at most `most` samples with the same span and sums, by merging neighbors."""
    kept = tuple(samples)
    while len(kept) > max(1, most):
        pairs = [merged(*pair) for pair in zip(kept[::2], kept[1::2], strict=False)]
        kept = (*pairs, *kept[2 * len(pairs) :])
    return kept


def write_series(workspace: Workspace, series: Series) -> None:
    """Replace the worker's file.

    Raises:
        StorageError: the file could not be written.
    """
    columns: dict[str, list[float | None]] = {}
    for name in _COLUMNS:
        values: list[float | None] = [getattr(sample, name) for sample in series.samples]
        column = [round(value, 3) if isinstance(value, float) else value for value in values]
        # A missing column stands for None in a gauge, and for 0 in a count.
        if any(value is not None for value in column) if name in GAUGES else any(column):
            columns[name] = column
    value = {
        "worker": series.worker,
        "stage": series.stage,
        "batch_id": series.batch_id,
        "began": round(series.began, 3),
        "before": round(series.before, 3),
        "first": None if series.first is None else round(series.first, 3),
        "samples": columns,
    }
    workspace.store.put(f"{FOLDER}{series.worker}-{series.stage}{SERIES}", codec.dump(value))


def all_series(workspace: Workspace) -> list[Series]:
    """Return the series of all workers by start time. Damaged files are skipped; samples of many workers are merged.

    Raises:
        StorageError: the store could not be read.
    """
    names = [info.key for info in workspace.store.list(FOLDER) if info.key.endswith(SERIES)]
    most = min(MOST, max(_FEWEST, _MOST_HELD // max(1, len(names))))

    def read(name: str) -> Series | None:
        try:
            series = _series_from_json(workspace.get_json(name))
        except (ObjectNotFound, WorkspaceError, ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
            return None  # auxiliary numbers: a damaged file must not prevent a report
        return replace(series, samples=thinned(series.samples, most))

    return sorted(
        filter(None, read_ahead(read, names, "series")), key=lambda series: (series.began, series.worker, series.stage)
    )


def _series_from_json(value: Mapping[str, Any]) -> Series:
    """Parse the content of a file that `write_series` wrote.

    Raises:
        KeyError: a field is missing.
        TypeError: a value has the wrong type.
        ValueError: a value is invalid.
    """
    columns = {name: list(column) for name, column in value["samples"].items() if name in _COLUMNS}
    count = len(columns.setdefault("seconds", []))
    if any(len(column) != count for column in columns.values()) or count > 10 * MOST:
        raise ValueError("columns of different lengths, or too long")
    samples: list[Sample] = []
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        counts = {name: int(_number(row.get(name, 0))) for name in COUNTS}
        gauges: dict[str, Any] = {name: None if row.get(name) is None else _number(row[name]) for name in GAUGES}
        samples.append(Sample(_number(row["seconds"]), **counts, **gauges))
    first = value.get("first")
    return Series(
        worker=str(value["worker"]),
        stage=str(value["stage"]),
        batch_id=str(value.get("batch_id", "")),
        began=_number(value["began"]),
        before=_number(value.get("before", 0.0)),
        first=None if first is None else _number(first),
        samples=tuple(samples),
    )


def _number(value: object) -> float:
    """Return a number that charts can show.

    Raises:
        ValueError: the value is not a number, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"no number: {value!r}")
    if not 0 <= value <= 1e15:
        raise ValueError(f"out of range: {value!r}")
    return float(value)


#: Upper limit of bins in a chart.
MOST_BINS = 120
#: A time without any active worker is a pause if it is longer than this number of seconds and this share of the active
#: time. Shorter times are shown.
_PAUSE, _SHARE = 60.0, 0.05

#: Returns the value of a sample for its whole span.
Value = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Time axis for many workers' series: equal bins of active time, without pauses of all workers.

    `spans` are active times in order, in seconds since 1970; `bins` of `width` seconds cover them.
    """

    spans: tuple[tuple[float, float], ...]
    starts: tuple[float, ...]  # start of each span, in seconds of active time
    bins: int
    width: float

    @property
    def seconds(self) -> float:
        """Active time in seconds."""
        return self.bins * self.width

    @property
    def pauses(self) -> tuple[tuple[float, float], ...]:
        """Position of each omitted pause in seconds of active time, and its length in seconds."""
        gaps = zip(self.starts[1:], self.spans, self.spans[1:], strict=False)
        return tuple((start, after[0] - before[1]) for start, before, after in gaps)

    def at(self, moment: float) -> float:
        """Return the seconds of active time before a moment (seconds since 1970)."""
        place = bisect.bisect_right(self.spans, (moment, float("inf"))) - 1
        if place < 0:
            return 0.0
        begin, end = self.spans[place]
        return self.starts[place] + min(moment, end) - begin


def timeline(found: Sequence[Series], most: int = MOST_BINS) -> Timeline | None:
    """Return the time axis of these series; None without samples. Bins are not shorter than the median sample."""
    worked = _joined((series.began, series.began + series.seconds) for series in found if series.seconds > 0)
    if not worked:
        return None
    spans = _joined(worked, max(_PAUSE, _SHARE * sum(end - begin for begin, end in worked)))
    starts = [0.0]
    for begin, end in spans:
        starts.append(starts[-1] + end - begin)
    seconds = starts.pop()
    lengths = sorted(sample.seconds for series in found for sample in series.samples)
    usual = max(lengths[len(lengths) // 2], 1e-3)
    bins = max(1, min(most, int(seconds / usual)))
    return Timeline(tuple(spans), tuple(starts), bins, seconds / bins)


def _joined(spans: Iterable[tuple[float, float]], gap: float = 0.0) -> list[tuple[float, float]]:
    """Return the spans in order; spans that overlap, or are at most `gap` apart, become one."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin - joined[-1][1] <= gap:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def rates(line: Timeline, found: Iterable[Series], value: Value) -> list[float]:
    """Return `value` per second in each bin, summed over the series. Values are spread evenly over their sample."""
    return _sums(line, found, value, weight=lambda sample: 1.0)


def levels(line: Timeline, found: Iterable[Series], value: Value) -> list[float]:
    """Return the mean of a gauge in each bin, summed over the series. A series without a value adds nothing."""
    return _sums(line, found, value, weight=lambda sample: sample.seconds)


def _sums(line: Timeline, found: Iterable[Series], value: Value, weight: Callable[[Sample], float]) -> list[float]:
    sums = [0.0] * line.bins
    for series in found:
        moment, end = series.began, line.at(series.began)
        for sample in series.samples:
            moment += sample.seconds
            begin, end = end, line.at(moment)
            amount = value(sample)
            if not amount:
                continue
            first = min(int(begin / line.width), line.bins - 1)
            last = min(int(end / line.width), line.bins - 1) if end > begin else first
            edges = [begin, *(line.width * place for place in range(first + 1, last + 1)), end]
            for place in range(first, last + 1):
                # The shares of the bins that a sample touches sum to 1.
                share = (edges[place - first + 1] - edges[place - first]) / (end - begin) if last > first else 1.0
                sums[place] += amount * share * weight(sample) / line.width
    return sums
