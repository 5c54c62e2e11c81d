"""The pages of the lowest quality, for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llm_ocr.cli.output import one_line

if TYPE_CHECKING:
    from llm_ocr.work.quality import WeakPage
    from llm_ocr.work.status import RunStatus

#: Below it something is wrong with most pages; see `results.quality`.
DOUBTFUL = 0.8
#: Characters of a document's name; of a longer one the end is shown.
_LONGEST = 60


def quality_text(status: "RunStatus") -> str:
    """`12 of 412 pages below 0.8`; "" where no page has a score."""
    total = sum(status.quality)
    low = sum(status.quality[: round(DOUBTFUL * len(status.quality))])
    return f"{low} of {total} pages below {DOUBTFUL:g}" if total else ""


def worst_text(pages: Sequence["WeakPage"], wanted: int) -> str:
    """A table: score, document, page, what is wrong; the worst first."""
    if not pages:
        return "worst: nothing is wrong with any page, as far as can be seen"
    rows = [
        (f"{one.score:.2f}", one_line(_shortened(one.source)), str(one.page or "-"), one_line(one.wrong))
        for one in pages
    ]
    head = ("score", "document", "page", "what is wrong")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(3)]
    lines = [
        f"  {score:<{widths[0]}}  {document:<{widths[1]}}  {page:>{widths[2]}}  {wrong}"
        for score, document, page, wrong in (head, *rows)
    ]
    more = f", which are all that markers name ({wanted} were asked for)" if len(pages) < wanted else ""
    return "\n".join([f"worst {len(pages)}{more}", *lines])


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
