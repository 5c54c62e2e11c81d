"""Which units are this worker's."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from llm_ocr.errors import UsageError
from llm_ocr.types import Unit
from llm_ocr.work.publish import is_done, missing
from llm_ocr.work.workspace import Workspace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """Every `count`-th of the units, beginning with `index` (from 0). Raises `UsageError` for an impossible one."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.index < self.count:
            last = max(self.count, 1) - 1
            raise UsageError(
                f"shard {self.index} of {self.count} does not exist",
                hint=f"The index counts from 0: with --shard-count {last + 1} it is 0 to {last}.",
            )

    def of(self, units: Iterable[T]) -> Iterator[T]:
        """`units[index::count]`: counted over the whole plan, done or not, so that no unit changes hands."""
        return islice(units, self.index, None, self.count)


WHOLE = Shard()


def claim(workspace: Workspace, stage: str, key: str, units: Iterable[Unit], shard: Shard = WHOLE) -> Iterator[Unit]:
    """This worker's units that have no marker.

    The marker is looked for again when a unit is taken: what another worker has finished since is left out. Two workers
    that take the same unit do no harm, for only one of them publishes it.
    """
    for unit in missing(workspace, stage, key, shard.of(units)):
        if not is_done(workspace, stage, key, unit.id):
            yield unit
