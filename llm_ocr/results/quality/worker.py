"""Renderer's worker process that also rates answers: `python -m llm_ocr.results.quality.worker`.

Rating takes several milliseconds of Python a page, which would hold up the event loop of the stage.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.results.quality.scoring import Limits, rated
from llm_ocr.types import Attempt, EncodedImage, Evidence, Ledger, Page, PageContent, Quality, Reason, Status

MODULE = "llm_ocr.results.quality.worker"


def rating_to_wire(page: Page, attempt: Attempt, limits: Limits, *, transcribed: bool) -> dict[str, Any]:
    """Return the request for `rated` as JSON values and one `bytes`. Images are not part of it."""
    return {
        "evidence": to_wire(page.evidence or Evidence(None)),
        "with_invisible": page.content is not None and page.content.with_invisible,
        "attempt": to_wire(replace(attempt, image=None, raw="", tries=())),
        "limits": asdict(limits),
        "transcribed": transcribed,
    }


def rating_from_wire(attempt: Attempt, wire: Mapping[str, Any]) -> tuple[Attempt, Quality, Ledger | None]:
    """Return the result of `rated` for this attempt from the worker's reply."""
    reason = Reason(wire["reason"]) if wire["reason"] else None
    ledger = from_wire(Ledger, wire["ledger"]) if wire["ledger"] else None
    judged = replace(attempt, status=Status(wire["status"]), reason=reason, detail=wire["detail"])
    return judged, from_wire(Quality, wire["quality"]), ledger


def rate(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `rated` for a request as JSON values."""
    content = PageContent(0.0, 0.0, with_invisible=True) if payload["with_invisible"] else None
    page = Page("", "", 0, EncodedImage(b"", "", 0, 0), content, evidence=from_wire(Evidence, payload["evidence"]))
    attempt, limits = from_wire(Attempt, payload["attempt"]), Limits(**payload["limits"])
    judged, quality, ledger = rated(page, attempt, limits, transcribed=payload["transcribed"])
    return {
        "status": judged.status.value,
        "reason": judged.reason.value if judged.reason else None,
        "detail": judged.detail,
        "quality": to_wire(quality),
        "ledger": to_wire(ledger) if ledger else None,
    }


if __name__ == "__main__":  # the stage imports this module without the libraries that open documents
    from llm_ocr.documents import poppler
    from llm_ocr.documents.renderer import OPERATIONS
    from llm_ocr.sandbox.confinement import Confinement
    from llm_ocr.sandbox.worker import serve

    serve({**OPERATIONS, "rate": rate}, Confinement(programs=poppler.PROGRAMS))
