"""Prices of machines and providers, from `prices.toml` and live sources."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

# Stored prices.


_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Price:
    """Hourly price of one machine. `source` and `date` name the publication; `live` marks a current price."""

    per_hour: float
    source: str
    date: str
    currency: str = "USD"
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

    def cost(self, tokens_in: float, tokens_out: float) -> float:
        """Return dollars for the tokens."""
        return token_cost(tokens_in, tokens_out, self.price_in, self.price_out)


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
                found.append(Machine(platform, name, gpu, count, _price(table, value, None, None)))
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
        Provider(name, table["model"], one["price_in"], one["price_out"], source["words"], source["date"])
        for name, one in table.items()
        if isinstance(one, dict)
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
    return _price(table, value, cores, gib, int(count) if count.isdigit() else 1) if isinstance(value, dict) else None


def _price(
    table: Mapping[str, Any], value: Mapping[str, Any], cores: float | None, gib: float | None, gpus: int = 1
) -> Price:
    source = _prices()["sources"][value.get("source", table["source"])]
    per_hour = value.get("per_hour")
    if per_hour is None:
        second = (
            gpus * value.get("gpu_second", 0.0)
            + table["core_second"] * (cores or value["cores"])
            + table["gib_second"] * (gib or value["gib"])
        )
        per_hour = round(_SECONDS * second, 4)
    return Price(per_hour, source["words"], source["date"])


@cache
def _prices() -> dict[str, Any]:
    return tomllib.loads((files("llm_ocr.costs") / "prices.toml").read_text(encoding="utf-8"))


# Live prices.


_HOURS = {"minute": 60.0, "hour": 1.0, "second": 3600.0}
#: Timeout of a request in seconds.
_TIMEOUT = 20.0
#: Source of a platform's live prices.
_WHOM = {"hf-jobs": "the Hub's list of Jobs hardware"}


def live_prices(platform: str, *, endpoint: str | None = None) -> tuple[Mapping[str, Price], str]:
    """Return prices by hardware, live if the platform lists them, otherwise from the file; and a line with the source.

    Platform failures do not raise: the line contains the error text.
    """
    stored = {one.name: one.price for one in machines() if one.platform == platform and one.price is not None}
    if platform not in _WHOM:
        return stored, f"{platform}: has no list of current prices; {_dated(stored)}"
    try:
        hourly = hub_prices(endpoint)
    except Exception as error:  # noqa: BLE001 - for any failure of the Hub, the file has prices
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        return stored, f"{platform}: cannot read {_WHOM[platform]} ({why}); {_dated(stored)}"
    today = datetime.now(UTC).date().isoformat()
    found = {
        name: Price(price, _WHOM[platform], today, live=True) for name, price in hourly.items() if price is not None
    }
    return {**stored, **found}, f"{platform}: current prices of {_WHOM[platform]}"


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
    return {one["name"]: _live_price(one) for one in answer.json()}


def _live_price(one: Mapping[str, Any]) -> float | None:
    """Return the price of a flavor, or None for units that are not times."""
    times = _HOURS.get(one["unitLabel"])
    return None if times is None else round(one["unitCostMicroUSD"] / 1e6 * times, 4)


def _dated(stored: Mapping[str, Price]) -> str:
    words = "; ".join(dict.fromkeys(price.words for price in stored.values()))
    return f"prices of the file: {words}" if words else "no known prices"
