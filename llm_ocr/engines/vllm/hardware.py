"""List the GPUs and check whether vLLM is installed."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Sequence

from llm_ocr.config.environment import environment
from llm_ocr.errors import ServerError

#: `nvidia-smi -L`: "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-…)", followed by "  MIG 1g.5gb Device 0: (UUID: MIG-…)".
_GPU = re.compile(r"^GPU (\d+):.*\(UUID: ([^)]+)\)", re.MULTILINE)
_MIG = re.compile(r"^\s+MIG .*\(UUID: (MIG-[^)]+)\)", re.MULTILINE)


def gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES: number or UUID.

    The result is empty without an NVIDIA driver.
    """
    listed = parsed(_nvidia_smi("-L"))
    return visible(listed, environment().get("CUDA_VISIBLE_DEVICES")) if listed else ()


def gpu_memory() -> dict[str, int]:
    """Return the bytes of memory of each GPU that this process may use, by the names of `gpus`.

    GPUs of unknown memory are missing: parts of a divided GPU have less memory than the reported total.
    """
    mebibytes = numbers_in(_nvidia_smi("--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"))
    return {name: mebibytes[name] << 20 for name in gpus() if name in mebibytes}


def gpu_capability() -> dict[str, int]:
    """Return the major compute capability of each GPU that this process may use, by the names of `gpus`."""
    majors = numbers_in(_nvidia_smi("--query-gpu=index,uuid,compute_cap", "--format=csv,noheader"))
    return {name: majors[name] for name in gpus() if name in majors}


def numbers_in(text: str) -> dict[str, int]:
    """Return the whole number in each row of `nvidia-smi --query-gpu=index,uuid,...`, by the GPU's number and UUID."""
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    numbers = {name: row[2].partition(".")[0] for row in rows if len(row) == 3 for name in row[:2]}
    return {name: int(number) for name, number in numbers.items() if number.isdigit()}


def vllm_installed(command: Sequence[str] = ("vllm",)) -> bool:
    """Return whether this command can start servers."""
    package = importlib.util.find_spec("vllm") if tuple(command) == ("vllm",) else None
    if package is not None and package.origin is not None:  # a folder of that name is not a package
        return True
    from llm_ocr.engines.vllm.server import found

    try:
        found(command, environment().get("PATH"))
    except ServerError:
        return False
    return True


def parsed(text: str) -> tuple[str, ...]:
    """Parse the output of `nvidia-smi -L`: numbers, or the UUIDs of the parts of a divided GPU (MIG)."""
    parts = tuple(_MIG.findall(text))
    return parts or tuple(number for number, _ in _GPU.findall(text))


def visible(listed: Sequence[str], setting: str | None) -> tuple[str, ...]:
    """Return the listed devices that CUDA_VISIBLE_DEVICES allows; CUDA stops at the first missing device."""
    if setting is None:
        return tuple(listed)
    kept: list[str] = []
    for name in (part.strip() for part in setting.split(",")):
        there = name in listed or name.startswith(("GPU-", "MIG-"))
        if not there or name in kept:
            break
        kept.append(name)
    return tuple(kept)


def _nvidia_smi(*arguments: str) -> str:
    """Return the output of `nvidia-smi`; "" without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""  # vLLM could not use a hung or unreachable driver either
    return done.stdout if done.returncode == 0 else ""
