"""What each worker has spent: one small file a worker and stage, replaced while it runs.

metrics/<worker>-<stage>.json
metrics/<worker>-<stage>.series.json            the same over time: `work.series`

Markers tell what was published; this tells what was paid: tries that failed and pages lost in a crash too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from llm_ocr.errors import ObjectNotFound, WorkspaceError
from llm_ocr.storage import ObjectInfo
from llm_ocr.work import codec
from llm_ocr.work.ahead import read_ahead
from llm_ocr.work.keys import EXTRACT
from llm_ocr.work.workspace import Workspace

FOLDER = "metrics/"
#: How the files of `work.series` end.
SERIES = ".series.json"


@dataclass(frozen=True, slots=True)
class Spending:
    """One worker in one stage. `items` are pages or figures that ended, `seconds` of the wall clock, prices per million
    tokens (None: not known); `engine` holds the numbers of `engines.asking.Load`.

    `price_per_hour` is of the worker's machine, and `paid` the seconds of it: from the worker's begin, or the end of
    its stage before, start-up included.
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
    price_per_hour: float | None = None
    paid: float = 0.0
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> float | None:
        """Of tokens and machine, in the currency of the prices; None where there are none."""
        return _sum([self.token_cost, self.hour_cost])

    @property
    def hour_cost(self) -> float | None:
        """Of the machine; None where its price is not known."""
        return None if self.price_per_hour is None else self.paid / 3600 * self.price_per_hour

    @property
    def token_cost(self) -> float | None:
        """Of the tokens; None where these have no price."""
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
    workspace.store.put(f"{FOLDER}{spending.worker}-{spending.stage}.json", codec.dump(asdict(spending)))


def is_series(key: str) -> bool:
    """Whether it is a file of `work.series`."""
    return key.endswith(SERIES)


def spendings(workspace: Workspace) -> Iterator[Spending]:
    """All workers that have begun, in the order of their names. A file of another version is passed over."""
    yield from Records(workspace).read()


class Records:
    """The files of all workers, for who reads them again and again: what has not changed is not fetched anew."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, tuple[str, Spending | None]] = {}  # by key: the object's version, and what is in it

    def read(self) -> list[Spending]:
        """As `spendings`, as they stand now. Raises `StorageError`."""
        found = [info for info in self._workspace.store.list(FOLDER) if not is_series(info.key)]
        values = list(read_ahead(self._one, found, "metrics"))
        self._known = {info.key: (info.version, value) for info, value in zip(found, values, strict=True)}
        return [value for value in values if value is not None]

    def _one(self, info: ObjectInfo) -> Spending | None:
        version, value = self._known.get(info.key, ("", None))
        if version and version == info.version:
            return value
        try:
            return _from_json(self._workspace.get_json(info.key))
        except (ObjectNotFound, WorkspaceError, TypeError, ValueError):
            return None  # numbers beside the work: a damaged file must not keep the status from being read


def _from_json(value: Mapping[str, Any]) -> Spending:
    """Raises ValueError for a value of another type than its field's."""
    usual = asdict(Spending(worker="", stage=""))
    kinds = {name: type(default) for name, default in usual.items() if name in value}
    for name, kind in kinds.items():
        numbers = kind in (int, float) or (kind is type(None) and value[name] is not None)
        wanted: Any = (int, float) if numbers else kind
        if not isinstance(value[name], wanted) or isinstance(value[name], bool):
            raise ValueError(f"{name}: {value[name]!r}")
    return Spending(**{name: value[name] for name in kinds})


def pages_per_second(found: Sequence[Spending]) -> float | None:
    """Return the mean speed of one worker in Extract, its start-up aside; None before the first page."""
    readers = [one for one in found if one.stage == EXTRACT and one.items and one.seconds > 0]
    return sum(one.items for one in readers) / sum(one.seconds for one in readers) if readers else None


def total_cost(found: Sequence[Spending]) -> float | None:
    """Of all workers that know prices; None when none does."""
    return _sum(one.cost for one in found)


def hours_cost(found: Sequence[Spending]) -> float | None:
    """The part of `total_cost` that is for machines by the hour; None where no price of one is known."""
    return _sum(one.hour_cost for one in found)


def _sum(costs: Iterable[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
