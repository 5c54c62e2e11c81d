"""Costs and time series of workers: one small file of each per worker and stage, replaced while the worker runs.

metrics/<worker>-<stage>.json         `Spending`
metrics/<worker>-<stage>.series.json  `Series`: the same over time

Markers record published work. These files record paid work, including failed attempts and pages lost in a crash.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from llm_ocr.errors import ObjectNotFound
from llm_ocr.storage import ObjectInfo
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.codec import read_ahead

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


_SPENDING = TypeAdapter(Spending)


def write_spending(workspace: Workspace, spending: Spending) -> None:
    """Replace the worker's file.

    Raises:
        StorageError: the file could not be written.
    """
    workspace.store.put(f"{FOLDER}{spending.worker}-{spending.stage}.json", codec.dump(asdict(spending)))


class Records:
    """Files of all workers, for repeated reading. Unchanged files are not fetched again."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, tuple[str, Spending | None]] = {}  # by key: the object's version and its content

    def read(self) -> list[Spending]:
        """Return the current spending of all workers that have started, ordered by name.

        Files of other versions are skipped.

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
            return _SPENDING.validate_json(self._workspace.store.get(info.key), strict=True)
        except (ObjectNotFound, ValidationError):
            return None  # auxiliary numbers: a damaged file must not prevent the status from being read


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
    renderers (with the time that they waited for a core), of the API servers and engine cores that this worker started,
    and the utilization of their GPUs (0..1).
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
    capped: float | None = None
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
    "servers", "window", "in_flight", "queued", "running", "waiting", "bytes_waiting", "capped", "kv_usage",
    "max_num_seqs",
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
            series = _series_from_json(workspace.store.get(name))
        except (ObjectNotFound, KeyError, TypeError, ValueError):
            return None  # auxiliary numbers: a damaged file must not prevent a report
        return replace(series, samples=thinned(series.samples, most))

    return sorted(
        filter(None, read_ahead(read, names, "series")), key=lambda series: (series.began, series.worker, series.stage)
    )


#: Number that charts can show.
_Number = Annotated[float, Field(strict=True, ge=0, le=1e15)]


class _Stored(BaseModel):
    """Content of a series file: the samples by column."""

    worker: str
    stage: str
    batch_id: str = ""
    began: _Number
    before: _Number = 0.0
    first: _Number | None = None
    samples: dict[str, Annotated[list[_Number | None], Field(max_length=10 * MOST)]]


def _series_from_json(data: bytes) -> Series:
    """Parse the content of a file that `write_series` wrote.

    Raises:
        KeyError: the spans are missing.
        TypeError: a span is unknown.
        ValueError: a value has the wrong type or is out of range, or columns have different lengths.
    """
    stored = _Stored.model_validate_json(data)
    columns = {name: column for name, column in stored.samples.items() if name in _COLUMNS}
    samples: list[Sample] = []
    for values in zip(*columns.values(), strict=True):
        row: dict[str, Any] = dict(zip(columns, values, strict=True))
        row |= {name: int(row[name]) for name in COUNTS if name in row}
        samples.append(Sample(**row | {"seconds": float(row["seconds"])}))
    return Series(**dict(stored) | {"samples": tuple(samples)})
