"""Limits that end a run cleanly: hours of this run, money of the whole workspace; and what it has cost so far.

When a limit is reached, Extract and Describe begin no unit any more and ask models nothing any more. They have `GRACE`
seconds for what was asked to be answered and published, for it is paid; then, and in all else, the command ends as
after SIGTERM: what is whole is published, leases are given back, servers end.

Money is tokens times prices, and hours times the price per hour, of all workers on record: `work.metrics`.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol, runtime_checkable

from llm_ocr.config.groups import Group
from llm_ocr.config.models import ServingCommand
from llm_ocr.costs.comparison import money_text
from llm_ocr.errors import LimitReached, LlmOcrError, StorageError, UsageError
from llm_ocr.stages import Progress
from llm_ocr.stages.recording import Recorded
from llm_ocr.stages.servers import Engines
from llm_ocr.types import Counts, PageRecord
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT
from llm_ocr.workspace.metrics import Records, total_cost
from llm_ocr.workspace.status import RunStatus, run_status

#: Seconds between two looks at the limits; between two readings of what others have spent, at least, and for each of
#: them: many workers that read of each other ask the store no more than a few requests a second together.
LOOK, READ, READ_EACH = 0.25, 15.0, 1.0
#: Seconds that what was begun has to be finished; and without a news after which all is taken for finished.
GRACE, SETTLED = 20.0, 3.0
#: Stages that stop between two units.
_FINISHING = (EXTRACT, DESCRIBE)

_AGAIN = "What is done stays. Run the same command again"

_log = logging.getLogger(__name__)


@runtime_checkable
class Priced(Protocol):
    """Progress that shows money."""

    def price(self, spent: Callable[[], float]) -> None:
        """Where it is read what the workspace has cost until now, in dollars, until the command ends."""


def check_limits(settings: Group) -> None:
    """Raise `UsageError` for a limit that cannot be watched: money without a price."""
    if not isinstance(settings, ServingCommand) or settings.max_cost is None or _has_prices(settings):
        return
    raise UsageError(
        "--max-cost: nothing here has a price",
        hint="Give the server's prices per million tokens (--price-in, --price-out), or what the machine costs an "
        "hour (--price-per-hour), or both.",
    )


def _has_prices(settings: ServingCommand) -> bool:
    return any(price is not None for price in (settings.price_in, settings.price_out, settings.price_per_hour))


def money_reached(spent: float, most: float | None) -> str:
    """In words that the money is spent; "" while it is not, and where there is no limit."""
    if most is None or spent < most:
        return ""
    return f"stopped by --max-cost: {money_text(spent)} of {money_text(most)} spent"


def time_reached(seconds: float, most: float | None) -> str:
    """In words that the hours are over; "" while they are not, and where there is no limit."""
    if most is None or seconds < most * 3600:
        return ""
    return f"stopped by --max-hours: this run has taken {seconds / 3600:.3g} of {most:g} hours"


class Allowance:
    """The limits of what has no workspace: hours since this was made, money for the pages that it hears of."""

    def __init__(self, settings: ServingCommand) -> None:
        check_limits(settings)
        self._hours, self._cost = settings.max_hours, settings.max_cost
        self._prices = (settings.price_in or 0.0, settings.price_out or 0.0, settings.price_per_hour or 0.0)
        self._tokens_in = self._tokens_out = 0
        self._began = time.monotonic()

    def add(self, page: PageRecord) -> None:
        """One more page was read."""
        self._tokens_in += page.tokens_in
        self._tokens_out += page.tokens_out

    def reached(self) -> str:
        """Which limit no other page may be begun for, in words; "" for none."""
        seconds = time.monotonic() - self._began
        a_token_in, a_token_out, an_hour = self._prices
        tokens = (self._tokens_in * a_token_in + self._tokens_out * a_token_out) / 1e6
        return time_reached(seconds, self._hours) or money_reached(tokens + seconds / 3600 * an_hour, self._cost)


class Account:
    """What a workspace has cost: its workers on record, of which `own` is this one as it goes. Dollars."""

    def __init__(self, workspace: Workspace, own: Recorded | None) -> None:
        self._records = Records(workspace)
        self._own = own
        self._others = 0.0
        self._next = 0.0

    def total(self) -> float:
        """By what was last read of the others."""
        return self._others + (self._own.cost() if self._own else 0.0)

    async def look(self) -> None:
        """Read what the others have spent, unless that was done a short time ago. Raises `StorageError`."""
        if time.monotonic() >= self._next:
            found = await asyncio.to_thread(self._records.read)
            mine = self._own.worker if self._own else ""
            others = [one for one in found if one.worker != mine]
            self._others = total_cost(others) or 0.0
            self._next = time.monotonic() + max(READ, READ_EACH * len(others))


class Limits:
    """The limits of one command, from its begin to its end."""

    def __init__(self, settings: Group, workspace: Workspace, own: Recorded | None, engines: Engines) -> None:
        limited = settings if isinstance(settings, ServingCommand) else None
        self._hours, self._cost = (limited.max_hours, limited.max_cost) if limited else (None, None)
        self._engines = engines
        self._own = own
        self._began = time.monotonic()
        self._workspace = workspace
        self._account = Account(workspace, own) if limited and _has_prices(limited) else None
        self._stage = ""  # under way, if it can finish what it has begun
        self._say: Callable[[str], None] = lambda message: None
        self._reached = self._over = False
        self._end = asyncio.timeout(None)  # of the command

    def stop(self) -> bool:
        """Whether no unit may be begun any more."""
        return self._reached

    @contextlib.asynccontextmanager
    async def stage(self, name: str, progress: Progress, *, finishes: bool, last: bool) -> AsyncIterator[None]:
        """The block is a stage, which `finishes` what it has begun when `stop` says so, if it is one that can.

        Raises `LimitReached` at its end when it was stopped, unless it is the `last` one and all is done.
        """
        self._stage, self._say = (name if finishes and name in _FINISHING else ""), progress.say
        yield
        if not (self._stage and self._reached):
            self._stage = ""
            return
        self._stage, self._over = "", True  # nobody is to be hurried any more
        await asyncio.to_thread(self._workspace.flush)
        status = await asyncio.to_thread(run_status, self._workspace)
        if not (last and status.stages[name].finished):
            raise self._error(self._words(), status)

    async def show(self, progress: object) -> None:
        """Let the progress show the money, where there are prices. Raises `StorageError`."""
        if self._account is not None and isinstance(progress, Priced):
            await self._account.look()
            progress.price(self._account.total)

    async def check(self) -> None:
        """Raise `LimitReached` when the workspace has cost as much already."""
        if self._cost is None or self._account is None:
            return
        await self._account.look()
        if reached := money_reached(self._account.total(), self._cost):
            status = await asyncio.to_thread(_status, self._workspace)
            raise self._error(f"{reached} by earlier runs; nothing was started", status)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Ends the block when a limit is reached, by cancelling it; raises `LimitReached` then, after its clean-up."""
        if self._hours is None and self._cost is None:
            yield
            return
        watch: asyncio.Task[None] | None = None
        try:
            async with self._end:
                watch = asyncio.create_task(self._watch())
                yield
        except TimeoutError:
            if not self._end.expired():
                raise
            await asyncio.to_thread(self._workspace.flush)
            raise self._error(self._words(), await asyncio.to_thread(_status, self._workspace)) from None
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self) -> None:
        while not self._reached:
            await asyncio.sleep(LOOK)
            if self._cost is not None and self._account is not None:
                try:
                    await self._account.look()
                except StorageError as error:  # what this worker spends is known without it, and its work goes on
                    _log.warning("what other workers have spent could not be read: %s", error)
            self._reached = bool(self._words())
        if self._stage:
            limit = self._words().partition(":")[0].removeprefix("stopped by ")
            self._say(f"{limit} is reached: what was begun is finished, for {GRACE:.0f} seconds at most")
            await self._settled()
        if not self._over:
            self._end.reschedule(asyncio.get_running_loop().time())

    async def _settled(self) -> None:
        """Return when nothing comes any more of what was begun, the stage has ended, or `GRACE` seconds are over."""
        last, news = time.monotonic() + GRACE, time.monotonic()
        known: tuple[int | None, int] = None, 0
        while self._stage and time.monotonic() < min(last, news + SETTLED):
            now = self._engines.hold(), self._own.items if self._own else 0
            if now != known or now[0] != 0:  # an engine that asks no model does not tell what it has in hand
                known, news = now, time.monotonic()
            await asyncio.sleep(LOOK)

    def _words(self) -> str:
        """Which limit is reached, with the numbers of now; "" for none."""
        if words := time_reached(time.monotonic() - self._began, self._hours):
            return words
        words = money_reached(self._account.total(), self._cost) if self._account else ""
        return words and f"{words}, over all runs of this workspace"

    def _error(self, words: str, status: RunStatus | None) -> LimitReached:
        done = _done(status) if status else ""
        hint = f"{_AGAIN} with a higher limit (--max-cost) to go on."
        if words.startswith("stopped by --max-hours"):
            hint = f"{_AGAIN} to go on for as long, or with a higher limit (--max-hours): they are hours of one run."
        return LimitReached("; ".join(filter(None, [words, done])), hint=hint)


def _status(workspace: Workspace) -> RunStatus | None:
    try:
        return run_status(workspace)
    except LlmOcrError as error:  # the limit is what the user has to hear of
        _log.warning("how far the workspace is could not be read: %s", error)
        return None


def _done(status: RunStatus) -> str:
    """`120 of 412 pages read, 3 of 12 figures described`."""
    about = "about " if status.estimated else ""
    pages = f"{_ended(status.pages)} of {about}{status.pages.expected} pages read"
    figures = f"{_ended(status.figures)} of {status.figures.expected} figures described"
    return f"{pages}, {figures}" if status.figures.expected else pages


def _ended(counts: Counts) -> int:
    return counts.ok + counts.degraded + counts.failed
