"""Vector charts of the examples: lines and bars, drawn from the shapes of reportlab. Lengths are in points."""

from collections.abc import Sequence
from dataclasses import dataclass

from reportlab.graphics.shapes import Drawing, Line, PolyLine, Rect, String
from reportlab.lib.colors import Color, HexColor
from reportlab.pdfbase.pdfmetrics import stringWidth

from .style import GREY, INK, SANS

SMALL = 7.0
FAINT = HexColor("#d9d9de")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: what it is called, its ends, and the values that carry a label."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one kind of bar. `dots` marks each point; `dash` is the pattern of the stroke."""

    name: str
    colour: Color
    points: Sequence[tuple[float, float]]
    dots: bool = False
    dash: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class _Frame:
    """The plotting area and the scales that lead into it."""

    left: float
    bottom: float
    width: float
    height: float
    x: Axis
    y: Axis

    def across(self, value: float) -> float:
        return self.left + (value - self.x.low) / (self.x.high - self.x.low) * self.width

    def up(self, value: float) -> float:
        return self.bottom + (value - self.y.low) / (self.y.high - self.y.low) * self.height


def line_chart(
    width: float, height: float, x: Axis, y: Axis, series: Sequence[Series], mark: float | None = None
) -> Drawing:
    """A chart of lines with a legend above; `mark` draws a dashed level across the plot."""
    drawing, frame = _empty(width, height, x, y, [tick for tick, _ in x.ticks])
    if mark is not None:
        level = frame.up(mark)
        right = frame.left + frame.width
        drawing.add(Line(frame.left, level, right, level, strokeColor=GREY, strokeWidth=0.7, strokeDashArray=[3, 2]))
    for one in series:
        flat = [part for a, b in one.points for part in (frame.across(a), frame.up(b))]
        dash = list(one.dash) if one.dash else None
        drawing.add(PolyLine(flat, strokeColor=one.colour, strokeWidth=1.1, strokeLineJoin=1, strokeDashArray=dash))
        if one.dots:
            for a, b in one.points:
                drawing.add(_square(frame.across(a), frame.up(b), 2.2, one.colour))
    _legend(drawing, frame, series, height)
    return drawing


def bar_chart(
    width: float, height: float, y: Axis, groups: Sequence[str], series: Sequence[Series], x_title: str = ""
) -> Drawing:
    """Bars in groups, with the value over each; the points of a series are (group, value)."""
    x = Axis(x_title, 0, len(groups), [(n + 0.5, name) for n, name in enumerate(groups)])
    drawing, frame = _empty(width, height, x, y, [])
    step = frame.width / len(groups)
    bar = step * 0.72 / len(series)
    for place, one in enumerate(series):
        for group, value in one.points:
            left = frame.left + step * (group + 0.14) + bar * place
            top = frame.up(value)
            drawing.add(
                Rect(left + 0.6, frame.bottom, bar - 1.2, top - frame.bottom, fillColor=one.colour, strokeColor=None)
            )
            drawing.add(_label(left + bar / 2, top + 2, f"{value:g}", "middle"))
    if len(series) > 1:
        _legend(drawing, frame, series, height)
    return drawing


def _empty(width: float, height: float, x: Axis, y: Axis, ticks: Sequence[float]) -> tuple[Drawing, _Frame]:
    """A drawing with axes, grid and labels."""
    drawing = Drawing(width, height)
    foot = 24 if x.title else 15
    frame = _Frame(30, foot, width - 34, height - foot - 17, x, y)
    for value, name in y.ticks:
        level = frame.up(value)
        drawing.add(Line(frame.left, level, frame.left + frame.width, level, strokeColor=FAINT, strokeWidth=0.4))
        drawing.add(_label(frame.left - 4, level - 2.4, name, "end"))
    for tick in ticks:
        spot = frame.across(tick)
        drawing.add(Line(spot, frame.bottom, spot, frame.bottom - 3, strokeColor=INK, strokeWidth=0.5))
    for value, name in x.ticks:
        drawing.add(_label(frame.across(value), frame.bottom - 10.5, name, "middle"))
    if x.title:
        drawing.add(_label(frame.left + frame.width / 2, 3, x.title, "middle"))
    drawing.add(_label(2, height - 7, y.title, "start"))
    for end in ((frame.left, frame.bottom + frame.height), (frame.left + frame.width, frame.bottom)):
        drawing.add(Line(frame.left, frame.bottom, *end, strokeColor=INK, strokeWidth=0.7))
    return drawing, frame


def _legend(drawing: Drawing, frame: _Frame, series: Sequence[Series], height: float) -> None:
    """Names of the series at the top right, each after a patch of its colour."""
    right = frame.left + frame.width
    for one in reversed(series):
        words = _label(right, height - 7, one.name, "end")
        drawing.add(words)
        right -= _width(one.name) + 4
        drawing.add(_square(right - 3, height - 4.6, 5, one.colour))
        right -= 16


def _width(words: str) -> float:
    return float(stringWidth(words, SANS, SMALL))


def _label(x: float, y: float, words: str, anchor: str) -> String:
    return String(x, y, words, fontName=SANS, fontSize=SMALL, fillColor=INK, textAnchor=anchor)


def _square(x: float, y: float, side: float, colour: Color) -> Rect:
    return Rect(x - side / 2, y - side / 2, side, side, fillColor=colour, strokeColor=None)
