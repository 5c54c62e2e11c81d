"""What the same pages would take and cost on other hardware."""

from dataclasses import dataclass
from typing import Any

from llm_ocr.costs.estimates import estimate
from llm_ocr.costs.prices import Machine, machines
from llm_ocr.costs.spans import Span
from llm_ocr.costs.tables import Row, money_span
from llm_ocr.costs.throughput import machine_named, speed_of, startup_of
from llm_ocr.models.registry import DEFAULT

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One machine that reads the pages. `scaled`: from this run's own rate, else by what others reported.

    `hours` are billed ones, start-up included.
    """

    hardware: str
    pages: int
    pages_per_minute: float
    hours: float
    cost: Span
    scaled: bool
    words: str

    def row(self) -> Row:
        """As a table shows it."""
        return (
            self.hardware,
            f"{self.pages_per_minute:,.1f}",
            f"{self.hours:.3g}",
            money_span(self.cost),
            money_span(self.cost * (1000 / self.pages)),
            "this run, scaled" if self.scaled else "others' runs",
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "hardware": self.hardware,
            "pages_per_minute": round(self.pages_per_minute, 2),
            "hours": round(self.hours, 4),
            "cost": self.cost.to_json(),
            "per_1000_pages": (self.cost * (1000 / self.pages)).to_json(),
            "scaled": self.scaled,
        }


def other_machines(
    hardware: str, model: str, pages: int, working: float | None, billed: float | None
) -> tuple[WhatIf, ...]:
    """Every machine with a GPU and a price, the cheapest first.

    `hardware` is what Extract ran on ("hf-jobs:a100-large", "" for none), `working` and `billed` its seconds. They are
    scaled where both GPUs' speeds are known; else the rates are those that others reported.
    """
    platform, _, name = hardware.partition(":")
    here = machine_named(platform, name) if name else None
    seconds = working or billed
    there = [one for one in machines() if one.gpus and one.label != hardware]
    if here is not None and seconds and speed_of(here):
        startup = max(0.0, billed - working) if billed and working else None
        found = [_scaled(here, one, pages, seconds, startup) for one in there if speed_of(one)]
    else:
        found = [made for one in there if (made := _expected(one, model or DEFAULT, pages)) is not None]
    return tuple(sorted(found, key=lambda one: one.cost.likely))


def _scaled(here: Machine, there: Machine, pages: int, seconds: float, startup: float | None) -> WhatIf:
    work = seconds * speed_of(here) / speed_of(there)
    before = startup_of(there)[0].likely if startup is None else startup
    words = (
        f"this run's rate on {here.label}, scaled by the GPUs' speeds (measured with one model, or computed), with the "
        "same start-up; each may be half or twice as fast"
    )
    doubt = Span(before + work / 2, before + work, before + work * 2)
    return WhatIf(
        there.label, pages, 60 * pages / work, (before + work) / _HOUR, doubt * (_per_hour(there) / _HOUR), True, words
    )


def _expected(there: Machine, model: str, pages: int) -> WhatIf | None:
    found = estimate("extract", model, there, pages)
    if found is None or there.price is None:
        return None
    words = f"this run's rate says nothing of GPUs: taken from what others reported of {model}"
    hours = found.billed.likely / _HOUR
    return WhatIf(there.label, pages, found.rate.likely, hours, found.cost(there.price), False, words)


def _per_hour(machine: Machine) -> float:
    return machine.price.per_hour if machine.price else 0.0
