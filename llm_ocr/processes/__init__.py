"""Worker processes with limits: started as commands, killed at their deadline, replaced when they die.

Commands rather than `multiprocessing`: they work from a script without a `__main__` guard and inside Jupyter, with an
environment that holds no secret, and can be killed while native code runs.
"""

from llm_ocr.processes.pool import Limits, WorkerPool

__all__ = ["Limits", "WorkerPool"]
