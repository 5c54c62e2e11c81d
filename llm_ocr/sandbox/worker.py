"""The worker's side: limits on itself, then one request after the other from standard input to standard output."""

import contextlib
import ctypes
import fcntl
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
from llm_ocr.sandbox.confinement import Confinement, confine
from llm_ocr.sandbox.memory import give_back_memory, sizes

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]

#: The exit code by which a worker says that it ran out of its memory limit.
OUT_OF_MEMORY = 77
#: Bytes that the pipe of answers holds, which is as many as Linux allows users by default.
_PIPE = 1 << 20
#: Seconds without a request after which a worker gives back what is free of its memory.
_IDLE = 0.25


def serve(
    handlers: Mapping[str, Handler],
    confinement: Confinement = Confinement(),  # noqa: B008 - frozen
    *,
    prepare: Callable[[], object] = lambda: None,
    rest: Callable[[], object] = lambda: None,
) -> None:
    """Answer requests until the parent closes the pipe. The command line's first argument is the limits as JSON.

    What `confinement` does not name is given up after `prepare` and before the first request is read. A handler finds
    files that came with its request in `payload["files"]`, open until it returns: who keeps one duplicates it. One
    alone stands in `payload["file"]`, too. `rest` frees what a handler keeps for speed: called when no request has come
    for a while, before what is free goes back to the system.
    """
    limits = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    answers = _take_stdout()
    requests = _take_stdin()
    _limit_myself(limits)
    with contextlib.suppress(OSError):  # not Linux, or no /proc
        sizes()
    with contextlib.suppress(Exception):  # the first request meets it again, and answers with it
        prepare()
    if limits.get("confined", True):
        confine(confinement)
    while _serve_one(handlers, requests, answers, limits["door"]):
        if not select.select([requests], [], [], _IDLE)[0]:
            rest()  # not while it is busy: it would ask for the same again at the next page
            give_back_memory()


def _serve_one(handlers: Mapping[str, Handler], requests: BinaryIO, answers: BinaryIO, door: int) -> bool:
    """Answer the next request, and keep nothing of it; False when the parent has closed the pipe."""
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
    """The request with the files that came beside it, which are closed at the end."""
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
    """Keep standard input for requests: a program that is started here must not read them."""
    requests = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return requests


def _take_stdout() -> BinaryIO:
    """Keep standard output for answers; what native libraries print goes to standard error instead."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if sys.platform == "linux":  # the parent reads a page at a few goes rather than 64 KiB at a time
        with contextlib.suppress(OSError):  # no pipe, or more than this user may have
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
    """Memory, core files and file sizes limited, nice; no new privileges; dead when the parent dies (Linux)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides what ends
    _set_limit(resource.RLIMIT_CORE, 0)
    if file_size := limits.get("file_size"):
        _set_soft_limit(resource.RLIMIT_FSIZE, file_size)  # what is copied into memory on purpose may be larger
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


def give_up_privileges() -> None:
    """No program that this process starts gains privileges (Linux); the kernel asks for it before it confines."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS


def _set_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    with contextlib.suppress(ValueError, OSError):  # a stricter limit from outside stays
        resource.setrlimit(which, (value, hard if hard != resource.RLIM_INFINITY and hard < value else value))


def _set_soft_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _watch_memory(limit: int) -> None:
    """macOS does not honour RLIMIT_AS: leave when the resident size (bytes there) passes the limit."""
    while True:
        time.sleep(0.1)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > limit:
            os._exit(OUT_OF_MEMORY)
