"""Worker processes with limits: started as commands, killed at their deadline, replaced when they die.

Commands rather than `multiprocessing`: they work from a script without a `__main__` guard and inside Jupyter, with an
environment that holds no secret, and can be killed while native code runs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm_ocr.processes.pool import Interpreter, Limits, WorkerPool

__all__ = ["Interpreter", "Limits", "WorkerPool"]


def __getattr__(name: str) -> Any:
    """The pool is imported when it is asked for: the workers themselves do without asyncio, which it stands on."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from llm_ocr.processes import pool

    return getattr(pool, name)
