"""Messages between the main process and its workers: JSON, followed by binary blobs.

Pickle is not used: a worker reads untrusted documents, and its messages must not be able to run code here. Frame:
length of the JSON, number of blobs, length of each blob (4 bytes each, big endian), the JSON, the blobs.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

_BLOB = "$blob"
HEAD = struct.Struct(">II")


def encode(message: Mapping[str, Any]) -> list[bytes]:
    """Return the frame of a message made of JSON values and `bytes`, as chunks to write in order."""
    blobs: list[bytes] = []

    def lift(value: Any) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            blobs.append(bytes(value))
            return {_BLOB: len(blobs) - 1}
        raise TypeError(f"{type(value).__name__} cannot be sent to a worker")

    head = json.dumps(message, default=lift, separators=(",", ":")).encode()
    sizes = struct.pack(f">{len(blobs)}I", *(len(blob) for blob in blobs))
    return [HEAD.pack(len(head), len(blobs)) + sizes + head, *blobs]


def decode(head: bytes, blobs: list[bytes]) -> dict[str, Any]:
    """Return the message of a frame's JSON and blobs.

    Raises:
        ValueError: the JSON is not an object.
    """

    def put_back(value: dict[str, Any]) -> Any:
        if len(value) == 1 and _BLOB in value:
            return blobs[value[_BLOB]]
        return value

    message = json.loads(head, object_hook=put_back)
    if not isinstance(message, dict):
        raise ValueError("a message must be an object")
    return message
