"""The publishing rule: write the data first, then create the marker if it does not exist."""

import logging
import secrets
import time

from llm_ocr.errors import ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import ObjectStore

_log = logging.getLogger(__name__)

#: `clean` removes old data without a marker as leftovers (see `stages.clean`). A process that was suspended longer than
#: this number of seconds between data and marker checks that its data still exist.
LOOK_AGAIN_AFTER = 60.0


def attempt_id() -> str:
    """Return a unique id: 16 hex digits from the system's source of randomness."""
    return secrets.token_hex(8)


def slept_since(begun: float) -> bool:
    """Return whether data written at `begun` (`time.time()`) must be checked again before a marker names them."""
    return time.time() - begun > LOOK_AGAIN_AFTER


def settle(store: ObjectStore, key: str, marker: bytes) -> bytes:
    """Create the marker and return the stored one: `marker` itself, or an earlier attempt's.

    `marker` must contain an attempt id, so that no other attempt's marker is equal. After an error that leaves the
    outcome open, the marker is read back. The error is raised only if there is no marker.
    """
    try:
        store.create(key, marker)
    except StorageError as error:
        try:
            return store.get(key)
        except ObjectNotFound:
            if not isinstance(error, ObjectExists):
                raise error from None
            raise StorageError(f"{store.url}: {key} disappeared", hint="Run the same command again.") from error
    return marker


def remove_lost(store: ObjectStore, key: str) -> None:
    """Remove an object that another attempt's marker has made useless. On failure, leave it to `clean`."""
    try:
        store.delete(key)
    except StorageError as error:
        _log.warning("%s remains until `llm-ocr clean`: %s", key, error)
