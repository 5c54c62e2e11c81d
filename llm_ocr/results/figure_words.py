"""What a document says of a figure: its description, its class, or its data in one line."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from llm_ocr.types import FigureRecord

#: Characters of data that stand in the Markdown; the dataset has all of them.
LONGEST_DATA = 2000


def figure_words(record: FigureRecord) -> str:
    """The description; without one the class, or the data: `bar chart: Sales. year | units; 2020 | 5; 2021 | 7`."""
    if record.description or not record.data:
        return record.description or record.label
    try:
        data = json.loads(record.data)
    except ValueError:
        return record.label
    text = ". ".join(_parts(data)) if isinstance(data, Mapping) else ""
    if len(text) > LONGEST_DATA:
        text = text[:LONGEST_DATA].rpartition("; ")[0] + " ..."
    return text or record.label


def _parts(data: Mapping[str, Any]) -> Iterator[str]:
    head = ": ".join(str(data[name]).strip() for name in ("type", "title") if data.get(name))
    if head:
        yield head
    rows = [data.get("columns") or [], *(data.get("rows") or [])]
    table = "; ".join(" | ".join(str(cell) for cell in row) for row in rows if isinstance(row, list) and row)
    if table:
        yield table
    if text := str(data.get("text") or "").strip():
        yield text
