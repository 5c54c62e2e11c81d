"""What each worker has spent: one small file a worker and stage, replaced while it runs.

metrics/<worker>-<stage>.json

Markers tell what was published; this tells what was paid: tries that failed and pages lost in a crash too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from llm_ocr.errors import WorkspaceError
from llm_ocr.work import codec
from llm_ocr.work.workspace import Workspace

_FOLDER = "metrics/"


@dataclass(frozen=True, slots=True)
class Spending:
    """One worker in one stage. `items` are pages or figures that ended, `seconds` of the wall clock, prices per million
    tokens (None: not known); `engine` holds the numbers of `engines.asking.Load`.
    """

    worker: str
    stage: str
    batch_id: str = ""
    updated: str = ""  # ISO 8601, UTC
    items: int = 0
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    price_in: float | None = None
    price_out: float | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> float | None:
        """In the currency of the prices; None where there are none."""
        if self.price_in is None and self.price_out is None:
            return None
        return (self.tokens_in * (self.price_in or 0.0) + self.tokens_out * (self.price_out or 0.0)) / 1e6

    def to_json(self) -> dict[str, Any]:
        """JSON values, for `status --json`."""
        cost = self.cost
        speed = round(self.items / self.seconds, 3) if self.seconds else 0.0
        return {**asdict(self), "items_per_second": speed, "cost": None if cost is None else round(cost, 6)}


def write_spending(workspace: Workspace, spending: Spending) -> None:
    """Replace the worker's file. Raises `StorageError`."""
    workspace.store.put(f"{_FOLDER}{spending.worker}-{spending.stage}.json", codec.dump(asdict(spending)))


def spendings(workspace: Workspace) -> Iterator[Spending]:
    """All workers that have begun, in the order of their names. A file of another version is passed over."""
    names = Spending.__dataclass_fields__
    for info in workspace.store.list(_FOLDER):
        try:
            value = workspace.get_json(info.key)
        except WorkspaceError:
            continue  # numbers beside the work: a damaged file must not keep the status from being read
        yield Spending(**{name: value[name] for name in names if name in value})


def total_cost(found: list[Spending]) -> float | None:
    """Of all workers that know prices; None when none does."""
    costs = [cost for one in found if (cost := one.cost) is not None]
    return sum(costs) if costs else None
