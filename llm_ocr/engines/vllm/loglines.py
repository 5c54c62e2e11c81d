"""What a server's log tells on its way: facts, and how far the start has come."""

import re
from dataclasses import dataclass, field

_PROCESS = re.compile(r"^\(([^()]{1,60}) pid=\d+\)")
#: vLLM prints both in one line or in two, once per engine; the device's name stands before "KV".
_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")
_BATCHED = re.compile(r"max_num_batched_tokens['\"]?[=:] ?(\d+)")
_SEQUENCES = re.compile(r"max_num_seqs['\"]?[=:] ?(\d+)")

#: Steps of a start, with a percentage where the line has one. tqdm: "Loading safetensors checkpoint shards:  45% ...".
_STEPS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), told)
    for pattern, told in (
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


def step_of(line: str) -> str | None:
    """How far a start has come by this line, "loading weights 45 %"; None when it does not say."""
    for pattern, told in _STEPS:
        if match := pattern.search(line):
            return told.format(*match.groups())
    return None


@dataclass(slots=True)
class LogFacts:
    """What the log has told of the server's sizes; several engines (data parallel) are added up."""

    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    _cache: dict[str, int] = field(default_factory=dict)
    _concurrency: dict[str, float] = field(default_factory=dict)

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that fit into the KV cache."""
        return sum(self._cache.values()) if self._cache else None

    @property
    def max_concurrency(self) -> float | None:
        """Requests of the longest length that fit at once."""
        return sum(self._concurrency.values()) if self._concurrency else None

    def learn(self, line: str) -> None:
        """Take what the line tells."""
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
