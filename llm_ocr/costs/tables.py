"""Tables as text, Markdown and HTML."""

import html
from collections.abc import Sequence

from llm_ocr.costs.spans import Span

Row = Sequence[str]
_HOUR = 3600
DOLLARS = "USD"


def text_table(head: Row, rows: Sequence[Row]) -> str:
    """Columns below each other."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def markdown_table(head: Row, rows: Sequence[Row]) -> str:
    """A Markdown table; bars and line ends in cells are escaped."""
    return "\n".join([_line(head), "|" + "---|" * len(head), *(_line(row) for row in rows)])


def html_table(head: Row, rows: Sequence[Row]) -> str:
    """An HTML table; cells are escaped."""
    titles = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def money_text(value: float, currency: str = DOLLARS) -> str:
    """`$0.0165`, `$4.12`, `4.12 EUR`: two digits behind the point, four for small change."""
    digits = 2 if value >= 1 or value == 0 else 4
    return f"${value:,.{digits}f}" if currency == DOLLARS else f"{value:,.{digits}f} {currency}"


def money_span(span: Span, currency: str = DOLLARS) -> str:
    """`$4.74 ($3.08 to $10.31)`; one number where there is no doubt."""
    if span.low == span.high:
        return money_text(span.likely, currency)
    return (
        f"{money_text(span.likely, currency)} ({money_text(span.low, currency)} to {money_text(span.high, currency)})"
    )


def time_span(span: Span) -> str:
    """Seconds as hours, or as minutes when they are few: `1.9 h (1.2 to 4.1)`."""
    unit, name = (_HOUR, "h") if span.likely >= _HOUR else (60, "min")
    low, likely, high = (f"{seconds / unit:,.1f}" for seconds in (span.low, span.likely, span.high))
    return f"{likely} {name}" if low == high else f"{likely} {name} ({low} to {high})"


def share_text(share: float | None) -> str:
    """`13 %`, or `-`."""
    return "-" if share is None else f"{100 * share:.0f} %"


def _line(row: Row) -> str:
    cells = (cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ") for cell in row)
    return "| " + " | ".join(cells) + " |"
