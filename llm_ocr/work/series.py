"""What each worker did over time: one small file a worker and stage beside its totals, replaced while it runs.

metrics/<worker>-<stage>.series.json

It stays small however long the run is: when there are more than `MOST` samples, each two neighbours become one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from llm_ocr.errors import ObjectNotFound, WorkspaceError
from llm_ocr.work import codec
from llm_ocr.work.ahead import read_ahead
from llm_ocr.work.metrics import FOLDER, SERIES, is_series
from llm_ocr.work.workspace import Workspace

#: Samples of a file: three minutes by the second, a week by about half an hour.
MOST = 360
#: Seconds of a sample at first.
FIRST = 1.0
#: Samples of all files together that are held while they are read.
_MOST_HELD = 100_000
#: Of one file then, at least.
_FEWEST = 30


@dataclass(frozen=True, slots=True)
class Sample:
    """A span of `seconds`. Counts are of this span alone; gauges are their mean over it, None where no engine told.

    `retries` are requests that were sent again, for 429 and 503 or because they were lost; the gauges are those of
    `engines.asking.Load`.
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

    @property
    def items(self) -> int:
        """Pages or figures that ended."""
        return self.ok + self.degraded + self.failed


# `getattr` reads the fields of these names, which are the columns: `asdict` takes eight times as long.
COUNTS = ("ok", "degraded", "failed", "tokens_in", "tokens_out", "retries", "restarts")
GAUGES = ("servers", "window", "in_flight", "queued", "running", "waiting", "bytes_waiting")
_COLUMNS = tuple(field.name for field in fields(Sample))


@dataclass(frozen=True, slots=True)
class Series:
    """One worker in one stage: samples without a gap from `began` (seconds since 1970, by the worker's clock).

    `before`: seconds between the command's start and `began`. `first`: seconds from `began` until the first item
    ended; None while there is none.
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
        """From `began` to the end of the last sample."""
        return sum(sample.seconds for sample in self.samples)

    @property
    def items(self) -> int:
        """Pages or figures that ended."""
        return sum(sample.items for sample in self.samples)


def merged(one: Sample, other: Sample) -> Sample:
    """The two spans as one: counts added up, gauges weighted by time."""
    counts = {name: getattr(one, name) + getattr(other, name) for name in COUNTS}
    gauges: dict[str, Any] = {name: _mean(one, other, name) for name in GAUGES}
    return Sample(one.seconds + other.seconds, **counts, **gauges)


def _mean(one: Sample, other: Sample, name: str) -> float | None:
    first: float | None = getattr(one, name)
    second: float | None = getattr(other, name)
    if first is None or second is None:
        return second if first is None else first
    seconds = one.seconds + other.seconds
    return (first * one.seconds + second * other.seconds) / seconds if seconds else second


def thinned(samples: Sequence[Sample], most: int) -> tuple[Sample, ...]:
    """At most `most` samples of the same span and the same sums: neighbours are merged until they are so few."""
    kept = tuple(samples)
    while len(kept) > max(1, most):
        pairs = [merged(*pair) for pair in zip(kept[::2], kept[1::2], strict=False)]
        kept = (*pairs, *kept[2 * len(pairs) :])
    return kept


def write_series(workspace: Workspace, series: Series) -> None:
    """Replace the worker's file. Raises `StorageError`."""
    workspace.store.put(f"{FOLDER}{series.worker}-{series.stage}{SERIES}", codec.dump(_to_json(series)))


def all_series(workspace: Workspace) -> list[Series]:
    """Of all workers, by when they began. A damaged file is passed over; where workers are many, samples are merged.

    Raises `StorageError` when the store cannot be read.
    """
    names = [info.key for info in workspace.store.list(FOLDER) if is_series(info.key)]
    most = min(MOST, max(_FEWEST, _MOST_HELD // max(1, len(names))))

    def read(name: str) -> Series | None:
        try:
            series = _from_json(workspace.get_json(name))
        except (ObjectNotFound, WorkspaceError, ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
            return None  # numbers beside the work: they must not keep a report from being made
        return replace(series, samples=thinned(series.samples, most))

    return sorted(filter(None, read_ahead(read, names, "series")), key=lambda one: (one.began, one.worker, one.stage))


def _to_json(series: Series) -> dict[str, Any]:
    columns = {name: [_short(getattr(sample, name)) for sample in series.samples] for name in _COLUMNS}
    return {
        "worker": series.worker,
        "stage": series.stage,
        "batch_id": series.batch_id,
        "began": round(series.began, 3),
        "before": round(series.before, 3),
        "first": None if series.first is None else round(series.first, 3),
        "samples": {name: column for name, column in columns.items() if _tells(name, column)},
    }


def _tells(name: str, column: Sequence[float | None]) -> bool:
    """Whether a column says more than its absence does."""
    return any(one is not None for one in column) if name in GAUGES else any(column)


def _short(value: float | None) -> float | None:
    return round(value, 3) if isinstance(value, float) else value


def _from_json(value: Mapping[str, Any]) -> Series:
    """Raises KeyError, TypeError or ValueError for anything but what `_to_json` makes."""
    columns = {name: list(column) for name, column in value["samples"].items() if name in _COLUMNS}
    count = len(columns.setdefault("seconds", []))
    if any(len(column) != count for column in columns.values()) or count > 10 * MOST:
        raise ValueError("columns of different lengths, or too long")
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    first = value.get("first")
    return Series(
        worker=str(value["worker"]),
        stage=str(value["stage"]),
        batch_id=str(value.get("batch_id", "")),
        began=_number(value["began"]),
        before=_number(value.get("before", 0.0)),
        first=None if first is None else _number(first),
        samples=tuple(_sample(row) for row in rows),
    )


def _sample(row: Mapping[str, Any]) -> Sample:
    counts = {name: int(_number(row.get(name, 0))) for name in COUNTS}
    gauges: dict[str, Any] = {name: None if row.get(name) is None else _number(row[name]) for name in GAUGES}
    return Sample(_number(row["seconds"]), **counts, **gauges)


def _number(value: object) -> float:
    """Raises ValueError for what is no number of a size that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"no number: {value!r}")
    if not 0 <= value <= 1e15:
        raise ValueError(f"out of range: {value!r}")
    return float(value)
