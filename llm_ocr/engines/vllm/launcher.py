"""Runs a server and ends it, with all that it started, when we are gone, however we went.

A script of its own that imports the standard library only: `python -I -S launcher.py WORD…`. It is the leader of a
session and a process group; the server runs in the same group. Its standard input is a pipe whose other end is held
by the process that started it: the end of file, or another parent, means that this process is dead, kill -9 included.

Processes of a server may leave its group (`setsid`) and lose their parent (a daemon forks twice). On Linux the launcher
adopts those without a parent, so that all of them stay below it, and ends when none of them is left.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Seconds between SIGTERM and SIGKILL. vLLM needs 2.6 s once its clients are gone.
_PATIENCE = 10.0
#: Seconds that killed processes may take to end. A driver that frees a device's memory may hold them for a while.
_END = 10.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127  # as in a shell: no such command


def main(words: list[str]) -> int:
    """Run the command until it ends or our parent does; its exit code, by its signal if it died of one."""
    parent = os.getppid()
    # Both come to the whole group, and are meant for the server.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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
            _bury(server)
        if (0 in ready and not os.read(0, 512)) or os.getppid() != parent:
            _end_server(server)
    if not kill_below(os.getpid()) and os.getppid() != parent:
        os.killpg(0, signal.SIGKILL)  # nobody else would end what the server left behind
    return _leave(server.returncode)


def kill_below(launcher: int, seconds: float = _END) -> bool:
    """Kill the processes below a launcher with SIGKILL, those in other sessions too.

    Args:
        launcher: The id of a launcher that runs, so that nothing can leave the tree.
        seconds: How long the processes may take to end.

    Returns:
        Whether none is left. Without `/proc` (macOS) nothing is killed, and the answer is False.
    """
    deadline = time.monotonic() + seconds
    with contextlib.suppress(OSError):
        while below := _below(launcher):
            for pid in below:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True
    return False


def _below(root: int) -> list[int]:
    """Return the live descendants of a process. Raises `OSError` without `/proc`."""
    children: dict[int, list[tuple[int, bool]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                children.setdefault(int(parent), []).append((int(entry.name), state not in "ZX"))
    found, ahead = [], [root]
    while ahead:
        for pid, alive in children.get(ahead.pop(), ()):
            ahead.append(pid)
            if alive:
                found.append(pid)
    return found


def _bury(server: "subprocess.Popen[bytes]") -> None:
    """Take in the adopted processes that have ended. The server's own end is left to `poll`."""
    while server.poll() is None:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == server.pid:
            return  # with nothing to take in, or with the server, which `poll` sees next
        os.waitpid(ended.si_pid, 0)


def _prepare() -> None:
    """In the child, before the command: our own signal settings must not become the server's."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        # Should this launcher be killed too, together with our parent: the server then stops in its own order.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _end_server(server: "subprocess.Popen[bytes]") -> None:
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    while server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if not kill_below(os.getpid()):
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
