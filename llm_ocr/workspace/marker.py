"""The one rule by which anything is published: what it names first, then the marker, by create-if-absent."""

import logging
import secrets
import time

from llm_ocr.errors import ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import ObjectStore

_log = logging.getLogger(__name__)

#: Data without a marker are removed as leftovers after a while (see `work.clean`). A process that was stopped for more
#: than so many seconds between data and marker looks whether its data are still there.
LOOK_AGAIN_AFTER = 60.0


def attempt_id() -> str:
    """A name that no other attempt has: 16 hex digits from the system's source of randomness."""
    return secrets.token_hex(8)


def slept_since(begun: float) -> bool:
    """Whether data written at `begun` (`time.time()`) must be looked for again before a marker names them."""
    return time.time() - begun > LOOK_AGAIN_AFTER


def settle(store: ObjectStore, key: str, marker: bytes) -> bytes:
    """Create the marker, and give the one that stands: `marker` itself, or that of another who was first.

    `marker` must hold an attempt id, so that no other's is the same. An error after which the marker may or may not
    have been written is settled by reading it back; it is raised only when there is none.
    """
    try:
        store.create(key, marker)
    except StorageError as error:
        try:
            return store.get(key)
        except ObjectNotFound:
            if not isinstance(error, ObjectExists):
                raise error from None
            raise StorageError(
                f"{store.url}: {key} was there and is gone", hint="Run the same command again."
            ) from error
    return marker


def remove_lost(store: ObjectStore, key: str) -> None:
    """Remove what another's marker has made useless; what cannot be removed now is left to `clean`."""
    try:
        store.delete(key)
    except StorageError as error:
        _log.warning("%s stays until `llm-ocr clean`: %s", key, error)
