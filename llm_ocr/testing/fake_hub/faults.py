"""Faults on demand: which request fails, how, and how often."""

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self


class How(StrEnum):
    """What happens to a request."""

    REFUSE = "refuse"  # answered with `status`, not done
    LOSE = "lose"  # done, and answered with `status`
    DROP = "drop"  # not done, the connection is closed without an answer
    CUT = "cut"  # done, and the connection is closed without an answer
    DELAY = "delay"  # done after `seconds`


@dataclass(frozen=True, slots=True)
class Fault:
    """`operation` is one of `server.ROUTES`, or empty for all; `name` a part of the path, empty for any.

    The first `after` requests that fit are left alone, then `times` are hit. `body` is sent instead of `message`.
    """

    operation: str = ""
    name: str = ""
    how: How = How.REFUSE
    status: int = 503
    times: int = 1
    after: int = 0
    seconds: float = 0.0
    message: str = "injected"
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        """From JSON. Raises `ValueError` for an unknown field or kind."""
        try:
            return cls(**{**value, "how": How(value.get("how", How.REFUSE))})
        except TypeError as error:
            raise ValueError(str(error)) from error

    def fits(self, operation: str, path: str) -> bool:
        """Whether it is for such a request."""
        return self.operation in ("", operation) and self.name in path


class Faults:
    """The faults that wait for their request. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []

    def add(self, *faults: Fault) -> None:
        """They are looked through in the order in which they were added."""
        with self._lock:
            self._waiting.extend(faults)

    def clear(self) -> None:
        """Forget those that have not happened."""
        with self._lock:
            self._waiting.clear()

    def listed(self) -> list[dict[str, Any]]:
        """Those that have not happened, for JSON."""
        with self._lock:
            return [asdict(fault) for fault in self._waiting]

    def take(self, operation: str, path: str) -> Fault | None:
        """The fault of this request; it is used up by one."""
        with self._lock:
            for place, fault in enumerate(self._waiting):
                if not fault.fits(operation, path):
                    continue
                if fault.after > 0:
                    self._waiting[place] = replace(fault, after=fault.after - 1)
                    continue
                left = replace(fault, times=fault.times - 1)
                self._waiting[place : place + 1] = [left] if left.times > 0 else []
                return fault
        return None
