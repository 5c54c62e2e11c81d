"""A page as one line of JSON: the records of the dots.ocr batch on Modal, and some fields more."""

from typing import Any

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.types import Status


def page_line(row: DatasetRow, *, index: int, model: str, batch_id: str) -> dict[str, Any]:
    """The record of a page that succeeded (`ok` or `degraded`) or failed.

    Those of that batch: `document_id`; `page`, from 1, and `page_index`, its place from 1 among the document's pages
    that were read (both 0 for a document that could not be opened); `pdf_path`, the document's path or URL; `model`,
    the one given where the row names none; `success`; `latency` in seconds; `usage` in tokens, zeros for the embedded
    engine; `content`, the page's Markdown with its figures described, null when it failed; `error`, null unless it did.

    Ours: `page_id`; `status`; `reason` and `detail` of a page that is not ok, else empty; `is_fallback`, whether
    another reader than the model that was asked read it; `batch_id`. No field is of two types but `content` and
    `error`, so that readers which guess types from the first lines guess right.
    """
    record = row.record
    failed = record.status is Status.FAILED
    reason = record.reason.value if record.reason else ""
    return {
        "document_id": record.document_id,
        "page": record.page_number or 0,
        "page_index": index if record.page_number else 0,
        "pdf_path": record.source,
        "model": record.engine or model,
        "success": not failed,
        "latency": round(float(record.seconds), 3),
        "usage": {
            "prompt_tokens": record.tokens_in,
            "completion_tokens": record.tokens_out,
            "total_tokens": record.tokens_in + record.tokens_out,
        },
        "content": None if failed else row.final_markdown,
        "error": (": ".join(part for part in (reason, record.detail) if part) or "failed") if failed else None,
        "page_id": record.page_id,
        "status": record.status.value,
        "reason": reason,
        "detail": record.detail,
        "is_fallback": record.is_fallback,
        "batch_id": batch_id,
    }
