"""Measured speeds, from `throughput.toml`, the statistics of samples, and duration, cost, and storage of a stage."""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from llm_ocr.costs.prices import Machine, Price, is_whole, machines, price_per_hour
from llm_ocr.errors import UsageError
from llm_ocr.models.choosing import needed_memory, share_of, weights_of
from llm_ocr.models.registry import DEFAULT, find_profile


@dataclass(frozen=True, slots=True)
class Span:
    """Likely value with its range; `low` <= `likely` <= `high`."""

    low: float
    likely: float
    high: float

    @classmethod
    def of(cls, value: float) -> "Span":
        """Return an exact number as a range."""
        return cls(value, value, value)

    def __add__(self, other: "Span") -> "Span":
        return Span(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def __mul__(self, factor: float) -> "Span":
        """Multiply by a number of at least 0."""
        return Span(self.low * factor, self.likely * factor, self.high * factor)

    def times(self, other: "Span") -> "Span":
        """Multiply by another range of numbers of at least 0."""
        return Span(self.low * other.low, self.likely * other.likely, self.high * other.high)

    def longer(self, other: "Span") -> "Span":
        """Return the larger one of each number."""
        return Span(max(self.low, other.low), max(self.likely, other.likely), max(self.high, other.high))

    def wider(self, factor: float) -> "Span":
        """Divide low and multiply high by `factor`, 1 or more."""
        return Span(self.low / factor, self.likely, self.high * factor)

    def needed(self, amount: float) -> "Span":
        """Return the time for `amount` at this rate, which must be above 0; the highest rate gives the lowest time."""
        return Span(amount / self.high, amount / self.likely, amount / self.low)

    def to_json(self, digits: int = 4) -> dict[str, float]:
        """Return JSON values, rounded."""
        return {name: round(value, digits) for name, value in asdict(self).items()}


# Estimates for all pages from a sample: means with their likely range. Ranges are 95 % t-intervals: the mean of n
# values, plus and minus t times their standard deviation over the square root of n. A sample with a large share of the
# pages is more precise: the half-width is multiplied by the square root of the share outside the sample (Cochran,
# Sampling Techniques, finite population correction).


#: Student's t for 95 % two-sided, by degrees of freedom; missing values use the next lower entry.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
_T |= {12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0, 120: 1.98}
#: Slices of a sample for the speed, and minimum pages per slice.
SLICES, _OF_A_SLICE = 8, 2
#: A sample with this many pages per concurrent request has a middle part of steady speed.
_STEADY = 5
#: Bounds of the middle part as shares of the pages: the first pages end together, and the last ones have no successors.
_FIRST, _LAST = 0.1, 0.9


def mean_span(values: Sequence[float], share: float, *, least: float) -> Span:
    """Return the mean of all pages, of which `values` are a sample with a share of 0..1.

    The range is at least `least` (relative) in each direction. Without values, the result is 0. A single value may be
    half or twice as much.
    """
    if not values:
        return Span.of(0.0)
    mean = fmean(values)
    if len(values) == 1:
        return Span.of(mean).wider(2.0 if share < 1 else 1 + least)
    student = _T[max(freedom for freedom in _T if freedom < len(values))]
    half = student * stdev(values) / math.sqrt(len(values)) * math.sqrt(max(0.0, 1 - share))
    half = max(half, least * mean)
    return Span(max(mean - half, mean / 10), mean, mean + half)  # a positive mean stays above 0


def share_span(found: int, read: int, sampled: float) -> Span:
    """Return the share 0..1 of all pages that have what `found` of `read` pages of a sample have.

    Args:
        found: Pages of the sample with it.
        read: Pages of the sample, at least 1.
        sampled: Share 0..1 of all pages that is in the sample. It narrows the range, a 95 % interval (Wilson).
    """
    share, square = found / read, 1.96**2 * max(0.0, 1 - sampled) / read
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(square * share * (1 - share) + square**2 / 4) / (1 + square)
    return Span(max(0.0, min(share, middle - half)), share, min(1.0, max(share, middle + half)))


def measured_speed(ends: Sequence[float], parallel: int, share: float, *, least: float) -> tuple[Span, float]:
    """Return the steady seconds per page, and the one-time seconds for the beginning and the end.

    `ends` are the end times of pages, in seconds from the sample's start, `parallel` pages at a time. The range is that
    of the mean over `SLICES` slices with equal numbers of pages.
    """
    ordered = sorted(ends)
    count = len(ordered)
    steady = count >= max(_STEADY * parallel, SLICES * _OF_A_SLICE * 2)
    marks = [0.0, *ordered]
    first, last = (round(_FIRST * count), round(_LAST * count)) if steady else (0, count)
    slices = min(SLICES, (last - first) // _OF_A_SLICE)
    each = (marks[last] - marks[first]) / (last - first)
    if slices < 2:
        found = Span.of(each).wider(2.0)
    else:
        cuts = [first + round(number * (last - first) / slices) for number in range(slices + 1)]
        rates = [(marks[end] - marks[begin]) / (end - begin) for begin, end in pairwise(cuts)]
        around = mean_span(rates, share, least=least)
        found = around * (each / around.likely) if around.likely else Span.of(each)
    return found, max(0.0, marks[-1] - each * count)


# Page rates from `throughput.toml`: measured or published for this model on this GPU, never scaled from another.


#: The engine without a model, and machines without a GPU.
EMBEDDED_MODEL, CPU = "embedded", "CPU"
#: Platform of this machine in a table with others.
HERE = "here"


def no_measurement(stage: str, model: str, gpu: str) -> str:
    """Return a note: the model has no rate on this GPU, and its rate on the measured GPU of the nearest bandwidth."""
    name = known_model(model)
    measured = _rates_by_gpu(stage, name)
    if not measured:
        return f"no measurement for {name} on any GPU"
    bandwidth = {other: float(_table()["gpu"][other]["bandwidth"]) for other in (gpu, *measured)}
    nearest = min(measured, key=lambda other: abs(math.log(bandwidth[other] / bandwidth[gpu])))
    return f"no measurement for {name} on {gpu}; the nearest measured GPU is {_on_gpu(measured[nearest])}"


def fits(model: str, gpu: str) -> bool:
    """Return whether the memory of one such GPU is sufficient; True if the model's size is unknown."""
    if gpu not in _table()["gpu"]:
        return False
    try:
        profile = find_profile(model)
    except UsageError:
        return True
    needed = needed_memory(weights_of(profile), profile.context, share=share_of(profile))
    return not profile.parameters or needed <= _table()["gpu"][gpu]["memory"] * 1e9


def startup_of(machine: Machine) -> tuple[Span, str]:
    """Return the seconds until the first page, and the source.

    They begin with the submission of the job, or with the command on this machine.
    """
    value = _table()["startup"][HERE if machine.platform == HERE else "gpu" if machine.gpu else "cpu"]
    return Span(value["low"], value["likely"], value["high"]), value["words"]


def known_model(name: str) -> str:
    """Return the profile's name for a model's name, alias, or id; the name itself without a profile."""
    if not name:
        return DEFAULT
    try:
        return find_profile(name).name
    except UsageError:
        return name


def machine_named(platform: str, hardware: str) -> Machine | None:
    """Return a machine of the price list, or one whose name contains its GPUs (`ml.g6e.xlarge`, `A100-80GB:2`)."""
    for machine in machines():
        if (machine.platform, machine.name) == (platform, hardware):
            return machine
    family, _, size = hardware.rpartition(".")
    found = _table()["families"].get(family, {})
    if "gpu" in found:
        gpus = found["sizes"].get(size)
        price = price_per_hour(platform, hardware)
        return Machine(platform, hardware, found["gpu"], gpus, price) if gpus else None
    if is_whole(platform):
        return None
    name, _, count = hardware.partition(":")
    gpu = gpu_named(name)
    if gpu is None or (count and not count.isdecimal()):
        return None
    return Machine(platform, hardware, gpu, int(count or 1), price_per_hour(platform, hardware))


def gpus_by_size(family: str) -> Mapping[str, int]:
    """Return the GPUs of SageMaker's machines in a family (`ml.g6e`), by size; empty for a family without GPUs."""
    sizes: Mapping[str, int] = _table()["families"].get(family, {}).get("sizes", {})
    return sizes


def gpu_named(name: str) -> str | None:
    """Return the GPU of a name or alias, ignoring case and separators; None for an unknown GPU."""
    wanted = _plain(name)
    for gpu, value in _table()["gpu"].items():
        if wanted in {_plain(alias) for alias in (gpu, *value.get("aliases", ()))}:
            return str(gpu)
    return None


def _rates_by_gpu(stage: str, model: str) -> dict[str, dict[str, Any]]:
    rates = [rate for rate in _table()["rate"] if rate["stage"] == stage and model in rate["models"]]
    return {rate["gpu"]: rate for rate in rates if rate["gpu"] != CPU}


def _on_gpu(rate: Mapping[str, Any]) -> str:
    return f"{rate['gpu']}: {rate['pages_per_minute']:g} pages/min: {rate['words']} ({rate['date']})"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files("llm_ocr.costs") / "throughput.toml").read_text(encoding="utf-8"))


# Duration and cost of a stage on one kind of machine, and storage per page.


#: Time limits: minimum, factor on the likely time, and step of five minutes.
_SHORTEST, _MARGIN, _STEP = 1800, 2.0, 300


@dataclass(frozen=True, slots=True)
class Estimate:
    """A stage of `pages` pages on `count` machines of one kind that share the pages.

    `startup` are the seconds of each machine before its first page, `work` the seconds of one machine for all pages.
    `assumptions` state the basis as text. `known` means that a published rate exists for this model on this GPU.
    """

    stage: str
    model: str
    machine: Machine
    pages: int
    startup: Span
    work: Span
    rate: Span  # pages per minute of one machine after its start
    assumptions: tuple[str, ...]
    known: bool
    count: int = 1
    measured: bool = False  # the rate was just measured on this machine

    @property
    def wall(self) -> Span:
        """Return the seconds from submission to the end, if all machines start together."""
        return self.startup + self.work * (1 / self.count)

    @property
    def billed(self) -> Span:
        """Return the seconds of all machines together."""
        return self.startup * self.count + self.work

    @property
    def seconds(self) -> float:
        """Return the likely seconds from submission to the end."""
        return self.wall.likely

    @property
    def startup_share(self) -> float:
        """Return the start-up share of the likely billed time, 0..1."""
        billed = self.billed.likely
        return self.startup.likely * self.count / billed if billed else 0.0

    def cost(self, price: Price) -> Span:
        """Return dollars."""
        return self.billed * (price.per_hour / 3600)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; times in hours."""
        return {
            "stage": self.stage,
            "model": self.model,
            "hardware": self.machine.label,
            "machines": self.count,
            "pages": self.pages,
            "pages_per_minute": self.rate.to_json(2),
            "hours": (self.wall * (1 / 3600)).to_json(),
            "billed_hours": (self.billed * (1 / 3600)).to_json(),
            "startup_share": round(self.startup_share, 4),
            "reported": self.known,
            "measured": self.measured,
            "assumptions": list(self.assumptions),
        }


def expected_seconds(
    stage: str, model: str, platform: str, hardware: str, pages: int, *, machines: int = 1
) -> Estimate | None:
    """Return the estimate for a stage; None for unknown hardware, or for a model without data on the hardware.

    `model` is the setting `model`, "" for the default, `embedded` for the engine without a model.
    """
    machine = machine_named(platform, hardware)
    if machine is None and (stage == "assemble" or model == EMBEDDED_MODEL):
        machine = Machine(platform, hardware)  # the rate is independent of the GPU, so that any machine name is valid
    return None if machine is None else estimate(stage, model, machine, pages, machines=machines)


def estimate(stage: str, model: str, machine: Machine, pages: int, *, machines: int = 1) -> Estimate | None:
    """Return the result of `expected_seconds` for a given machine."""
    known, words, factor = True, list[str](), 1
    found: dict[str, Any] | None
    if not machine.gpu or stage == "assemble":  # Assemble leaves a GPU idle
        name = model or EMBEDDED_MODEL
        rates = (rate for rate in _table()["rate"] if rate["gpu"] == CPU and rate["stage"] == stage)
        found = next((rate for rate in rates if not rate["models"] or name in rate["models"]), None)
    else:
        name = known_model(model)
        found = _rates_by_gpu(stage, name).get(machine.gpu)
        if model == EMBEDDED_MODEL or not fits(name, machine.gpu):
            return None
        factor = max(machine.gpus, 1)
        if found and found["models"][0] != name:
            known, words = False, [f"{name}: taken as {found['models'][0]}'s"]
    if found is None:
        return None
    words.append(f"{', '.join(found['models'][:1]) or found['stage']} on {_on_gpu(found)}")
    if factor > 1:
        words.append("the rate is proportional to the number of GPUs of a machine")
    startup, source = startup_of(machine)
    words.append(f"start-up of {startup.likely:g} s ({startup.low:g} to {startup.high:g}): {source}")
    rate = Span(found["low"], found["pages_per_minute"], found["high"]) * factor
    work = rate.needed(pages) * 60
    return Estimate(stage, model, machine, pages, startup, work, rate, tuple(words), known, machines)


def time_limit(stage: str, model: str, platform: str, hardware: str, pages: int, *, shards: int = 1) -> int | None:
    """Return the maximum seconds of one of `shards` jobs, with start-up and a margin; None without data.

    A job that reaches the limit has published its finished units, and continues when it is submitted again.
    """
    found = expected_seconds(stage, model, platform, hardware, pages, machines=shards)
    if found is None:
        return None
    longest = found.startup.high + max(found.work.high, _MARGIN * found.work.likely) / shards
    return max(_SHORTEST, math.ceil(longest / _STEP) * _STEP)


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes that a stage adds to the workspace, and the basis of the number."""

    size: Span
    words: str

    def __str__(self) -> str:
        """Return `12.3 GB (8.1 to 20.4)` and its source."""
        return f"stored: {size_span(self.size)}; {self.words}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"bytes": self.size.to_json(0), "source": self.words}


def stored_of(stage: str, model: str, pages: int, each: Span | None = None) -> Stored | None:
    """Return the bytes that a stage stores.

    Args:
        stage: Stage of the pipeline.
        model: Model, or `embedded`.
        pages: Pages to be read.
        each: Bytes of a page, measured on a sample that was written as in Extract. Default: published measurements.

    Returns:
        The bytes; None without any measurement.
    """
    if each is not None:
        basis = ", page images, figures, and Parquet, measured now"
    else:
        engines = ("", EMBEDDED_MODEL if model == EMBEDDED_MODEL else "model")
        rates = (rate for rate in _table()["stored"] if rate["stage"] == stage and rate["engine"] in engines)
        found = next(rates, None)
        if found is None:
            return None
        each = Span(found["low"], found["bytes_per_page"], found["high"])
        basis = f": {found['words']} ({found['date']})"
    words = f"{size_span(Span.of(each.likely))} a page{basis}"
    then = (
        next((rate for rate in _table()["stored"] if rate["stage"] == "assemble"), None) if stage == "extract" else None
    )
    if then is not None:
        added = size_span(Span.of(then["bytes_per_page"]))
        words += f"; Assemble adds about {added} a page (with `dataset_images=none`, much less)"
    return Stored(each * pages, words)


def size_span(span: Span) -> str:
    """Return `12.3 GB (8.1 to 20.4)`, or one number for an exact range."""
    units = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    name, unit = next(((name, unit) for name, unit in units if span.likely >= unit), units[-1])
    low, likely, high = (f"{value / unit:,.1f}" for value in (span.low, span.likely, span.high))
    return f"{likely} {name}" if low == high else f"{likely} {name} ({low} to {high})"
