"""One command with its open resources."""

import itertools
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from llm_ocr.config.groups import Group
from llm_ocr.documents.rendering import Renderer
from llm_ocr.scheduling.shards import Split
from llm_ocr.stages import Progress
from llm_ocr.stages.rendering import Remote
from llm_ocr.stages.servers import Engines
from llm_ocr.storage.local import LocalStore
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.status import Worked

S_co = TypeVar("S_co", bound=Group, covariant=True)


@dataclass(frozen=True, slots=True)
class Job(Generic[S_co]):
    """One command with its open resources."""

    opened: Workspace | None  # None if single pages are read
    settings: S_co
    progress: Progress
    engines: Engines  # the models of the command
    remote: Remote
    split: Split | None = None  # of a cluster's worker. By default `stages.sharing` chooses it.
    key: str = ""  # of a cluster's worker: the stage's key on the other machines, which it must have here
    #: Returns whether no further unit may be claimed. Units in progress are finished.
    stop: Callable[[], bool] = lambda: False
    command: str = ""  # the name of the command. It is stored with the settings that later commands need not repeat.
    renderer: Renderer | None = None  # of planning; Extract uses its processes again
    #: What the command has finished, and whether it shares units with other workers.
    worked: Worked = field(default_factory=Worked)
    #: Runs a stage: in this process, or on a cluster.
    run: Callable[["Stage", "Job[Any]"], Awaitable[None]] = lambda stage, job: stage(job)

    @property
    def workspace(self) -> Workspace:
        """Return the workspace of a command that has one."""
        if self.opened is None:
            raise RuntimeError("a page without a workspace belongs to no stage")
        return self.opened


#: A stage over a workspace. The name of the command decides which settings its job has; types cannot express that.
Stage = Callable[[Job[Any]], Awaitable[None]]


def without_servers(job: Job[Any]) -> Job[Any]:
    """Return the command with models whose servers run on other machines, for keys and plans."""
    engines = Engines(job.engines.engine, job.settings, Path(), job.progress.say, elsewhere=True)
    return replace(job, engines=engines)


#: Folder of server logs, below the workspace.
FOLDER = "logs"


#: Numbers of the workers of this process, which may be several in one second.
_WORKERS = itertools.count(1)


def worker_name() -> str:
    """Return a name of its own, from time, host, and process, so that logs and costs of many workers do not mix."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{socket.gethostname()}-{os.getpid()}-{next(_WORKERS)}"


def log_folder(workspace: Workspace, worker: str) -> Path:
    """Return the folder for the logs of a worker's servers. It is not created.

    It is in the workspace if that is local, otherwise in the workspace's spool.
    """
    root = workspace.store.root if isinstance(workspace.store, LocalStore) else workspace.spool
    return root / FOLDER / worker
