"""Main loop of a worker: set limits, then handle one request after another from standard input to standard output."""

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from llm_ocr.errors import LlmOcrError, PageFailure
from llm_ocr.sandbox.confinement import Confinement, confine, give_up_privileges
from llm_ocr.sandbox.memory import give_back_memory, sizes

# Messages between the main process and its workers: JSON, followed by binary blobs. Pickle is not used: a worker reads
# untrusted documents, and its messages must not be able to run code in the main process. Frame: length of the JSON,
# number of blobs, length of each blob (4 bytes each, big endian), the JSON, the blobs.


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


Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]

#: Exit code of a worker that exceeded its memory limit.
OUT_OF_MEMORY = 77
#: Capacity of the response pipe in bytes: the maximum that Linux permits users by default.
_PIPE = 1 << 20
#: Seconds without a request after which a worker returns its free memory to the system.
_IDLE = 0.25


def serve(
    handlers: Mapping[str, Handler],
    confinement: Confinement = Confinement(),  # noqa: B008 - frozen
    *,
    prepare: Callable[[], object] = lambda: None,
    rest: Callable[[], object] = lambda: None,
) -> None:
    """Handle requests until the parent closes the pipe. The first command line argument has the limits as JSON.

    Rights not in `confinement` are dropped after `prepare` and before the first request is read. A handler finds the
    files of its request in `payload["files"]`, open until it returns. To keep a file, duplicate it. A single file is
    also in `payload["file"]`.

    Args:
        handlers: functions by the name of their operation.
        confinement: rights that the worker keeps.
        prepare: runs before the confinement.
        rest: frees a handler's caches. It runs after a time without requests, before free memory is returned.
    """
    limits = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    # Output of native libraries goes to standard error, and programs started here must not read the requests.
    answers, requests = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if sys.platform == "linux":  # the parent then reads a page in a few reads instead of 64 KiB at a time
        with contextlib.suppress(OSError):  # no pipe, or above the user's limit
            fcntl.fcntl(answers, fcntl.F_SETPIPE_SZ, _PIPE)
    _limit_process(limits)
    with contextlib.suppress(OSError):  # not Linux, or no /proc
        sizes()
    with contextlib.suppress(Exception):  # the first request fails in the same way, and returns the error
        prepare()
        if limits.get("package"):  # confinement allows reading the folders of imported packages
            importlib.import_module(limits["package"])
    if limits.get("confined", True):
        confine(confinement)
    while _serve_request(handlers, requests, answers, limits["door"]):
        if not select.select([requests], [], [], _IDLE)[0]:
            rest()  # not while busy: the next page would need the caches again
            give_back_memory()


def _serve_request(handlers: Mapping[str, Handler], requests: BinaryIO, answers: BinaryIO, door: int) -> bool:
    """Handle the next request without keeping it; return False after the parent has closed the pipe."""
    first = requests.read(HEAD.size)
    if len(first) < HEAD.size:
        return False
    head_size, blobs = HEAD.unpack(first)
    lengths = struct.unpack(f">{blobs}I", requests.read(4 * blobs))
    head = requests.read(head_size)
    request = decode(head, [requests.read(length) for length in lengths])
    files: list[int] = []
    if count := request.get("files"):
        with socket.socket(fileno=os.dup(door)) as received:
            files = socket.recv_fds(received, 1, count)[1]
        request["payload"] |= {"files": files} | ({"file": files[0]} if count == 1 else {})
    reply: dict[str, Any]
    try:
        reply = {"result": handlers[request["operation"]](request["payload"])}
    except PageFailure as failure:
        reply = {"failure": failure.reason.value, "detail": failure.detail, "hint": failure.hint}
    except LlmOcrError as error:
        reply = {"error": str(error)}
    except MemoryError:
        reply = {"out_of_memory": True}
    except Exception:  # noqa: BLE001 - the pool raises it in the parent as WorkerError
        reply = {"error": traceback.format_exc().strip().splitlines()[-1]}
    finally:
        for file in files:
            os.close(file)
    for piece in encode(reply):
        answers.write(piece)
    answers.flush()
    if reply.get("out_of_memory"):
        os._exit(OUT_OF_MEMORY)
    return True


def _limit_process(limits: Mapping[str, Any]) -> None:
    """Limit memory, core files, and file sizes, set niceness, drop privileges, and exit with the parent (Linux)."""

    def limit(which: int, value: int) -> None:
        hard = resource.getrlimit(which)[1]
        with contextlib.suppress(ValueError, OSError):  # a stricter limit from outside stays
            resource.setrlimit(which, (value, hard if hard != resource.RLIM_INFINITY and hard < value else value))

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides which exit
    limit(resource.RLIMIT_CORE, 0)
    if file_size := limits.get("file_size"):
        # Only the soft limit: data copied into memory on purpose may be larger.
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        soft = file_size if hard == resource.RLIM_INFINITY else min(file_size, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    os.nice(limits.get("niceness", 0))
    memory = limits.get("memory")
    give_up_privileges()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if memory:
            limit(resource.RLIMIT_AS, memory)
    elif memory:
        threading.Thread(target=_watch_memory, args=(memory,), daemon=True).start()


def _watch_memory(limit: int) -> None:
    """Exit when the resident size (in bytes on macOS) exceeds the limit, because macOS ignores RLIMIT_AS."""
    while True:
        time.sleep(0.1)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > limit:
            os._exit(OUT_OF_MEMORY)
