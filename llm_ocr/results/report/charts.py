"""What can be drawn, as data. Every picture has a title, axes with units, and `words` that say what it shows."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """One colour of a picture: its name in the legend, and its values. `about` is shown when it is pointed at."""

    name: str
    values: Sequence[float]
    about: str = ""


@dataclass(frozen=True, slots=True)
class TimeChart:
    """Values in equal bins of `seconds`: `layers` stand on each other, `lines` are drawn over them.

    `pauses`: where a pause was left out (seconds), and what is said of it.
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
    """A row of bars: one part for each name of the chart's legend. `text` stands behind it."""

    label: str
    parts: Sequence[float]
    text: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class BarChart:
    """Rows of bars. `names` of their parts, for the legend; one part needs none. `whole`: bars are shares, 0..1."""

    title: str
    words: str
    unit: str
    bars: Sequence[Bar]
    names: Sequence[str] = ()
    colours: Sequence[str] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Histogram:
    """Columns side by side; `labels` stand below their middles, empty ones are left out.

    With `edges` there is one more label than columns, and they stand below where columns meet.
    """

    title: str
    words: str
    unit: str
    along: str  # what the columns are of, with its unit
    values: Sequence[float]
    labels: Sequence[str]
    edges: bool = False


Chart = TimeChart | BarChart | Histogram


@dataclass(frozen=True, slots=True)
class Tile:
    """A number in large type. `colour` as in the pictures; "" for none."""

    value: str
    label: str
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, sentences, pictures, and lines of examples below them; `command` is one to be typed."""

    title: str
    sentences: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    examples: Sequence[str] = ()
    command: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The page."""

    title: str
    facts: Sequence[tuple[str, str]]
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    footer: str
