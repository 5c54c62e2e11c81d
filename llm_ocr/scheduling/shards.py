"""Static shards: the share of the units that this machine processes."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from llm_ocr.errors import UsageError
from llm_ocr.scheduling.leases import is_lease
from llm_ocr.scheduling.scanner import Claimed, Exhausted, PlannedUnits, Units
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.publish import is_done

#: Files in which SageMaker lists the hosts, for processing jobs and training jobs.
SAGEMAKER_FILES = (Path("/opt/ml/config/resourceconfig.json"), Path("/opt/ml/input/config/resourceconfig.json"))

_HINT = "Set the share of this worker: `shard_index` and `shard_count`."

#: Variables that number the machines of a job from 0: the index, and the number of machines ("": not available).
#: Cloud Run jobs: https://docs.cloud.google.com/run/docs/container-contract#jobs-env-vars
#: AWS Batch array jobs: https://docs.aws.amazon.com/batch/latest/userguide/job_env_vars.html
#: Google Batch: `TaskGroup.task_environments` in batch_v1/types/job.py of google-cloud-batch 0.22.4
#: Indexed Jobs of Kubernetes: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
#: SkyPilot, nodes of a job and jobs of one `sky jobs launch --num-jobs N`: sky/skylet/constants.py,
#: sky/jobs/controller.py, and sky/jobs/server/core.py of skypilot 0.14.1. All retrieved 2026-11.
_PAIRS = (
    ("CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT"),
    ("AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE"),
    ("BATCH_TASK_INDEX", "BATCH_TASK_COUNT"),
    ("JOB_COMPLETION_INDEX", ""),
)
_SKYPILOT = (("SKYPILOT_JOB_RANK", "SKYPILOT_NUM_JOBS"), ("SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"))


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """Every `count`-th unit, beginning with `index` (from 0). `source` is the variable or file that says so.

    Raises:
        UsageError: the index is out of range.
    """

    index: int = 0
    count: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.index < self.count:
            if self.source:
                raise UsageError(f"{self}, which does not exist", hint=_HINT)
            last = max(self.count, 1) - 1
            raise UsageError(
                f"shard {self.index} of {self.count} does not exist",
                hint=f"The index counts from 0: with `shard_count={last + 1}`, from 0 to {last}.",
            )

    def __str__(self) -> str:
        return f"{self.source} says share {self.index} of {self.count}"

    def of(self, units: Iterable[T]) -> Iterator[T]:
        """Yield `units[index::count]`. Finished units count too, so that no unit changes its shard."""
        return islice(units, self.index, None, self.count)

    def __contains__(self, place: int) -> bool:
        """Return whether the unit at this place of the plan is in the shard."""
        return place % self.count == self.index


WHOLE = Shard()


@dataclass(frozen=True, slots=True)
class Split:
    """Distribution of the units among workers: a static shard, or leases on any unit."""

    shard: Shard = WHOLE
    leases: bool = False

    @property
    def alone(self) -> bool:
        """Whether all units belong to this worker, as far as it can tell."""
        return not self.leases and self.shard.count == 1


def detected_shard(
    environment: Mapping[str, str],
    sagemaker_files: Iterable[Path] = SAGEMAKER_FILES,
    *,
    count: int | None = None,
) -> Shard | None:
    """Return the share that a platform assigns to this machine.

    Args:
        environment: Variables of this process.
        sagemaker_files: Files in which SageMaker lists the machines of a job.
        count: Number of shares that the user gave. Kubernetes does not publish the number of machines of a job.

    Returns:
        The share, or None if no platform numbers the machines.

    Raises:
        UsageError: A variable or file is invalid or incomplete, two platforms name different shares, or a platform has
            another number of machines than `count`.
    """
    detected = [_pair(environment, index, size, count) for index, size in _PAIRS]
    detected += [_sagemaker(environment, sagemaker_files), _slurm(environment), _skypilot(environment)]
    found = [shard for shard in detected if shard is not None]
    # Schedulers also number the only machine of a job.
    several = [shard for shard in found if shard.count > 1] or found[:1]
    if len({(shard.index, shard.count) for shard in several}) > 1:
        shares = " and ".join(map(str, several))
        raise UsageError(f"{shares}: two platforms number this machine differently", hint=_HINT)
    chosen = several[0] if several else None
    if chosen is None or count is None or chosen.count == count:
        return chosen
    if chosen.count == 1:
        return None
    raise UsageError(f"{chosen}, but `shard_count={count}`", hint=_HINT)


def _pair(environment: Mapping[str, str], index: str, count: str, given: int | None) -> Shard | None:
    if index not in environment:
        return None
    if count and (count in environment or given is None):
        return Shard(_number(environment, index), _number(environment, count), index)
    if given is None:
        raise UsageError(
            f"{index} is {environment[index]}, but the number of shares is unknown",
            hint="Set LLM_OCR_SHARD_COUNT to the number of machines of the job.",
        )
    return Shard(_number(environment, index), given, index)


def _skypilot(environment: Mapping[str, str]) -> Shard | None:
    """Read the rank of this job among the jobs of one command, and of this node in the job."""
    index, count, source = 0, 1, ""
    for rank, size in _SKYPILOT:
        # A job that was launched alone has the text "None" as its number of jobs.
        if rank in environment and environment.get(size) != "None":
            each = _number(environment, size)
            index, count = index * each + _number(environment, rank), count * each
            source = rank if each > 1 or not source else source
    return Shard(index, count, source) if source else None


def _sagemaker(environment: Mapping[str, str], files: Iterable[Path]) -> Shard | None:
    """Return the share by position in the sorted host names, which every host sorts identically."""
    path = next((path for path in files if path.is_file()), None)
    if path is None and ("SM_HOSTS" not in environment or "SM_CURRENT_HOST" not in environment):
        return None
    source = "SM_HOSTS" if path is None else str(path)
    try:
        value: object = json.loads(environment["SM_HOSTS"] if path is None else path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{source} cannot be read: {error}", hint=_HINT) from error
    hosts, current = value, environment.get("SM_CURRENT_HOST")
    if path is not None:
        if not isinstance(value, dict):
            raise UsageError(f"{path} is not a JSON object", hint=_HINT)
        hosts, current = value.get("hosts"), value.get("current_host")
    if not isinstance(hosts, list) or hosts.count(current) != 1:
        raise UsageError(f"{source}: the host {current!r} is not one of {hosts!r}", hint=_HINT)
    return Shard(sorted(hosts, key=str).index(current), len(hosts), source)


def _slurm(environment: Mapping[str, str]) -> Shard | None:
    """Return the share in a job array with evenly spaced ids. The position in other arrays is unknown."""
    if "SLURM_ARRAY_TASK_ID" not in environment:
        return None
    names = [f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "MIN", "MAX", "COUNT")]
    task, first, last, count = (_number(environment, name) for name in names)
    name = "SLURM_ARRAY_TASK_STEP"
    step = _number(environment, name) if name in environment else 0
    # The last id may be the end of the given range, which the steps need not meet.
    if step <= 0 or not first + step * (count - 1) <= last < first + step * count:
        step = (last - first) // (count - 1) if count > 1 else 1
        if first + step * (count - 1) != last:
            step = 0
    if step <= 0 or (task - first) % step:
        raise UsageError(
            f"SLURM_ARRAY_TASK_ID is {task} in an array of {count} from {first} to {last}: the ids are not evenly "
            f"spaced, so the share is unknown",
            hint=f"Use --array=0-{max(count - 1, 0)}. {_HINT}",
        )
    return Shard((task - first) // step, count, "SLURM_ARRAY_TASK_ID")


def _number(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name)
    if value is None:
        raise UsageError(f"{name} is not set, but other variables of the platform are", hint=_HINT)
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}, which is not a number", hint=_HINT) from None


class Sharded:
    """Claims units of a share one at a time: the alternative to `scanner.UnitScanner` without leases.

    The marker is checked again when a unit is taken, to skip units that another worker has finished. Two workers may
    take the same unit without harm, because only one publishes it.

    `done` are the names of finished or taken units; newly found names are added.
    """

    def __init__(
        self, workspace: Workspace, stage: str, key: str, units: Units[object], shard: Shard, done: set[str]
    ) -> None:
        self._workspace = workspace
        self._stage, self._key = stage, key
        self._units = units
        self._shard = shard
        self._done = done
        self._free: deque[int] = deque()

    def freshen(self, places: Iterable[int]) -> None:
        """Note that these places can be processed now."""
        self._free.extend(place for place in places if place in self._shard)

    def step(self) -> Claimed | Exhausted:
        """Return the next action."""
        while self._free:
            place = self._free.popleft()
            name = self._units.name(place)
            if name in self._done:
                continue
            self._done.add(name)
            if not is_done(self._workspace, self._stage, self._key, name):
                return Claimed(place)
        return Exhausted(0)


def has_unclaimed(workspace: Workspace, stage: str, key: str | None, shard: Shard = WHOLE) -> bool:
    """Return whether a unit of the shard has neither a marker nor a lease. `key` is None if the stage has not begun.

    Only object names are read. The lease of a crashed worker counts until it is removed.
    """
    units = PlannedUnits(workspace)
    places = shard.of(range(len(units)))
    if key is None:
        return any(True for _ in places)
    found = (info.key for info in workspace.store.list(f"{stage}/{key}/"))
    taken = {name.rpartition("/")[2].rpartition(".")[0] for name in found if name.endswith(".done") or is_lease(name)}
    return any(units.name(place) not in taken for place in places)
