"""Leases of units, so that workers can join, crash, and leave."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError, UsageError, WorkspaceError
from llm_ocr.storage import ObjectStore
from llm_ocr.workspace import codec
from llm_ocr.workspace.publish import marker_key, remove_lost

_log = logging.getLogger(__name__)

LEASE = ".lease"

#: Beats per lease duration: four may be lost before another worker takes the unit.
_BEATS = 5

#: Google Cloud Storage accepts about one write per second to an object, and answers 429 to more. Source:
#: docs.cloud.google.com/storage/quotas, "Maximum rate of writes to the same object name". No store needs faster beats.
_FASTEST_BEAT = 1.0

#: Beats on Google Cloud Storage keep a margin below that limit: steals and retries write the same object too.
_FASTEST_BEAT_ON_GCS = 30.0

DEFAULT_SECONDS = 300.0

#: Seconds that `close` waits for a beat in progress: a worker that must stop has little time.
_JOIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Options of leases. A lease without a change for `seconds` is expired.

    Raises:
        UsageError: `seconds` is too short for its beats on the store.
    """

    seconds: float = DEFAULT_SECONDS
    worker: str = ""  # a name for human readers
    url: str = ""  # of the store

    def __post_init__(self) -> None:
        on_gcs = self.url.startswith("gs://")
        least = _BEATS * (_FASTEST_BEAT_ON_GCS if on_gcs else _FASTEST_BEAT)
        if self.seconds < least:
            why = "A worker renews its lease five times in this period, at most once per second. Default: 300."
            raise UsageError(
                f"`lease_seconds={self.seconds:g}`: {'on gs://, ' if on_gcs else ''}must be {least:g} or more",
                hint="Google Cloud Storage limits the rate of writes to an object." if on_gcs else why,
            )

    @property
    def beat(self) -> float:
        """Seconds between two beats."""
        return self.seconds / _BEATS


class Claim(Enum):
    """Outcome of an attempt to claim a unit."""

    OURS = "ours"
    HELD = "held"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class _Lease:
    """Lease as its holder sees it. `written` is the last certain write, by the holder's clock."""

    unit: str
    nonce: str
    version: str
    beat: int
    written: float


@dataclass(frozen=True, slots=True)
class Holder:
    """Process that holds a lease. Fields are empty in leases of older versions and of systems without `/proc`.

    `place` identifies the running kernel and the process namespace, `started` the process among others with its id.
    """

    worker: str = ""
    host: str = ""
    pid: int = 0
    place: str = ""
    started: str = ""

    @property
    def is_here(self) -> bool:
        """Whether the process runs or ran on this machine."""
        return bool(self.place and self.started) and self.place == _place()

    @property
    def is_gone(self) -> bool:
        """Whether the process ran on this machine and has ended. False if the system hides the process."""
        if not self.is_here:
            return False
        started = _started(self.pid)
        if started is not None:
            return started != self.started
        try:
            os.kill(self.pid, 0)  # the mount option `hidepid` hides processes of other users in `/proc`
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        return False

    def __str__(self) -> str:
        known = f" on {self.host} (process {self.pid})" if self.host else ""
        return f"worker {self.worker or 'of unknown name'}{known}"


def _place() -> str:
    """Return an id of this kernel's run and of the namespace of process ids.

    Empty if the system has none, or if `/proc` has the ids of another namespace.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").readlink()
        own = Path("/proc/self").readlink().name == str(os.getpid())
    except OSError:
        return ""
    return f"{socket.gethostname()} {boot} {namespace}" if own else ""


def _started(pid: int) -> str | None:
    """Return the start of a process in clock ticks; empty if it has ended; None if `/proc` does not show it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in "ZX" else fields[19]  # state and start, by proc(5); a zombie has ended


@dataclass(frozen=True, slots=True)
class _Body:
    nonce: str
    beat: int
    seconds: float
    holder: Holder = Holder()


def is_lease(key: str) -> bool:
    """Return whether the key is of a lease: `<stage>/<key>/<xx>/<unit>.lease`.

    A live worker rewrites its leases five times in `seconds`. An expired lease has no owner.
    """
    return key.endswith(LEASE) and key.count("/") == 3


def lease_seconds(data: bytes) -> float:
    """Return the seconds from its last beat until a lease expires, from its content; 0 for unreadable content."""
    return _body(data, "a lease").seconds


def lease_key(stage: str, key: str, unit: str) -> str:
    """Return the key of a unit's lease."""
    return marker_key(stage, key, unit).rpartition(".")[0] + LEASE


class Leases:
    """Leases of one worker in one stage, safe to use from several threads.

    As a context manager, it renews leases in its own thread, and releases those still held on exit.
    """

    def __init__(
        self,
        store: ObjectStore,
        stage: str,
        key: str,
        options: LeaseOptions | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.stage = stage
        self.key = key
        self.options = options or LeaseOptions()
        self.clock = clock
        self.stolen = 0  # number of leases taken from other workers
        self.lost = 0  # number of leases that other workers took
        pid = os.getpid()
        self._holder = Holder(self.options.worker, socket.gethostname(), pid, _place(), _started(pid) or "")
        self._held: dict[str, _Lease] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        def keep_alive() -> None:
            while not self._stop.wait(max(self.options.beat / 4, _FASTEST_BEAT)):
                self.beat()

        self._thread = threading.Thread(target=keep_alive, name="llm-ocr leases", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called: no more units are claimed."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or until `close`."""
        self._stop.wait(seconds)

    def holds(self, unit: str) -> bool:
        """Return whether this worker still holds the unit, as far as known. Publish the rows of held units only."""
        return unit in self._held

    def claim(self, unit: str) -> Claim:
        """Claim a unit without a lease.

        Raises:
            StorageError: the outcome is unknown.
        """
        nonce, began = secrets.token_hex(8), self.clock()
        key = lease_key(self.stage, self.key, unit)
        try:
            version = self.store.create(key, self._body(nonce, 0))
        except StorageError as error:
            # A request sent twice meets the object of its first attempt. The nonce identifies it.
            try:
                found, version = self._fetch(unit)
            except ObjectNotFound:
                if isinstance(error, ObjectExists):
                    return Claim.HELD  # released at this moment
                raise error from None
            if found.nonce != nonce:
                return Claim.HELD
        return self._taken(_Lease(unit, nonce, version, 0, began))

    def steal(self, unit: str, version: str, quiet: float) -> Claim:
        """Take over a lease of this version that has not changed for `quiet` seconds, or whose process is gone.

        The holder keeps a lease that has changed meanwhile, or that has a duration above `quiet`.
        """
        try:
            found, now = self._fetch(unit)
        except ObjectNotFound:
            return self.claim(unit)
        gone = found.holder.is_gone
        if now != version or (not gone and quiet < max(found.seconds, self.options.seconds)):
            return Claim.HELD
        mine = self._swap(_Lease(unit, secrets.token_hex(8), version, -1, self.clock()))
        if mine is None:
            return Claim.HELD
        outcome = self._taken(mine)
        if outcome is Claim.OURS:
            self.stolen += 1
            why = "its process has ended" if gone else f"no renewal by its worker for {quiet:.0f} s"
            _log.info("unit %s of %s: %s, taken over", unit, self.stage, why)
        return outcome

    def holder(self, unit: str) -> Holder | None:
        """Return who holds a unit; None if nobody does."""
        try:
            return self._fetch(unit)[0].holder
        except ObjectNotFound:
            return None

    def release(self, unit: str) -> None:
        """Release a unit whose marker is published. Does nothing for a unit that this worker no longer holds."""
        with self._lock:
            lease = self._held.pop(unit, None)
        if lease is not None:
            remove_lost(self.store, lease_key(self.stage, self.key, unit))

    def close(self) -> None:
        """Stop claiming and renewing, and release unfinished units, so that other workers need not wait."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        with self._lock:
            left, self._held = self._held, {}
        for lease in left.values():
            if not self._give_back(lease):
                return  # each further attempt may take as long, and the leases expire

    def beat(self) -> None:
        """Renew the leases that are due. Leases taken by other workers are no longer held afterward."""
        now = self.clock()
        with self._lock:
            due = [lease for lease in self._held.values() if now - lease.written >= self.options.beat]
        for lease in due:
            try:
                renewed = self._swap(lease)
            except StorageError as error:
                _log.warning("the lease of unit %s of %s was not renewed: %s", lease.unit, self.stage, error)
                continue
            with self._lock:
                if self._held.get(lease.unit) is not lease:
                    continue  # released meanwhile
                if renewed is not None:
                    self._held[lease.unit] = renewed
                    continue
                del self._held[lease.unit]
                self.lost += 1
            _log.warning(
                "unit %s of %s was taken over by another worker, which saw no renewal by this one for %.0f s",
                lease.unit,
                self.stage,
                self.options.seconds,
            )

    def _taken(self, lease: _Lease) -> Claim:
        """Register a claimed lease, unless the unit is done: its last holder published the marker before release."""
        with self._lock:
            closed = self._stop.is_set()
            if not closed:
                self._held[lease.unit] = lease
        if closed:
            self._give_back(lease)
            return Claim.HELD
        try:
            done = self.store.stat(marker_key(self.stage, self.key, lease.unit)) is not None
        except StorageError:
            self.release(lease.unit)
            raise
        if done:
            self.release(lease.unit)
        return Claim.DONE if done else Claim.OURS

    def _swap(self, lease: _Lease) -> _Lease | None:
        """Return the lease one beat later; None if the object is another worker's or gone."""
        later = replace(lease, beat=lease.beat + 1, written=self.clock())
        key = lease_key(self.stage, self.key, lease.unit)
        try:
            return replace(later, version=self.store.swap(key, self._body(lease.nonce, later.beat), lease.version))
        except StorageError as error:
            # This swap or an earlier one may have succeeded although its response was lost. The nonce shows this.
            try:
                found, version = self._fetch(lease.unit)
            except ObjectNotFound:
                return None
            if found.nonce == lease.nonce and version != lease.version:
                return replace(lease, version=version, beat=found.beat)  # due again: the time of that write is unknown
            if version == lease.version and not isinstance(error, ObjectChanged):
                raise
            return None

    def _give_back(self, lease: _Lease) -> bool:
        """Remove an unfinished unit's lease if this worker still holds it; return whether the store answers."""
        key = lease_key(self.stage, self.key, lease.unit)
        try:
            info = self.store.stat(key)
        except StorageError as error:
            _log.warning("the lease of unit %s remains until it expires: %s", lease.unit, error)
            return False
        if info is not None and info.version == lease.version:
            remove_lost(self.store, key)
        return True

    def _body(self, nonce: str, beat: int) -> bytes:
        return codec.dump({**asdict(self._holder), "nonce": nonce, "beat": beat, "seconds": self.options.seconds})

    def _fetch(self, unit: str) -> tuple[_Body, str]:
        key = lease_key(self.stage, self.key, unit)
        data, version = self.store.fetch(key)
        return _body(data, key), version


def _body(data: bytes, where: str) -> _Body:
    try:
        value = codec.load(data, where)
        texts = {name: str(value.get(name, "")) for name in ("worker", "host", "place", "started")}
        holder = Holder(pid=int(value.get("pid", 0)), **texts)
        return _Body(str(value["nonce"]), int(value["beat"]), float(value["seconds"]), holder)
    except (WorkspaceError, KeyError, TypeError, ValueError):
        return _Body("", 0, 0.0)  # foreign content: the lease expires like any other
