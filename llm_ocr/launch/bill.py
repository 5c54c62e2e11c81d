"""What jobs cost, and how long they may take: the platform's hours, and prices and rates from `costs`."""

from collections.abc import Mapping, Sequence
from typing import Any

from llm_ocr.costs import Price, price_per_hour, time_limit
from llm_ocr.costs.live import live_prices
from llm_ocr.launch import JobSpec, JobStatus

#: Where a job's limit is fitted to what is to be done; elsewhere the platform's default is the best there is.
_FITTED = frozenset({"hf-jobs", "sagemaker"})


def bill(platform: str, spec: JobSpec, statuses: Sequence[JobStatus]) -> Mapping[str, Any]:
    """`seconds` summed over machines, `price_per_hour` of one, `cost` in the price's currency; None: not known."""
    known = [_seconds(one) for one in statuses]
    seconds = None if not known or None in known else sum(one for one in known if one is not None)
    price = _price(platform, spec)
    cost = None if price is None or seconds is None else round(seconds / 3600 * price.per_hour, 6)
    return {
        "platform": platform,
        "machines": spec.shards,
        "seconds": seconds,
        "price_per_hour": None if price is None else price.per_hour,
        "price_source": "" if price is None else price.words,
        "currency": "USD",
        "cost": cost,
    }


def has_price(platform: str, spec: JobSpec) -> bool:
    """Whether it can be told what the jobs cost. Asks nobody where the file of prices knows it."""
    known = price_per_hour(platform, spec.hardware) is not None and not spec.options.get("spot")
    return known or _price(platform, spec) is not None


def fitted_limit(platform: str, spec: JobSpec, settings: Mapping[str, Any], pages: int) -> int | None:
    """Seconds that one of the jobs should need at most; None where nothing is known: the platform's default then."""
    if platform not in _FITTED or not pages:
        return None
    model = "embedded" if settings.get("engine") == "embedded" else str(settings.get("model", ""))
    return time_limit(spec.stage, model, platform, spec.hardware, pages, shards=spec.shards)


def _seconds(status: JobStatus) -> float | None:
    if status.seconds is not None:
        return status.seconds
    if status.started is None or status.ended is None:
        return None
    return status.ended - status.started


def _price(platform: str, spec: JobSpec) -> Price | None:
    """Of one machine and hour, as the platform lists it now, else as it was published."""
    if spec.options.get("spot"):
        return None  # changes by the hour, and is not listed
    if platform == "hf-jobs":
        return live_prices(platform)[0].get(spec.hardware)
    cores, memory = spec.options.get("cpu"), str(spec.options.get("memory") or "")
    gib = memory.removesuffix("i").removesuffix("G")
    if spec.stage == "assemble" or not cores or not gib.isdigit():
        return price_per_hour(platform, spec.hardware)
    return price_per_hour(platform, spec.hardware, cores=cores, gib=float(gib))
