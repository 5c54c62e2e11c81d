"""What planning would do: as `plan` does it, and nothing is written."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llm_ocr.api.engines import Engines, choose_engine
from llm_ocr.api.job import Job
from llm_ocr.api.loop import run_blocking
from llm_ocr.api.planning import find, plan
from llm_ocr.api.remote import Remote
from llm_ocr.errors import UsageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.settings.models import PlanSettings
from llm_ocr.stages import Progress, Silent
from llm_ocr.work.plan import PlanResult
from llm_ocr.work.stored import workspace_options
from llm_ocr.work.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Preview:
    """A generation that would be written. `known` documents are in the plan already, and are not in the other counts.

    `estimated`: pages are judged by documents' sizes. `filtered` is by cause, as in `work.filtered`.
    """

    documents: int
    pages: int
    units: int
    estimated: bool
    known: int
    filtered: Mapping[str, int]
    examples: tuple[Mapping[str, str], ...]  # of what would be left out: source, reason, detail


def preview(settings: PlanSettings, progress: Progress | None = None) -> Preview:
    """What `llm-ocr plan` would add to the workspace, which need not be there. Raises as planning does."""
    engine = choose_engine(settings, command="plan")
    return run_blocking(lambda: _preview(settings, engine, progress or Silent()))


async def _preview(settings: PlanSettings, engine: str, progress: Progress) -> Preview:
    found = await find(settings, "plan")
    if found is None:
        raise UsageError("no source: there is nothing to look at", hint="llm-ocr plan SOURCE -w FOLDER --dry-run")
    remote = Remote(settings)
    try:
        with _workspace(settings) as (workspace, folder):
            job = Job(workspace, settings, progress, Engines(engine, settings, folder, progress.say), remote)
            return _of(await plan(job, found, dry_run=True))
    finally:
        await remote.close()


@contextlib.contextmanager
def _workspace(settings: PlanSettings) -> Iterator[tuple[Workspace, Path]]:
    """The workspace, or an empty one that is gone afterwards; and a folder that is gone, too."""
    with tempfile.TemporaryDirectory(prefix="llm-ocr-") as name:
        folder = Path(name)
        try:
            opened = Workspace.open(str(settings.workspace), options=workspace_options(settings))
        except WorkspaceMismatch:
            raise
        except WorkspaceError:
            opened = Workspace.open(str(folder / "workspace"), create=True)
        with opened as workspace:
            yield workspace, folder


def _of(result: PlanResult) -> Preview:
    made, filtered = result.generation, result.filtered
    return Preview(
        documents=made.documents if made else 0,
        pages=made.expected if made else 0,
        units=made.units if made else 0,
        estimated=bool(made and made.estimated),
        known=result.known,
        filtered=filtered.counts if filtered else {},
        examples=filtered.examples if filtered else (),
    )
