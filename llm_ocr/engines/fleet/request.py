"""One question on its way through the fleet."""

import asyncio
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm_ocr.engines.fleet.service import Service

_TIMES = {1: "once", 2: "twice"}


def harm(deaths: int, hangs: int) -> str:
    """Return deaths and hangs in words: `died 4 times`, `died once and hung twice`."""
    counted = (("died", deaths), ("hung", hangs))
    return " and ".join(f"{what} {_TIMES.get(count, f'{count} times')}" for what, count in counted if count)


class Request:
    """Lives as long as one `Fleet.ask`, in the caller's task. Older tickets go first, also after a replay."""

    __slots__ = (
        "_cancelling", "_revoked", "alone", "answered_before", "deaths", "guilty", "hangs", "id", "left", "out",
        "pause", "place", "sent", "suspect_at", "task", "ticket",
    )  # fmt: skip

    def __init__(self, question_id: str, ticket: int, task: asyncio.Task[Any]) -> None:
        self.id = question_id
        self.ticket = ticket
        self.task = task
        self.place: asyncio.Future[Service] | None = None  # while it waits for one
        self.out = False  # it has been sent
        self.sent = 0.0
        self.deaths = 0  # of servers, while it was under way there
        self.hangs = 0  # of servers, while it was under way there
        self.left = math.inf  # deaths or hangs, whichever are fewer, until it is set aside
        self.answered_before = 0  # questions that were answered when it met its first death or hang
        self.alone = 0  # the last so many of them with nothing else of ours under way
        self.guilty = False  # it is to be set aside, once it is sure that the server answers others
        self.pause = 0.0  # seconds from a server's start until it is asked there alone
        self.suspect_at: int | None = None  # the number of the server where it runs apart
        self._revoked = False
        self._cancelling = 0

    @property
    def waits(self) -> bool:
        """Whether it waits for a place."""
        return self.place is not None and not self.place.done()

    @property
    def harm(self) -> str:
        """What happened to servers while it was under way: `died 4 times`, `hung twice`."""
        return harm(self.deaths, self.hangs)

    def go(self, now: float) -> None:
        """It is being sent."""
        self.out = True
        self.sent = now
        self._cancelling = self.task.cancelling()

    def revoke(self) -> None:
        """Take it back from its server, as a time-out would: its task notices by `pardoned`."""
        if self.out and not self._revoked and self.task is not asyncio.current_task():
            self._revoked = True
            self.task.cancel()

    def pardoned(self) -> bool:
        """After a `CancelledError`: True when only `revoke` was behind it, and the task goes on."""
        if not self._revoked:
            return False
        self._revoked = False
        return self.task.uncancel() <= self._cancelling
