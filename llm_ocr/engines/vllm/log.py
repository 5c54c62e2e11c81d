"""Copy a server's log to a file without secrets, and parse it for facts."""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from llm_ocr.engines.vllm.log_diagnosis import (
    Diagnosis,
    bare,
    diagnose,
    informative_lines,
    is_cause,
    most_specific,
    shortened,
)

_PROCESS = re.compile(r"^\(([^()]{1,60}) pid=\d+\)")
#: vLLM prints both in one line or in two, once per engine; the device's name precedes "KV".
_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")
_BATCHED = re.compile(r"max_num_batched_tokens['\"]?[=:] ?(\d+)")
_SEQUENCES = re.compile(r"max_num_seqs['\"]?[=:] ?(\d+)")
#: Times of a start, as vLLM 0.11 to 0.25 prints them. The total includes the loading of what the cache has.
_COMPILED = re.compile(r"(?:torch\.compile|run together) (?:takes|took) ([\d.]+) s in total|\(compilation: ([\d.]+) s")
_COMPILING = re.compile(r"Compiling a graph .* takes [\d.]+ s")
_FROM_CACHE = re.compile(r"Directly load (?:the compiled graph\(s\)|AOT compilation)")
_CAPTURED = re.compile(r"Graph capturing finished in ([\d.]+) secs")

#: Steps of a start, with a percentage if the line has one. tqdm: "Loading safetensors checkpoint shards:  45% ...".
_STEPS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), step)
    for pattern, step in (
        (r"loading .{0,40}checkpoint shards:\s+(\d+)%", "loading weights {} %"),
        (r"(?:download|fetching|reconstructing|\.safetensors).{0,80}?(\d+)%\|", "downloading the model {} %"),
        (r"time spent downloading weights|loading weights took|model loading took", "weights loaded"),
        (r"starting to load model", "loading weights"),
        (r"capturing cuda graphs.{0,60}?(\d+)%", "capturing CUDA graphs {} %"),
        (r"torch\.compile takes|compiling a graph|start compiling|dynamo bytecode transform", "compiling"),
        (r"kv cache size|available kv cache memory|init engine", "warming up"),
        (r"resolved architecture|initializing a v1 llm engine", "preparing the engine"),
    )
)


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
    _concurrency: dict[str, float] = field(default_factory=dict)

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that fit into the KV cache."""
        return sum(self._cache.values()) if self._cache else None

    @property
    def max_concurrency(self) -> float | None:
        """Number of longest requests that fit at the same time."""
        return sum(self._concurrency.values()) if self._concurrency else None

    def learn(self, line: str) -> None:
        """Extract the facts of a line; of several engines, the slowest counts."""
        if match := _COMPILED.search(line):
            self.compile_seconds = max(self.compile_seconds, float(match.group(1) or match.group(2)))
        if match := _CAPTURED.search(line):
            self.graph_seconds = max(self.graph_seconds, float(match.group(1)))
        self.cached = self.cached or bool(_FROM_CACHE.search(line))
        self.compiled = self.compiled or bool(_COMPILING.search(line))
        if "oncurrency for" in line or "KV cache size" in line:
            process = match.group(1) if (match := _PROCESS.match(line)) else ""
            if match := _CACHE.search(line):
                self._cache[process] = int(match.group(1).replace(",", ""))
            if match := _CONCURRENCY.search(line):
                self._concurrency[process] = float(match.group(1))
        if "max_num_" in line:
            if match := _BATCHED.search(line):
                self.max_num_batched_tokens = int(match.group(1))
            if match := _SEQUENCES.search(line):
                self.max_num_seqs = int(match.group(1))


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
        self.step = ""  # progress of the start, such as "loading weights 45 %"

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
            self._notice(self._line(self._unfinished))  # tqdm does not terminate the states of its bars

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
        """Recognized cause of a failure since `begin`."""
        return most_specific(self._diagnoses)

    @property
    def out_of_memory(self) -> bool:
        """Whether the device ran out of memory since `begin`."""
        return Diagnosis.OUT_OF_MEMORY in self._diagnoses

    def informative_lines(self, count: int = 20) -> list[str]:
        """Return the most informative lines after a failure, causes first."""
        return informative_lines(list(self._causes), list(self._tail), count)

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
        if line:
            self._notice(line)
        if not whole or not line:
            return  # a state of a progress bar: the last state ends in a newline
        line = line[:_KEPT]
        self._tail.append(line)
        self.facts.learn(line)
        if is_cause(line):
            self._causes.append(line)
        if diagnosis := diagnose(line):
            self._diagnoses.add(diagnosis)

    def _notice(self, line: str) -> None:
        self.latest = line[:_KEPT]
        for pattern, step in _STEPS:
            if match := pattern.search(self.latest):
                self.step = step.format(*match.groups())
                return

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
