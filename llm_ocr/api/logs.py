"""Where a worker's servers write their logs."""

import os
import socket
import time
from pathlib import Path

from llm_ocr.storage.local import LocalStore
from llm_ocr.work.workspace import Workspace

#: Below the workspace.
FOLDER = "logs"


def worker_name() -> str:
    """Says when, where and by which process, so that many workers do not mix their logs."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{socket.gethostname()}-{os.getpid()}"


def log_folder(workspace: Workspace, worker: str) -> Path:
    """The folder for a worker's servers' logs: in the workspace when it is local, else in its spool. It is not made."""
    root = workspace.store.root if isinstance(workspace.store, LocalStore) else workspace.spool
    return root / FOLDER / worker
