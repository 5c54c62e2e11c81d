"""Prices of machines and providers, from `prices.toml` and live sources."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

#: Source of a platform's live prices.
_LIVE_SOURCES = {"hf-jobs": "the Hub's list of Jobs hardware"}
#: Timeout of the Hub's request in seconds.
_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Price:
    """Hourly price of one machine in dollars.

    `source` and `date` name the publication; `live` marks a current price.
    """

    per_hour: float
    source: str
    date: str
    live: bool = False

    @property
    def words(self) -> str:
        """Return the source and the date."""
        return f"{self.source}, {self.date}" if self.date else self.source


@dataclass(frozen=True, slots=True)
class Machine:
    """Kind of machine of a platform. `gpu` is its name in `throughput.toml`, "" without a GPU."""

    platform: str
    name: str
    gpu: str = ""
    gpus: int = 0
    price: Price | None = None

    @property
    def label(self) -> str:
        """Return the user's spelling: `hf-jobs:a100-large`."""
        return f"{self.platform}:{self.name}"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider's prices per million tokens, for its single model."""

    name: str
    model: str
    price_in: float
    price_out: float
    source: str
    date: str


def token_cost(tokens_in: float, tokens_out: float, price_in: float, price_out: float) -> float:
    """Return the costs of tokens at prices per million."""
    return (tokens_in * price_in + tokens_out * price_out) / 1e6


@cache
def machines() -> tuple[Machine, ...]:
    """Return every machine of the comparison, platform by platform. Further machines only have a price."""
    found = []
    for platform, table in _prices()["hardware"].items():
        for name, value in table.items():
            if isinstance(value, dict) and name in table.get("compared", table):
                gpu = value.get("gpu", "")
                count = value.get("gpus", 1) if gpu else 0
                found.append(Machine(platform, name, gpu, count, price_per_hour(platform, name)))
    return tuple(found)


def is_whole(platform: str) -> bool:
    """Return whether the list has all machines of the platform with a GPU."""
    return bool(_prices()["hardware"].get(platform, {}).get("whole"))


@cache
def providers() -> tuple[Provider, ...]:
    """Return the providers of the file."""
    table = _prices()["providers"]
    source = _prices()["sources"][table["source"]]
    return tuple(
        Provider(name, table["model"], provider["price_in"], provider["price_out"], source["words"], source["date"])
        for name, provider in table.items()
        if isinstance(provider, dict)
    )


def price_per_hour(
    platform: str, hardware: str, *, cores: float | None = None, gib: float | None = None
) -> Price | None:
    """Return the stored price of one machine, or None if the file lacks the machine.

    Args:
        platform: A platform, for example `modal`.
        hardware: The platform's name of the machine; Modal's may include a GPU count, as `L40S:2`.
        cores: Cores of a task if the platform bills parts (Cloud Run, Modal). Default: the launcher's.
        gib: Memory of a task in GiB, likewise.
    """
    table = _prices()["hardware"].get(platform, {})
    name, _, count = hardware.partition(":")
    value = table.get(hardware, table.get(name) if count.isdigit() else None)
    if not isinstance(value, dict):
        return None
    per_hour = value.get("per_hour")
    if per_hour is None:
        per_second = (
            (int(count) if count.isdigit() else 1) * value.get("gpu_second", 0.0)
            + table["core_second"] * (cores or value["cores"])
            + table["gib_second"] * (gib or value["gib"])
        )
        per_hour = round(3600 * per_second, 4)
    source = _prices()["sources"][value.get("source", table["source"])]
    return Price(per_hour, source["words"], source["date"])


@cache
def _prices() -> dict[str, Any]:
    return tomllib.loads((files("llm_ocr.costs") / "prices.toml").read_text(encoding="utf-8"))


def live_prices(platform: str, *, endpoint: str | None = None) -> tuple[Mapping[str, Price], str]:
    """Return prices by hardware, live if the platform lists them, otherwise from the file; and a line with the source.

    Platform failures do not raise: the line contains the error text.
    """
    stored = {found.name: found.price for found in machines() if found.platform == platform and found.price is not None}
    publications = "; ".join(dict.fromkeys(price.words for price in stored.values()))
    of_file = f"prices of the file: {publications}" if publications else "no known prices"
    source = _LIVE_SOURCES.get(platform)
    if source is None:
        return stored, f"{platform}: has no list of current prices; {of_file}"
    try:
        hourly = hub_prices(endpoint)
    except Exception as error:  # noqa: BLE001 - for any failure of the Hub, the file has prices
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        return stored, f"{platform}: cannot read {source} ({why}); {of_file}"
    today = datetime.now(UTC).date().isoformat()
    live = {name: Price(price, source, today, live=True) for name, price in hourly.items() if price is not None}
    return {**stored, **live}, f"{platform}: current prices of {source}"


def hub_prices(endpoint: str | None = None, token: str | bool | None = None) -> Mapping[str, float | None]:
    """Return dollars per hour of each flavor that the Hub offers now; None for an unknown unit of time.

    The request is that of `HfApi.list_jobs_hardware`, which has no timeout. Errors of huggingface_hub are raised.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # no __all__ there
        build_hf_headers,
        get_session,
        hf_raise_for_status,
    )

    address = f"{HfApi(endpoint=endpoint).endpoint}/api/jobs/hardware"
    answer = get_session().get(address, headers=build_hf_headers(token=token), timeout=_TIMEOUT)
    hf_raise_for_status(answer)
    per_hour = {"minute": 60.0, "hour": 1.0, "second": 3600.0}
    return {
        flavor["name"]: round(flavor["unitCostMicroUSD"] / 1e6 * per_hour[flavor["unitLabel"]], 4)
        if flavor["unitLabel"] in per_hour
        else None
        for flavor in answer.json()
    }
