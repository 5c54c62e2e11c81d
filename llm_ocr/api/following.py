"""`--follow`: work beside the stage before, and wait for what is not there yet."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

from llm_ocr.api.job import Job
from llm_ocr.api.loop import run_blocking
from llm_ocr.api.sharing import Sharing
from llm_ocr.errors import StageMissing, WorkspaceError, WorkspaceMismatch
from llm_ocr.settings.groups import FollowSettings, Group, InputSettings, WorkspaceSettings
from llm_ocr.types import Unit
from llm_ocr.work.followed import Patience
from llm_ocr.work.generations import has_generation
from llm_ocr.work.keys import EXTRACT, newest_key, required_key
from llm_ocr.work.lease_groups import PlannedUnits
from llm_ocr.work.publish import done_units
from llm_ocr.work.ready import Published
from llm_ocr.work.stored import workspace_options
from llm_ocr.work.workspace import Workspace

T = TypeVar("T")

_PAST = {"extract": "extracted", "describe": "described"}


def follows(settings: Group) -> bool:
    """Whether the command works beside the stage before."""
    return isinstance(settings, FollowSettings) and settings.follow


def pages_stage(settings: Group) -> str:
    """The stage whose pages Describe and Assemble begin with: Extract, or one of the user's own behind it."""
    return settings.pages_from if isinstance(settings, InputSettings) else EXTRACT


async def key_before(job: Job[Group], stage: str, wanted: str = "") -> str:
    """The key of the stage before, `wanted` or the newest; a follower waits until the stage has begun.

    Raises `StageMissing`, unless it follows, when the stage has not begun or not finished all units.
    """
    workspace = job.workspace
    if not follows(job.settings):
        key = await asyncio.to_thread(required_key, workspace, stage, wanted)
        await asyncio.to_thread(need_finished, workspace, stage, key)
        return key

    def begun() -> str | None:
        return newest_key(workspace, stage, wanted) if has_generation(workspace, 1) else None

    return await _waited(begun, f"{stage} to begin in {workspace.url}", job.progress.say)


def need_finished(workspace: Workspace, stage: str, key: str) -> None:
    """Raise StageMissing "12 of 40 units not extracted" unless all units have a marker."""
    done = done_units(workspace, stage, key)
    units = PlannedUnits(workspace)
    missing = sum(units.name(place) not in done for place in range(len(units)))
    if missing:
        raise StageMissing(
            f"{missing} of {len(units)} units not {_PAST.get(stage, f'done by {stage}')}",
            hint=f"Run first: llm-ocr {stage} -w {workspace.url}",
        )


def units_behind(hands: Sharing, workspace: Workspace, stage: str, key: str) -> Iterator[Unit]:
    """This worker's units, each when the stage before has published it, until that one has no more."""
    while True:
        units = PlannedUnits(workspace)
        yield from hands.follow(units, Published(workspace.store, units, stage, key), len(units.generations))
        if not hands.grown:
            return


def await_workspace(settings: WorkspaceSettings, say: Callable[[str], None]) -> None:
    """Return when there is a workspace, where the command follows: the stage before may make it only now.

    To be called before what a workspace remembers is asked for. Raises `LlmOcrError` for a URL that cannot be one, a
    store that cannot be read, and after a signal.
    """
    if not follows(settings) or (isinstance(settings, InputSettings) and settings.input):
        return

    def there() -> bool:
        try:
            Workspace.open(settings.workspace, options=workspace_options(settings)).close()
        except WorkspaceMismatch:
            raise
        except WorkspaceError:
            return False
        return True

    run_blocking(lambda: _waited(there, f"a workspace at {settings.workspace}", say))


async def _waited(look: Callable[[], T | None], what: str, say: Callable[[str], None]) -> T:
    """What `look` gives as soon as it is true; looks again and again, and says what it waits for."""
    patience = Patience(say)
    while True:
        if found := await asyncio.to_thread(look):
            return found
        await asyncio.sleep(patience.pause(what))
