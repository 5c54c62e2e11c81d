"""The live numbers of an engine, as a few words for the progress line."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from llm_ocr.engines.asking import Load

#: Seconds over which the speed is measured.
WINDOW = 30.0


@dataclass(slots=True)
class EngineMeter:
    """Reads the numbers when it is asked for words; knows how many tokens came in the last half minute."""

    load: Callable[[], Load]
    clock: Callable[[], float]
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._seen.append((self.clock(), self.load().tokens_out))

    def words(self) -> str:
        """`5,310 tok/s, 120 of 128 in flight, 7 waiting, 2 busy, 1 lost, 1 restart`; what is zero is left out."""
        load = self.load()
        if not load.servers:
            return "server starting" if not load.answers else "server restarting"
        parts = [f"{self._speed(load.tokens_out):,.0f} tok/s", f"{load.in_flight} of {load.window} in flight"]
        parts += [f"{load.waiting} waiting"] if load.waiting else []
        named = ((load.busy, "busy"), (load.lost, "lost"), (load.restarts, "restarted"))
        return ", ".join([*parts, *(f"{count} {name}" for count, name in named if count)])

    def _speed(self, tokens: int) -> float:
        moment = self.clock()
        self._seen.append((moment, tokens))
        while len(self._seen) > 2 and self._seen[1][0] <= moment - WINDOW:
            self._seen.popleft()
        first, before = self._seen[0]
        return (tokens - before) / (moment - first) if moment > first else 0.0
