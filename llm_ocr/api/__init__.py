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
    """Open a workspace for reading.

    Args:
        url: The folder, or the s3://, gs://, or hf:// URL.
        profile: The credentials: a profile of the AWS configuration, or a Google credentials file.
        endpoint: The URL of the store's server, if it is not the provider's.
        region: The region of the bucket.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        WorkspaceError: There is no workspace.
        StorageError: The store cannot be read.
    """
    return Run(Workspace.open(str(url), options=StoreOptions(profile, endpoint, region)))


def execute(command: str, settings: "PipelineCommand", progress: "Progress | None" = None) -> Run:
    """Carry out plan, extract, describe, assemble, run, retry-failed or clean with the settings of that command.

    Raises `LlmOcrError` for what could not be done; pages that failed are rows, never errors.
    """
    from llm_ocr.api import executing

    return executing.execute(command, settings, progress)
