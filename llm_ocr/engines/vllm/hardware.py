"""Which GPUs there are, and whether vLLM is installed."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Sequence

from llm_ocr.config.environment import environment
from llm_ocr.errors import ServerError

#: `nvidia-smi -L`: "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-…)", and below it "  MIG 1g.5gb Device 0: (UUID: MIG-…)".
_GPU = re.compile(r"^GPU (\d+):.*\(UUID: ([^)]+)\)", re.MULTILINE)
_MIG = re.compile(r"^\s+MIG .*\(UUID: (MIG-[^)]+)\)", re.MULTILINE)


def gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, each as CUDA_VISIBLE_DEVICES names it: its number or its UUID.

    Empty where there is no NVIDIA driver.
    """
    listed = _listed()
    return visible(listed, environment().get("CUDA_VISIBLE_DEVICES")) if listed else ()


def gpu_memory() -> dict[str, int]:
    """Bytes of memory of each GPU that this process may use, by the names of `gpus`.

    Without those of which it is not known: parts of a divided GPU have less than the whole, which is what is told.
    """
    answer = _asked("--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
    sizes = memory_in(answer)
    return {name: sizes[name] for name in gpus() if name in sizes}


def memory_in(text: str) -> dict[str, int]:
    """Bytes by number and by UUID, from `nvidia-smi --query-gpu=index,uuid,memory.total` without units (MiB)."""
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    sound = [row for row in rows if len(row) == 3 and row[2].isdigit()]
    return {name: int(row[2]) << 20 for row in sound for name in row[:2]}


def vllm_installed(command: Sequence[str] = ("vllm",)) -> bool:
    """Whether servers can be started by this command."""
    package = importlib.util.find_spec("vllm") if tuple(command) == ("vllm",) else None
    if package is not None and package.origin is not None:  # a folder of that name is no package
        return True
    from llm_ocr.engines.vllm.server import found

    try:
        found(command, environment().get("PATH"))
    except ServerError:
        return False
    return True


def parsed(text: str) -> tuple[str, ...]:
    """The devices in what `nvidia-smi -L` prints: numbers, or UUIDs of the parts where a GPU is divided (MIG)."""
    parts = tuple(_MIG.findall(text))
    return parts or tuple(number for number, _ in _GPU.findall(text))


def visible(listed: Sequence[str], setting: str | None) -> tuple[str, ...]:
    """Those of the listed devices that CUDA_VISIBLE_DEVICES leaves; CUDA stops at the first that is not there."""
    if setting is None:
        return tuple(listed)
    kept: list[str] = []
    for name in (part.strip() for part in setting.split(",")):
        there = name in listed or name.startswith(("GPU-", "MIG-"))
        if not there or name in kept:
            break
        kept.append(name)
    return tuple(kept)


def _listed() -> tuple[str, ...]:
    return parsed(_asked("-L"))


def _asked(*arguments: str) -> str:
    """What `nvidia-smi` prints; "" where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""  # a driver that hangs or cannot be asked is one that vLLM could not use either
    return done.stdout if done.returncode == 0 else ""
