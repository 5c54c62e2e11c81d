"""The cells of a table in an answer: HTML or a pipe table. Linear in the length; never raises."""

import re
from collections.abc import Sequence

from llm_ocr.models.html_tokens import unescape
from llm_ocr.models.pieces import pieces
from llm_ocr.types import BlockKind

_TAG = re.compile(r"<(?P<close>/?)(?P<name>tr|td|th)\b[^<>]*>|<[^<>]*>", re.IGNORECASE)
_BAR = re.compile(r"(?<!\\)\|")


def read_table(text: str) -> tuple[list[str], list[list[str]]] | None:
    """The first row and the others of the first table in a text; None where it holds none."""
    for piece in pieces(text):
        if piece.kind is BlockKind.TABLE:
            rows = _html_rows(piece.text) if piece.text.startswith("<") else _pipe_rows(piece.text.split("\n"))
            return (rows[0], rows[1:]) if rows else None
    return None


def _html_rows(text: str) -> list[list[str]]:
    rows: list[list[str]] = []
    cell: list[str] | None = None
    at = 0
    for tag in _TAG.finditer(text):
        if cell is not None:
            cell.append(text[at : tag.start()])
        at = tag.end()
        name = (tag["name"] or "").lower()
        if not name:
            continue
        if cell is not None:
            rows[-1].append(" ".join(unescape("".join(cell)).split()))
            cell = None
        if not tag["close"]:
            if name == "tr" or not rows:
                rows.append([])
            cell = [] if name != "tr" else None
    return [row for row in rows if row]


def _pipe_rows(lines: Sequence[str]) -> list[list[str]]:
    kept = [line for number, line in enumerate(lines) if number != 1]  # the second one only draws the rule
    return [[cell.strip().replace("\\|", "|") for cell in _BAR.split(_bare(line))] for line in kept]


def _bare(line: str) -> str:
    line = line.strip().removeprefix("|")
    return line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
