"""Build the command line and environment of `vllm serve`."""

import os
import shlex
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llm_ocr.config.environment import server_environment
from llm_ocr.errors import UsageError
from llm_ocr.models.profile import Profile

#: Short forms of arguments (vLLM's engine arguments).
_SHORT = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-dpl": "data-parallel-size-local",
    "-q": "quantization",
}


def argument_name(word: str) -> str | None:
    """Return the argument that a word names, "max-num-seqs" for `--no-max_num_seqs=8`; None for a value.

    vLLM accepts `_` for `-`, `--name=value`, `--no-name` for switches, and `--name.key value` for JSON arguments. All
    of them are the argument `name`.
    """
    if word.startswith("--") and len(word) > 2:
        name = word[2:].partition("=")[0].partition(".")[0].replace("_", "-").lower()
        return name.removeprefix("no-")
    return _SHORT.get(word.partition("=")[0])


def groups(arguments: Iterable[str]) -> list[list[str]]:
    """Group each argument with its values. Values before the first argument form their own group."""
    found: list[list[str]] = []
    for word in arguments:
        if argument_name(word) is not None or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return found


def overridden(defaults: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Return our words without the arguments in `chosen`, then `chosen` unchanged."""
    named = {argument_name(word) for word in chosen} - {None}
    kept = [word for group in groups(defaults) if argument_name(group[0]) not in named for word in group]
    return [*kept, *chosen]


def value_of(arguments: Sequence[str], name: str) -> str | None:
    """Return the last value of an argument, "" for a switch without a value, None for a missing argument."""
    value = None
    for group in groups(arguments):
        if argument_name(group[0]) == name:
            _, has_value, inline = group[0].partition("=")
            value = inline if has_value else " ".join(group[1:])
    return value


def number_of(arguments: Sequence[str], name: str) -> int | None:
    """Return the last value of an argument as an integer; None without a valid integer.

    vLLM parses `8k` as 8,000 and `8K` as 8,192 for counts of tokens.
    """
    value = value_of(arguments, name) or ""
    scale = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}.get(value[-1:], 0)
    digits = value[:-1] if scale else value
    try:
        return int(float(digits) * scale) if scale else int(digits)
    except ValueError:
        return None


#: Address of the servers that we start: no other machine reaches them.
LOOPBACK = "127.0.0.1"


def free_port(wanted: int) -> int | None:
    """Return `wanted` if the port is free (any free port for 0), or None if it is in use.

    The port is not reserved until the server binds it, so the caller must be ready to try another port.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As in vLLM: connections of the previous server, which remain for a minute, do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, wanted))
        except OSError:
            return None
        return int(probe.getsockname()[1])


#: Arguments that the client must control to reach the server, and secrets, which `ps` shows to all local users.
_RESERVED = {
    "host": "llm-ocr chooses the address of the server",
    "port": "use `vllm_port`",
    "uds": "llm-ocr connects to the server's port",
    "served-model-name": "llm-ocr names the model itself",
    "api-key": "llm-ocr creates a key for each server and passes it itself",
    "config": "set each argument with `vllm_arg`; llm-ocr passes the server's key in a file of its own",
    "hf-token": "set HF_TOKEN in the environment",
    "model": "use `model`",
}

#: `--stream-interval` is from vLLM pull request 27869, merged in November 2025; first released in 0.12.0.
_STREAM_INTERVAL_SINCE = (0, 12, 0)
_STREAM_INTERVAL = 50  # tokens per event of a streamed answer
#: `--renderer-num-workers` is in vLLM 0.25.0. Older versions need more API servers instead, of 1.5 GB each.
_RENDERER_WORKERS_SINCE = (0, 25, 0)
_MOST_API_SERVERS = 4

#: Python modules that vLLM's own processes load from the server's PYTHONPATH.
IN_SERVER = Path(__file__).with_name("in_server")
#: vLLM's processors against repeated n-grams. Ours has the same rule and parameters at a tenth of the time.
_NGRAM_PROCESSORS = frozenset(
    {
        "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor",
        "vllm.model_executor.models.unlimited_ocr:NGramPerReqLogitsProcessor",
    }
)
_NGRAM_PROCESSOR = "llm_ocr_ngram:NoRepeatNgram"
_KEY = "VLLM_API_KEY"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of each server that llm_ocr plans; every other source of the same argument has precedence."""

    max_num_seqs: int | None = None
    renderer_workers: int = 1  # threads that decode and preprocess images
    gpu_memory_utilization: float | None = None  # 0..1, of one of several servers on a GPU


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of managed servers. None leaves the choice to the profile or to vLLM.

    `command` is any prefix before the word `serve`: `/other/bin/vllm`, or a container. A container must share the
    network and receive the key and the devices by name: `docker run --rm --init --gpus all --network host --ipc host -e
    VLLM_API_KEY -e CUDA_VISIBLE_DEVICES --entrypoint vllm IMAGE`. A command that names VLLM_API_KEY shares no files
    with this process: it receives the key in the environment, and vLLM's own processors are used.
    """

    command: tuple[str, ...] = ("vllm",)
    args: tuple[str, ...] = ()  # from `vllm_arg`, unchanged and last
    # arguments for the type of GPU: override the profile's, overridden by all chosen options
    preset: tuple[str, ...] = ()
    model: str | None = None  # id or folder that replaces the profile's model
    revision: str | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    replicas: int | None = None
    replicas_per_gpu: int | None = None
    max_model_len: int | None = None  # tokens
    gpu_memory_utilization: float | None = None  # 0..1 of a device
    port: int | None = None  # of the first replica; the others follow
    model_cache: Path | None = None
    compile_cache: Path | None = None
    offline: bool = False
    startup_timeout: float = 1800.0  # seconds, including the download of the model
    log_folder: Path | None = None  # None: the log is kept in memory only
    sizes: Sizes = Sizes()

    @property
    def shares_files(self) -> bool:
        """Whether the server can read this process's files: False for a container that receives the key by name."""
        return not any(_KEY in word for word in self.command)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that are lowered step by step after the device ran out of memory."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


def serve_command(
    profile: Profile,
    options: ServeOptions,
    port: int,
    *,
    version: tuple[int, ...] = (),
    limits: Limits = Limits(),
) -> list[str]:
    """Return the words of `vllm serve` for a model.

    The order is: model, listening address, defaults, the profile's arguments, `options.preset`, options,
    `options.args`. An argument of a later group replaces the same argument of an earlier group, whether written
    `--x=y`, `--x y`, `--x`, or `--no-x`. `options.args` are passed unchanged and last. `limits` override even those,
    for a server that ran out of memory. Devices and the key are passed in the environment.

    Args:
        profile: Profile of the model.
        options: Options of the server.
        port: Port to listen on.
        version: Version of vLLM, () if unknown. Arguments that an older version lacks are left out.
        limits: Lowered limits.

    Raises:
        UsageError: `options.args` contain a secret, or an argument that would make the server unreachable.
    """
    for group in groups(options.args):
        name = argument_name(group[0])
        if name in _RESERVED:
            raise UsageError(f"`vllm_arg` cannot set --{name}: {_RESERVED[name]}")
        # A value before the first argument would be a second model; `--name value` in one word is not an argument.
        if name is None or " " in name:
            hint = "Use the form `vllm_arg=--name=value`."
            raise UsageError(f"`vllm_arg`: {group[0]!r} is not an argument of vLLM", hint=hint)
    model = options.model or profile.model
    sizes = options.sizes
    # A profile's revision belongs to the profile's model and is meaningless for another model.
    own_revision = profile.revision if options.model in (None, profile.model) else None
    arguments = ["--max-model-len", str(profile.context), "--disable-uvicorn-access-log"]
    if profile.trust_remote_code:
        arguments.append("--trust-remote-code")
    if version >= _STREAM_INTERVAL_SINCE:
        arguments += ["--stream-interval", str(_STREAM_INTERVAL)]
    arguments += given(max_num_seqs=sizes.max_num_seqs, gpu_memory_utilization=sizes.gpu_memory_utilization)
    for later in (
        profile.server_args,
        options.preset,
        given(
            revision=options.revision or own_revision,
            tensor_parallel_size=options.tensor_parallel,
            data_parallel_size=options.data_parallel,
            max_model_len=options.max_model_len,
            gpu_memory_utilization=sizes.gpu_memory_utilization or options.gpu_memory_utilization,
        ),
        options.args,
        given(max_num_seqs=limits.max_num_seqs, max_num_batched_tokens=limits.max_num_batched_tokens),
    ):
        arguments = overridden(arguments, later)
    if (workers := sizes.renderer_workers) > 1 and version:
        # vLLM's cache of preprocessed images cannot be shared by threads. Each API server has a cache of its own, and
        # data parallelism sets their number.
        if version >= _RENDERER_WORKERS_SINCE and number_of(arguments, "mm-processor-cache-gb") == 0:
            arguments = overridden(["--renderer-num-workers", str(workers)], arguments)
        elif value_of(arguments, "data-parallel-size") is None:
            arguments = overridden(["--api-server-count", str(min(workers, _MOST_API_SERVERS))], arguments)
    address = ["--host", LOOPBACK, "--port", str(port), "--served-model-name", model]
    return [*options.command, "serve", model, *address, *arguments]


def given(**values: object) -> list[str]:
    """Return the words of the arguments whose value is not None."""
    words = ((f"--{name.replace('_', '-')}", value) for name, value in values.items() if value is not None)
    return [word for name, value in words for word in (name, str(value))]


def with_own_processor(argv: Sequence[str]) -> list[str]:
    """Return the command with our processor against repeated n-grams in the place of a profile's."""
    return [_NGRAM_PROCESSOR if word in _NGRAM_PROCESSORS else word for word in argv]


def shown(argv: Sequence[str]) -> str:
    """Return the command as text to read and paste."""
    path = f"PYTHONPATH={shlex.quote(str(IN_SERVER))} " if _NGRAM_PROCESSOR in argv else ""
    return path + shlex.join(argv)


_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD")


def server_env(options: ServeOptions, *, key: str = "", devices: str = "") -> dict[str, str]:
    """Return the server's environment: the allowed part of this process's environment, and its own variables.

    `devices` sets CUDA_VISIBLE_DEVICES; "" leaves the variable unchanged. vLLM's usage reports are off. `key` is set
    only for a server that cannot read our files: up to 0.25, vLLM hashes VLLM_API_KEY into the key of its compile
    cache and writes it there in plain text, so that each new key misses the cache.
    """
    # One thread per process for image preprocessing; more threads compete with each other.
    made = {"OMP_NUM_THREADS": "1"} | server_environment()
    made |= {"PYTHONUNBUFFERED": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if options.shares_files:
        made["PYTHONPATH"] = os.pathsep.join(filter(None, (str(IN_SERVER), made.get("PYTHONPATH"))))
    elif key:
        made[_KEY] = key
    if devices:
        made["CUDA_VISIBLE_DEVICES"] = devices
    if options.model_cache:
        # Weights, tokenizers, and configurations; --download-dir would move only the weights.
        made["HF_HUB_CACHE"] = str(options.model_cache.absolute())
    if options.compile_cache:
        made["VLLM_CACHE_ROOT"] = str(options.compile_cache.absolute())
    if options.offline:
        made |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return made


def secrets_of(environment: dict[str, str]) -> list[str]:
    """Return the values that must not appear in a log."""
    return [value for name, value in environment.items() if name.upper().endswith(_SECRET)]
