"""Batch OCR: documents to clean Markdown with figures cropped and described, in three resumable stages.

    import llm_ocr
    run = llm_ocr.run("docs/", workspace="out")
    run.status.pages; run.to_dataset()

The keywords are settings with the names of the command line's flags. `llm_ocr.config.keywords` has their types and
descriptions. Everything is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm_ocr.api import assemble, describe, export, extract, plan, read_page, retry_failed, run, transform, view
    from llm_ocr.estimating import estimate
    from llm_ocr.launch.calls import submit
    from llm_ocr.runs import Run, open

__all__ = [
    "Run",
    "assemble",
    "describe",
    "estimate",
    "export",
    "extract",
    "open",
    "plan",
    "read_page",
    "retry_failed",
    "run",
    "submit",
    "transform",
    "view",
]


__version__ = "0.1.0"


_ELSEWHERE = {
    "Run": "llm_ocr.runs",
    "estimate": "llm_ocr.estimating",
    "open": "llm_ocr.runs",
    "submit": "llm_ocr.launch.calls",
}


def __dir__() -> list[str]:
    return [*__all__]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'llm_ocr' has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, "llm_ocr.api")), name)
