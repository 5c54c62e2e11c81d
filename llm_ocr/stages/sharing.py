"""Units of this worker: a static shard, leased units, or units of the stage before."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from llm_ocr.config.environment import environment
from llm_ocr.config.groups import FollowSettings, Group, InputSettings, LeaseSettings, ShardSettings, WorkspaceSettings
from llm_ocr.errors import StageMissing, WorkspaceError, WorkspaceMismatch
from llm_ocr.scheduling.follow import Patience, Published, Ready, followed
from llm_ocr.scheduling.leases import DEFAULT_SECONDS, Leases, lease_options
from llm_ocr.scheduling.scanner import PlannedUnits, Units, UnitScanner, leased
from llm_ocr.scheduling.shards import WHOLE, Shard, Sharded, claim, detected_shard
from llm_ocr.stages.loop import run_blocking
from llm_ocr.stages.runtime import Job, Share, worker_name
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Unit
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import generations, has_generation, totals_of
from llm_ocr.workspace.keys import EXTRACT, Claim, newest_key, required_key
from llm_ocr.workspace.publish import Summary, done_units, publish
from llm_ocr.workspace.stored import workspace_options

# Which units this worker does: its static shard, or those that it can lease from all that are left.


T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Units of a plan up to which each of several workers reads at its start what was done before, to show it.
SMALL = 1000


@dataclass(frozen=True, slots=True)
class Split:
    """How the units are shared out among workers: a static shard of them, or leases on any of them."""

    shard: Shard = WHOLE
    leases: bool = False

    @property
    def alone(self) -> bool:
        """Whether all units are this worker's, as far as it knows."""
        return not self.leases and self.shard == WHOLE


async def split_of(job: Job[LeaseSettings], stage: str) -> Split:
    """What was asked for; else leases where the store has them, else the share that the platform gives this machine.

    Says once what the user did not ask for. Raises `UsageError` for a share that does not exist.
    """
    return await asyncio.to_thread(_split, job, stage)


def _split(job: Job[LeaseSettings], stage: str) -> Split:
    if job.given is not None:
        return Split()
    found = _found(job, stage)
    job.workspace.store.share(found.shard.count)
    return found


def _found(job: Job[LeaseSettings], stage: str) -> Split:
    store, settings, say = job.workspace.store, job.settings, job.progress.say
    sharded = settings if isinstance(settings, ShardSettings) else None
    if sharded is not None and sharded.shard_count > 1:
        return Split(Shard(_index(sharded), sharded.shard_count))
    may_lease = settings.lease_seconds is not None or not isinstance(store, LocalStore)
    can = store.capabilities()
    if may_lease and can.create and can.swap:  # a folder mostly has one worker: there units are leased when asked for
        return Split(leases=True)
    is_open = sharded is not None and "shard_count" not in sharded.model_fields_set
    detected = detected_shard(environment()) if is_open else None
    if detected is not None and detected.count > 1:
        say(f"{detected.source}: this worker does share {detected.index} of {detected.count} (--shard-count 1: all)")
        return Split(Shard(detected.index, detected.count))
    if (may_lease or not can.create) and (sharded is not None or stage == EXTRACT):
        why = can.note.partition(":")[0].rstrip(".")
        say(f"This worker does all units, for {why}. Several need --shard-index and --shard-count.")
    return Split()


def _index(settings: ShardSettings) -> int:
    """Return the share's index: as given, otherwise as the platform numbers this machine."""
    if "shard_index" in settings.model_fields_set:
        return settings.shard_index
    detected = detected_shard(environment(), count=settings.shard_count)
    return settings.shard_index if detected is None else detected.index


class Sharing:
    """Hands out the units of a stage, or the items of Assemble, to this worker."""

    def __init__(self, job: Job[LeaseSettings], split: Split, stage: str, key: str) -> None:
        self.grown = False  # whether the last `follow` ended because the plan has grown
        self._workspace = job.workspace
        self._stage, self._key = stage, key
        self._shard = split.shard
        self._say = job.progress.say
        self._stop = threading.Event()
        self._leases: Leases | None = None
        self._taken: set[str] | None = None  # where there are no leases: done, or taken by `follow`
        if split.leases:
            seconds = job.settings.lease_seconds or DEFAULT_SECONDS
            options = lease_options(job.workspace.url, seconds, worker_name())
            self._leases = Leases(job.workspace.store, stage, key, options)
            self._leases.__enter__()

    def close(self) -> None:
        """End what waits, and give back what is leased."""
        self._stop.set()
        if self._leases is not None:
            self._leases.close()

    def mine(self, name: str) -> bool:
        """Whether a unit's rows are still this worker's to publish."""
        return self._leases is None or self._leases.holds(name)

    def done(self, name: str) -> None:
        """The unit is published."""
        if self._leases is not None:
            self._leases.release(name)

    def take(self, units: Units[T]) -> Iterator[T]:
        """Those that have no marker yet."""
        if self._leases is not None:
            return leased(self._leases, units, say=self._say)
        return claim(self._workspace, self._stage, self._key, units, self._shard)

    def follow(self, units: Units[T], ready: Ready, generations: int) -> Iterator[T]:
        """Those that have no marker yet, as they become ready; `units` are of so many generations of the plan."""
        taking = self._taking(units, ready)
        places = followed(
            taking,
            ready,
            Patience(self._say),
            self._stop.wait,
            lambda: has_generation(self._workspace, generations + 1),
        )
        for place in self._noted(places):
            yield units[place]

    def _noted(self, places: Generator[int, None, bool]) -> Iterator[int]:
        self.grown = yield from places

    def _taking(self, units: Units[object], ready: Ready) -> UnitScanner | Sharded:
        if self._leases is not None:
            return UnitScanner(self._leases, units, ready=ready)
        if self._taken is None:
            self._taken = done_units(self._workspace, self._stage, self._key)
        return Sharded(self._workspace, self._stage, self._key, units, self._shard, self._taken)


@contextlib.asynccontextmanager
async def sharing(job: Job[LeaseSettings], split: Split, stage: str, key: str) -> AsyncIterator[Sharing]:
    """What hands out the stage's units for as long as the block lasts: then its leases are given back."""
    hands = Sharing(job, split, stage, key)
    try:
        yield hands
    finally:
        await asyncio.to_thread(hands.close)


@contextlib.asynccontextmanager
async def shared(
    job: Job[LeaseSettings],
    split: Split,
    stage: str,
    key: str,
    units: Callable[[Sharing], Iterator[Unit]] | None = None,
) -> AsyncIterator[Share]:
    """The worker's share of a stage for as long as the block lasts; `units` tells which ones, where not all that are
    planned."""
    if job.given is not None:
        job.given.begun(key)
        yield job.given
        return
    async with sharing(job, split, stage, key) as hands:
        wanted = units(hands) if units else hands.take(await asyncio.to_thread(PlannedUnits, job.workspace))
        yield Share(wanted, hands.mine, hands.done)


def publish_held(share: Share, workspace: Workspace, claim: Claim, unit: str, data: bytes, summary: Summary) -> None:
    """Publish a unit's rows under the key of `claim`, unless another worker has taken the unit over.

    Raises `WorkspaceMismatch`, and publishes nothing, when a worker with other settings was first.
    """
    if not share.mine(unit):
        _log.warning("unit %s was taken over by another worker, which publishes it", unit)
        return
    claim.take()
    publish(workspace, claim.stage, claim.key, unit, data, summary)
    claim.confirm()
    share.done(unit)


def take_without_units(workspace: Workspace, claim: Claim) -> None:
    """Take the key where the plan has no unit that would take it, as when filters left out every document."""
    if not totals_of(generations(workspace)).units:
        claim.take()


def shows_all(job: Job[LeaseSettings], split: Split, stage: str) -> bool:
    """Whether a worker shows from its start what was done before and what is to be done: when it is alone, or the plan
    is small. Else it shows what it takes, for all the rest would cost a request for each unit; it says so."""
    if job.given is not None:
        return False
    units = len(PlannedUnits(job.workspace))
    if split.alone or units <= SMALL:
        return True
    job.progress.say(f"{stage}: {units} units are shared with other workers; this one counts what it takes")
    return False


# `--follow`: work beside the stage before, and wait for what is not there yet.


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
