"""Costs and time limits of jobs, and the record of their end: prices from `costs`, seconds from platforms."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_ocr.costs import Price, price_per_hour
from llm_ocr.costs.comparison import money_text
from llm_ocr.costs.prices import live_prices
from llm_ocr.errors import LimitReached, UsageError
from llm_ocr.launch import JobSpec, JobStatus, Launcher, is_installed, launcher_for
from llm_ocr.launch.cloud_run.plan import MACHINES, size
from llm_ocr.launch.records import Submission, write_end, write_jobs
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace

#: Seconds. Minimum limit that `--max-cost` sets: a GPU job likely needs 226 s before its first page, and up to 900
#: (`startup.gpu` in costs/throughput.toml), so a shorter job mostly pays for its start.
SHORTEST = 600
#: Seconds billed after the limit: SageMaker waits 120 s between SIGTERM and the end.
_STOPPING = 120
#: Seconds after a recorded decision in which its jobs may still be in creation: several hundred, one by one.
_SUBMITTING = 600.0


def price_of(platform: str, spec: JobSpec, *, live: bool = True) -> Price | None:
    """Return the hourly price of one machine: as given, otherwise the platform's live list, otherwise `costs`.

    Without `live`, no platform is queried.
    """
    if given := spec.options.get("price_per_hour"):
        return Price(float(given), "--price-per-hour", "")
    # Spot prices change by the hour, and Modal's regions cost 1.15 to 1.75 times the base price.
    if spec.options.get("spot") or (platform == "modal" and spec.options.get("region")):
        return None
    if platform == "hf-jobs" and live:
        return live_prices(platform, endpoint=spec.options.get("platform_endpoint"))[0].get(spec.hardware)
    if platform != "cloud-run" or spec.hardware not in MACHINES:
        return price_per_hour(platform, spec.hardware)
    cores, gib, _ = size(spec.stage, spec.hardware, spec.options)
    return price_per_hour(platform, spec.hardware, cores=cores, gib=gib)


def check_prices(platform: str, specs: Mapping[str, JobSpec], *, live: bool = True) -> None:
    """Raise `UsageError` if `--max-cost` cannot limit a stage because the price of its machine is unknown.

    Without `live`, no platform is queried, and a machine of Hugging Face may be in its list.
    """
    for stage, spec in specs.items():
        if price_of(platform, spec, live=False) is not None:
            continue
        unknown = price_of(platform, spec) is None if live else platform != "hf-jobs"
        if unknown:
            machine = f"spot machines of {platform}" if spec.options.get("spot") else f"{spec.hardware} on {platform}"
            hint = "Set the hourly price of one machine in dollars: --price-per-hour 1.80"
            raise UsageError(f"--max-cost cannot limit {stage}: the price of {machine} is unknown", hint=hint)


def billed_seconds(spec: JobSpec, statuses: Sequence[JobStatus], *, until: float | None = None) -> float | None:
    """Return the billed seconds, summed over machines; None if the platform does not report them.

    A running job counts from its start `until` this time. Without `until`, only finished jobs have seconds.
    """
    machines = spec.shards if len(statuses) == 1 else 1  # one job for all shards
    total = 0.0
    for status in statuses:
        end = status.ended if status.ended is not None or status.state.over else until
        if status.seconds is not None:
            total += status.seconds
        elif status.started is not None and end is not None:
            total += max(0.0, end - status.started) * machines
        elif until is None or status.state.over:
            return None
    return total if statuses else None


def bill(platform: str, spec: JobSpec, statuses: Sequence[JobStatus]) -> dict[str, Any]:
    """Return `seconds` over all machines, `price_per_hour` of one, and `cost`; None for unknown values."""
    seconds, price = billed_seconds(spec, statuses), price_of(platform, spec)
    return {
        "platform": platform,
        "machines": spec.shards,
        "seconds": seconds,
        "price_per_hour": None if price is None else price.per_hour,
        "price_source": "" if price is None else price.words,
        "currency": "USD",
        "cost": None if price is None or seconds is None else round(seconds / 3600 * price.per_hour, 6),
    }


def record_end(workspace: Workspace, submission: Submission, statuses: Sequence[JobStatus]) -> None:
    """Record the end of a submission's jobs, and their bill. The first record counts."""
    write_end(workspace, submission.spec, statuses, bill(submission.platform, submission.spec, statuses))
    workspace.flush()


def has_ended(workspace: Workspace, submission: Submission) -> bool:
    """Return whether a submission is over, and record its end if necessary.

    A submission that the platform does not have is over `_SUBMITTING` seconds after its decision: its launcher crashed
    before it sent the jobs. One of an older version, on a platform that this version lacks, is over as well.

    Raises:
        LaunchError: A platform request fails.
    """
    if submission.over or not is_installed(submission.platform):
        return True
    launcher = launcher_for(submission.platform)
    jobs = submission.jobs
    if jobs is None:
        jobs = tuple(launcher.find(submission.spec))
        if not jobs and time.time() - submission.decided < _SUBMITTING:
            return False
        if not jobs:
            write_end(workspace, submission.spec, (), {})
            workspace.flush()
            return True
        write_jobs(workspace, submission.spec, jobs)
    statuses = launcher.status(jobs)
    if not all(status.state.over for status in statuses):
        return False
    record_end(workspace, submission, statuses)
    return True


@dataclass(frozen=True, slots=True)
class Budget:
    """Dollars of a workspace: the limit, the costs of ended jobs, and the maximum costs of open ones."""

    limit: float
    spent: float
    committed: float

    @property
    def left(self) -> float:
        return self.limit - self.spent - self.committed


def budget_of(limit: float, submissions: Sequence[Submission]) -> Budget:
    """Return the rest of `limit`.

    An ended submission of unknown cost counts with its maximum cost. A submission without a price counts nothing: it
    runs on the user's own machines, or was made without `--max-cost`.
    """
    spent = committed = 0.0
    for submission in submissions:
        platform, spec, end = submission.platform, submission.spec, submission.end
        if end and end.get("cost") is not None:
            spent += float(end["cost"])
            continue
        if end and submission.jobs is None:
            continue  # never reached the platform
        price, seconds = price_of(platform, spec, live=False), spec.time_limit
        if seconds is None and is_installed(platform):
            seconds = launcher_for(platform).time_limit(spec)
        if price is None or seconds is None:
            continue
        most = (seconds + _STOPPING) / 3600 * price.per_hour * spec.shards
        if submission.over:
            spent += most
        else:
            committed += most
    return Budget(limit, spent, committed)


def bounded(launcher: Launcher, spec: JobSpec, budget: Budget, *, share: float = 1.0, live: bool = True) -> JobSpec:
    """Return the spec with a time limit that `share` of the budget's rest pays for, and never a longer one.

    Without `live`, no platform is queried for its prices; a machine without a known price then has no bound.

    Raises:
        LimitReached: The rest pays for less than `SHORTEST` seconds, or less than the stage's own limit.
    """
    price = price_of(launcher.platform, spec, live=live)
    if price is None and not live:
        return spec
    if price is None:  # `check_prices` found a price at the start of the launch
        raise LimitReached(
            f"{spec.stage} was not submitted: --max-cost requires a price for {spec.hardware}",
            hint="Set the hourly price of one machine in dollars (--price-per-hour 1.80), and run the command again.",
        )
    wanted = spec.time_limit or launcher.time_limit(spec)
    paid = int(share * max(0.0, budget.left) / price.per_hour * 3600 / spec.shards) - _STOPPING
    if paid < min(SHORTEST, wanted or SHORTEST):
        raise LimitReached(
            f"{spec.stage} was not submitted: of --max-cost {money_text(budget.limit)}, {money_text(budget.spent)} is "
            f"spent, and open jobs may spend {money_text(budget.committed)}. The rest pays for "
            f"{plural(max(0, paid) // 60, 'minute')} on {spec.shards} x {spec.hardware} at "
            f"{money_text(price.per_hour)} per hour",
            hint=f"A job needs at least {SHORTEST // 60} minutes. Raise --max-cost, or use fewer --shards or cheaper "
            "--hardware, and run the same command again.",
        )
    return replace(spec, time_limit=paid // 60 * 60 if wanted is None else min(wanted, max(paid // 60 * 60, SHORTEST)))


def most_text(platform: str, spec: JobSpec) -> str:
    """Return the maximum cost of a bounded submission: `at most $4.81: 1 x ml.g6e.2xlarge for 103 minutes at …`."""
    price = price_of(platform, spec)
    if price is None or spec.time_limit is None:
        return ""
    most = (spec.time_limit + _STOPPING) / 3600 * price.per_hour * spec.shards
    minutes = plural(round(spec.time_limit / 60), "minute")
    return (
        f"at most {money_text(most)}: {spec.shards} x {spec.hardware} for {minutes} at "
        f"{money_text(price.per_hour)} per hour ({price.words})"
    )
