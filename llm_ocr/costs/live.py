"""Prices as a platform tells them now."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from llm_ocr.costs.prices import Price, machines

_HOURS = {"minute": 60.0, "hour": 1.0, "second": 3600.0}
#: Seconds until an answer is given up.
_PATIENCE = 20.0
#: Whom to ask for a platform's prices.
_WHOM = {"hf-jobs": "the Hub's list of Jobs hardware"}


def live_prices(platform: str, *, endpoint: str | None = None) -> tuple[Mapping[str, Price], str]:
    """Prices by hardware, live where the platform lists them, else those of the file; and a line that says which.

    Never raises for a platform that cannot be asked: the line has its words.
    """
    stored = {one.name: one.price for one in machines() if one.platform == platform and one.price is not None}
    if platform not in _WHOM:
        return stored, f"{platform}: has no list of prices that could be asked; {_dated(stored)}"
    try:
        hourly = hub_prices(endpoint)
    except Exception as error:  # noqa: BLE001 - whatever keeps the Hub from answering, the file has prices
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        return stored, f"{platform}: {_WHOM[platform]} could not be read ({why}); {_dated(stored)}"
    today = datetime.now(UTC).date().isoformat()
    found = {
        name: Price(price, _WHOM[platform], today, live=True) for name, price in hourly.items() if price is not None
    }
    return {**stored, **found}, f"{platform}: prices of {_WHOM[platform]}, just now"


def hub_prices(endpoint: str | None = None, token: str | bool | None = None) -> Mapping[str, float | None]:
    """Dollars an hour of each flavor that the Hub offers now; None for a unit of time that is not known here.

    What `HfApi.list_jobs_hardware` asks for, which itself would wait for ever. Raises what huggingface_hub raises.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # no __all__ there
        build_hf_headers,
        get_session,
        hf_raise_for_status,
    )

    address = f"{HfApi(endpoint=endpoint).endpoint}/api/jobs/hardware"
    answer = get_session().get(address, headers=build_hf_headers(token=token), timeout=_PATIENCE)
    hf_raise_for_status(answer)
    return {one["name"]: _per_hour(one) for one in answer.json()}


def _per_hour(one: Mapping[str, Any]) -> float | None:
    """None for units that are not times."""
    times = _HOURS.get(one["unitLabel"])
    return None if times is None else round(one["unitCostMicroUSD"] / 1e6 * times, 4)


def _dated(stored: Mapping[str, Price]) -> str:
    words = "; ".join(dict.fromkeys(price.words for price in stored.values()))
    return f"the file's are of {words}" if words else "none are known"
