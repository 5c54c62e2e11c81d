"""What Cloud Run's machines are, and which cores and memory go together on them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.launch import GPU_STAGES

#: A task without GPU; the name is ours, Cloud Run has none for it.
CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Machine:
    """GPUs of a task; the least cores and GiB that go with them, and what it gets where the user does not say."""

    gpus: int
    least_cpu: int
    least_memory: int
    cpu: int
    memory: int
    preview: bool = False  # offered before general availability


#: Minima: docs.cloud.google.com/run/docs/configuring/jobs/gpu. One GPU a task, never more.
MACHINES: Mapping[str, Machine] = MappingProxyType(
    {
        "nvidia-l4": Machine(1, 4, 16, 8, 32),
        "nvidia-rtx-pro-6000": Machine(1, 20, 80, 20, 80, preview=True),
        CPU: Machine(0, 1, 0, 2, 4),
    }
)

#: Cores -> most GiB with them, up to 8 cores; docs.cloud.google.com/run/docs/configuring/jobs/cpu, 2026.
_MOST_MEMORY = MappingProxyType({1: 4, 2: 8, 4: 16, 6: 24, 8: 32})

_MEMORY = re.compile(r"(\d+)(Gi|Mi)")


@dataclass(frozen=True, slots=True)
class Size:
    """Cores of a task, and its memory as Cloud Run writes it."""

    cpu: int
    memory: str


def machine(hardware: str) -> Machine:
    """The machine of that name. Raises `UsageError` with the nearest names."""
    if hardware in MACHINES:
        return MACHINES[hardware]
    close = get_close_matches(hardware.lower(), MACHINES, n=2, cutoff=0.4)
    near = f"Did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(
        f"Cloud Run has no hardware {hardware!r}", hint=f"{near}--hardware takes one of {', '.join(MACHINES)}."
    )


def size(stage: str, hardware: str, options: Mapping[str, Any]) -> Size:
    """Cores and memory of a task: `--cpu` and `--memory`, checked; else what fits the GPU. Raises `UsageError`."""
    found = machine(hardware)
    cpu, memory = options.get("cpu"), options.get("memory")
    gib = None if memory is None else _gib(memory)
    small = stage not in GPU_STAGES and not found.gpus
    if small and ((cpu or 0) > max(_MOST_MEMORY) or (gib or 0) > max(_MOST_MEMORY.values())):
        cpu, memory, gib = None, None, None  # of a pipeline's GPU stages: no machine without GPU is that large
    if cpu is None:
        cpu = found.cpu if gib is None else max(found.cpu, _cores_for(gib))
    if gib is None:
        gib = min(found.memory, _MOST_MEMORY.get(cpu, found.memory))
        memory = f"{int(gib)}Gi"
    _check(hardware, found, cpu, gib, str(memory))
    return Size(cpu, str(memory))


def _check(hardware: str, found: Machine, cpu: int, gib: float, memory: str) -> None:
    if cpu < found.least_cpu or gib < found.least_memory:
        raise UsageError(
            f"{hardware} needs at least {found.least_cpu} cores and {found.least_memory}Gi, "
            f"not {cpu} cores and {memory}",
            hint="Raise --cpu and --memory, or leave both out.",
        )
    if found.least_cpu > max(_MOST_MEMORY):  # a larger class of machines: the platform says what goes together there
        return
    if cpu not in _MOST_MEMORY:
        raise UsageError(
            f"--cpu {cpu}: a task has {', '.join(map(str, _MOST_MEMORY))} cores", hint="Choose one of them."
        )
    if gib > _MOST_MEMORY[cpu]:
        enough = next((cores for cores, most in _MOST_MEMORY.items() if gib <= most), None)
        raise UsageError(
            f"{cpu} cores go with at most {_MOST_MEMORY[cpu]}Gi, not {memory}",
            hint=f"Use --cpu {enough}, or less --memory." if enough else "At most 32Gi, with --cpu 8.",
        )


def _cores_for(gib: float) -> int:
    return next((cores for cores, most in _MOST_MEMORY.items() if gib <= most), 0)


def _gib(memory: str) -> float:
    found = _MEMORY.fullmatch(memory)
    if found is None:
        raise UsageError(f"--memory {memory}: must be a number with Gi or Mi", hint="For example --memory 32Gi.")
    return int(found[1]) / (1 if found[2] == "Gi" else 1024)
