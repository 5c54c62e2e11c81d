"""What goes wrong on purpose in the stand-in for Google Cloud Storage."""

import random
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class How(StrEnum):
    """What happens to a request."""

    STATUS = "status"  # an error is answered
    DROP = "drop"  # the connection is closed without an answer
    CUT = "cut"  # the answer ends in its middle, then the connection
    SHORT = "short"  # of a chunk of a resumable upload only half is kept, and the answer says so
    DELAY = "delay"  # the answer is late by `seconds`


class When(StrEnum):
    """Whether the request is done all the same."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, with which requests and how often.

    `operation` is one of list, stat, read, write, start, chunk, delete, patch, compose, rewrite, bucket, token; empty
    for all of them. `match` is a part of the object's name. `rate` is the share of the requests that are hit, from 0
    to 1, and `count` the most of them (None: no limit). `skip` lets the first ones through.
    """

    how: How = How.STATUS
    when: When = When.BEFORE
    operation: str = ""
    match: str = ""
    rate: float = 1.0
    count: int | None = None
    skip: int = 0
    status: int = 503
    reason: str = "backendError"
    message: str = "We encountered an internal error. Please try again."
    seconds: float = 0.0

    @staticmethod
    def of(value: Mapping[str, Any]) -> "Fault":
        """From JSON. Raises `ValueError` for what is no fault."""
        try:
            fault = Fault(**value)
        except TypeError as error:
            raise ValueError(f"no fault: {error}") from error
        how, when = How(fault.how), When(fault.when)
        return Fault(**{**asdict(fault), "how": how, "when": when})


class _Counted:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0
        self.hit = 0


class Faults:
    """The faults that are set, for any number of threads; chances are drawn from a seeded generator."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._set: list[_Counted] = []

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._set.append(_Counted(fault))

    def clear(self) -> None:
        with self._lock:
            self._set.clear()

    def listed(self) -> list[dict[str, Any]]:
        """Each fault and how many requests it has hit."""
        with self._lock:
            return [{**asdict(one.fault), "hit": one.hit} for one in self._set]

    def take(self, operation: str, name: str) -> Fault | None:
        """The fault that hits this request, counted; the first that does."""
        with self._lock:
            return next((one.fault for one in self._set if self._hits(one, operation, name)), None)

    def _hits(self, one: _Counted, operation: str, name: str) -> bool:
        fault = one.fault
        if fault.operation not in ("", operation) or fault.match not in name:
            return False
        one.seen += 1
        used_up = fault.count is not None and one.hit >= fault.count
        if one.seen <= fault.skip or used_up or self._random.random() >= fault.rate:
            return False
        one.hit += 1
        return True
