"""Leases of units, so that workers can join, crash, and leave."""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType
from typing import Self

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError, UsageError, WorkspaceError
from llm_ocr.storage import ObjectStore
from llm_ocr.workspace import codec
from llm_ocr.workspace.marker import remove_lost
from llm_ocr.workspace.publish import marker_key

_log = logging.getLogger(__name__)

LEASE = ".lease"

#: Beats in the life of a lease: four may be lost before another worker takes the unit.
_BEATS = 5

#: Google Cloud Storage takes about one write a second of one object, and answers 429 to more
#: (docs.cloud.google.com/storage/quotas, "Maximum rate of writes to the same object name"). No store needs faster ones.
_FASTEST_BEAT = 1.0

#: Beats on Google Cloud Storage have a margin beside that limit: steals and retries write the same object too.
_FASTEST_BEAT_ON_GCS = 30.0

DEFAULT_SECONDS = 300.0

#: Seconds that `close` waits for a beat that is under way: a worker that was told to stop has little time.
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """`seconds`: a lease that did not change for so long is of a dead worker. `worker` is for people who look at it.

    Raises `UsageError` for a time that is too short for the beats in it.
    """

    seconds: float = DEFAULT_SECONDS
    worker: str = ""

    def __post_init__(self) -> None:
        if self.seconds < _BEATS * _FASTEST_BEAT:
            raise UsageError(
                f"lease_seconds is {self.seconds:g}: it must be {_BEATS * _FASTEST_BEAT:g} or more",
                hint="A worker shows that it lives five times in this time, at most once a second. 300 is usual.",
            )

    @property
    def beat(self) -> float:
        """Seconds between two signs of life."""
        return self.seconds / _BEATS


def lease_options(url: str, seconds: float = DEFAULT_SECONDS, worker: str = "") -> LeaseOptions:
    """Options that suit the store of this URL. Raises `UsageError` for a time that is too short for it."""
    options = LeaseOptions(seconds, worker)
    if url.startswith("gs://") and options.beat < _FASTEST_BEAT_ON_GCS:
        raise UsageError(
            f"lease_seconds is {seconds:g}: on gs:// it must be {_BEATS * _FASTEST_BEAT_ON_GCS:g} or more",
            hint="Google Cloud Storage limits how often one object may be written.",
        )
    return options


class Claim(Enum):
    """How an attempt to take a unit ended."""

    OURS = "ours"
    HELD = "held"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class _Lease:
    """A lease as its holder knows it. `written`: when it last surely was, by our clock."""

    unit: str
    nonce: str
    version: str
    beat: int
    written: float


@dataclass(frozen=True, slots=True)
class _Body:
    nonce: str
    beat: int
    seconds: float


def is_lease(key: str) -> bool:
    """Whether the key is of a lease: `<stage>/<key>/<xx>/<unit>.lease`.

    A live worker rewrites its leases five times in `seconds`, so one that is old is nobody's.
    """
    return key.endswith(LEASE) and key.count("/") == 3


def lease_seconds(data: bytes) -> float:
    """How long after its last beat a lease still counts, from its content; 0 for one that nobody can read."""
    return _body(data, "a lease").seconds


def lease_key(stage: str, key: str, unit: str) -> str:
    """Where the lease of a unit stands."""
    return marker_key(stage, key, unit).rpartition(".")[0] + LEASE


class Leases:
    """The leases of one worker in one stage; usable from any number of threads.

    As a context it keeps them alive in a thread of its own, and at the end releases those that are still held.
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
        self.stolen = 0  # taken over from others
        self.lost = 0  # taken over by others
        self._held: dict[str, _Lease] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._keep_alive, name="llm-ocr leases", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called: nothing more is claimed."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until `close`."""
        self._stop.wait(seconds)

    def holds(self, unit: str) -> bool:
        """Whether the unit is ours, as far as is known. The rows of one that is not are another worker's to publish."""
        return unit in self._held

    def claim(self, unit: str) -> Claim:
        """Take a unit that nobody seems to hold. Raises `StorageError` when it cannot be told whether it was taken."""
        nonce, began = secrets.token_hex(8), self.clock()
        key = lease_key(self.stage, self.key, unit)
        try:
            version = self.store.create(key, self._body(nonce, 0))
        except StorageError as error:
            # A create that was sent twice meets its own first one: the nonce tells.
            try:
                found, version = self._fetch(unit)
            except ObjectNotFound:
                if isinstance(error, ObjectExists):
                    return Claim.HELD  # released in this moment
                raise error from None
            if found.nonce != nonce:
                return Claim.HELD
        return self._taken(_Lease(unit, nonce, version, 0, began))

    def steal(self, unit: str, version: str, quiet: float) -> Claim:
        """Take over a lease of this version that has not changed for `quiet` seconds.

        It stays its holder's when it has changed by now, or when it was made for a longer time than that.
        """
        try:
            found, now = self._fetch(unit)
        except ObjectNotFound:
            return self.claim(unit)
        if now != version or quiet < max(found.seconds, self.options.seconds):
            return Claim.HELD
        mine = self._swap(_Lease(unit, secrets.token_hex(8), version, -1, self.clock()))
        if mine is None:
            return Claim.HELD
        outcome = self._taken(mine)
        if outcome is Claim.OURS:
            self.stolen += 1
            _log.info("unit %s of %s: its worker was silent for %.0f s, taken over", unit, self.stage, quiet)
        return outcome

    def release(self, unit: str) -> None:
        """Give up a unit that is done: its marker stands. Nothing happens for one that is not ours any more."""
        with self._lock:
            lease = self._held.pop(unit, None)
        if lease is not None:
            remove_lost(self.store, lease_key(self.stage, self.key, unit))

    def close(self) -> None:
        """Stop claiming and keeping alive, and give back units that are not done, so that others need not wait."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)
        with self._lock:
            left, self._held = self._held, {}
        for lease in left.values():
            self._give_back(lease)

    def beat(self) -> None:
        """Renew the leases that are due. Those that others have taken are no longer held afterwards."""
        now = self.clock()
        with self._lock:
            due = [lease for lease in self._held.values() if now - lease.written >= self.options.beat]
        for lease in due:
            try:
                renewed = self._swap(lease)
            except StorageError as error:
                _log.warning("the lease of unit %s of %s was not renewed: %s", lease.unit, self.stage, error)
                continue
            self._renewed(lease, renewed)

    def _keep_alive(self) -> None:
        while not self._stop.wait(max(self.options.beat / 4, _FASTEST_BEAT)):
            self.beat()

    def _renewed(self, lease: _Lease, renewed: _Lease | None) -> None:
        with self._lock:
            if self._held.get(lease.unit) is not lease:
                return  # released meanwhile
            if renewed is not None:
                self._held[lease.unit] = renewed
                return
            del self._held[lease.unit]
            self.lost += 1
        _log.warning(
            "unit %s of %s was taken over by another worker, which saw no sign of life of this one for %.0f s",
            lease.unit,
            self.stage,
            self.options.seconds,
        )

    def _taken(self, lease: _Lease) -> Claim:
        """Ours, unless the unit was done before: its last holder's marker stood before the lease was released."""
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
        """The lease one beat later; None when the object is another's or gone."""
        later = replace(lease, beat=lease.beat + 1, written=self.clock())
        key = lease_key(self.stage, self.key, lease.unit)
        try:
            return replace(later, version=self.store.swap(key, self._body(lease.nonce, later.beat), lease.version))
        except StorageError as error:
            # This swap or an earlier one may have worked, and its answer was lost: the nonce tells.
            try:
                found, version = self._fetch(lease.unit)
            except ObjectNotFound:
                return None
            if found.nonce == lease.nonce and version != lease.version:
                return replace(lease, version=version, beat=found.beat)  # due again, for it is not said since when
            if version == lease.version and not isinstance(error, ObjectChanged):
                raise
            return None

    def _give_back(self, lease: _Lease) -> None:
        """Remove an undone unit's lease if it is still ours; what cannot be removed runs out by itself."""
        key = lease_key(self.stage, self.key, lease.unit)
        try:
            info = self.store.stat(key)
        except StorageError as error:
            _log.warning("the lease of unit %s stays until it runs out: %s", lease.unit, error)
            return
        if info is not None and info.version == lease.version:
            remove_lost(self.store, key)

    def _body(self, nonce: str, beat: int) -> bytes:
        options = self.options
        return codec.dump({"worker": options.worker, "nonce": nonce, "beat": beat, "seconds": options.seconds})

    def _fetch(self, unit: str) -> tuple[_Body, str]:
        key = lease_key(self.stage, self.key, unit)
        data, version = self.store.fetch(key)
        return _body(data, key), version


def _body(data: bytes, where: str) -> _Body:
    try:
        value = codec.load(data, where)
        return _Body(str(value["nonce"]), int(value["beat"]), float(value["seconds"]))
    except (WorkspaceError, KeyError, TypeError, ValueError):
        return _Body("", 0, 0.0)  # not of our making: it runs out as any other
