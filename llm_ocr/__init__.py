"""Batch OCR: documents to clean Markdown with figures cropped and described, in three resumable stages.

    import llm_ocr
    run = llm_ocr.run("docs/", workspace="out")
    run.status.pages; run.to_dataset()

Settings are the keywords; their names are those of the command line's flags (`llm-ocr run --help`). Everything is
imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm_ocr.api import Run, open
    from llm_ocr.api.calls import assemble, describe, extract, plan, read_page, retry_failed, run

__version__ = "0.1.0"

__all__ = ["Run", "assemble", "describe", "extract", "open", "plan", "read_page", "retry_failed", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'llm_ocr' has no attribute {name!r}")
    return getattr(import_module("llm_ocr.api" if name in ("Run", "open") else "llm_ocr.api.calls"), name)
