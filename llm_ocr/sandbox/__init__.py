"""Worker processes with limits: started as commands, killed at their deadline, replaced after a crash."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm_ocr.sandbox.pool import Interpreter, Limits, WorkerPool

__all__ = ["Interpreter", "Limits", "WorkerPool"]


def __getattr__(name: str) -> Any:
    """Import the pool on first use: the workers themselves do not need asyncio, which the pool imports."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from llm_ocr.sandbox import pool

    return getattr(pool, name)
