"""How many bytes of documents stand on the local disk, and who waits for room."""

import asyncio
from collections import deque
from collections.abc import Callable


class Budget:
    """Bytes under a limit. Who takes waits, in order, until idle bytes were given up or others let go.

    The limit is passed in two cases only: by one document that is larger than all of it, and by documents whose size
    was not known when they were taken. `give_up` frees idle bytes, least recently used first, by calling `free`, and
    says whether there were any.
    """

    def __init__(self, limit: int, give_up: Callable[[], bool]) -> None:
        self._limit = limit
        self._give_up = give_up
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used = 0

    async def take(self, size: int) -> None:
        """Wait for room, then count the bytes as used."""
        if not self._waiting and self._fits(size):
            self.used += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.used -= size  # it was given in the same moment
            self._waiting = deque(one for one in self._waiting if one[1] is not turn)
            self.settle()
            raise

    def resize(self, before: int, after: int) -> None:
        """What was taken is of another size."""
        self.used += after - before
        self.settle()

    def settle(self) -> None:
        """Give up what is idle above the limit, and let those in that fit: called whenever bytes were let go."""
        while self.used > self._limit and self._give_up():
            pass
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.used += size
                turn.set_result(None)

    def free(self, size: int) -> None:
        """Bytes that are no longer there."""
        self.used -= size

    def _fits(self, size: int) -> bool:
        while self.used and self.used + size > self._limit:
            if not self._give_up():
                return False
        return True
