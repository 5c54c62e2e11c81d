"""Run a server and end it with all its processes after the parent process exits for any reason.

The file is a script that imports only the standard library: `python -I -S launcher.py WORD…`. It leads a session and a
process group, and the server runs in the same group. Its standard input is a pipe whose other end belongs to the parent
process. End of file, or another parent, means that the parent is dead, also after kill -9.

Processes of a server may leave its group (`setsid`) and lose their parent (a daemon forks twice). On Linux the launcher
adopts processes without a parent, so that all of them stay below it. It exits when none of them is left.
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

#: Seconds between SIGTERM and SIGKILL. vLLM needs 2.6 s after its clients have disconnected.
_TIMEOUT = 10.0
#: Seconds for killed processes to end. A driver that frees a device's memory may block them for a while.
_END = 10.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127  # as in a shell: no such command


def main(words: list[str]) -> int:
    """Run the command until it or the parent ends; return its exit code, by its signal if a signal ended it."""
    parent = os.getppid()
    # The whole group receives both signals, which are meant for the server.
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
            _reap(server)
        if (0 in ready and not os.read(0, 512)) or os.getppid() != parent:
            os.killpg(0, signal.SIGTERM)
            deadline = time.monotonic() + _TIMEOUT
            while server.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            if not kill_below(os.getpid()):
                os.killpg(0, signal.SIGKILL)  # includes this process
    if not kill_below(os.getpid()) and os.getppid() != parent:
        os.killpg(0, signal.SIGKILL)  # no other process would end the server's remaining processes
    code = server.returncode
    if code >= 0:
        return code
    import resource

    # End in the same way as the server, so that the signal is visible; the core dump, if any, is the server's.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def kill_below(launcher: int) -> bool:
    """Kill the processes below a launcher with SIGKILL, also those in other sessions.

    Args:
        launcher: The id of a running launcher, so that no process can leave the tree.

    Returns:
        Whether no process is left. Without `/proc` (macOS) nothing is killed, and the result is False.
    """
    deadline = time.monotonic() + _END
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


def _reap(server: "subprocess.Popen[bytes]") -> None:
    """Reap the adopted processes that have ended. The server itself is left to `poll`."""
    while server.poll() is None:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == server.pid:
            return  # nothing to reap, or only the server, which `poll` reaps next
        os.waitpid(ended.si_pid, 0)


def _prepare() -> None:
    """Restore default signal handling in the child before the command, so that the server does not inherit ours."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        # If this launcher is killed together with its parent, the server still stops in its own order.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
