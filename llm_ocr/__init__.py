"""Batch OCR: documents to clean Markdown with figures cropped and described, in three resumable stages.

    import llm_ocr
    run = llm_ocr.run("docs/", workspace="out")
    run.status.pages; run.to_dataset()

The keywords are settings with the names of the command line's flags. `llm_ocr.config.keywords` has their types, and
`help(llm_ocr.run)` their descriptions. Everything is imported at its first use.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from llm_ocr import display
    from llm_ocr.api import (
        assemble,
        describe,
        export,
        extract,
        fields,
        plan,
        read_page,
        repair,
        retry_failed,
        run,
        transform,
        view,
    )
    from llm_ocr.errors import (
        Interrupted,
        LaunchError,
        LimitReached,
        LlmOcrError,
        MissingExtra,
        PageFailure,
        ServerError,
        StageMissing,
        StorageError,
        UsageError,
        WorkspaceError,
    )
    from llm_ocr.estimating import estimate
    from llm_ocr.launch.calls import submit
    from llm_ocr.runs import Run, open
    from llm_ocr.session import Session
    from llm_ocr.types import Block, Box, Figure, PageRecord, Status

#: Places of the public names that are not in `llm_ocr.api`.
_PLACES = {
    "llm_ocr.errors": (
        *("Interrupted", "LaunchError", "LimitReached", "LlmOcrError", "MissingExtra", "PageFailure", "ServerError"),
        *("StageMissing", "StorageError", "UsageError", "WorkspaceError"),
    ),
    "llm_ocr.estimating": ("estimate",),
    "llm_ocr.launch.calls": ("submit",),
    "llm_ocr.runs": ("Run", "open"),
    "llm_ocr.session": ("Session",),
    "llm_ocr.types": ("Block", "Box", "Figure", "PageRecord", "Status"),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "Block",
    "Box",
    "Figure",
    "Interrupted",
    "LaunchError",
    "LimitReached",
    "LlmOcrError",
    "MissingExtra",
    "PageFailure",
    "PageRecord",
    "Run",
    "ServerError",
    "Session",
    "StageMissing",
    "Status",
    "StorageError",
    "UsageError",
    "WorkspaceError",
    "assemble",
    "describe",
    "display",
    "estimate",
    "export",
    "extract",
    "fields",
    "open",
    "plan",
    "read_page",
    "repair",
    "retry_failed",
    "run",
    "submit",
    "transform",
    "view",
]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    return [*__all__]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'llm_ocr' has no attribute {name!r}")
    if name == "display":
        return _importlib.import_module("llm_ocr.display")
    return getattr(_importlib.import_module(_PLACE_OF.get(name, "llm_ocr.api")), name)
