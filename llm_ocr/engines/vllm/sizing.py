"""Plan the servers of one machine: their number, the GPUs of each, and their sizes.

Measured on one H200 with 16 cores (vLLM 0.25.1, DeepSeek-OCR's architecture, 1,000 tokens per page, 26 November 2026;
benchmarks/results/gpu_h200.json):

    servers  sequences  image threads  pages/min  GPU busy
    1        64         1              314        39 %       vLLM's n-gram processor; the engine process at one core
    1        64         8              362        49 %
    1        128        8              414        52 %       1.5 waves of pages: half of the run is draining
    2        64         8              546        97 %       1.5 waves of pages

A small model's GPU waits for vLLM's engine process, which uses one core. A second engine on the same GPU is then worth
its memory. It is not on a slower GPU, which the engines would only share: each reads the weights for its own sequences.
One thread decoded and preprocessed 6.6 images per second, and eight up to 30.
"""

import math
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from llm_ocr.config.environment import environment
from llm_ocr.engines.vllm.command import ServeOptions, Sizes, number_of, value_of
from llm_ocr.errors import ServerError, UsageError
from llm_ocr.models.choosing import BESIDE, KV_BYTES, share_of
from llm_ocr.models.profile import Profile
from llm_ocr.types import plural

#: Sequences per engine: more were not measured, and graphs for them take memory and start-up time.
MOST_SEQUENCES = 128
_FEWEST_SEQUENCES = 8
#: Sequences for which each of two engines on a GPU must have memory; with fewer, one engine with more is better.
_WORTH_AN_ENGINE = 64
#: Major compute capabilities of GPUs with at least 3 TB/s of memory bandwidth: Hopper and Blackwell of data centers.
_FAST = (9, 10)
#: Bytes of weights up to which the engine process, and not the GPU, limits: 3.3 billion parameters in 16 bits did.
_SMALL_MODEL = 10e9
#: Cores per GPU for two engines: a core for each engine process and its API server, and the rest for images.
_CORES_FOR_TWO = 8
_MOST_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """CUDA_VISIBLE_DEVICES of each server ("" leaves it unchanged), sizes of each, and the reason as a sentence."""

    devices: tuple[str, ...]
    sizes: Sizes
    why: str


def plan(
    profile: Profile,
    options: ServeOptions,
    gpus: Sequence[str],
    *,
    cores: int,
    memory: Mapping[str, int],
    capability: Mapping[str, int],
    weights: float,
) -> Plan:
    """Return the number of servers and their sizes.

    There is one group of servers per GPU, or per group of GPUs that tensor parallelism requires: copies of a model need
    no communication. With data parallelism there is one server in total.

    Args:
        profile: Profile of the model.
        options: Options of the servers.
        gpus: Names as in CUDA_VISIBLE_DEVICES (`gpus`); empty without GPUs.
        cores: Cores of this machine.
        memory: Bytes of each GPU by name; empty if unknown.
        capability: Major compute capability of each GPU by name; empty if unknown.
        weights: Bytes of the model's weights; 0 if unknown.

    Raises:
        UsageError: There are not enough GPUs, or several servers per GPU contradict another option.
    """
    split, copies = split_over(profile, options)
    needed, parallel = split * copies, copies > 1
    groups = _groups(options, gpus, needed, parallel=parallel)
    given = [*profile.server_args, *options.preset, *options.args]
    chosen = options.gpu_memory_utilization is not None or any(
        value_of(given, name) is not None for name in ("gpu-memory-utilization", "kv-cache-memory-bytes")
    )
    share = options.gpu_memory_utilization or share_of(profile)
    least = min((memory[name] for name in gpus if name in memory), default=0)

    def sequences(engines: int) -> int:
        """Return the sequences for which each of several engines on a GPU has memory."""
        free = share * least / engines - weights / needed - BESIDE
        return int(free / ((profile.kv_bytes or KV_BYTES) * profile.page_tokens / needed))

    engines = options.replicas_per_gpu
    if engines is not None and engines > 1 and (parallel or needed > 1):
        raise UsageError(
            f"`replicas_per_gpu={engines}`: each server uses {plural(needed, 'GPU')}",
            hint="Remove it, or remove `tensor_parallel_size` and `data_parallel_size`.",
        )
    if engines is None:
        free_choice = needed == 1 and not parallel and options.replicas is None and not chosen
        fast = bool(gpus) and all(capability.get(name) in _FAST for name in gpus)
        room = cores // len(groups) >= _CORES_FOR_TWO and least > 0 and sequences(2) >= _WORTH_AN_ENGINE
        engines = 2 if free_choice and fast and room and 0 < weights <= _SMALL_MODEL else 1
    # Without the model's own size of a token, too few sequences would cost more than vLLM's queue for memory.
    most = sequences(engines) // 8 * 8 if least and weights and profile.kv_bytes else MOST_SEQUENCES
    sizes = Sizes(
        max_num_seqs=min(MOST_SEQUENCES, max(_FEWEST_SEQUENCES, most)),
        renderer_workers=min(_MOST_WORKERS, max(1, cores // (len(groups) * engines) - 2)),
        gpu_memory_utilization=math.floor(100 * share / engines) / 100 if engines > 1 else None,
    )
    workers = f"{plural(sizes.renderer_workers, 'thread')} for images"
    why = f"up to {number_of(given, 'max-num-seqs') or sizes.max_num_seqs} sequences and {workers} each"
    if engines > 1:
        reason = "" if options.replicas_per_gpu else ", since one engine process cannot keep it busy with a small model"
        why = f"{engines} servers per GPU{reason} (`replicas_per_gpu=1` for one); {why}"
    return Plan(tuple(group for group in groups for _ in range(engines)), sizes, why)


def _groups(options: ServeOptions, gpus: Sequence[str], needed: int, *, parallel: bool) -> list[str]:
    """Return CUDA_VISIBLE_DEVICES of each group of `needed` GPUs; "" leaves it unchanged."""
    if not gpus:
        return [""] * (options.replicas or 1)
    possible = len(gpus) // needed
    wanted = options.replicas or (1 if parallel else possible)
    if wanted > possible or not possible:
        raise UsageError(
            f"{wanted or 1} server{'s' if wanted > 1 else ''} of {needed} GPU{'s' if needed > 1 else ''} each"
            f" need more than the {len(gpus)} available GPUs",
            hint="Lower `replicas`, `tensor_parallel_size`, or `data_parallel_size`. For several servers on a GPU, set"
            " `replicas_per_gpu`.",
        )
    if wanted == 1 and possible == 1 and len(gpus) == needed:
        return [""]
    return [",".join(gpus[start : start + needed]) for start in range(0, wanted * needed, needed)]


def split_over(profile: Profile, options: ServeOptions) -> tuple[int, int]:
    """Return the GPUs of one copy of the model, and the copies in one server."""
    # The precedence of `serve_command`: `vllm_arg` over options over the profile.
    tensor = number_of(options.args, "tensor-parallel-size") or options.tensor_parallel
    data = number_of(options.args, "data-parallel-size") or options.data_parallel
    words = [*profile.server_args, *options.args]
    pipeline = number_of(words, "pipeline-parallel-size") or 1
    tensor = tensor or number_of(profile.server_args, "tensor-parallel-size") or 1
    data = data or number_of(profile.server_args, "data-parallel-size") or 1
    return tensor * pipeline, data


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


def vllm_installed(command: Sequence[str]) -> bool:
    """Return whether this command can start servers."""
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
    return _output(program, arguments) if program else ""


@cache
def _output(program: str, arguments: tuple[str, ...]) -> str:
    """Return a program's output, "" if it fails. Only the first call of a process runs it: it may take seconds."""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""  # vLLM could not use a hung or unreachable driver either
    return done.stdout if done.returncode == 0 else ""
