"""Units on their way over a cluster: as the driver hands them out, and as a worker takes them in and tells of them.

Units are named by their place in the plan.
"""

import asyncio
import contextlib
import platform
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llm_ocr.engines.asking import Load
from llm_ocr.types import Counts, Status

#: Units that a worker has beside those it has begun: its server must not wait for the driver at the end of a unit.
AHEAD = 2
#: Workers that may be lost over a unit until it is done by a worker that has nothing else.
SUSPECT = 2
#: Workers that may be lost over a unit in all; alone in the end, so that no other unit is to blame.
MOST_LOST = 4

#: Seconds that a report is held back when there is nothing to report.
_NOTHING_NEW = 1.0


class Hands:
    """Who has which unit, as the driver knows it. Belongs to one event loop.

    A unit that ends the worker that does it is done alone at last, after all others, and given up in the end.
    """

    def __init__(self, places: Sequence[int]) -> None:
        self.finished = asyncio.Event()
        self.given_up: list[int] = []
        self._todo = deque(places)
        self._suspects: deque[int] = deque()
        self._left = set(places)
        self._lost: Counter[int] = Counter()
        self._check()

    async def wanted(self) -> bool:
        """Returns when a new worker would get something; False when all is finished."""
        while not self.finished.is_set():
            if self.offers(()):
                return True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.finished.wait(), _NOTHING_NEW)
        return False

    def offers(self, held: Collection[int]) -> bool:
        """Whether a worker that holds these units would get more, if it had begun them."""
        return not self.alone(held) and bool(self._todo or (self._suspects and not held))

    def take(self, held: Collection[int], waiting: int) -> list[int]:
        """What a worker gets next that holds these units, and has not begun so many of them."""
        if self.alone(held):
            return []
        if self._todo:
            return [self._todo.popleft() for _ in range(min(AHEAD - waiting, len(self._todo)))]
        return [self._suspects.popleft()] if self._suspects and not held else []

    def alone(self, held: Iterable[int]) -> bool:
        """Whether these are one unit that is done alone."""
        return any(self._lost[place] >= SUSPECT for place in held)

    def done(self, place: int) -> None:
        """The unit is published."""
        self._left.discard(place)
        self._check()

    def back(self, held: Iterable[int], *, blame: bool) -> None:
        """A worker was lost that held these units. `blame`: one of them may be why."""
        for place in held:
            self._lost[place] += blame
            if self._lost[place] >= MOST_LOST:
                self.given_up.append(place)
                self._left.discard(place)
            elif self._lost[place] >= SUSPECT:
                self._suspects.append(place)
            else:
                self._todo.append(place)
        self._check()

    def _check(self) -> None:
        if not self._left:
            self.finished.set()


@dataclass(frozen=True, slots=True)
class Failure:
    """How a worker's stage failed. `everywhere`: others would fail alike; `ours`: an error that we raise on purpose."""

    message: str
    hint: str = ""
    everywhere: bool = False
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A unit that is published.

    `estimated` documents of it were counted only when they were read, and have `change` pages more than expected.
    """

    rows: int
    estimated: int = 0
    change: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker tells its driver. `done` are those of the held units that are published."""

    host: str
    waiting: int  # units that are not begun
    done: Mapping[int, Done]
    counted: Mapping[Status, int]  # rows since the last report
    said: Sequence[tuple[int, str]]  # lines since the last report: level of logging, 0 for users
    load: Load
    ended: bool
    failure: Failure | None


class Exchange:
    """Between the driver's calls and the stage, which runs in a thread of its own. Also the stage's `Progress`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given: dict[int, Done | None] = {}
        self._queue: deque[int] = deque()
        self._closed = self._ended = False
        self._failure: Failure | None = None
        self._counted: Counter[Status] = Counter()
        self._said: list[tuple[int, str]] = []
        self._load: Callable[[], Load] = Load

    def give(self, held: Iterable[int]) -> None:
        """The driver says all that this worker has; what is new comes behind what waits."""
        with self._changed:
            fresh = [place for place in held if place not in self._given]
            self._given.update(dict.fromkeys(fresh))
            self._queue.extend(fresh)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more comes, and what is not begun is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[int]:
        """The units in their order, until it is closed. Blocks while there is none."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    return
                place = self._queue.popleft()
                self._changed.notify_all()
            yield place

    def published(self, place: int, done: Done) -> None:
        """A unit is done."""
        with self._changed:
            self._given[place] = done
            self._changed.notify_all()

    def over(self, failure: Failure | None) -> None:
        """The worker has ended."""
        with self._changed:
            self._ended, self._failure = True, failure
            self._changed.notify_all()

    def report(self, held: Iterable[int], *, more: bool) -> Report:
        """What is new; waits a moment for it. `more`: the driver has units that this worker may get."""
        with self._changed:
            self._changed.wait_for(lambda: self._due(held, more), _NOTHING_NEW)
            counted, self._counted = self._counted, Counter()
            said, self._said = self._said, []
            return Report(
                host=platform.node(),
                waiting=len(self._queue),
                done={place: done for place in held if (done := self._given[place]) is not None},
                counted=dict(counted),
                said=said,
                load=self._load(),
                ended=self._ended,
                failure=self._failure,
            )

    def _due(self, held: Iterable[int], more: bool) -> bool:
        hungry = more and len(self._queue) < AHEAD
        return self._ended or hungry or bool(self._said) or any(self._given[place] for place in held)

    # What the stage tells.

    def begin(self, stage: str, expected: int, done: Counts, estimated: bool = False) -> None:
        """The driver begins the stage."""

    def correct(self, change: int, *, exact: bool) -> None:
        """The driver learns it when the unit is done."""

    def count(self, status: Status) -> None:
        with self._changed:
            self._counted[status] += 1

    def measure(self, load: Callable[[], Load]) -> None:
        self._load = load

    def say(self, message: str) -> None:
        self.log(0, message)

    def end(self) -> None: ...

    def log(self, level: int, message: str) -> None:
        """A line for the driver's log."""
        with self._changed:
            self._said.append((level, message))
            self._changed.notify_all()
