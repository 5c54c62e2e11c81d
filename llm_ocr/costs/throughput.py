"""How fast pages are read, from `throughput.toml`: measured, else scaled from another GPU, else another model's."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from llm_ocr.costs.prices import Machine, is_whole, machines, price_per_hour
from llm_ocr.costs.spans import Span
from llm_ocr.errors import UsageError
from llm_ocr.models.registry import DEFAULT, find_profile
from llm_ocr.models.sizes import needed_memory, share_of, weights_of

#: The engine without a model, and machines without a GPU.
EMBEDDED, CPU = "embedded", "CPU"
#: Cores of the machine on which the rates of CPUs were measured.
MEASURED_CORES = 2
#: How much wider a span becomes by a step away from what was measured: to another GPU whose speed was measured, to one
#: whose speed was computed or is another's, to another model.
_MEASURED, _COMPUTED, _OTHER_MODEL = 1.5, 2.5, 3.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Pages a minute of one machine, and what that rests on; `known`: reported for this model on this GPU."""

    pages_per_minute: Span
    words: tuple[str, ...]
    known: bool


def rate_of(stage: str, model: str, machine: Machine) -> Rate | None:
    """The rate of a stage; None for a GPU of which nothing is known or that is too small, and for models on a CPU."""
    if not machine.gpu:
        return _on_cpu(stage, model)
    if stage == "assemble":
        return _on_cpu(stage, model)  # its GPU stands idle
    name = known_model(model)
    if model == EMBEDDED or not _gpu_speed(machine.gpu) or not fits(name, machine.gpu):
        return None
    found = _on_gpu(stage, name, machine.gpu)
    if found is None and name != DEFAULT:
        found = _on_gpu(stage, DEFAULT, machine.gpu)
        if found is not None:
            said = f"{stage} with {name or model}: no rate is known; taken as {DEFAULT}'s, in a wide range"
            found = Rate(found.pages_per_minute.wider(_OTHER_MODEL), (said, *found.words), False)
    return _of_all(found, machine) if found else None


def fits(model: str, gpu: str) -> bool:
    """Whether the memory of one such GPU is enough; True where the model's size is not known."""
    try:
        profile = find_profile(model)
    except UsageError:
        return True
    needed = needed_memory(weights_of(profile), profile.context, share=share_of(profile))
    return not profile.parameters or needed <= _table()["gpu"][gpu]["memory"] * 1e9


def speed_of(machine: Machine) -> float:
    """Of all GPUs of a machine, beside other machines; 0 where nothing is known."""
    return _gpu_speed(machine.gpu) * machine.gpus


def startup_of(machine: Machine) -> tuple[Span, str]:
    """Seconds from submission to the first page, and where that is from."""
    value = _table()["startup"]["gpu" if machine.gpu else "cpu"]
    return Span(value["low"], value["likely"], value["high"]), value["words"]


def startup_here() -> tuple[Span, str]:
    """Seconds from the command to the first page on this machine, and where that is from."""
    value = _table()["startup"]["here"]
    return Span(value["low"], value["likely"], value["high"]), value["words"]


def of_cores(rate: Span, cores: int) -> tuple[Span, str]:
    """The rate of a CPU on another number of cores, and the assumption in words."""
    if cores == MEASURED_CORES:
        return rate, f"{cores} cores, as many as the measured machine had"
    scaled = (rate * (cores / MEASURED_CORES)).wider(_MEASURED)
    return scaled, f"scaled from {MEASURED_CORES} cores to {cores}, as each core reads a page of its own"


def known_model(name: str) -> str:
    """The profile's name for a model's name, alias or id; the name itself where there is no profile."""
    if not name:
        return DEFAULT
    try:
        return find_profile(name).name
    except UsageError:
        return name


def machine_named(platform: str, hardware: str) -> Machine | None:
    """A machine of the price list, or one whose name tells its GPUs (`ml.g6e.xlarge`, `L4`, `A100-80GB:2`)."""
    for one in machines():
        if (one.platform, one.name) == (platform, hardware):
            return one
    family, _, size = hardware.rpartition(".")
    if found := _table()["families"].get(family):
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


def gpu_named(name: str) -> str | None:
    """The GPU of that name or alias, case and separators aside; None for one that is not known."""
    wanted = _plain(name)
    for gpu, value in _table()["gpu"].items():
        if wanted in {_plain(one) for one in (gpu, *value.get("aliases", ()))}:
            return str(gpu)
    return None


def _on_cpu(stage: str, model: str) -> Rate | None:
    name = EMBEDDED if model in ("", EMBEDDED) else model
    for one in _rates():
        if one["gpu"] == CPU and one["stage"] == stage and (not one["models"] or name in one["models"]):
            return Rate(_span(one), (_said(one),), True)
    return None


def _on_gpu(stage: str, model: str, gpu: str) -> Rate | None:
    """Of one GPU: what was measured there, else the nearest in speed that was measured."""
    measured = {one["gpu"]: one for one in _rates() if one["stage"] == stage and model in one["models"]}
    if gpu in measured:
        one = measured[gpu]
        return Rate(
            _span(one), (*_borrowed(one, model), _said(one)), one["models"][0] == model and "borrowed" not in one
        )
    if not measured:
        return None
    nearest = min(measured, key=lambda other: abs(_ratio(gpu, other) - 1))
    computed = any(_guessed(one) for one in (gpu, nearest))
    span = (_span(measured[nearest]) * _ratio(gpu, nearest)).wider(_COMPUTED if computed else _MEASURED)
    words = (_scaled(gpu, nearest, computed), *_borrowed(measured[nearest], model), _said(measured[nearest]))
    return Rate(span, words, False)


def _scaled(gpu: str, other: str, computed: bool) -> str:
    like = _table()["gpu"][gpu].get("like")
    how = f"taken as {like}'s" if like else "by a computed bound" if computed else "by another model's speed on both"
    return f"{gpu}: scaled from {other} times {_ratio(gpu, other):.2f}, {how}"


def _borrowed(rate: Mapping[str, Any], model: str) -> tuple[str, ...]:
    return () if rate["models"][0] == model else (f"{model}: taken as {rate['models'][0]}'s",)


def _of_all(rate: Rate, machine: Machine) -> Rate:
    if machine.gpus < 2:
        return rate
    words = "several GPUs of a machine are taken for so many times one"
    return Rate(rate.pages_per_minute * machine.gpus, (*rate.words, words), rate.known)


def _ratio(gpu: str, other: str) -> float:
    return _gpu_speed(gpu) / _gpu_speed(other)


def _gpu_speed(gpu: str) -> float:
    value = _table()["gpu"].get(gpu)
    if value is None:
        return 0.0
    return _gpu_speed(value["like"]) if "like" in value else float(value.get("speed", 0.0))


def _guessed(gpu: str) -> bool:
    value = _table()["gpu"][gpu]
    return "like" in value or value.get("bound", False)


def _span(rate: Mapping[str, Any]) -> Span:
    return Span(rate["low"], rate["pages_per_minute"], rate["high"])


def _said(rate: Mapping[str, Any]) -> str:
    who = ", ".join(rate["models"][:1]) or rate["stage"]
    return f"{who} on {rate['gpu']}: {rate['pages_per_minute']:g} pages/min: {rate['words']} ({rate['date']})"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def stored_rates() -> list[dict[str, Any]]:
    """Bytes of a page that stages leave in the workspace, as measured: the tables `stored` of the file."""
    found: list[dict[str, Any]] = _table()["stored"]
    return found


def _rates() -> list[dict[str, Any]]:
    rates: list[dict[str, Any]] = _table()["rate"]
    return rates


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files("llm_ocr.costs") / "throughput.toml").read_text(encoding="utf-8"))
