"""Faults: seeded by image or triggered on request."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

# Random faults are seeded by the image and by its number of earlier requests, so that runs repeat. Others have
# triggers. Written as KIND=VALUE.
#
# Random faults, where the value is the share of requests:
#   429, 503        refused, with Retry-After
#   400             BadRequestError
#   500             InternalServerError
#   reset           the connection is reset before the answer
#   reset-within    ... after half of the answer
#   truncated       the answer ends properly after half of its text, without finish_reason
#   stream-error    an error event in the middle of the stream, as when vLLM's engine fails
#   hang            the request is accepted and never answered
#
# Triggers:
#   retry-after=S         seconds in Retry-After (1)
#   too-long=BYTES        image URLs of more bytes are "longer than the context"
#   max-inflight=N        429 for requests beyond N at a time, as providers do
#   slow-start=S          503 on everything for S seconds
#   silent-start=S        does not listen for S seconds
#   hang-after=N, hang-after-seconds=S, hang-image=HASHPREFIX
#                         the engine stops, for all requests; /health stays 200
#   die-after=N, die-after-seconds=S, die-image=HASHPREFIX, die-prompt=TEXT
#                         the process is gone, as after kill -9
#   oom-after=N           the process exits with CUDA's out-of-memory traceback
#   engine-death=1        as vLLM after its worker was killed: requests in flight receive 500, then the process exits
#   only-starts=N         the hang, die, and oom triggers apply to the first N starts only (needs --state-file)


RATES = ("400", "429", "503", "500", "reset", "reset-within", "truncated", "stream-error", "hang")


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults of a simulator; None and "" mean never."""

    rates: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    retry_after: float = 1.0
    too_long: int | None = None
    max_inflight: int | None = None
    slow_start: float = 0.0
    silent_start: float = 0.0
    hang_after: int | None = None
    hang_after_seconds: float | None = None
    hang_image: str = ""
    die_after: int | None = None
    die_after_seconds: float | None = None
    die_image: str = ""
    die_prompt: str = ""
    oom_after: int | None = None
    engine_death: int = 0
    only_starts: int | None = None

    def drawn(self, seed: int, image: str, time: int) -> str:
        """Return the random fault, or "", for request number `time` (from 0) with this image."""
        if not self.rates:
            return ""
        digest = sha256(f"{seed}|{image}|{time}".encode()).digest()
        left = int.from_bytes(digest[:6]) / 2**48
        for kind, rate in self.rates.items():
            left -= rate
            if left < 0:
                return kind
        return ""

    def calmed(self) -> "Faults":
        """Return the faults without those that hang or kill the whole server."""
        return replace(
            self,
            hang_after=None,
            hang_after_seconds=None,
            hang_image="",
            die_after=None,
            die_after_seconds=None,
            die_image="",
            die_prompt="",
            oom_after=None,
        )


_KINDS = {one.name.replace("_", "-"): one for one in fields(Faults) if one.name != "rates"}


def faults_of(settings: Mapping[str, Any]) -> Faults:
    """Return the faults for kinds and values.

    Raises:
        ValueError: A kind is unknown. The error names the known kinds.
    """
    rates = {kind: float(value) for kind, value in settings.items() if kind in RATES}
    if any(not 0 <= rate <= 1 for rate in rates.values()) or sum(rates.values()) > 1 + SLACK:
        raise ValueError(f"shares of faults must lie between 0 and 1, their sum too: {rates}")
    triggers: dict[str, Any] = {}
    for kind, value in settings.items():
        if kind in RATES:
            continue
        if kind not in _KINDS:
            raise ValueError(f"no fault {kind!r}; there are: {', '.join((*RATES, *_KINDS))}")
        triggers[_KINDS[kind].name] = _converted(str(_KINDS[kind].type), value)
    return Faults(MappingProxyType(rates), **triggers)


#: Tolerance for sums of shares: ten times 0.1 is slightly more than 1.
SLACK = 1e-9


def _converted(kind: str, value: Any) -> int | float | str:
    if "int" in kind:
        return int(value)
    return float(value) if "float" in kind else str(value)


def parsed(words: Iterable[str]) -> dict[str, str]:
    """Return KIND=VALUE words as a mapping; raise ValueError for other words."""
    pairs = [word.partition("=") for word in words]
    for kind, equals, value in pairs:
        if not (kind and equals and value):
            raise ValueError(f"a fault is written KIND=VALUE, not {kind}{equals}{value}")
    return {kind: value for kind, _, value in pairs}


class State:
    """Counts in a file with one line per event: a process that is killed at any time loses no written line."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._asked: Counter[str] = Counter()
        lines = path.read_text().splitlines() if path and path.exists() else []
        for line in lines:
            kind, _, name = line.partition(" ")
            if kind == "asked":
                self._asked[name] += 1
        self.starts = 1 + sum(line == "start" for line in lines)
        self._write("start")

    def count(self, image: str) -> int:
        """Return the number of earlier requests with this image, and count this one."""
        before = self._asked[image]
        self._asked[image] += 1
        self._write(f"asked {image}")
        return before

    def _write(self, line: str) -> None:
        if self._path:
            with self._path.open("a") as file:
                file.write(line + "\n")
