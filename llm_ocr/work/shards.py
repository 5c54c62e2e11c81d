"""Which share of the units this machine does, where a platform numbers its machines."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_ocr.errors import UsageError

#: Where SageMaker writes which hosts there are: processing jobs, training jobs.
SAGEMAKER_FILES = (Path("/opt/ml/config/resourceconfig.json"), Path("/opt/ml/input/config/resourceconfig.json"))

_HINT = "Say which share this worker does: --shard-index I --shard-count N."


@dataclass(frozen=True, slots=True)
class DetectedShard:
    """Share number `index` (from 0) of `count`. `source` names the variable or file that says so."""

    index: int
    count: int
    source: str


def detected_shard(
    environment: Mapping[str, str], sagemaker_files: Iterable[Path] = SAGEMAKER_FILES
) -> DetectedShard | None:
    """What Cloud Run jobs, SageMaker or a Slurm job array say; None where nothing numbers the machines.

    Raises `UsageError` that names the variable or file when it says something impossible.
    """
    found = _cloud_run(environment) or _sagemaker(environment, sagemaker_files) or _slurm(environment)
    if found is not None and not 0 <= found.index < found.count:
        raise UsageError(f"{found.source} says share {found.index} of {found.count}, which does not exist", hint=_HINT)
    return found


def _cloud_run(environment: Mapping[str, str]) -> DetectedShard | None:
    if "CLOUD_RUN_TASK_INDEX" not in environment:
        return None
    index = _number(environment, "CLOUD_RUN_TASK_INDEX")
    return DetectedShard(index, _number(environment, "CLOUD_RUN_TASK_COUNT"), "CLOUD_RUN_TASK_INDEX")


def _sagemaker(environment: Mapping[str, str], files: Iterable[Path]) -> DetectedShard | None:
    for path in files:
        if path.is_file():
            return _of_file(path)
    if "SM_HOSTS" not in environment or "SM_CURRENT_HOST" not in environment:
        return None
    hosts = _readable(lambda: json.loads(environment["SM_HOSTS"]), "SM_HOSTS")
    return _host(hosts, environment["SM_CURRENT_HOST"], "SM_HOSTS")


def _of_file(path: Path) -> DetectedShard:
    config = _readable(lambda: json.loads(path.read_bytes()), str(path))
    if not isinstance(config, dict):
        raise UsageError(f"{path} is no JSON object", hint=_HINT)
    return _host(config.get("hosts"), config.get("current_host"), str(path))


def _readable(read: Callable[[], Any], source: str) -> Any:
    try:
        return read()
    except (OSError, ValueError) as error:
        raise UsageError(f"{source} cannot be read: {error}", hint=_HINT) from error


def _host(hosts: Any, current: Any, source: str) -> DetectedShard:
    """Every host sorts the same names in the same way."""
    if not isinstance(hosts, list) or hosts.count(current) != 1:
        raise UsageError(f"{source}: the host {current!r} is not one of {hosts!r}", hint=_HINT)
    return DetectedShard(sorted(hosts, key=str).index(current), len(hosts), source)


def _slurm(environment: Mapping[str, str]) -> DetectedShard | None:
    """Of a job array whose ids ascend in even steps; from others it cannot be told which of them comes how many-th."""
    if "SLURM_ARRAY_TASK_ID" not in environment:
        return None
    names = [f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "MIN", "MAX", "COUNT")]
    task, first, last, count = (_number(environment, name) for name in names)
    step = _step(environment, first, last, count)
    if not step or (task - first) % step:
        raise UsageError(
            f"SLURM_ARRAY_TASK_ID is {task} in an array of {count} from {first} to {last}: its ids are not even, so it "
            f"is not said which share this is",
            hint=f"Use --array=0-{max(count - 1, 0)}. {_HINT}",
        )
    return DetectedShard((task - first) // step, count, "SLURM_ARRAY_TASK_ID")


def _step(environment: Mapping[str, str], first: int, last: int, count: int) -> int:
    """Between two ids; 0 when they are not even."""
    name = "SLURM_ARRAY_TASK_STEP"
    said = _number(environment, name) if name in environment else 0
    # The last id may be given as the end of the range, which the steps need not meet.
    if said > 0 and first + said * (count - 1) <= last < first + said * count:
        return said
    step = (last - first) // (count - 1) if count > 1 else 1
    return step if step > 0 and first + step * (count - 1) == last else 0


def _number(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name)
    if value is None:
        raise UsageError(f"{name} is not set, though the platform's other variables are", hint=_HINT)
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}, which is no number", hint=_HINT) from None
