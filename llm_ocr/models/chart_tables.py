"""What a model read from a chart: tables as pipe tables, and that their values are estimates."""

from collections.abc import Sequence

from llm_ocr.models.pieces import pieces
from llm_ocr.models.tables import read_table
from llm_ocr.types import BlockKind

#: Stands below every table that was read from a chart.
ESTIMATED = "The values are estimates by the model."


def read_chart(text: str) -> str:
    """The words of an answer about a chart in Markdown, its tables as pipe tables. Linear; never raises."""
    found = False
    parts: list[str] = []
    for piece in pieces(text):
        table = read_table(piece.text) if piece.kind is BlockKind.TABLE else None
        found = found or table is not None
        parts.append(_pipe_table(*table) if table else piece.text)
    return "\n\n".join([*parts, ESTIMATED] if found else parts)


def _pipe_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    width = max(map(len, (head, *rows)))
    return "\n".join([_row(head, width), _row(["---"] * width, width), *(_row(row, width) for row in rows)])


def _row(cells: Sequence[str], width: int) -> str:
    filled = [cell.replace("|", "\\|") for cell in cells] + [""] * (width - len(cells))
    return f"| {' | '.join(filled)} |"
