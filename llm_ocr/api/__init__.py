"""From settings to finished work: what the command line and the Python API both call.

What carries out a stage is imported when one is: to read a workspace takes none of it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.api.run import Run
from llm_ocr.storage import StoreOptions
from llm_ocr.work.workspace import Workspace

if TYPE_CHECKING:
    from llm_ocr.settings.models import PipelineCommand
    from llm_ocr.stages import Progress

__all__ = ["Run", "execute", "open"]


def open(url: str | Path, *, profile: str | None = None, endpoint: str | None = None, region: str | None = None) -> Run:
    """Any workspace, read-only; the others as --workspace-profile, -endpoint and -region.

    Raises `WorkspaceError` when there is none, `StorageError` when its store cannot be read.
    """
    return Run(Workspace.open(str(url), options=StoreOptions(profile, endpoint, region)))


def execute(command: str, settings: "PipelineCommand", progress: "Progress | None" = None) -> Run:
    """Carry out plan, extract, describe, assemble, run, retry-failed or clean with the settings of that command.

    Raises `LlmOcrError` for what could not be done; pages that failed are rows, never errors.
    """
    from llm_ocr.api import executing

    return executing.execute(command, settings, progress)
