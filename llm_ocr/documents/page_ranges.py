"""Page selections as users write them: `1-5,9,12-`."""

import re
from dataclasses import dataclass

from llm_ocr.errors import UsageError

_PART = re.compile(r"(\d{1,9})?\s*(-)?\s*(\d{1,9})?")


@dataclass(frozen=True, slots=True)
class PageRanges:
    """Ranges of page numbers from 1, ends included; None: to the last page."""

    ranges: tuple[tuple[int, int | None], ...]

    def select(self, total: int) -> tuple[int, ...]:
        """The numbers of a document of `total` pages, ascending, each once; those beyond its end are left out."""
        chosen: set[int] = set()
        for first, last in self.ranges:
            chosen.update(range(first, min(total, last if last is not None else total) + 1))
        return tuple(sorted(chosen))


def parse_pages(text: str) -> PageRanges:
    """Read `1-5,9,12-` (`-5` is `1-5`). Raises UsageError that names the part that is wrong."""
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise UsageError(f"pages {text!r}: no page is named", hint=_HINT)
    return PageRanges(tuple(_range(part, text) for part in parts))


_HINT = "Write numbers from 1 and ranges, for example 1-5,9,12-"


def _range(part: str, text: str) -> tuple[int, int | None]:
    match = _PART.fullmatch(part)
    if match is None or not (match[1] or match[3]):
        raise UsageError(f"pages {text!r}: {part!r} is not a page or a range", hint=_HINT)
    first = int(match[1] or 1)
    last = int(match[3]) if match[3] else (None if match[2] else first)
    if first < 1 or last == 0:
        raise UsageError(f"pages {text!r}: {part!r} begins before page 1", hint=_HINT)
    if last is not None and last < first:
        raise UsageError(f"pages {text!r}: {part!r} ends before it begins", hint=_HINT)
    return first, last
