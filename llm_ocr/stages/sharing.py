"""Distribute units among workers: static shards, leases, or units that the stage before has just published."""

import asyncio
import contextlib
import logging
import platform
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from llm_ocr.config.environment import environment
from llm_ocr.config.groups import (
    SERVER,
    VLLM,
    FollowSettings,
    Group,
    InputSettings,
    LeaseSettings,
    ShardSettings,
    WorkspaceSettings,
)
from llm_ocr.errors import StageMissing, StorageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.scheduling.follow import Pauses, Published, Ready, followed
from llm_ocr.scheduling.leases import DEFAULT_SECONDS, LeaseOptions, Leases
from llm_ocr.scheduling.scanner import Groups, PlannedUnits, Units, UnitScanner
from llm_ocr.scheduling.shards import Shard, Sharded, Split, detected_shard
from llm_ocr.stages import Silent
from llm_ocr.stages.job import Job, worker_name
from llm_ocr.stages.loop import run_blocking
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, Unit, plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.codec import parse_unit_id
from llm_ocr.workspace.generations import Generation, Repair, has_generation
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, Claim, extract_origin, key_settings, newest_key, required_key
from llm_ocr.workspace.publish import ALL, LEAST, compact, done_units, objects, publish
from llm_ocr.workspace.stored import workspace_options
from llm_ocr.workspace.summaries import Summary

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Largest plan, in units, whose progress each of several workers reads at its start.
SMALL = 1000
#: Largest plan whose markers are copied into a single object, which has about 3 MB.
_COPIED_TOGETHER = 3000


async def split_of(job: Job[LeaseSettings], stage: str) -> Split:
    """Return the distribution for a stage.

    The user's choice comes first, then leases if the store supports them, then the share that the platform assigns
    to this machine. The progress receives a message about a distribution that the user did not choose.

    Raises:
        UsageError: The share does not exist.
    """
    found = job.split if job.split is not None else await asyncio.to_thread(_chosen_split, job, stage)
    job.worked.shared = job.worked.shared or not found.alone
    job.workspace.store.share(found.shard.count)
    return found


def _chosen_split(job: Job[LeaseSettings], stage: str) -> Split:
    store, settings, say = job.workspace.store, job.settings, job.progress.say
    sharded = settings if isinstance(settings, ShardSettings) else None
    if sharded is not None and sharded.shard_count > 1:
        index = sharded.shard_index
        if "shard_index" not in sharded.model_fields_set:  # the platform may assign one to this machine
            detected = detected_shard(environment(), count=sharded.shard_count)
            index = index if detected is None else detected.index
        return Split(Shard(index, sharded.shard_count))
    may_lease = settings.lease_seconds is not None or not isinstance(store, LocalStore)
    can = store.capabilities()
    if may_lease and can.create and can.swap:  # a local folder usually has one worker, so leases must be requested
        return Split(leases=True)
    is_open = sharded is not None and "shard_count" not in sharded.model_fields_set
    detected = detected_shard(environment()) if is_open else None
    if detected is not None and detected.count > 1:
        say(f"{detected.source}: this worker has shard {detected.index} of {detected.count} (`shard_count=1`: all)")
        return Split(Shard(detected.index, detected.count))
    if (may_lease or not can.create) and (sharded is not None or stage == EXTRACT):
        why = can.note.partition(":")[0].rstrip(".")
        say(f"This worker processes all units: {why}. Several workers need `shard_index` and `shard_count`.")
    return Split()


class Sharing:
    """Assigns the units of a stage, or the items of Assemble, to this worker, and publishes them."""

    def __init__(self, job: Job[LeaseSettings], split: Split, claim: Claim) -> None:
        self.grown = False  # whether the last `take` ended because the plan grew
        self._workspace, self._worked = job.workspace, job.worked
        self._claim, self._stage, self._key = claim, claim.stage, claim.folder
        self._split = split
        # What other workers of a cluster hold is no news for the user.
        self._say = job.progress.say if job.split is None else Silent().say
        self._stop = threading.Event()
        self._leases: Leases | None = None
        self._taken: set[str] | None = None  # without leases: done or taken
        if split.leases:
            seconds = job.settings.lease_seconds or DEFAULT_SECONDS
            options = LeaseOptions(seconds, worker_name(), job.workspace.url)
            self._leases = Leases(job.workspace.store, self._stage, self._key, options)
            self._leases.__enter__()

    def close(self) -> None:
        """Stop waiting and release the leases."""
        self._stop.set()
        if self._leases is not None:
            self._leases.close()

    def publish(self, unit: str, data: bytes, summary: Summary) -> None:
        """Publish a unit's rows, unless another worker has taken over the unit.

        Raises:
            WorkspaceMismatch: A worker with other settings was first. Nothing is published.
        """
        if self._leases is not None and not self._leases.holds(unit):
            _log.warning("another worker took over unit %s and publishes it", unit)
            return
        self._claim.take()
        publish(self._workspace, self._stage, self._key, unit, data, summary)
        self._claim.confirm()
        self.done(unit)

    def done(self, name: str) -> None:
        """Release the lease of a published unit."""
        if self._leases is not None:
            self._leases.release(name)

    def take(self, units: Units[T], ready: Ready | None = None, generations: int = 0) -> Iterator[T]:
        """Yield the units without a marker.

        Args:
            units: The units of the plan.
            ready: The units that the stage before has published: others are yielded when they become ready. None if
                all units can be processed.
            generations: Generations of the plan that `units` contains. With `ready`, the iterator ends when there are
                more.
        """
        taking: UnitScanner | Sharded
        if self._leases is not None:
            taking = UnitScanner(self._leases, units, ready=ready)
        else:
            if self._taken is None:
                self._taken = done_units(self._workspace, self._stage, self._key)
            taking = Sharded(self._workspace, self._stage, self._key, units, self._split.shard, self._taken)
            if ready is None:
                taking.freshen(range(len(units)))
        grown = partial(has_generation, self._workspace, generations + 1)

        def places() -> Iterator[int]:
            held = yield from followed(taking, ready, Pauses(self._say), self._stop.wait, grown)
            self.grown, self._worked.held = held is None, held or 0

        for place in places():
            yield units[place]

    def finish(self, units: Units[object], beside: Callable[[str], str] | None = None) -> None:
        """End a stage whose units are all taken: copy the markers, if this worker has published any.

        If the plan has no units, for example because filters excluded every document, only the key is claimed.

        Args:
            units: All units of the plan, or all items.
            beside: See `copy_markers`.
        """
        if not len(units):
            self._claim.take()
        if self._split.alone or self._workspace.published(f"{self._stage}/{self._key}/"):
            copy_markers(self._workspace, self._stage, self._key, units, beside)


@contextlib.contextmanager
def held(job: Job[Any], stage: str, key: str, *, alone: bool) -> Iterator[None]:
    """Hold a stage of a local folder while the block runs: a command that takes all units excludes others.

    Args:
        job: The command.
        stage: The stage.
        key: The key of the command's settings.
        alone: Whether the command shares the units with no other.

    Raises:
        WorkspaceError: Another command works on the stage, and would read the same pages.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(job.workspace.store, LocalStore):
            other = stack.enter_context(job.workspace.store.held(f"{stage}-{key}", shared=not alone))
            if other:
                raise WorkspaceError(
                    f"another command ({other}) works on {stage} of {job.workspace.url}: pages would be read twice",
                    hint="Wait until it has ended, or end it. Commands share the pages of a folder if each of them "
                    f"has `lease_seconds={DEFAULT_SECONDS:.0f}`.",
                )
        yield


@contextlib.asynccontextmanager
async def sharing(job: Job[LeaseSettings], split: Split, claim: Claim) -> AsyncIterator[Sharing]:
    """Open the `Sharing` of a stage. At the end of the block, leases are released.

    Args:
        job: The command.
        split: The distribution of the units.
        claim: The claim of the stage's key, checked.

    Raises:
        WorkspaceError: Another command works on the stage.
        WorkspaceMismatch: The key is not that of the cluster's other machines.
    """
    if job.key not in ("", claim.key):
        raise WorkspaceMismatch(
            f"{platform.node()} would make other results than the driver (key {claim.key}, not {job.key})",
            hint="Every machine of the cluster needs the same version of llm-ocr with the same extras.",
        )
    with held(job, claim.stage, claim.key, alone=split.alone):
        own = Sharing(job, split, claim)
        try:
            yield own
        finally:
            await asyncio.to_thread(own.close)


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected rows of a worker. After a retry of a finished plan, only the rows of the retry."""

    pages: int  # pages or figures, as planned or counted
    done: Counts  # those that are already published
    estimated: int = 0  # documents whose pages are not counted yet
    #: Whether all units of the worker are included. If not, the stage adds each unit when the worker takes it.
    whole: bool = True


def begin(job: Job[LeaseSettings], split: Split, stage: str, count: Callable[[], Expected]) -> Expected:
    """Begin the progress of a stage, and return what it includes.

    It includes all units of this worker if the worker is alone, or if the plan is small. Otherwise the markers would
    cost a request per unit, and the progress grows with each unit that the worker takes, as with `follow`.

    Args:
        job: The command.
        split: The distribution of the units.
        stage: The stage.
        count: Returns what is expected of all units of this worker.
    """
    expected = Expected(0, Counts(), whole=False)
    if job.split is None and not follows(job.settings):
        units = len(PlannedUnits(job.workspace))
        if split.alone or units <= SMALL:
            expected = count()
        else:
            shared = f"{plural(units, 'unit')} shared with other workers; this worker counts its own"
            job.progress.say(f"{stage}: {shared}")
    job.progress.begin(stage, expected.pages, expected.done, estimated=bool(expected.estimated))
    return expected


def copy_markers(
    workspace: Workspace, stage: str, key: str, units: Units[object], beside: Callable[[str], str] | None = None
) -> None:
    """Copy the markers of finished groups into one object each, so that later readers need few requests.

    Workers that end at the same time copy different groups. Failures cost later readers time only. `beside` returns the
    key of an object to copy with the marker of a unit, from the unit's name.
    """
    store = workspace.store
    groups = Groups(units, stage, key, one=_COPIED_TOGETHER)
    large = [place for place, members in enumerate(groups.members) if len(members) >= LEAST]
    if not large or store.gathers or store.most_files is not None:
        return
    try:
        found = objects(store, stage, key) if store.capabilities().create else {}
        for place in random.sample(large, len(large)):
            members, digits = len(groups.members[place]), groups.digits(place)
            if found.get(digits or ALL, (0, ""))[0] < members:
                compact(store, stage, key, digits, members, beside)
    except (StorageError, WorkspaceError) as error:
        _log.warning("the markers of %s are not copied, and readers get each of them: %s", stage, error)


_PAST = {"extract": "extracted", "describe": "described"}


def follows(settings: Group) -> bool:
    """Return whether the command runs at the same time as the stage before."""
    return isinstance(settings, FollowSettings) and settings.follow


def pages_stage(settings: Group) -> str:
    """Return the stage whose pages Describe and Assemble read: Extract, or a user-defined stage after it."""
    return settings.pages_from if isinstance(settings, InputSettings) else EXTRACT


async def key_before(job: Job[Group], stage: str, wanted: str = "") -> str:
    """Return the key of the stage before.

    With `follow`, wait until that stage has begun.

    Args:
        job: The command.
        stage: The stage before.
        wanted: The key to use. By default the newest.

    Raises:
        StageMissing: The stage has not begun or not finished all units, and `follow` is not set.
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
    """Raise `StageMissing` ("12 of 40 units not extracted") unless all units have a marker."""
    units = PlannedUnits(workspace)
    if missing := units.without_marker(stage, key):
        unread = {parse_unit_id(units.name(place))[0] for place in missing}
        commands = [
            repair_command(workspace, generation)
            for generation in units.generations
            if stage == EXTRACT and generation.number in unread and generation.key(key) != key
        ]
        command = f"llm-ocr {stage} -w {workspace.url}{describe_options(workspace, key) if stage == DESCRIBE else ''}"
        raise StageMissing(
            f"{len(missing)} of {len(units)} units not {_PAST.get(stage, f'done by {stage}')}",
            hint=f"Run first: {commands[0] if commands else command}",
        )


def describe_options(workspace: Workspace, key: str = "") -> str:
    """Return the settings that a command needs to continue Describe, for messages; empty if it needs none.

    A workspace stores no settings of Describe. A command without them would describe all figures again, or, with the
    CPU engine, leave the documents without descriptions.

    Args:
        workspace: The workspace.
        key: The key of Describe. By default the newest.
    """
    about = key_settings(workspace, DESCRIBE, newest_key(workspace, DESCRIBE, key) or "")
    if about.get("reader", {}).get("engine") != "model":
        return ""
    options = described_with(about)
    if extract_origin(workspace)[0].remembered.get("engine") == VLLM:  # the command starts the server
        del options["server_url"]
    return f" {Repair('', {}, options).text}"


def described_with(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a command that has the key of Describe with the settings `about`."""
    reader = about.get("reader", {})
    if reader.get("engine") != "model":
        return {"engine": reader["engine"]} if reader else {}
    found = {
        "describe_model": reader["model"],
        "describe_mode": reader["mode"],
        "describe_prompt": reader["prompt"] if reader["own_prompt"] else None,
        "describe_classes": ",".join(reader["classes"] or ()),
        "describe_max_tokens": reader["max_tokens"],
        "describe_temperature": reader["temperature"],
        "describe_known": about.get("known"),
        "max_page_attempts": reader["max_attempts"],
        "server_url": "URL",
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def repair_command(workspace: Workspace, generation: Generation) -> str:
    """Return the command that continues an unfinished repair, and the one that ends it."""
    options = generation.repair.options if generation.repair else {}
    engine = options.get("engine", extract_origin(workspace)[0].remembered.get("engine"))
    server = " `server_url=URL`" if engine == SERVER else ""  # a workspace stores no server
    text = generation.repair.text if generation.repair else ""
    command = f"llm-ocr repair -w {workspace.url}"
    return (
        f"{command} {text or 'with its settings'}{server} (or, to keep the earlier results: {command} `give_up=True`)"
    )


def units_behind(share: Sharing, workspace: Workspace, stage: str, key: str) -> Iterator[Unit]:
    """Yield this worker's units, each as soon as the stage before has published it."""
    while True:
        units = PlannedUnits(workspace)
        yield from share.take(units, Published(workspace.store, units, stage, key), len(units.generations))
        if not share.grown:
            return


def await_workspace(settings: WorkspaceSettings, say: Callable[[str], None]) -> None:
    """Wait until the workspace exists, if the command follows a stage that may create it.

    Call this before the settings that the workspace stores are read.

    Raises:
        LlmOcrError: The URL is invalid, the store cannot be read, or a signal arrived.
    """
    if not follows(settings) or (isinstance(settings, InputSettings) and settings.input):
        return

    def exists() -> bool:
        return Workspace.missing(settings.workspace, workspace_options(settings)) is None

    run_blocking(lambda: _waited(exists, f"a workspace at {settings.workspace}", say))


async def _waited(look: Callable[[], T | None], what: str, say: Callable[[str], None]) -> T:
    """Call `look` until its result is true, and return the result. `say` receives `what` while it waits."""
    pauses = Pauses(say)
    while True:
        if found := await asyncio.to_thread(look):
            return found
        await asyncio.sleep(pauses.pause(what))
