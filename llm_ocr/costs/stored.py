"""How many bytes a run leaves in its workspace: measured, per page."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llm_ocr.costs.spans import Span
from llm_ocr.costs.throughput import EMBEDDED, stored_rates

_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes that a stage adds to the workspace, and what that rests on."""

    size: Span
    words: str

    def __str__(self) -> str:
        """`12.3 GB (8.1 to 20.4)`, and where that is from."""
        return f"stored: {size_span(self.size)}; {self.words}"

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {"bytes": self.size.to_json(0), "source": self.words}


def stored_of(stage: str, model: str, pages: int) -> Stored | None:
    """By what others' pages took; None for a stage of which nothing was measured."""
    kind = EMBEDDED if model == EMBEDDED else "model"
    for one in stored_rates():
        if one["stage"] == stage and one["engine"] in ("", kind):
            each = Span(one["low"], one["bytes_per_page"], one["high"])
            words = f"{size_text(each.likely)} a page: {one['words']} ({one['date']})"
            return Stored(each * pages, "; ".join([words, *_then(stage)]))
    return None


def measured_stored(each: Span, pages: int) -> Stored:
    """By the pages of a sample that were written as Extract writes them."""
    words = f"{size_text(each.likely)} a page, page images, figures and Parquet, as written just now"
    return Stored(each * pages, "; ".join([words, *_then("extract")]))


def size_span(span: Span) -> str:
    """`12.3 GB (8.1 to 20.4)`; one number where there is no doubt."""
    name, unit = next(((name, unit) for name, unit in _UNITS if span.likely >= unit), _UNITS[-1])
    low, likely, high = (f"{value / unit:,.1f}" for value in (span.low, span.likely, span.high))
    return f"{likely} {name}" if low == high else f"{likely} {name} ({low} to {high})"


def size_text(value: float) -> str:
    """`327.4 kB`."""
    return size_span(Span.of(value))


def _then(stage: str) -> Iterator[str]:
    if stage != "extract":
        return
    found = next((one for one in stored_rates() if one["stage"] == "assemble"), None)
    if found is not None:
        yield f"Assemble adds about {size_text(found['bytes_per_page'])} a page (--dataset-images none: far less)"
