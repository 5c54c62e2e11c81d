"""Numbers, times and foreign text, as they stand on the page."""

import html
import math
import re
from collections.abc import Sequence

from llm_ocr.results.text import clean

#: Characters that are not seen, or that change the direction of what stands beside them.
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff]")
#: Longer text is cut where it is drawn.
LONGEST = 300

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
#: Units of an axis of time: its length in seconds from which a unit is used, its seconds, its name.
_TIMES = (
    (3 * 86400.0, 86400.0, "days"),
    (3 * 3600.0, 3600.0, "hours"),
    (180.0, 60.0, "minutes"),
    (0.0, 1.0, "seconds"),
)


def plain(text: object, longest: int = LONGEST) -> str:
    """As text that can be seen, cut in the middle when it is too long; not escaped."""
    seen = _HIDDEN.sub("\ufffd", clean(str(text)))
    if len(seen) <= longest:
        return seen
    half = (longest - 1) // 2
    return f"{seen[:half]}…{seen[-half:]}"


def escaped(text: object, longest: int = LONGEST) -> str:
    """`plain`, fit to stand in an element or in a quoted attribute."""
    return html.escape(plain(text, longest))


def short(value: float) -> str:
    """`0`, `0.25`, `7.5`, `120`, `1.2k`, `3.4M`: for axes and bars."""
    for size, name in _UNITS:
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g}" if value else "0"


def span(seconds: float) -> str:
    """`0.8 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, part, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def share(part: float, whole: float) -> str:
    """`0.4 %`, `12 %`."""
    if not whole:
        return "0 %"
    value = 100 * part / whole
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def plural(count: int, noun: str) -> str:
    """`1 page`, `1,204 pages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def time_unit(seconds: float) -> tuple[float, str]:
    """Seconds of the unit that suits an axis of so many seconds, and its name."""
    return next((size, name) for least, size, name in _TIMES if seconds >= least)


def ticks(high: float, most: int = 5, *, counts: bool = False) -> Sequence[float]:
    """Round values from 0 to at least `high`, in at most about `most` steps; whole numbers for `counts`."""
    if high <= 0 or not math.isfinite(high):
        return 0.0, 1.0
    raw = max(high / most, 1.0) if counts else high / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= raw * 0.9999)
    return [step * place for place in range(math.ceil(high / step - 1e-9) + 1)]
