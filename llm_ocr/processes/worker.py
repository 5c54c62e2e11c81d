"""The worker's side: limits on itself, then one request after the other from standard input to standard output."""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from llm_ocr.errors import LlmOcrError, PageFailure
from llm_ocr.processes import wire

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]

#: The exit code by which a worker says that it ran out of its memory limit.
OUT_OF_MEMORY = 77
#: Bytes that the pipe of answers holds, which is as many as Linux allows users by default.
_PIPE = 1 << 20


def serve(handlers: Mapping[str, Handler]) -> None:
    """Answer requests until the parent closes the pipe. The command line's first argument is the limits as JSON."""
    limits = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    answers = _take_stdout()
    _limit_myself(limits)
    requests = sys.stdin.buffer
    while (request := _read(requests)) is not None:
        reply = _answer(handlers, request)
        for piece in wire.encode(reply):
            answers.write(piece)
        answers.flush()
        if reply.get("out_of_memory"):
            os._exit(OUT_OF_MEMORY)


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
    """Memory, core files and file sizes limited; no new privileges; dead when the parent dies (Linux)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides what ends
    _set_limit(resource.RLIMIT_CORE, 0)
    if file_size := limits.get("file_size"):
        _set_limit(resource.RLIMIT_FSIZE, file_size)
    memory = limits.get("memory")
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if memory:
            _set_limit(resource.RLIMIT_AS, memory)
    elif memory:
        threading.Thread(target=_watch_memory, args=(memory,), daemon=True).start()


def _set_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    with contextlib.suppress(ValueError, OSError):  # a stricter limit from outside stays
        resource.setrlimit(which, (value, hard if hard != resource.RLIM_INFINITY and hard < value else value))


def _watch_memory(limit: int) -> None:
    """macOS does not honour RLIMIT_AS: leave when the resident size (bytes there) passes the limit."""
    while True:
        time.sleep(0.1)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > limit:
            os._exit(OUT_OF_MEMORY)
