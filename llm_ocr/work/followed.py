"""Units one by one for a worker that follows the stage before: as soon as that one has published them."""

import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from llm_ocr.work.leased import Found, Over, Pause, told
from llm_ocr.work.ready import Ready


class Taking(Protocol):
    """Finds units for this worker among those that are ready: `work.leased.Search` or `work.claim.Sharded`."""

    def freshen(self, places: Iterable[int]) -> None:
        """These places are ready now."""

    def step(self) -> Found | Pause | Over:
        """The next thing to do."""


@dataclass(slots=True)
class Patience:
    """How long a worker pauses between two looks (seconds), and what it says meanwhile.

    Pauses grow from `first` to `longest`. `say` is told at the first one what is waited for, and every `remind` seconds
    in which nothing came that it still is.
    """

    say: Callable[[str], None]
    first: float = 2.0
    longest: float = 30.0
    remind: float = 300.0
    clock: Callable[[], float] = time.monotonic
    _pause: float = field(init=False, default=0.0)
    _since: float | None = field(init=False, default=None)  # when something came last
    _said: float | None = field(init=False, default=None)

    def came(self) -> None:
        """There is something to do: the next pause is short again."""
        self._pause, self._since = 0.0, self.clock()

    def pause(self, what: str, nothing: str = "nothing came") -> float:
        """The next pause; `what` is waited for, and `nothing` is what happened meanwhile."""
        now = self.clock()
        if self._since is None:
            self._since = now
        if self._said is None:
            self.say(f"waiting for {what}")
            self._said = now
        elif now - max(self._said, self._since) >= self.remind:
            self.say(f"waiting for {what} ({nothing} for {round((now - self._since) / 60)} min)")
            self._said = now
        self._pause = min(self.longest, 1.5 * self._pause) or self.first
        return self._pause


def followed(
    taking: Taking,
    ready: Ready,
    patience: Patience,
    wait: Callable[[float], bool],
    grown: Callable[[], bool] = lambda: False,
) -> Generator[int, None, bool]:
    """Places of units, until the stage before has published all and this worker's are taken, or `wait` says stop.

    Ends with true when the plan has `grown` before that: then its new units, and what was left, are to be followed.
    Raises `StorageError`.
    """
    while True:
        step = taking.step()
        if isinstance(step, Found):
            yield step.place
        elif fresh := ready.look() if ready.missing else []:
            taking.freshen(fresh)
            patience.came()
        elif grown():
            return True
        elif ready.missing or isinstance(step, Pause):
            seconds = patience.pause(*_what(ready))
            if wait(min(seconds, step.seconds) if isinstance(step, Pause) else seconds):
                return False
        else:
            if step.held:
                patience.say(told(step))
            return False


def _what(ready: Ready) -> tuple[str, str]:
    if ready.missing:
        return f"{ready.missing} of {ready.total} units of {ready.stage}", "none published"
    return "units that other workers hold", "none given up"
