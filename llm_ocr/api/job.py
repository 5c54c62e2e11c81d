"""What the stages of one command share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from llm_ocr.api.engines import Engines
from llm_ocr.api.remote import Remote
from llm_ocr.settings.groups import Group
from llm_ocr.stages import Progress
from llm_ocr.types import Unit
from llm_ocr.work.workspace import Workspace

S_co = TypeVar("S_co", bound=Group, covariant=True)


@dataclass(frozen=True, slots=True)
class Share:
    """Units to do. `mine` says whether a unit's rows may still be published, `done` that they were.

    `begun` hears of the key under which they are published, before the first one is taken.
    """

    units: Iterable[Unit]
    mine: Callable[[str], bool] = lambda unit: True
    done: Callable[[str], None] = lambda unit: None
    begun: Callable[[str], None] = lambda key: None


@dataclass(frozen=True, slots=True)
class Job(Generic[S_co]):
    """One command at work. `settings` are those of the command; without a workspace only single pages are read.

    `command` is its name as users type it; it is stored with the settings that later commands need not repeat.
    `given` are the units to do where somebody else hands them out; else `api.sharing` finds them. When `stop` says so,
    no unit is begun any more, and those that were begun are finished.
    """

    opened: Workspace | None
    settings: S_co
    progress: Progress
    engines: Engines
    remote: Remote
    given: Share | None = None
    stop: Callable[[], bool] = lambda: False
    command: str = ""

    @property
    def workspace(self) -> Workspace:
        """The workspace of a command that has one."""
        if self.opened is None:
            raise RuntimeError("a page without a workspace belongs to no stage")
        return self.opened
