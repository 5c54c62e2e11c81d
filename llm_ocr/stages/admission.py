"""How much may stand between the source and the engine: counted in items and in bytes, so that memory is bounded."""

import asyncio

#: What an item is taken to weigh until one was weighed, in bytes: about a rendered page.
FIRST_GUESS = 512 << 10
#: Share of the newest weight in the running mean.
_NEWEST = 0.1


class Admission:
    """Lets items in while fewer than `most` of them, and fewer than `most_bytes` bytes, are being prepared.

    One caller enters at a time. An item leaves when the engine takes it up, or when it is done.
    """

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._count = 0
        self._bytes = 0.0
        self._mean = float(FIRST_GUESS)
        self._left = asyncio.Event()

    @property
    def bytes(self) -> int:
        """What is being prepared now, as far as it was weighed; else by the mean."""
        return round(self._bytes)

    async def enter(self) -> "Ticket":
        """Waits for room; one item is always let in, whatever it weighs."""
        while self._count and not self._room():
            self._left.clear()
            await self._left.wait()
        ticket = Ticket(self, self._mean)
        self._count += 1
        self._bytes += ticket.weight
        return ticket

    def _room(self) -> bool:
        if self._count >= self._most:
            return False
        return self._most_bytes is None or self._bytes + self._mean <= self._most_bytes

    def _weighed(self, before: float, now: float) -> None:
        self._mean += _NEWEST * (now - self._mean)
        self._bytes += now - before
        self._left.set()

    def _leave(self, weight: float) -> None:
        self._count -= 1
        self._bytes -= weight
        self._left.set()


class Ticket:
    """One item's place in an `Admission`."""

    __slots__ = ("_admission", "_held", "weight")

    def __init__(self, admission: Admission, weight: float) -> None:
        self._admission = admission
        self._held = True
        self.weight = weight

    def weigh(self, weight: int) -> None:
        """What the item takes, in bytes, now that it is known."""
        if self._held:
            self._admission._weighed(self.weight, weight)
            self.weight = weight

    def release(self) -> None:
        """The item is on its way: the next one may be prepared. May be called twice."""
        if self._held:
            self._held = False
            self._admission._leave(self.weight)
