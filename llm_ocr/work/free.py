"""Whether there is a unit that a worker could begin now, from the names of what stands in the workspace."""

from llm_ocr.work.claim import WHOLE, Shard
from llm_ocr.work.lease_groups import PlannedUnits
from llm_ocr.work.leases import is_lease
from llm_ocr.work.workspace import Workspace

_DONE = ".done"


def free_units(workspace: Workspace, stage: str, key: str | None, shard: Shard = WHOLE) -> bool:
    """Whether a unit of the shard has neither a marker nor a lease; `key` None: the stage has not begun.

    A lease of a worker that died counts until it is gone.
    """
    units = PlannedUnits(workspace)
    places = shard.of(range(len(units)))
    if key is None:
        return any(True for _ in places)
    found = (info.key for info in workspace.store.list(f"{stage}/{key}/"))
    taken = {name.rpartition("/")[2].rpartition(".")[0] for name in found if name.endswith(_DONE) or is_lease(name)}
    return any(units.name(place) not in taken for place in places)
