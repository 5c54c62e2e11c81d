"""How far a stage is, as the workspace knows it: what decides whether a job is submitted again."""

from dataclasses import dataclass

from llm_ocr.work.status import run_status
from llm_ocr.work.workspace import Workspace


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Units done and in all; `total` is 0 while nothing is planned. `pages` are those of the whole plan."""

    done: int
    total: int
    pages: int

    @property
    def finished(self) -> bool:
        return 0 < self.total <= self.done


def stage_progress(workspace: Workspace, stage: str) -> StageProgress:
    """Read anew each time, under the stage's newest key. Raises `StorageError`, and `WorkspaceError` for damage."""
    status = run_status(workspace)
    one = status.stages[stage]
    return StageProgress(one.done if one.key else 0, one.total, status.pages.expected)
