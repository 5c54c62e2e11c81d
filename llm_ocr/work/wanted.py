"""Which pages of a document are wanted, also of one whose number of pages is not known yet."""

from collections.abc import Sequence
from functools import lru_cache

from llm_ocr.documents.page_ranges import PageRanges, parse_pages
from llm_ocr.types import Wanted
from llm_ocr.work import codec

_ranges = lru_cache(maxsize=64)(parse_pages)  # the same for all documents of a plan


def wanted_of(ranges: PageRanges | None = None, named: Sequence[int] | None = None, most: int | None = None) -> Wanted:
    """A selection in its one form: the same pages are the same value."""
    return Wanted(
        codec.pages_to_text(sorted(set(named))) if named else "",
        _merged(ranges) if ranges is not None else "",
        most or 0,
    )


def wanted_pages(wanted: Wanted, total: int) -> tuple[int, ...]:
    """The pages of a document that has `total`, ascending, from 1. Named ones stay where they are beyond its end."""
    if wanted.named:
        pages = codec.pages_from_text(wanted.named)
        if wanted.ranges:
            within = set(_ranges(wanted.ranges).select(total))
            pages = tuple(page for page in pages if page in within)
    else:
        pages = _ranges(wanted.ranges).select(total) if wanted.ranges else tuple(range(1, total + 1))
    return pages[: wanted.most or None]


def place_of(wanted: Wanted, number: int) -> int:
    """How many wanted pages stand before page `number`, which is wanted itself."""
    return sum(page < number for page in wanted_pages(Wanted(wanted.named, wanted.ranges), number))


def no_such_page(total: int) -> str:
    """What is said of a document none of whose pages is wanted."""
    return f"none of the selected pages is among its {total}"


def _merged(ranges: PageRanges) -> str:
    """The ranges in order, without overlaps; empty for all pages."""
    merged: list[tuple[int, int | None]] = []
    for first, last in sorted(ranges.ranges, key=lambda one: one[0]):
        before = merged[-1] if merged else (0, -1)
        if merged and (before[1] is None or first <= before[1] + 1):
            merged[-1] = (before[0], None if before[1] is None or last is None else max(before[1], last))
        else:
            merged.append((first, last))
    if merged == [(1, None)]:
        return ""
    return ",".join(str(first) if first == last else f"{first}-{last or ''}" for first, last in merged)
