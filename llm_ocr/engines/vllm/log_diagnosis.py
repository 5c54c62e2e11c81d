"""Find causes of failures and their remedies in a server's log."""

import re
from enum import StrEnum


class Diagnosis(StrEnum):
    """Cause of a failure in a log line, most certain first."""

    OUT_OF_MEMORY = "out of memory"  # fewer parallel sequences or tokens may help
    DEVICE_TAKEN = "device taken"
    CACHE_TOO_SMALL = "cache too small"
    PORT_TAKEN = "port taken"
    NO_REVISION = "no revision"
    NO_MODEL = "no model"  # before GATED: the Hub also answers 401 for a model that does not exist
    GATED = "gated"
    NOT_CACHED = "not cached"
    ARGUMENT = "argument"
    NO_FILES = "no files"
    ARCHITECTURE = "architecture"
    REMOTE_CODE = "remote code"
    DRIVER_TOO_OLD = "driver too old"  # before NO_DEVICE, which it causes
    NO_COMPATIBILITY = "no compatibility"
    NO_KERNEL = "no kernel"
    NO_DEVICE = "no device"
    DISK_FULL = "disk full"


#: Messages of vLLM 0.11 to 0.32, transformers, huggingface_hub, and PyTorch, in `Diagnosis`'s order: the first counts.
_SIGNS: dict[Diagnosis, tuple[str, str]] = {
    Diagnosis.OUT_OF_MEMORY: (
        r"(cuda|hip) out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
        r"|cudaErrorMemoryAllocation",
        "The device's memory is too small. Lower `vllm_arg=--max-num-seqs=…`, `vllm_arg=--max-num-batched-tokens=…`,"
        " or `gpu_memory_utilization`, or use a larger GPU.",
    ),
    Diagnosis.DEVICE_TAKEN: (
        r"is less than desired (gpu|cpu) memory utilization",
        "Another process uses the device's memory (see nvidia-smi). End it, or lower `gpu_memory_utilization`.",
    ),
    Diagnosis.CACHE_TOO_SMALL: (
        r"no available memory for the cache blocks|larger than the (available kv cache|maximum number of tokens)",
        "The KV cache does not fit. Lower `max_model_len`, raise `gpu_memory_utilization`, or use a larger GPU.",
    ),
    Diagnosis.PORT_TAKEN: (
        r"address already in use(?!.*retrying)|EADDRINUSE",
        "Another process listens on that port. Choose another `vllm_port`, or remove it to use a free port.",
    ),
    Diagnosis.NO_REVISION: (
        r"RevisionNotFoundError|is not a valid git identifier|no such revision|revision not found",
        "The model has no such revision. Check `revision`.",
    ),
    Diagnosis.NO_MODEL: (
        r"RepositoryNotFoundError|repository not found|is not a valid model identifier"
        r"|is not a local folder and is not|repo id must be|invalid repository id",
        "No such model. Check its name or folder. For a private model, set HF_TOKEN.",
    ),
    Diagnosis.GATED: (
        r"gated repo|GatedRepoError|\b401 client error|\b403 client error|invalid (username or password|user token)"
        r"|access to model .* is restricted",
        "The download of the model requires a login. Accept its license on its Hugging Face page and set HF_TOKEN.",
    ),
    Diagnosis.NOT_CACHED: (
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|couldn't connect to .*huggingface"
        r"|outgoing traffic has been disabled|cannot find the requested files in the (disk|local) cache",
        "The model is not in the cache and could not be downloaded. Run once with a network and without `offline`, or"
        " set `weights` to its folder.",
    ),
    Diagnosis.ARGUMENT: (
        r"error: (unrecognized arguments|argument |the following arguments|ambiguous option)|unrecognized arguments:",
        "This vLLM does not accept one of the arguments. See `vllm serve --help=all`, and check `vllm_arg`.",
    ),
    Diagnosis.NO_FILES: (
        r"no such file or directory: .?/\S*llm-ocr-\w+/key\.yaml|no module named .?llm_ocr_ngram",
        "`vllm_command` starts vLLM where the files of this machine are missing. Pass the key by name: docker run -e"
        " VLLM_API_KEY …",
    ),
    Diagnosis.ARCHITECTURE: (
        r"model architectures .* are not supported|does not recognize this architecture|no module or parameter named",
        "This version of vLLM does not support the model. Install a newer version.",
    ),
    Diagnosis.REMOTE_CODE: (
        r"trust_remote_code=True|please pass the argument .?trust.remote.code",
        "The model contains its own code. If you trust it, set `vllm_arg=--trust-remote-code` and `revision`.",
    ),
    # CUDA's error codes: 803 is cudaErrorSystemDriverMismatch, 804 cudaErrorCompatNotSupportedOnDevice.
    Diagnosis.DRIVER_TOO_OLD: (
        r"nvidia driver on your system is too old|error 803\b|unsupported display driver / cuda driver combination"
        r"|cudaErrorSystemDriverMismatch|cuda driver version is insufficient|cudaErrorInsufficientDriver",
        "The machine's NVIDIA driver is older than the CUDA that vLLM was built for. Use an image built for an older"
        " CUDA (a tag with cu129 or lower), set VLLM_ENABLE_CUDA_COMPATIBILITY=1 on a data center GPU (--env of"
        " launch), or use a machine with a newer driver.",
    ),
    Diagnosis.NO_COMPATIBILITY: (
        r"error 804\b|forward compatibility was attempted on non supported hw|cudaErrorCompatNotSupportedOnDevice",
        "The image's CUDA compatibility libraries do not work on this GPU, only on data center GPUs. Leave"
        " VLLM_ENABLE_CUDA_COMPATIBILITY unset, and use a newer driver or an image built for an older CUDA.",
    ),
    Diagnosis.NO_KERNEL: (
        r"no kernel image is available|cudaErrorNoKernelImageForDevice",
        "This build of vLLM has no code for this GPU's architecture. Use another GPU, or another image: a newer one"
        " for a new GPU, an older one for an old GPU.",
    ),
    Diagnosis.NO_DEVICE: (
        r"failed to infer device type|no cuda gpus are available|found no nvidia driver|libcuda\.so|libcudart\.so"
        r"|no cuda-capable device|invalid device ordinal|cuda unknown error",
        "vLLM found no usable GPU. Check nvidia-smi, the driver, and CUDA_VISIBLE_DEVICES, or use"
        " `engine=embedded` or `server_url`.",
    ),
    Diagnosis.DISK_FULL: (
        r"no space left on device|errno 28\b",
        "A disk is full. Free space in the model's cache (HF_HOME) or /dev/shm. Start containers with --ipc host.",
    ),
}

_PATTERNS = {diagnosis: re.compile(pattern, re.IGNORECASE) for diagnosis, (pattern, _) in _SIGNS.items()}

#: vLLM's prefix of a line: "(EngineCore_DP0 pid=12) ERROR 11-21 01:01:18 [core.py:133] ".
_PREFIX = re.compile(
    r"^(\([^()]{1,60} pid=\d+\) ?)?((DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \[[^\]]+\] ?)?"
)
#: The last line of a traceback, or of argparse.
_CAUSE = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b|[\w.\- ]+: error:)")
#: Causes that only report the failure of another process.
_SECOND_HAND = re.compile(
    r"engine core (initialization|proc)|EngineDeadError|EngineCore .*died|see stack trace|root cause above"
    r"|WorkerProc init|SystemExit|KeyboardInterrupt|CancelledError|resource_tracker|worker failed with error",
    re.IGNORECASE,
)


def diagnose(line: str) -> Diagnosis | None:
    """Return the cause in a line; None without a cause."""
    return next((diagnosis for diagnosis, pattern in _PATTERNS.items() if pattern.search(line)), None)


def hint_for(diagnosis: Diagnosis | None) -> str:
    """Return the remedy in one sentence, "" if unknown."""
    return _SIGNS[diagnosis][1] if diagnosis else ""


def most_specific(diagnoses: set[Diagnosis]) -> Diagnosis | None:
    """Return the most certain of several causes."""
    return next((diagnosis for diagnosis in Diagnosis if diagnosis in diagnoses), None)


def bare(line: str) -> str:
    """Return a line without vLLM's prefix."""
    return line[match.end() :].strip() if (match := _PREFIX.match(line)) else line.strip()


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text: whole words, and an ellipsis if some are missing."""
    if len(text) <= most:
        return text
    end = text.rfind(" ", most // 2, most)  # a word longer than half of the text is cut
    return text[: end if end > 0 else most - 1].rstrip() + "…"


def is_cause(line: str) -> bool:
    """Return whether a line names an exception, or an argument that argparse refused."""
    return bool(_CAUSE.match(bare(line)))


def informative_lines(causes: list[str], tail: list[str], count: int = 20) -> list[str]:
    """Return at most `count` informative lines: the causes, first-hand ones first, then the end of the log."""
    first_hand = [line for line in causes if not _SECOND_HAND.search(line)]
    second_hand = [line for line in causes if _SECOND_HAND.search(line)]
    best = list(dict.fromkeys(bare(line) for line in [*reversed(first_hand), *second_hand]))[: count // 4]
    rest = [line for line in tail if bare(line).strip("^~ ") and bare(line) not in best]
    return [*best, *rest[-(count - len(best)) :]]
