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
    head = ": ".join(_plain(data[name]) for name in ("type", "title") if _plain(data.get(name)))
    if head:
        yield head
    columns, rows = data.get("columns"), data.get("rows")
    table = [columns, *(rows if isinstance(rows, list) else ())]
    if text := "; ".join(" | ".join(map(_plain, row)) for row in table if isinstance(row, list) and row):
        yield text
    if edges := _edges(data.get("edges")):
        yield edges
    elif isinstance(data.get("nodes"), list) and (nodes := _plain(data["nodes"])):
        yield nodes
    if text := _plain(data.get("text")):
        yield text


def _edges(edges: Any) -> str:
    """`start -> check; check -> end (yes)`."""
    known = [one for one in edges if isinstance(one, dict)] if isinstance(edges, list) else []
    ends = [(_plain(one.get("from")), _plain(one.get("to")), _plain(one.get("label"))) for one in known]
    return "; ".join(
        f"{start} -> {end}" + (f" ({label})" if label else "") for start, end, label in ends if start or end
    )


def _plain(value: Any) -> str:
    """Return text as it is, the items of a list with `; ` between them, and anything else as JSON."""
    if isinstance(value, str) or value is None:
        return (value or "").strip()
    if isinstance(value, list):
        return "; ".join(filter(None, map(_plain, value)))
    return json.dumps(value, ensure_ascii=False)
