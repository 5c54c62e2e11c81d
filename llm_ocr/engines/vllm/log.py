"""Copy a server's log to a file without secrets, and find facts, causes of failures, and remedies in it."""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import BinaryIO

_PROCESS = re.compile(r"^\(([^()]{1,60}) pid=\d+\)")
#: Once per engine; the device's name precedes "KV".
_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")
_BATCHED = re.compile(r"max_num_batched_tokens['\"]?[=:] ?(\d+)")
_SEQUENCES = re.compile(r"max_num_seqs['\"]?[=:] ?(\d+)")
#: Times of a start, as vLLM 0.11 to 0.25 prints them. The total includes the loading of what the cache has.
_COMPILED = re.compile(r"(?:torch\.compile|run together) (?:takes|took) ([\d.]+) s in total|\(compilation: ([\d.]+) s")
_COMPILING = re.compile(r"Compiling a graph .* takes [\d.]+ s")
_FROM_CACHE = re.compile(r"Directly load (?:the compiled graph\(s\)|AOT compilation)")
_CAPTURED = re.compile(r"Graph capturing finished in ([\d.]+) secs")


@dataclass(slots=True)
class LogFacts:
    """Sizes from the log; the values of several engines (data parallel) are added."""

    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    compile_seconds: float = 0.0
    graph_seconds: float = 0.0
    cached: bool = False  # compiled code came from vLLM's cache
    compiled: bool = False  # some of it did not
    _cache: dict[str, int] = field(default_factory=dict)

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that fit into the KV cache."""
        return sum(self._cache.values()) if self._cache else None

    def learn(self, line: str) -> None:
        """Extract the facts of a line; of several engines, the slowest counts."""
        if match := _COMPILED.search(line):
            self.compile_seconds = max(self.compile_seconds, float(match.group(1) or match.group(2)))
        if match := _CAPTURED.search(line):
            self.graph_seconds = max(self.graph_seconds, float(match.group(1)))
        self.cached = self.cached or bool(_FROM_CACHE.search(line))
        self.compiled = self.compiled or bool(_COMPILING.search(line))
        if match := _CACHE.search(line):
            process = _PROCESS.match(line)
            self._cache[process.group(1) if process else ""] = int(match.group(1).replace(",", ""))
        if "max_num_" in line:
            if match := _BATCHED.search(line):
                self.max_num_batched_tokens = int(match.group(1))
            if match := _SEQUENCES.search(line):
                self.max_num_seqs = int(match.group(1))


class Diagnosis(Enum):
    """Cause of a failure in a log line, most certain first: the first that matches counts.

    The pattern is that of messages of vLLM 0.11 to 0.32, transformers, huggingface_hub, and PyTorch. The hint is the
    remedy in one sentence.
    """

    def __init__(self, pattern: str, hint: str) -> None:
        self.pattern = re.compile(pattern, re.IGNORECASE)
        self.hint = hint

    OUT_OF_MEMORY = (  # fewer parallel sequences or tokens may help
        r"(cuda|hip) out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
        r"|cudaErrorMemoryAllocation",
        "The device's memory is too small. Lower `vllm_arg=--max-num-seqs=…`, `vllm_arg=--max-num-batched-tokens=…`,"
        " or `gpu_memory_utilization`, or use a larger GPU.",
    )
    DEVICE_TAKEN = (
        r"is less than desired (gpu|cpu) memory utilization",
        "Another process uses the device's memory (see nvidia-smi). End it, or lower `gpu_memory_utilization`.",
    )
    CACHE_TOO_SMALL = (
        r"no available memory for the cache blocks|larger than the (available kv cache|maximum number of tokens)",
        "The KV cache does not fit. Lower `max_model_len`, raise `gpu_memory_utilization`, or use a larger GPU.",
    )
    PORT_TAKEN = (
        r"address already in use(?!.*retrying)|EADDRINUSE",
        "Another process listens on that port. Choose another `vllm_port`, or remove it to use a free port.",
    )
    NO_REVISION = (
        r"RevisionNotFoundError|is not a valid git identifier|no such revision|revision not found",
        "The model has no such revision. Check `revision`.",
    )
    NO_MODEL = (  # before GATED: the Hub also answers 401 for a model that does not exist
        r"RepositoryNotFoundError|repository not found|is not a valid model identifier"
        r"|is not a local folder and is not|repo id must be|invalid repository id",
        "No such model. Check its name or folder. For a private model, set HF_TOKEN.",
    )
    GATED = (
        r"gated repo|GatedRepoError|\b401 client error|\b403 client error|invalid (username or password|user token)"
        r"|access to model .* is restricted",
        "The download of the model requires a login. Accept its license on its Hugging Face page and set HF_TOKEN.",
    )
    NOT_CACHED = (
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|couldn't connect to .*huggingface"
        r"|outgoing traffic has been disabled|cannot find the requested files in the (disk|local) cache",
        "The model is not in the cache and could not be downloaded. Run once with a network and without `offline`, or"
        " set `weights` to its folder.",
    )
    ARGUMENT = (
        r"error: (unrecognized arguments|argument |the following arguments|ambiguous option)|unrecognized arguments:",
        "This vLLM does not accept one of the arguments. See `vllm serve --help=all`, and check `vllm_arg`.",
    )
    NO_FILES = (
        r"no such file or directory: .?/\S*llm-ocr-\w+/key\.yaml|no module named .?llm_ocr_ngram",
        "`vllm_command` starts vLLM where the files of this machine are missing. Pass the key by name: docker run -e"
        " VLLM_API_KEY …",
    )
    ARCHITECTURE = (
        r"model architectures .* are not supported|does not recognize this architecture|no module or parameter named",
        "This version of vLLM does not support the model. Install a newer version.",
    )
    REMOTE_CODE = (
        r"trust_remote_code=True|please pass the argument .?trust.remote.code",
        "The model contains its own code. If you trust it, set `vllm_arg=--trust-remote-code` and `revision`.",
    )
    # CUDA's error codes: 803 is cudaErrorSystemDriverMismatch, 804 cudaErrorCompatNotSupportedOnDevice.
    DRIVER_TOO_OLD = (  # before NO_DEVICE, which it causes
        r"nvidia driver on your system is too old|error 803\b|unsupported display driver / cuda driver combination"
        r"|cudaErrorSystemDriverMismatch|cuda driver version is insufficient|cudaErrorInsufficientDriver",
        "The machine's NVIDIA driver is older than the CUDA that vLLM was built for. Use an image built for an older"
        " CUDA (a tag with cu129 or lower), set VLLM_ENABLE_CUDA_COMPATIBILITY=1 on a data center GPU (--env of"
        " launch), or use a machine with a newer driver.",
    )
    NO_COMPATIBILITY = (
        r"error 804\b|forward compatibility was attempted on non supported hw|cudaErrorCompatNotSupportedOnDevice",
        "The image's CUDA compatibility libraries do not work on this GPU, only on data center GPUs. Leave"
        " VLLM_ENABLE_CUDA_COMPATIBILITY unset, and use a newer driver or an image built for an older CUDA.",
    )
    NO_KERNEL = (
        r"no kernel image is available|cudaErrorNoKernelImageForDevice",
        "This build of vLLM has no code for this GPU's architecture. Use another GPU, or another image: a newer one"
        " for a new GPU, an older one for an old GPU.",
    )
    NO_DEVICE = (
        r"failed to infer device type|no cuda gpus are available|found no nvidia driver|libcuda\.so|libcudart\.so"
        r"|no cuda-capable device|invalid device ordinal|cuda unknown error",
        "vLLM found no usable GPU. Check nvidia-smi, the driver, and CUDA_VISIBLE_DEVICES, or use"
        " `engine=embedded` or `server_url`.",
    )
    DISK_FULL = (
        r"no space left on device|errno 28\b",
        "A disk is full. Free space in the model's cache (HF_HOME) or /dev/shm. Start containers with --ipc host.",
    )


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
    return next((diagnosis for diagnosis in Diagnosis if diagnosis.pattern.search(line)), None)


def bare(line: str) -> str:
    """Return a line without vLLM's prefix."""
    return line[match.end() :].strip() if (match := _PREFIX.match(line)) else line.strip()


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text: whole words, and an ellipsis if some are missing."""
    if len(text) <= most:
        return text
    end = text.rfind(" ", most // 2, most)  # a word longer than half of the text is cut
    return text[: end if end > 0 else most - 1].rstrip() + "…"


_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{16,}")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONGEST = 64 << 10  # bytes of a line; the rest is cut
_KEPT = 4000  # characters of a line kept in memory


class ServerLog:
    """Receiver of a server's output, for the lifetime of the server; `begin` starts each run.

    The file is appended to. At `bound` bytes it is renamed to `….1`, which replaces the previous one.
    """

    def __init__(self, path: Path | None, *, secrets: Iterable[str] = (), bound: int = 16 << 20) -> None:
        self.path = path
        self._bound = bound
        self._secrets = sorted({secret for secret in secrets if len(secret) >= 8}, key=len, reverse=True)
        self._file: BinaryIO | None = None
        self._size = 0
        self.unwritable = ""  # reason for a failed write; the server keeps running
        self._cold = 0.0  # seconds that an earlier start of this server compiled
        self._begin_reading()

    def _begin_reading(self) -> None:
        self._unfinished = b""
        self._tail: deque[str] = deque(maxlen=60)
        self._causes: deque[str] = deque(maxlen=20)
        self._diagnoses: set[Diagnosis] = set()
        self.facts = LogFacts()
        self.latest = ""  # the last line, or the last state of a progress bar

    def begin(self, headline: str) -> None:
        """Start a new run: forget the output of the last run, and write `headline` to the file."""
        self._begin_reading()
        self.unwritable = ""
        self._write(f"\n=== {self._clean(headline)}\n")

    def feed(self, data: bytes) -> None:
        """Process a piece of output, cut at any byte."""
        self._unfinished += data
        start = 0
        for end in _LINE_END.finditer(self._unfinished):
            if end.end() == len(self._unfinished) and end.group() == b"\r":
                break  # possibly the first half of \r\n
            self._take(self._unfinished[start : end.start()], whole=end.group() != b"\r")
            start = end.end()
        self._unfinished = self._unfinished[start:]
        if len(self._unfinished) > _LONGEST:
            self._take(self._unfinished, whole=True)
            self._unfinished = b""
        elif self._unfinished.strip():
            self.latest = self._line(self._unfinished)[:_KEPT]  # tqdm does not terminate the states of its bars

    def finish(self) -> None:
        """Process the end of the output."""
        if self._unfinished:
            self._take(self._unfinished.rstrip(b"\r"), whole=True)
            self._unfinished = b""

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def startup(self, seconds: float) -> str:
        """Return what a start of `seconds` seconds was spent on, and what vLLM's compile cache saved or will save."""
        facts = self.facts
        parts = []
        if facts.cached and not facts.compiled:
            before = f" instead of {self._cold:.0f} s" if self._cold > facts.compile_seconds else ""
            took = f" in {facts.compile_seconds:.1f} s" if facts.compile_seconds else ""
            parts.append(f"compiled code from vLLM's cache{took}{before}")
        elif facts.compile_seconds:
            self._cold = facts.compile_seconds
            parts.append(
                f"{facts.compile_seconds:.0f} s of it to compile, which a start with a warm compile cache saves"
            )
        if facts.graph_seconds:
            parts.append(f"{facts.graph_seconds:.0f} s for CUDA graphs")
        return f"started in {seconds:.0f} s{': ' if parts else ''}{', '.join(parts)}"

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Most certain cause of a failure since `begin`."""
        return next((diagnosis for diagnosis in Diagnosis if diagnosis in self._diagnoses), None)

    @property
    def out_of_memory(self) -> bool:
        """Whether the device ran out of memory since `begin`."""
        return Diagnosis.OUT_OF_MEMORY in self._diagnoses

    def informative_lines(self, count: int = 20) -> list[str]:
        """Return at most `count` lines about a failure: causes, first-hand ones first, then the end of the log."""
        second_hand = [line for line in self._causes if _SECOND_HAND.search(line)]
        first_hand = [line for line in self._causes if line not in second_hand]
        best = list(dict.fromkeys(bare(line) for line in [*reversed(first_hand), *second_hand]))[: count // 4]
        rest = [line for line in self._tail if bare(line).strip("^~ ") and bare(line) not in best]
        return [*best, *rest[-(count - len(best)) :]]

    @property
    def latest_words(self) -> str:
        """Return the end of the log in short form."""
        return shortened(bare(self.latest), 150)

    @property
    def last_words(self) -> str:
        """Return the single most informative line about the end of a server."""
        lines = self.informative_lines(4) if self._causes else [*self._tail][-1:]
        return shortened(bare(lines[0]), 300) if lines else ""

    def _take(self, raw: bytes, *, whole: bool) -> None:
        line = self._line(raw)
        if whole:
            self._write(line + "\n")
        if not line:
            return
        line = self.latest = line[:_KEPT]
        if not whole:
            return  # a state of a progress bar: the last state ends in a newline
        self._tail.append(line)
        self.facts.learn(line)
        if _CAUSE.match(bare(line)):
            self._causes.append(line)
        if diagnosis := diagnose(line):
            self._diagnoses.add(diagnosis)

    def _line(self, raw: bytes) -> str:
        return self._clean(raw.decode(errors="replace")).rstrip()

    def _clean(self, text: str) -> str:
        text = _COLOUR.sub("", text)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _TOKEN.sub("hf_***", text)

    def _write(self, text: str) -> None:
        if self.path is None or self.unwritable:
            return
        data = text.encode()
        try:
            if self._file is not None and self._size + len(data) > self._bound:
                self.close()
                self.path.replace(self.path.with_name(self.path.name + ".1"))
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("ab", buffering=0)
                self._size = self._file.tell()
            self._file.write(data)
            self._size += len(data)
        except OSError as error:
            self.unwritable = error.strerror or str(error)
            self.close()
