"""The formula and the charts of `paper.pdf`; the levels behind them are made of flood waves. Lengths are in points."""

import math

from reportlab.graphics.shapes import Drawing, Line, String

from .charts import Axis, Series, bar_chart, line_chart
from .style import BLUE, GREEN, GREY, INK, ORANGE, SERIF, SERIF_ITALIC

METRES = Axis("metres", 0, 3, [(n / 2, f"{n / 2:.1f}") for n in range(7)])


def formula(width: float) -> Drawing:
    """Equation (1), set by hand: base line at 14, the sum sign with its limits, and the number at the right."""
    drawing = Drawing(width, 34)
    base = 14.0

    def put(x: float, y: float, what: str, size: float, font: str = SERIF_ITALIC) -> None:
        drawing.add(String(x, y, what, fontName=font, fontSize=size, fillColor=INK))

    put(14, base, "h", 11)
    drawing.add(Line(14.8, base + 9.2, 17.0, base + 11.2, strokeColor=INK, strokeWidth=0.6))
    drawing.add(Line(17.0, base + 11.2, 19.2, base + 9.2, strokeColor=INK, strokeWidth=0.6))
    put(21, base, "(k) =", 11)
    put(48, base, "h", 11)
    put(53.6, base - 2.6, "0", 7, SERIF)
    put(61, base, "+", 11, SERIF)
    put(72, base - 2.5, "\u2211", 17, "Symbol")
    put(78, base + 13.5, "4", 7, SERIF)
    put(74, base - 11, "i = 1", 7)
    put(89, base, "a", 11)
    put(94.8, base - 2.6, "i", 7)
    put(99, base, "r", 11)
    put(103.6, base - 2.6, "i", 7)
    put(111, base, "+  b", 11)
    put(130, base, "(h", 11)
    put(139.6, base - 2.6, "0", 7, SERIF)
    put(146, base, "\u2013 h", 11)
    put(160, base - 2.6, "1", 7, SERIF)
    put(164.4, base, ")", 11, SERIF)
    put(width - 15, base, "(1)", 10, SERIF)
    return drawing


def _crest(hours: float, start: float, height: float, rise: float, fall: float) -> float:
    """One flood wave: up over about `rise` hours, down with the time constant `fall`."""
    late = hours - start
    return 0.0 if late <= 0 else height * (1 - math.exp(-late / rise)) ** 2 * math.exp(-late / fall) * 1.9


def ten_days(width: float) -> Drawing:
    def level(hours: float) -> float:
        return 0.62 + _crest(hours, 58, 2.1, 12, 38) + _crest(hours, 138, 0.8, 12, 38)

    def guess(hours: float) -> float:
        return 0.63 + _crest(hours, 57, 2.0, 13, 38) + _crest(hours, 136, 0.86, 12, 37) + 0.03 * math.sin(hours / 7)

    times = [12.0 * n for n in range(21)]
    seen = Series("as read", BLUE, [(t / 24, level(t)) for t in times], dots=True)
    told = Series("forecast", ORANGE, [(t / 24, guess(t)) for t in times], dash=(3, 1.6))
    days = Axis("day", 0, 10, [(float(n), str(n)) for n in range(0, 11, 2)])
    return line_chart(width, 132, days, METRES, [seen, told])


def winter(width: float, height: float) -> Drawing:
    storms = [(330, 1.95), (1110, 2.5), (1200, 1.5), (2270, 2.1), (2350, 0.8), (2960, 1.3), (3010, 1.2), (3750, 2.3)]

    def season(base: float, part: float, early: float, rise: float, fall: float) -> list[tuple[float, float]]:
        line = []
        for step in range(364):
            hours = step * 12.0
            wave = sum(_crest(hours, start - early, height * part, rise, fall) for start, height in storms)
            drizzle = 0.06 * part * (math.sin(step / 5.3) + math.sin(step / 13.7 + 1) + 0.6 * math.sin(step * 1.7))
            line.append((step / 2, base + wave + max(drizzle, -0.08)))
        return line

    names = [
        (15.0, "October"),
        (45.0, "November"),
        (76.0, "December"),
        (107.0, "January"),
        (136.0, "February"),
        (166.0, "March"),
    ]
    series = [
        Series("Upper Tarn", GREEN, season(0.30, 0.34, 20, 9, 26)),
        Series("Mill Weir", ORANGE, season(0.46, 0.66, 9, 10, 32)),
        Series("Hollow Bridge", BLUE, season(0.62, 1.0, 0, 12, 38)),
    ]
    return line_chart(width, height, Axis("", 0, 182, names), METRES, series, mark=1.8)


def warnings(width: float) -> Drawing:
    counts = Axis("floods", 0, 20, [(float(n), str(n)) for n in range(0, 21, 5)])
    series = [
        Series("in time", BLUE, [(0, 6), (1, 11), (2, 16)]),
        Series("missed", GREY, [(0, 13), (1, 8), (2, 3)]),
        Series("in vain", ORANGE, [(0, 2), (1, 9), (2, 4)]),
    ]
    return bar_chart(width, 132, counts, ["No change", "Last trend", "Forecast"], series)
