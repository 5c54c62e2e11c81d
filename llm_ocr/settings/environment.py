"""The only reader of the process environment."""

import os
import sys
from collections.abc import Mapping

#: What a worker process needs to start, and nothing that could be a secret.
_FOR_WORKERS = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV")


def environment() -> Mapping[str, str]:
    """The environment as it is now."""
    return dict(os.environ)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_environment() -> dict[str, str]:
    """An environment for worker processes: a few harmless names and this process's import path."""
    kept = {name: os.environ[name] for name in _FOR_WORKERS if name in os.environ}
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)  # noqa: PTH100 - keeps links
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**kept, **threads, "PYTHONPATH": path, "PYTHONNOUSERSITE": "1"}
