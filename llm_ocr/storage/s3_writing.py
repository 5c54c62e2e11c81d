"""Conditional writes: create-if-absent and compare-and-swap, and whether a service honours them.

A request that the SDK repeats after a lost answer meets its own write, and is told 409 or 412. What stands is therefore
read back: our bytes mean success. Two writers with the same bytes would both take themselves for the winner, so what
must have one winner holds a nonce.
"""

import contextlib
import random
import secrets
import time
from dataclasses import dataclass

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import Capabilities
from llm_ocr.storage.s3_client import Connection
from llm_ocr.storage.s3_errors import Conflict, Unsupported, translated
from llm_ocr.storage.s3_reading import read_object

#: Seconds (at most) before the next try when a write met another one and nothing of it stands: the S3 user guide on
#: conditional writes asks for a retry after 409.
_PAUSES = (0.1, 0.3, 1.0, 3.0)

_LEASES_OFF = "leases are off here, and shards are static"


@dataclass(frozen=True, slots=True)
class Target:
    """One object to write. `key` is its key in the bucket, `name` what errors call it."""

    connection: Connection
    key: str
    name: str

    def put(self, data: bytes, **conditions: str) -> str:
        """Write it, and give its ETag. Raises `Conflict` when a condition fails, `Unsupported` when it is not known.

        `ObjectNotFound`: the object that a condition names is gone.
        """
        context = self.connection.context
        with translated("write", self.name, context, reading="IfMatch" in conditions):
            sent = self.connection.client.put_object(Bucket=context.bucket, Key=self.key, Body=data, **conditions)
        return str(sent["ETag"])

    def find(self) -> tuple[bytes, str] | None:
        """Content and ETag; None when there is no such object."""
        try:
            return read_object(self.connection, self.key, self.name)
        except ObjectNotFound:
            return None

    def remove(self) -> None:
        """Remove it; no error when there is none."""
        context = self.connection.context
        with (
            contextlib.suppress(ObjectNotFound),  # Amazon says nothing of it, others do
            translated("remove", self.name, context, reading=True),
        ):
            self.connection.client.delete_object(Bucket=context.bucket, Key=self.key)


def create(target: Target, data: bytes) -> str:
    """Write the object if there is none; its ETag. Raises `ObjectExists`, and `Unsupported` where it is not known."""
    for pause in _PAUSES:
        try:
            return target.put(data, IfNoneMatch="*")
        except StorageError as error:
            failed = error
        standing = _standing_after(failed, target)
        if standing is not None:
            if standing[0] == data:
                return standing[1]
            raise ObjectExists(f"{target.name} exists") from failed
        if not isinstance(failed, Conflict):
            break
        time.sleep(random.uniform(pause / 2, pause))
    raise failed


def swap(target: Target, data: bytes, version: str) -> str:
    """Replace the object if its ETag is `version`; its new one. Raises `ObjectChanged`."""
    for pause in _PAUSES:
        try:
            return target.put(data, IfMatch=version)
        except ObjectNotFound as gone:
            raise ObjectChanged(f"{target.name} is gone") from gone
        except StorageError as error:
            failed = error
        standing = _standing_after(failed, target)
        if standing is None:
            raise ObjectChanged(f"{target.name} is gone") from failed
        if standing[0] == data:
            return standing[1]
        if standing[1] != version:
            raise ObjectChanged(f"{target.name} has changed") from failed
        if not isinstance(failed, Conflict):
            break
        time.sleep(random.uniform(pause / 2, pause))
    raise failed


def create_unsafely(target: Target, data: bytes) -> str:
    """`create` where the service has no conditions: right as long as no two write at the same moment."""
    standing = target.find()
    if standing is not None:
        raise ObjectExists(f"{target.name} exists")
    return target.put(data)


def _standing_after(failed: StorageError, target: Target) -> tuple[bytes, str] | None:
    """What stands after a write of which it is not known whether it happened; raises `failed` when it did not."""
    if not failed.retryable:
        raise failed
    try:
        return target.find()
    except StorageError as unread:
        raise failed from unread


def probe(target: Target) -> Capabilities:
    """What the service honours, found with an object of this name, which is removed. Raises `StorageError`.

    The object is read back too, so that all permissions that a workspace needs are proved.
    """
    try:
        created, version = _probe_create(target)
        swapped = _probe_swap(target, version)
        if target.find() is None:
            raise StorageError(
                f"{target.name} cannot be read after it was written", hint="Nothing can be kept in such a store."
            )
    except StorageError:
        with contextlib.suppress(StorageError):  # the first error says more than that of the cleaning up
            target.remove()
        raise
    target.remove()
    missing = [name for name, there in (("If-None-Match", created), ("If-Match", swapped)) if not there]
    note = f"{' and '.join(missing)} of PutObject: not honoured by {target.connection.server}, so {_LEASES_OFF}"
    return Capabilities(created, swapped, note if missing else "")


def _probe_create(target: Target) -> tuple[bool, str]:
    """Whether a second creator loses, and the version that stands."""
    try:
        version = create(target, _nonce())
    except Unsupported:
        return False, target.put(_nonce())
    try:
        return False, target.put(_nonce(), IfNoneMatch="*")
    except Conflict:
        return True, version


def _probe_swap(target: Target, version: str) -> bool:
    """Whether the right version is replaced, and then, as it is not the right one any more, is refused."""
    try:
        swap(target, _nonce(), version)
        target.put(_nonce(), IfMatch=version)
    except Conflict:
        standing = target.find()
        return standing is not None and standing[1] != version
    except (Unsupported, ObjectChanged):
        return False
    return False


def _nonce() -> bytes:
    return secrets.token_hex(16).encode()
