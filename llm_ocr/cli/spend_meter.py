"""What a stage costs while it runs, as a few words for the progress line."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class SpendMeter:
    """`spent` tells what the workspace has cost until now, in dollars; what the stage will cost follows from its begin.

    What other workers spend from then on is in neither number until their pages are counted here, too.
    """

    spent: Callable[[], float]
    _before: float = field(init=False)

    def __post_init__(self) -> None:
        self._before = self.spent()

    def words(self, ended: int, expected: int) -> str:
        """`$0.42 of about $3.10`: until now, and at the stage's end; `ended` of `expected` are this run's alone."""
        now = self.spent()
        if not ended:
            return _money(now)
        each = (now - self._before) / ended
        return f"{_money(now)} of about {_money(max(now, self._before + each * expected))}"


def _money(value: float) -> str:
    """`$3.10`, and four digits behind the point for what is less than a cent."""
    return f"${value:,.{2 if value >= 0.01 or value == 0 else 4}f}"
