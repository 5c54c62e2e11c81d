"""Limits that end a run cleanly: hours of this run, and money of the whole workspace.

When a limit is reached, Extract and Describe stop claiming units and sending requests. Requests that are already sent
are paid for, so their results have `GRACE` seconds to arrive and be published. After that, and in all other stages, the
command ends as after SIGTERM: complete units are published, leases are released, and servers stop.

Money is tokens times prices plus hours times the price per hour, of all recorded workers: `workspace.metrics`.
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
from llm_ocr.types import PageRecord
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, FIELDS
from llm_ocr.workspace.metrics import Records, total_cost
from llm_ocr.workspace.status import RunStatus, Worked, known_status

#: Seconds between two checks of the limits.
LOOK = 0.25
#: Minimum seconds between two reads of the other workers' costs: `READ`, or `READ_EACH` per worker if that is longer.
#: Many workers that read each other's costs thus send only a few requests a second together.
READ, READ_EACH = 15.0, 1.0
#: Seconds that sent requests have to finish, and seconds without change after which they count as finished.
GRACE, SETTLED = 20.0, 3.0
#: Stages that can stop between two units.
_FINISHING = (EXTRACT, DESCRIBE, FIELDS)

_AGAIN = "Finished results are kept. Run the same command again"

_log = logging.getLogger(__name__)


@runtime_checkable
class Priced(Protocol):
    """Progress that shows money."""

    def price(self, spent: Callable[[], float]) -> None:
        """Set the function that returns the workspace's cost in dollars until the command ends."""


def check_limits(settings: Group) -> None:
    """Check that the limits can be enforced.

    Raises:
        UsageError: A limit of money is set, and nothing has a price.
    """
    if not isinstance(settings, ServingCommand) or settings.max_cost is None or _has_prices(settings):
        return
    raise UsageError(
        "`max_cost`: no price is known",
        hint="Set the server's prices per million tokens (`price_in`, `price_out`), the machine's price per hour "
        "(`price_per_hour`), or both.",
    )


def _has_prices(settings: ServingCommand) -> bool:
    return any(price is not None for price in (settings.price_in, settings.price_out, settings.price_per_hour))


def money_reached(spent: float, most: float | None) -> str:
    """Return a message if the money is spent, otherwise an empty string.

    Args:
        spent: Dollars.
        most: The limit in dollars; None for no limit.
    """
    if most is None or spent < most:
        return ""
    return f"stopped by `max_cost`: {money_text(spent)} of {money_text(most)} spent"


def time_reached(seconds: float, most: float | None) -> str:
    """Return a message if the time is over, otherwise an empty string.

    Args:
        seconds: Time of this run.
        most: The limit in hours; None for no limit.
    """
    if most is None or seconds < most * 3600:
        return ""
    return f"stopped by `max_hours`: this run took {seconds / 3600:.3g} of {most:g} hours"


class Allowance:
    """The limits of work without a workspace: hours since construction, and money for the pages added."""

    def __init__(self, settings: ServingCommand) -> None:
        check_limits(settings)
        self._hours, self._cost = settings.max_hours, settings.max_cost
        self._prices = (settings.price_in or 0.0, settings.price_out or 0.0, settings.price_per_hour or 0.0)
        self._tokens_in = self._tokens_out = 0
        self._began = time.monotonic()

    def add(self, page: PageRecord) -> None:
        """Count the tokens of a page."""
        self._tokens_in += page.tokens_in
        self._tokens_out += page.tokens_out

    def reached(self) -> str:
        """Return a message about the limit that is reached, otherwise an empty string."""
        seconds = time.monotonic() - self._began
        a_token_in, a_token_out, an_hour = self._prices
        tokens = (self._tokens_in * a_token_in + self._tokens_out * a_token_out) / 1e6
        return time_reached(seconds, self._hours) or money_reached(tokens + seconds / 3600 * an_hour, self._cost)


class Limits:
    """The limits of one command from begin to end.

    Args:
        settings: The settings of the command.
        workspace: The workspace.
        own: The numbers of this worker.
        engines: The models of the command.
        worked: What the command has finished.
    """

    def __init__(
        self, settings: Group, workspace: Workspace, own: Recorded | None, engines: Engines, worked: Worked
    ) -> None:
        limited = settings if isinstance(settings, ServingCommand) else None
        self._hours, self._cost = (limited.max_hours, limited.max_cost) if limited else (None, None)
        self._engines = engines
        self._own = own
        self._worked = worked
        self._began = time.monotonic()
        self._workspace = workspace
        self._priced = limited is not None and _has_prices(limited)
        self._records = Records(workspace)
        self._others = self._next = 0.0  # dollars of the other workers, and the time of the next read
        self._stage = ""  # the running stage, if it can stop between two units
        self._say: Callable[[str], None] = lambda message: None
        self._reached = self._over = False
        self._end = asyncio.timeout(None)  # of the command

    def stop(self) -> bool:
        """Return whether no further unit may be claimed."""
        return self._reached

    @contextlib.asynccontextmanager
    async def stage(self, name: str, progress: Progress, *, finishes: bool, last: bool) -> AsyncIterator[None]:
        """Run a stage. On `stop`, finish the units in progress if `finishes` is true and the stage supports it.

        Args:
            name: The stage.
            progress: Receives a message when a limit is reached.
            finishes: Whether units in progress may be finished.
            last: Whether it is the last stage of the command.

        Raises:
            LimitReached: The stage was stopped. A last stage that is complete does not raise.
        """
        self._stage, self._say = (name if finishes and name in _FINISHING else ""), progress.say
        yield
        if not (self._stage and self._reached):
            self._stage = ""
            return
        self._stage, self._over = "", True  # the watch must not cancel what follows
        await asyncio.to_thread(self._workspace.flush)
        status = await asyncio.to_thread(known_status, self._workspace, self._worked)
        if status is None or not (last and status.stages[name].finished):
            raise self._error(self._message(), status)

    async def show(self, progress: object) -> None:
        """Make the progress show the cost, if there are prices. Raises `StorageError`."""
        if self._priced and isinstance(progress, Priced):
            await self._read_costs()
            progress.price(self._spent)

    def _spent(self) -> float:
        """Return the cost of the workspace in dollars: of this worker until now, of others as of the last read."""
        return self._others + (self._own.cost() if self._own else 0.0)

    async def _read_costs(self) -> None:
        """Read the cost of the other workers if the last read is old enough. Raises `StorageError`."""
        if time.monotonic() >= self._next:
            found = await asyncio.to_thread(self._records.read)
            mine = self._own.worker if self._own else ""
            others = [record for record in found if record.worker != mine]
            self._others = total_cost(others) or 0.0
            self._next = time.monotonic() + max(READ, READ_EACH * len(others))

    async def check(self) -> None:
        """Raise `LimitReached` if earlier runs have already spent the money."""
        if self._cost is None or not self._priced:
            return
        await self._read_costs()
        if reached := money_reached(self._spent(), self._cost):
            status = await asyncio.to_thread(self._status)
            raise self._error(f"{reached} by earlier runs; no work was started", status)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Enforce the limits during the block: cancel it, and raise `LimitReached` after its clean-up."""
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
            raise self._error(self._message(), await asyncio.to_thread(self._status)) from None
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self) -> None:
        while not self._reached:
            await asyncio.sleep(LOOK)
            if self._cost is not None and self._priced:
                try:
                    await self._read_costs()
                except StorageError as error:  # the spending of this worker is still known
                    _log.warning("cannot read the spending of other workers: %s", error)
            self._reached = bool(self._message())
        if self._stage:
            limit = self._message().partition(":")[0].removeprefix("stopped by ")
            self._say(f"{limit} is reached: work in progress has at most {GRACE:.0f} seconds to finish")
            await self._settled()
        if not self._over:
            self._end.reschedule(asyncio.get_running_loop().time())

    async def _settled(self) -> None:
        """Return when sent requests have finished, when the stage has ended, or after `GRACE` seconds."""
        deadline, changed = time.monotonic() + GRACE, time.monotonic()
        known: tuple[int | None, int] = None, 0
        while self._stage and time.monotonic() < min(deadline, changed + SETTLED):
            now = self._engines.hold(), self._own.items if self._own else 0
            if now != known or now[0] != 0:  # None: the embedded engine does not report pages in progress
                known, changed = now, time.monotonic()
            await asyncio.sleep(LOOK)

    def _message(self) -> str:
        """Return a message about the limit that is reached, with current numbers; otherwise an empty string."""
        if message := time_reached(time.monotonic() - self._began, self._hours):
            return message
        message = money_reached(self._spent(), self._cost) if self._priced else ""
        return message and f"{message}, over all runs of this workspace"

    def _status(self) -> RunStatus | None:
        try:
            return known_status(self._workspace, self._worked)
        except LlmOcrError as error:  # the error to report is the limit
            _log.warning("cannot read the progress of the workspace: %s", error)
            return None

    def _error(self, message: str, status: RunStatus | None) -> LimitReached:
        """Return the error with the progress: `120 of 412 pages read, 3 of 12 figures described`."""
        known: list[str] = []
        if status is not None:
            about = "about " if status.estimated else ""
            known.append(f"{status.pages.ended} of {about}{status.pages.expected} pages read")
            for repair in status.repairs:
                if not repair.is_finished:
                    known.append(f"{repair.read} of {repair.pages} pages of the repair read again")
            if status.figures.expected:
                known.append(f"{status.figures.ended} of {status.figures.expected} figures described")
            if status.fields.expected:
                known.append(f"fields of {status.fields.ended} of {status.fields.expected} documents found")
        hint = f"{_AGAIN} with a higher `max_cost` to continue."
        if message.startswith("stopped by `max_hours`"):
            hint = f"{_AGAIN} to continue for the same time, or set a higher `max_hours`. The limit applies to one run."
        return LimitReached("; ".join(filter(None, [message, ", ".join(known)])), hint=hint)
