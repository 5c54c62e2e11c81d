"""Numbers of which only the neighbourhood is known."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """What is likely, and between what it may be; `low` <= `likely` <= `high`."""

    low: float
    likely: float
    high: float

    @classmethod
    def of(cls, value: float) -> "Span":
        """A number that is known."""
        return cls(value, value, value)

    def __add__(self, other: "Span") -> "Span":
        return Span(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def __mul__(self, factor: float) -> "Span":
        """By a number from 0 up."""
        return Span(self.low * factor, self.likely * factor, self.high * factor)

    def wider(self, factor: float) -> "Span":
        """Low divided and high multiplied by `factor`, 1 or more."""
        return Span(self.low / factor, self.likely, self.high * factor)

    def needed(self, amount: float) -> "Span":
        """Of a rate above 0: the time for so much at this rate; the fastest takes the shortest."""
        return Span(amount / self.high, amount / self.likely, amount / self.low)

    def to_json(self, digits: int = 4) -> dict[str, float]:
        """JSON values, rounded."""
        return {name: round(value, digits) for name, value in asdict(self).items()}
