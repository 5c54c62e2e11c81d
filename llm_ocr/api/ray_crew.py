"""The workers of one stage on a cluster, as the driver sees them: started, fed, replaced when they are lost, ended."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from llm_ocr.api.ray_units import Failure, Hands, Report
from llm_ocr.api.ray_worker import Work, Worker
from llm_ocr.engines.asking import Load
from llm_ocr.errors import LlmOcrError
from llm_ocr.stages import Progress

#: Lives in a row that end before a unit is done, until a place on the cluster is left.
FRUITLESS = 3
#: Seconds until a lost worker is replaced; until it is said that workers wait for a place, and said again.
_PAUSE, _PATIENCE, _REMIND = 2.0, 30.0, 300.0
#: Seconds between two tries to ask a worker that cannot be reached, and in which it has to answer; for all to stop.
_AGAIN, _SILENCE, _STOPPING = 1.0, 60.0, 18.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Size:
    """How many workers, how many GPUs each of them has, and how many of them share a machine at most."""

    workers: int
    gpus: float
    beside: int


class _Lost(Exception):
    """A worker has ended before its time."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(slots=True, eq=False)
class _Life:
    """One worker, from its start to its end."""

    number: int
    actor: Any
    host: str = ""
    held: dict[int, None] = field(default_factory=dict)  # in the order in which they were given
    waiting: int = 0
    finished: int = 0  # units
    counted: int = 0  # rows that it told of
    settled: int = 0  # rows of its finished units
    load: Load = field(default_factory=Load)

    @property
    def name(self) -> str:
        return f"worker {self.number}" + (f" ({self.host})" if self.host else "")


class Crew:
    """Does units on a cluster. `ray` is the package of that name, connected; `estimated` documents are not counted."""

    def __init__(self, ray: Any, work: Work, size: Size, progress: Progress, *, estimated: int = 0) -> None:
        self._ray = ray
        self._work = work
        self._size = size
        self._progress = progress
        self._estimated = estimated
        self._hands = Hands(())
        # Ray starts nothing again by itself: every loss is to be seen here.
        options = {"num_gpus": size.gpus, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(**options)(Worker)
        self._lives: list[_Life] = []
        self._spent = Load()  # by workers that have ended
        self._twice = 0  # rows that will be counted a second time, for their unit was lost
        self._left: list[Failure] = []  # why places on the cluster were left

    async def run(self, places: Sequence[int]) -> list[int]:
        """Do the units at these places of the plan; those that were given up are returned.

        Raises `LlmOcrError` when no worker is left, and what would meet every worker.
        """
        hands = self._hands = Hands(places)
        watch = asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(min(self._size.workers, len(places))):
                    tasks.create_task(self._place(number))
        finally:
            watch.cancel()
            await self._stop()
        if not hands.finished.is_set():
            last = self._left[-1]
            raise LlmOcrError(f"no worker is left on the cluster; the last one: {last.message}", hint=last.hint)
        return hands.given_up

    def load(self) -> Load:
        """The numbers of all workers' engines."""
        return _sum([self._spent, *(life.load for life in self._lives)])

    async def _place(self, number: int) -> None:
        """One place on the cluster: a worker, and those that replace it."""
        fruitless = 0
        while await self._hands.wanted():
            life = _Life(number, self._actor.remote(self._work))
            self._lives.append(life)
            try:
                await self._live(life)
            except _Lost as lost:
                fruitless = 0 if life.finished else fruitless + (not self._hands.alone(life.held))
                self._lose(life, lost.failure)
                # What we raise on purpose was tried more than once already: a server that does not start, a store.
                if fruitless >= (1 if lost.failure.ours else FRUITLESS):
                    self._left.append(lost.failure)
                    return
            self._end(life)
            await asyncio.sleep(_PAUSE)  # others may have taken by then what it had

    async def _live(self, life: _Life) -> None:
        """Feed a worker until it has ended as it should; until all is done, where it gets no place before."""
        first = asyncio.create_task(self._ask(life))
        finished = asyncio.create_task(self._hands.finished.wait())
        try:
            await asyncio.wait({first, finished}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            finished.cancel()
            if not first.done():
                first.cancel()
        if first.cancelled() or not first.done():
            return
        report = first.result()
        while self._take_in(life, report):
            life.held.update(dict.fromkeys(self._hands.take(life.held, life.waiting)))
            report = await self._ask(life)

    async def _ask(self, life: _Life) -> Report:
        """One turn of a worker; asked again where it cannot be reached for a moment."""
        errors, clock = self._ray.exceptions, asyncio.get_running_loop().time
        silent_since: float | None = None
        while True:
            hands = self._hands
            try:
                asked = life.actor.turn.remote(
                    tuple(life.held), more=hands.offers(life.held), over=hands.finished.is_set()
                )
                report: Report = await asked
                return report
            except errors.ActorUnavailableError as error:
                silent_since = silent_since or clock()
                if clock() - silent_since > _SILENCE:
                    raise _Lost(Failure("it cannot be reached")) from error
                await asyncio.sleep(_AGAIN)
            except errors.RayError as error:
                raise _Lost(reason_of(str(error))) from error

    def _take_in(self, life: _Life, report: Report) -> bool:
        """What a worker tells; False when it has ended as it should."""
        life.host, life.waiting, life.load = report.host, report.waiting, report.load
        for level, line in report.said:
            if level:
                _log.log(level, "%s: %s", life.name, line)
            else:
                self._progress.say(f"{life.name}: {line}")
        self._count(life, report)
        for place, done in report.done.items():
            del life.held[place]
            life.finished += 1
            life.settled += done.rows
            self._hands.done(place)
            if done.estimated:
                self._estimated -= done.estimated
                self._progress.correct(done.change, exact=self._estimated <= 0)
        if report.failure is not None:
            raise _Lost(report.failure)
        if report.ended and not self._hands.finished.is_set():
            raise _Lost(Failure("it ended before its time"))
        return not report.ended

    def _count(self, life: _Life, report: Report) -> None:
        for status, number in report.counted.items():
            life.counted += number
            again = min(number, self._twice)
            self._twice -= again
            for _ in range(number - again):
                self._progress.count(status)

    def _lose(self, life: _Life, failure: Failure) -> None:
        """A worker is lost. Raises the error that would meet every worker."""
        if failure.everywhere:
            raise LlmOcrError(f"{life.name}: {failure.message}", hint=failure.hint)
        self._twice += max(0, life.counted - life.settled)
        back = f"; {units_text(len(life.held))} to be done by others" if life.held else ""
        self._progress.say(f"{life.name} was lost: {failure.message}{back}")
        self._hands.back(life.held, blame=not failure.ours)

    def _end(self, life: _Life) -> None:
        """End its process, or its wait for a place."""
        self._lives.remove(life)
        self._spent = _sum([self._spent, _past(life.load)])
        self._ray.kill(life.actor)

    async def _stop(self) -> None:
        """End the workers that there still are; their servers end in their own order."""
        stops = [asyncio.ensure_future(_settled(life.actor.stop.remote())) for life in self._lives if life.host]
        if stops:
            await asyncio.wait(stops, timeout=_STOPPING)
        for life in list(self._lives):
            self._end(life)

    async def _watch(self) -> None:
        """Say when workers wait for a place on the cluster."""
        needs = f"{self._size.gpus:g} GPU and a CPU" if self._size.gpus else "a CPU"
        pause = _PATIENCE
        while True:
            await asyncio.sleep(pause)
            waiting = sum(not life.host for life in self._lives)
            if waiting:
                self._progress.say(f"{waiting} of {self._size.workers} workers wait for a node with {needs} free")
            pause = _REMIND


def units_text(number: int) -> str:
    """`1 unit`, `2 units`."""
    return f"{number} unit{'' if number == 1 else 's'}"


async def _settled(answer: Awaitable[None]) -> None:
    with contextlib.suppress(Exception):  # it is killed in any case
        await answer


def reason_of(text: str) -> Failure:
    """Why a worker was lost, from what Ray says of it."""
    lines = [line.strip() for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    if any("failed to import on the worker" in line for line in lines):
        return Failure(
            f"llm-ocr cannot be loaded on the cluster's nodes: {lines[-1]}",
            hint="Install the same version of llm-ocr with the same extras on every node.",
            everywhere=True,
        )
    told = next((line for line in lines if line.startswith("The actor is dead because")), "")
    told = told.removeprefix("The actor is dead because ").partition(" Some common causes include")[0]
    return Failure(told or (lines[-1] if lines else "it died"))


def _past(load: Load) -> Load:
    """What stays of the numbers of an engine that is no more."""
    return replace(load, servers=0, window=0, in_flight=0, queued=0, running=None, waiting=None)


def _sum(loads: Sequence[Load]) -> Load:
    sums: dict[str, int | None] = {}
    numbers = [asdict(load) for load in loads]
    for one in fields(Load):
        known = [each[one.name] for each in numbers if each[one.name] is not None]
        sums[one.name] = sum(known) if known else None
    return Load(**sums)  # type: ignore[arg-type]  # None only where one of them is None, which none but gauges are
