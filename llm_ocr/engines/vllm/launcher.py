"""Runs a server and ends it, with all that it started, when we are gone, however we went.

A script of its own that imports the standard library only: `python -I -S launcher.py WORD…`. It is the leader of a
session and a process group; the server runs in the same group. Its standard input is a pipe whose other end is held
by the process that started it: the end of file, or another parent, means that this process is dead, kill -9 included.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

#: Seconds between SIGTERM and SIGKILL. vLLM needs 2.6 s once its clients are gone.
_PATIENCE = 10.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOT_STARTED = 127  # as in a shell: no such command


def main(words: list[str]) -> int:
    """Run the command until it ends or our parent does; its exit code, by its signal if it died of one."""
    parent = os.getppid()
    # Both come to the whole group, and are meant for the server.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child_ended, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, preexec_fn=_prepare)
    except OSError as error:
        sys.stderr.write(f"llm-ocr: cannot run {words[0]}: {error.strerror}\n")
        return NOT_STARTED
    while server.poll() is None:
        ready, _, _ = select.select([0, child_ended], [], [], 1.0)
        if child_ended in ready:
            os.read(child_ended, 512)
        if (0 in ready and not os.read(0, 512)) or os.getppid() != parent:
            _end_group(server)
    if os.getppid() != parent:
        os.killpg(0, signal.SIGKILL)  # nobody else would end what the server left behind
    return _leave(server.returncode)


def _prepare() -> None:
    """In the child, before the command: our own signal settings must not become the server's."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        # Should this launcher be killed too, together with our parent: the server then stops in its own order.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _end_group(server: "subprocess.Popen[bytes]") -> None:
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    while server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(0, signal.SIGKILL)  # this process too


def _leave(code: int) -> int:
    if code >= 0:
        return code
    import resource

    # End as the server ended, so that the signal is seen; the core dump, if any, is the server's.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
