"""How often a server may be restarted."""

from collections import deque

#: Answers after which a restart is forgotten.
ENOUGH_ANSWERS = 100


class Budget:
    """Allows `most` restarts of one server; each is forgotten after `ENOUGH_ANSWERS` answers of that server."""

    def __init__(self, most: int) -> None:
        self.most = most
        #: The server's answers at each restart that is not forgotten, and whether it hung.
        self._at: deque[tuple[int, bool]] = deque()
        self._forgiven_at = 0

    @property
    def used(self) -> int:
        """Restarts that are not forgotten."""
        return len(self._at)

    @property
    def hangs(self) -> int:
        """Those of them after which the server hung, instead of being dead."""
        return sum(hung for _, hung in self._at)

    def spend(self, answers: int, *, hung: bool = False) -> bool:
        """One more restart, after so many answers; False when none is left."""
        while self._at and answers - self._at[0][0] >= ENOUGH_ANSWERS:
            self._at.popleft()
        if len(self._at) >= self.most:
            return False
        self._at.append((answers, hung))
        return True

    def explained(self, answers: int) -> None:
        """The deaths had a cause that is gone: a question was set aside.

        Only where something was answered since the last time: a server that dies of every question has another cause.
        """
        if answers > self._forgiven_at:
            self._forgiven_at = answers
            self._at.clear()
