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
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from llm_ocr.errors import LlmOcrError, PageFailure
from llm_ocr.sandbox import wire
from llm_ocr.sandbox.confinement import Confinement, confine, give_up_privileges
from llm_ocr.sandbox.memory import give_back_memory, sizes

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
    answers = _take_stdout()
    requests = _take_stdin()
    _limit_myself(limits)
    with contextlib.suppress(OSError):  # not Linux, or no /proc
        sizes()
    with contextlib.suppress(Exception):  # the first request fails in the same way, and returns the error
        prepare()
        if limits.get("package"):  # confinement allows reading the folders of imported packages
            importlib.import_module(limits["package"])
    if limits.get("confined", True):
        confine(confinement)
    while _serve_one(handlers, requests, answers, limits["door"]):
        if not select.select([requests], [], [], _IDLE)[0]:
            rest()  # not while busy: the next page would need the caches again
            give_back_memory()


def _serve_one(handlers: Mapping[str, Handler], requests: BinaryIO, answers: BinaryIO, door: int) -> bool:
    """Handle the next request without keeping it; return False after the parent has closed the pipe."""
    request = _read(requests)
    if request is None:
        return False
    with _received(request, door) as whole:
        reply = _answer(handlers, whole)
    for piece in wire.encode(reply):
        answers.write(piece)
    answers.flush()
    if reply.get("out_of_memory"):
        os._exit(OUT_OF_MEMORY)
    return True


def _answer(handlers: Mapping[str, Handler], request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"result": handlers[request["operation"]](request["payload"])}
    except PageFailure as failure:
        return {"failure": failure.reason.value, "detail": failure.detail, "hint": failure.hint}
    except LlmOcrError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"out_of_memory": True}
    except Exception:  # noqa: BLE001 - the pool raises it in the parent as WorkerError
        lines = traceback.format_exc(limit=-4).strip().splitlines()
        return {"error": lines[-1], "traceback": "\n".join(lines)}


@contextlib.contextmanager
def _received(request: Mapping[str, Any], door: int) -> Iterator[Mapping[str, Any]]:
    """Yield the request with its files, which are closed at the end."""
    count = request.get("files")
    if not count:
        yield request
        return
    with socket.socket(fileno=os.dup(door)) as received:
        files = socket.recv_fds(received, 1, count)[1]
    try:
        one = {"file": files[0]} if count == 1 else {}
        yield {**request, "payload": {**request["payload"], "files": files, **one}}
    finally:
        for file in files:
            os.close(file)


def _take_stdin() -> BinaryIO:
    """Reserve standard input for requests: programs started here must not read them."""
    requests = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return requests


def _take_stdout() -> BinaryIO:
    """Reserve standard output for responses; output of native libraries goes to standard error instead."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if sys.platform == "linux":  # the parent then reads a page in a few reads instead of 64 KiB at a time
        with contextlib.suppress(OSError):  # no pipe, or above the user's limit
            fcntl.fcntl(answers, fcntl.F_SETPIPE_SZ, _PIPE)
    return answers


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    first = stream.read(wire.HEAD.size)
    if len(first) < wire.HEAD.size:
        return None
    head_size, count = wire.HEAD.unpack(first)
    sizes = struct.unpack(f">{count}I", stream.read(4 * count))
    head = stream.read(head_size)
    return wire.decode(head, [stream.read(size) for size in sizes])


def _limit_myself(limits: Mapping[str, Any]) -> None:
    """Limit memory, core files, and file sizes, set niceness, drop privileges, and exit with the parent (Linux)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides which exit
    _set_limit(resource.RLIMIT_CORE, 0)
    if file_size := limits.get("file_size"):
        _set_soft_limit(resource.RLIMIT_FSIZE, file_size)  # data copied into memory on purpose may be larger
    os.nice(limits.get("niceness", 0))
    memory = limits.get("memory")
    give_up_privileges()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if memory:
            _set_limit(resource.RLIMIT_AS, memory)
    elif memory:
        threading.Thread(target=_watch_memory, args=(memory,), daemon=True).start()


def _set_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    with contextlib.suppress(ValueError, OSError):  # a stricter limit from outside stays
        resource.setrlimit(which, (value, hard if hard != resource.RLIM_INFINITY and hard < value else value))


def _set_soft_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _watch_memory(limit: int) -> None:
    """Exit when the resident size (in bytes on macOS) exceeds the limit, because macOS ignores RLIMIT_AS."""
    while True:
        time.sleep(0.1)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > limit:
            os._exit(OUT_OF_MEMORY)
