"""What jobs on platforms have cost so far, from what launches left in the workspace when they were over.

launches/<id>/<stage>-<n>.end.json
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llm_ocr.costs.tables import DOLLARS, money_text
from llm_ocr.errors import ObjectNotFound, WorkspaceError
from llm_ocr.work.stored import LAUNCHES
from llm_ocr.work.workspace import Workspace

_END = ".end.json"
#: The platform that nobody pays by the hour.
_UNBILLED = "local"


@dataclass(frozen=True, slots=True)
class Spent:
    """One submission of a stage that is over. None: not known.

    `seconds` are those billed, summed over its machines; `price_per_hour` is of one machine; times in seconds since
    1970.
    """

    launch: str
    submission: str  # "extract-1"
    stage: str
    platform: str
    hardware: str
    machines: int | None = None
    seconds: float | None = None
    price_per_hour: float | None = None
    currency: str = DOLLARS
    cost: float | None = None
    started: float | None = None
    ended: float | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON values, for `status --json`."""
        return asdict(self)


def spent(workspace: Workspace) -> list[Spent]:
    """Every submission that is over, in the order of launches, stages and numbers. A damaged file is passed over.

    Raises `StorageError` when the store cannot be read.
    """
    return sorted(_found(workspace), key=_order)


def totals(found: Sequence[Spent]) -> Mapping[str, float]:
    """Money by currency, of those whose cost is known."""
    sums: Counter[str] = Counter()
    for one in found:
        if one.cost is not None:
            sums[one.currency] += one.cost  # type: ignore[assignment]  # a Counter adds floats as well
    return {currency: round(float(value), 6) for currency, value in sums.items()}


def unknown(found: Sequence[Spent]) -> int:
    """Submissions whose cost is not known; those on one's own machine have no bill."""
    return sum(one.cost is None and one.platform != _UNBILLED for one in found)


def spent_to_json(found: Sequence[Spent]) -> dict[str, Any]:
    """For `status --json`: sums, and each submission."""
    return {"total": dict(totals(found)), "unknown": unknown(found), "jobs": [one.to_json() for one in found]}


def spent_text(found: Sequence[Spent]) -> str:
    """`$4.12 for jobs (extract $3.90 on hf-jobs:a100-large, describe $0.22 on …); 1 submission: cost not known`."""
    parts = []
    if sums := totals(found):
        money = " and ".join(money_text(value, currency) for currency, value in sums.items())
        parts.append(f"{money} for jobs ({', '.join(_stages(found))})")
    if missing := unknown(found):
        parts.append(f"{missing} {'submission' if missing == 1 else 'submissions'} of which the cost is not known")
    return "; ".join(parts)


def _stages(found: Sequence[Spent]) -> Iterator[str]:
    sums: dict[tuple[str, str, str, str], float] = {}
    for one in found:
        if one.cost is not None:
            key = one.stage, one.platform, one.hardware, one.currency
            sums[key] = sums.get(key, 0.0) + one.cost
    for (stage, platform, hardware, currency), value in sums.items():
        yield f"{stage} {money_text(value, currency)} on {platform}:{hardware}"


def _found(workspace: Workspace) -> Iterator[Spent]:
    for info in workspace.store.list(f"{LAUNCHES}/"):
        if not info.key.endswith(_END):
            continue
        try:
            value = workspace.get_json(info.key)
        except (WorkspaceError, ObjectNotFound):
            continue  # numbers beside the work: they must not keep the status from being read
        launch, _, name = info.key.removeprefix(f"{LAUNCHES}/").partition("/")
        yield _spent(launch, name.removesuffix(_END), value)


def _spent(launch: str, submission: str, value: Mapping[str, Any]) -> Spent:
    machines = _number(value.get("machines"))
    return Spent(
        launch,
        submission,
        stage=str(value.get("stage") or submission.rpartition("-")[0]),
        platform=str(value.get("platform") or "unknown"),
        hardware=str(value.get("hardware") or "unknown"),
        machines=None if machines is None else int(machines),
        seconds=_number(value.get("seconds")),
        price_per_hour=_number(value.get("price_per_hour")),
        currency=str(value.get("currency") or DOLLARS),
        cost=_number(value.get("cost")),
        started=_number(value.get("started")),
        ended=_number(value.get("ended")),
    )


def _order(one: Spent) -> tuple[str, float, int, str]:
    stages = ("pipeline", "extract", "describe", "assemble")
    rank = stages.index(one.stage) if one.stage in stages else len(stages)
    return one.launch, one.started or 0.0, rank, one.submission


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
