"""Charts as data and as SVG."""

import html
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from llm_ocr.results.markdown import clean

#: Characters that are invisible, or that change the direction of adjacent text.
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff]")
#: Length above which text is cut.
LONGEST = 300

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
#: Units of a time axis: minimum length of the axis in seconds, seconds of the unit, and name.
_TIMES = (
    (3 * 86400.0, 86400.0, "days"),
    (3 * 3600.0, 3600.0, "hours"),
    (180.0, 60.0, "minutes"),
    (0.0, 1.0, "seconds"),
)


def plain(text: object, longest: int = LONGEST) -> str:
    """Return the text with visible characters only, cut in the middle if it is too long; not escaped."""
    seen = _HIDDEN.sub("\ufffd", clean(str(text)))
    if len(seen) <= longest:
        return seen
    half = (longest - 1) // 2
    return f"{seen[:half]}…{seen[-half:]}"


def escaped(text: object, longest: int = LONGEST) -> str:
    """Return `plain`, escaped for elements and quoted attributes."""
    return html.escape(plain(text, longest))


def short(value: float) -> str:
    """Return `0`, `0.25`, `7.5`, `120`, `1.2k`, `3.4M`: for axes and bars."""
    for size, name in _UNITS:
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g}" if value else "0"


def span(seconds: float) -> str:
    """Return `0.8 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, part, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def share(part: float, whole: float) -> str:
    """Return `0.4 %`, `12 %`."""
    if not whole:
        return "0 %"
    value = 100 * part / whole
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def ticks(high: float, most: int = 5, *, counts: bool = False) -> Sequence[float]:
    """Return round values from 0 to at least `high`, in at most about `most` steps; integers for `counts`."""
    if high <= 0 or not math.isfinite(high):
        return 0.0, 1.0
    raw = max(high / most, 1.0) if counts else high / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= raw * 0.9999)
    return [step * place for place in range(math.ceil(high / step - 1e-9) + 1)]


# Charts as data. Every chart has a title, axes with units, and a description (`words`).


@dataclass(frozen=True, slots=True)
class Layer:
    """Color of a chart: its name in the legend, and its values. `about` is the tooltip."""

    name: str
    values: Sequence[float]
    about: str = ""


@dataclass(frozen=True, slots=True)
class TimeChart:
    """Values in equal bins of `seconds`: `layers` are stacked, `lines` are drawn over them.

    `pauses`: position of each omitted pause (seconds), and its tooltip.
    """

    title: str
    words: str
    unit: str
    seconds: float
    layers: Sequence[Layer] = ()
    lines: Sequence[Layer] = ()
    pauses: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """Row of bars: one part for each name in the chart's legend. `text` follows the bar."""

    label: str
    parts: Sequence[float]
    text: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class BarChart:
    """Rows of bars. `names` of their parts are for the legend; a single part needs none. `whole`: bars are shares."""

    title: str
    words: str
    unit: str
    bars: Sequence[Bar]
    names: Sequence[str] = ()
    colours: Sequence[str] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Histogram:
    """Adjacent columns; `labels` are below their boundaries, one more than columns. Empty ones are omitted."""

    title: str
    words: str
    unit: str
    along: str  # quantity of the horizontal axis, with its unit
    values: Sequence[float]
    labels: Sequence[str]


Chart = TimeChart | BarChart | Histogram


@dataclass(frozen=True, slots=True)
class Tile:
    """Number in large type. `colour` as in the charts; "" for none."""

    value: str
    label: str
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Heading, sentences, charts, and lines of examples; `command` is for the user to run."""

    title: str
    sentences: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    examples: Sequence[str] = ()
    command: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Content of the page."""

    title: str
    facts: Sequence[tuple[str, str]]
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    footer: str


# Charts as SVG. Sizes are in user units of the picture, which scales with the page.


WIDTH = 720
_LEFT, _RIGHT, _TOP = 58, 14, 12
_HEIGHT = 190  # of the plot area with a vertical axis
_BELOW = 42  # for the horizontal axis
_ROW, _LABEL, _TEXT = 26, 210, 120  # of bar charts: height of a row, widths of the texts on both sides
_COLOURS = 9


def colour(place: int) -> str:
    """Return the class of the n-th color; from the ninth on, all are gray."""
    return f"c{min(place, _COLOURS - 1)}"


def svg(chart: Chart, name: str) -> str:
    """Return the picture; `name` is used for ids within the page."""
    if isinstance(chart, TimeChart):
        height, parts = _TOP + _HEIGHT + _BELOW, list(_over_time(chart))
    elif isinstance(chart, Histogram):
        height, parts = _TOP + _HEIGHT + _BELOW, list(_columns(chart))
    else:
        height, parts = _TOP + _ROW * len(chart.bars) + _BELOW, list(_rows(chart))
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escaped(chart.title)}</title><desc id="{name}-d">{escaped(chart.words, 2000)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _over_time(chart: TimeChart) -> Iterator[str]:
    stacked = [sum(column) for column in zip(*(layer.values for layer in chart.layers), strict=True)]
    highest = max([0.0, *stacked, *(value for line in chart.lines for value in line.values)])
    marks = ticks(highest)
    yield from _grid(marks, chart.unit)
    base = [0.0] * len(stacked)
    for place, layer in enumerate(chart.layers):
        top = [low + value for low, value in zip(base, layer.values, strict=True)]
        yield f'<path class="{colour(place)} area" d="{_area(base, top, marks[-1])}">{_about(layer)}</path>'
        base = top
    for place, line in enumerate(chart.lines):
        kind = colour(len(chart.layers) + place)
        yield f'<path class="{kind} line" d="{_steps(line.values, marks[-1])}">{_about(line)}</path>'
    for moment, words in chart.pauses:
        x = _LEFT + _across(moment, chart.seconds)
        yield f'<path class="pause" d="M{x:.1f} {_TOP}V{_TOP + _HEIGHT}"><title>{escaped(words)}</title></path>'
    yield from _time_axis(chart.seconds)


def _grid(marks: Sequence[float], unit: str) -> Iterator[str]:
    for mark in marks:
        y = _TOP + _HEIGHT * (1 - mark / marks[-1])
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text class="mark end" x="{_LEFT - 6}" y="{y + 4:.1f}">{short(mark)}</text>'
    middle = _TOP + _HEIGHT / 2
    yield f'<text class="axis mid" x="14" y="{middle}" transform="rotate(-90 14 {middle})">{escaped(unit)}</text>'


def _time_axis(seconds: float) -> Iterator[str]:
    size, name = next((size, name) for least, size, name in _TIMES if seconds >= least)
    for mark in ticks(seconds / size, 8):
        if mark * size <= seconds * 1.0001:
            x = _LEFT + _across(mark * size, seconds)
            yield f'<path class="tick" d="M{x:.1f} {_TOP + _HEIGHT}v5"/>'
            yield f'<text class="mark mid" x="{x:.1f}" y="{_TOP + _HEIGHT + 18}">{mark:g}</text>'
    yield _below(f"time at work, {name}", _TOP + _HEIGHT)


def _below(words: str, bottom: float) -> str:
    x = (_LEFT + WIDTH - _RIGHT) / 2
    return f'<text class="axis mid" x="{x}" y="{bottom + 36}">{escaped(words)}</text>'


def _across(value: float, highest: float) -> float:
    return (WIDTH - _LEFT - _RIGHT) * value / highest if highest else 0.0


def _y(value: float, highest: float) -> float:
    return _TOP + _HEIGHT * (1 - min(value, highest) / highest)


def _area(base: Sequence[float], top: Sequence[float], highest: float) -> str:
    there = _steps(top, highest)
    edges = [_LEFT + _across(place, len(base)) for place in range(len(base) + 1)]
    back = "".join(
        f"L{edges[place + 1]:.1f} {_y(base[place], highest):.1f}H{edges[place]:.1f}"
        for place in reversed(range(len(base)))
    )
    return f"{there}{back}Z"


def _steps(values: Sequence[float], highest: float) -> str:
    edges = [_LEFT + _across(place, len(values)) for place in range(len(values) + 1)]
    heights = [_y(value, highest) for value in values]
    start = f"M{edges[0]:.1f} {heights[0]:.1f}"
    return start + "".join(f"V{height:.1f}H{edge:.1f}" for height, edge in zip(heights, edges[1:], strict=True))


def _about(layer: Layer) -> str:
    return f"<title>{escaped(layer.about or layer.name)}</title>"


def _columns(chart: Histogram) -> Iterator[str]:
    marks = ticks(max([0.0, *chart.values]), counts=True)
    yield from _grid(marks, chart.unit)
    width = (WIDTH - _LEFT - _RIGHT) / max(1, len(chart.values))
    for place, value in enumerate(chart.values):
        x, y = _LEFT + width * place, _y(value, marks[-1])
        yield (
            f'<rect class="c0" x="{x + 1:.1f}" y="{y:.1f}" width="{max(width - 2, 0.5):.1f}" '
            f'height="{_TOP + _HEIGHT - y:.1f}"><title>{value:,.0f}</title></rect>'
        )
    for place, label in enumerate(chart.labels):
        x = _LEFT + width * place
        yield f'<text class="mark mid" x="{x:.1f}" y="{_TOP + _HEIGHT + 18}">{escaped(label)}</text>' if label else ""
    yield _below(chart.along, _TOP + _HEIGHT)


def _rows(chart: BarChart) -> Iterator[str]:
    highest = 1.0 if chart.whole else max([0.0, *(sum(bar.parts) for bar in chart.bars)])
    bottom = _TOP + _ROW * len(chart.bars)
    room = WIDTH - _LABEL - (_RIGHT if chart.whole else _TEXT)
    counts = all(isinstance(part, int) for bar in chart.bars for part in bar.parts)
    marks = [0.0, 0.25, 0.5, 0.75, 1.0] if chart.whole else ticks(highest, 4, counts=counts)
    for mark in marks:
        if mark <= highest or chart.whole:
            x = _LABEL + room * mark / (highest or 1.0)
            label = f"{100 * mark:g} %" if chart.whole else short(mark)
            yield f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
            kind = "end" if chart.whole and mark == 1.0 else "mid"
            yield f'<text class="mark {kind}" x="{x:.1f}" y="{bottom + 18}">{label}</text>'
    for place, bar in enumerate(chart.bars):
        yield from _row(chart, bar, _TOP + _ROW * place, room / (highest or 1.0))
    yield f'<text class="axis mid" x="{_LABEL + room / 2}" y="{bottom + 36}">{escaped(chart.unit)}</text>'


def _row(chart: BarChart, bar: Bar, top: float, scale: float) -> Iterator[str]:
    middle = top + _ROW / 2
    title = f"<title>{escaped(bar.about or bar.label)}</title>"
    yield f'<text class="label end" x="{_LABEL - 8}" y="{middle + 4}">{escaped(bar.label, 32)}{title}</text>'
    ends = [0.0, *accumulate(bar.parts)]
    for place, part in enumerate(bar.parts):
        if part <= 0:
            continue
        kind = chart.colours[place] if chart.colours else colour(place)
        name = f"{chart.names[place]}: " if chart.names else ""
        size = f"{100 * part:.1f} %" if chart.whole else short(part)
        yield (
            f'<rect class="{kind}" x="{_LABEL + scale * ends[place]:.1f}" y="{top + 4}" '
            f'width="{max(scale * part, 0.8):.1f}" height="{_ROW - 8}"><title>{escaped(name)}{size}</title></rect>'
        )
    if not chart.whole:
        x = _LABEL + scale * ends[-1] + 6
        yield f'<text class="label" x="{x:.1f}" y="{middle + 4}">{escaped(bar.text, 24)}</text>'
