"""Documents that an exported dataset leaves out, because too many of their pages are bad.

A dataset file holds whole documents, so each file is judged for itself, by columns that cost little to read.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from llm_ocr.types import Status

if TYPE_CHECKING:
    import pyarrow as pa

#: The columns that decide; files that older versions wrote may lack the last one.
COLUMNS = ("document_id", "source", "status", "reason", "is_fallback")


def bad_documents(table: "pa.Table", most: float) -> list[dict[str, Any]]:
    """The documents of a file whose share of pages that failed, or were read by a fallback, is beyond `most` (0..1).

    `document_id`, `source`, `pages`, `failed`, `error_rate` and `reasons`, in the order of the file.
    """
    documents: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table.to_pylist():
        documents[row["document_id"]].append(row)
    return [_told(rows) for rows in documents.values() if _rate(rows) > most]


def without(table: "pa.Table", documents: frozenset[str]) -> "pa.Table":
    """The rows of all other documents."""
    import pyarrow as pa

    return table.filter(pa.array([one not in documents for one in table["document_id"].to_pylist()], pa.bool_()))


def _rate(rows: list[dict[str, Any]]) -> float:
    return sum(_failed(row) or bool(row.get("is_fallback")) for row in rows) / len(rows)


def _failed(row: dict[str, Any]) -> bool:
    return bool(row["status"] == Status.FAILED.value)


def _told(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "document_id": rows[0]["document_id"],
        "source": rows[0]["source"],
        "pages": len(rows),
        "failed": sum(map(_failed, rows)),
        "error_rate": round(_rate(rows), 6),
        "reasons": sorted({row["reason"] for row in rows if row["reason"]}),
    }
