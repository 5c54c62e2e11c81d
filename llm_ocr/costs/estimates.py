"""Duration and cost of a stage on one kind of machine, and storage per page."""

import math
from dataclasses import dataclass
from typing import Any

from llm_ocr.costs.prices import Machine, Price
from llm_ocr.costs.throughput import EMBEDDED_MODEL, Span, machine_named, rate_of, startup_of, stored_rates

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
        """Return the money in the price's currency."""
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
    rate = rate_of(stage, model, machine)
    if rate is None:
        return None
    startup, source = startup_of(machine)
    return Estimate(
        stage,
        model,
        machine,
        pages,
        startup,
        rate.pages_per_minute.needed(pages) * 60,
        rate.pages_per_minute,
        (*rate.words, f"start-up of {startup.likely:g} s ({startup.low:g} to {startup.high:g}): {source}"),
        rate.known,
        machines,
    )


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
        rates = (rate for rate in stored_rates() if rate["stage"] == stage and rate["engine"] in engines)
        found = next(rates, None)
        if found is None:
            return None
        each = Span(found["low"], found["bytes_per_page"], found["high"])
        basis = f": {found['words']} ({found['date']})"
    words = f"{size_span(Span.of(each.likely))} a page{basis}"
    then = next((rate for rate in stored_rates() if rate["stage"] == "assemble"), None) if stage == "extract" else None
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
