"""Rectangles."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """An axis-parallel rectangle, `x0 <= x1` and `y0 <= y1`; the unit is that of the field that holds it."""

    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def area(self) -> float:
        return max(0.0, self.width) * max(0.0, self.height)

    @property
    def centre(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def union(self, other: "Box") -> "Box":
        return Box(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))

    def intersection(self, other: "Box") -> float:
        """The area that both cover, in this box's squared unit."""
        width = min(self.x1, other.x1) - max(self.x0, other.x0)
        height = min(self.y1, other.y1) - max(self.y0, other.y0)
        return max(0.0, width) * max(0.0, height)

    def covered_by(self, other: "Box") -> float:
        """The share 0..1 of this box that `other` covers; 0 for an empty box."""
        return self.intersection(other) / self.area if self.area > 0 else 0.0

    def iou(self, other: "Box") -> float:
        """Intersection over union, 0..1."""
        shared = self.intersection(other)
        total = self.area + other.area - shared
        return shared / total if total > 0 else 0.0

    def scaled(self, x: float, y: float) -> "Box":
        return Box(self.x0 * x, self.y0 * y, self.x1 * x, self.y1 * y)

    def turned(self, degrees: int) -> "Box":
        """A relative box after the page was turned clockwise by a multiple of 90 degrees."""
        match degrees % 360:
            case 90:
                return Box(1 - self.y1, self.x0, 1 - self.y0, self.x1)
            case 180:
                return Box(1 - self.x1, 1 - self.y1, 1 - self.x0, 1 - self.y0)
            case 270:
                return Box(self.y0, 1 - self.x1, self.y1, 1 - self.x0)
        return self

    def grown(self, by: float) -> "Box":
        return Box(self.x0 - by, self.y0 - by, self.x1 + by, self.y1 + by)

    def clipped(self, width: float = 1.0, height: float = 1.0) -> "Box":
        """The part inside 0..width, 0..height; corners out of order are put in order."""
        xs, ys = sorted((self.x0, self.x1)), sorted((self.y0, self.y1))
        return Box(
            min(max(xs[0], 0.0), width),
            min(max(ys[0], 0.0), height),
            min(max(xs[1], 0.0), width),
            min(max(ys[1], 0.0), height),
        )
