"""Duration and cost of a stage on one kind of machine, and storage per page."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llm_ocr.costs.prices import Machine, Price
from llm_ocr.costs.throughput import EMBEDDED_MODEL, Span, machine_named, rate_of, startup_of, stored_rates

# Duration and cost.


_HOUR = 3600
_MINUTE = 60
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
        return self.billed * (price.per_hour / _HOUR)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; times in hours."""
        return {
            "stage": self.stage,
            "model": self.model,
            "hardware": self.machine.label,
            "machines": self.count,
            "pages": self.pages,
            "pages_per_minute": self.rate.to_json(2),
            "hours": (self.wall * (1 / _HOUR)).to_json(),
            "billed_hours": (self.billed * (1 / _HOUR)).to_json(),
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
    if machine is None:
        machine = Machine(platform, hardware) if _no_gpu(stage, model) else None
    return None if machine is None else estimate(stage, model, machine, pages, machines=machines)


def estimate(stage: str, model: str, machine: Machine, pages: int, *, machines: int = 1) -> Estimate | None:
    """Return the result of `expected_seconds` for a given machine."""
    rate = rate_of(stage, model, machine)
    if rate is None:
        return None
    startup, words = startup_of(machine)
    return Estimate(
        stage,
        model,
        machine,
        pages,
        startup,
        rate.pages_per_minute.needed(pages) * _MINUTE,
        rate.pages_per_minute,
        (*rate.words, f"start-up of {startup.likely:g} s ({startup.low:g} to {startup.high:g}): {words}"),
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


def _no_gpu(stage: str, model: str) -> bool:
    """Return whether the stage's rate is independent of the GPU, so that any machine name is valid."""
    return stage == "assemble" or model == "embedded"


# Bytes that a run stores in its workspace: measured, per page.


_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


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


def stored_of(stage: str, model: str, pages: int) -> Stored | None:
    """Return the bytes from published measurements; None for a stage without any."""
    kind = EMBEDDED_MODEL if model == EMBEDDED_MODEL else "model"
    for one in stored_rates():
        if one["stage"] == stage and one["engine"] in ("", kind):
            each = Span(one["low"], one["bytes_per_page"], one["high"])
            words = f"{size_text(each.likely)} a page: {one['words']} ({one['date']})"
            return Stored(each * pages, "; ".join([words, *_then(stage)]))
    return None


def measured_stored(each: Span, pages: int) -> Stored:
    """Return the bytes from the pages of a sample that were written as in Extract."""
    words = f"{size_text(each.likely)} a page, page images, figures, and Parquet, measured now"
    return Stored(each * pages, "; ".join([words, *_then("extract")]))


def size_span(span: Span) -> str:
    """Return `12.3 GB (8.1 to 20.4)`, or one number for an exact range."""
    name, unit = next(((name, unit) for name, unit in _UNITS if span.likely >= unit), _UNITS[-1])
    low, likely, high = (f"{value / unit:,.1f}" for value in (span.low, span.likely, span.high))
    return f"{likely} {name}" if low == high else f"{likely} {name} ({low} to {high})"


def size_text(value: float) -> str:
    """Return `327.4 kB`."""
    return size_span(Span.of(value))


def _then(stage: str) -> Iterator[str]:
    if stage != "extract":
        return
    found = next((one for one in stored_rates() if one["stage"] == "assemble"), None)
    if found is not None:
        yield f"Assemble adds about {size_text(found['bytes_per_page'])} a page (with `dataset_images=none`, much less)"
