"""Container without Docker: a job's command as a subprocess with only the job's own environment.

The fakes of job platforms run their jobs in it, so that their results are real. Instead of an image, a job has this
interpreter with its packages. pip installs into a folder of the container, without a package index. The variable
`IMAGE_PYTHON` names the interpreter of another environment, where pip is unrestricted.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from llm_ocr.config.environment import environment as environment_now

#: Variables that an image provides.
_OF_IMAGE = ("PATH", "LANG", "LD_LIBRARY_PATH", "SSL_CERT_FILE")


#: Kills the process groups named on its standard input when that ends, which is when the tests' process ends.
_GUARD = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    group = int(line)
    groups.add(group) if group > 0 else groups.discard(-group)
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class _Guard:
    """Process that ends the containers of tests that were killed. It starts with the first container."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def note(self, group: int) -> None:
        """Add a process group, or remove it if `group` is negative."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                command = [sys.executable, "-c", _GUARD]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
                self._process = process
            assert process.stdin is not None
            process.stdin.write(f"{group}\n".encode())
            process.stdin.flush()


_guard = _Guard()


class Container:
    """Started command. Its `python` is this interpreter; its log is standard output and standard error.

    `time_limit` in seconds, as set by a platform, leads to SIGTERM, and to SIGKILL `grace` seconds later.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        time_limit: float | None = None,
        grace: float = 10.0,
    ) -> None:
        # A killed process may finish a last system call, and thus write a file, during the removal of the folder.
        self._folder = tempfile.TemporaryDirectory(prefix="llm-ocr-container-", ignore_cleanup_errors=True)
        self.home = Path(self._folder.name)
        self._log = self.home / "log"
        self.timed_out = self.stopped = False
        self.started = time.time()
        self.ended: float | None = None
        self._grace = grace
        python = environment.get("IMAGE_PYTHON", sys.executable)
        words = [python if word in ("python", "python3") else word for word in command]
        brought = {name: value for name, value in environment_now().items() if name in _OF_IMAGE}
        own = {"HOME": self._folder.name, "TMPDIR": self._folder.name, "PYTHONUNBUFFERED": "1"}
        if python == sys.executable:
            site = f"{self._folder.name}/site"
            own |= {"PYTHONPATH": site, "PIP_TARGET": site, "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                words,
                env={**brought, **own, **environment},
                cwd=self._folder.name,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _guard.note(self._process.pid)
        self._over = threading.Event()
        threading.Thread(target=self._watch, args=(time_limit,), daemon=True).start()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        return self._process.returncode if self._over.is_set() else None

    def lines(self) -> list[str]:
        """Return the lines written so far, the last one when it is complete, as container runtimes do."""
        over = self._over.is_set()  # before the log is read, so that its end is returned, too
        written = self._log.read_text(errors="replace")
        return written.splitlines() if over else written[: written.rfind("\n") + 1].splitlines()

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code, or None if the command still runs after `timeout` seconds."""
        self._over.wait(timeout)
        return self.exit_code

    def stop(self) -> None:
        """Send SIGTERM to all processes, SIGKILL after the grace; return when the command is over."""
        self.stopped = True
        self._end()
        self._over.wait()

    def kill(self) -> None:
        """Kill all processes at once, as for a lost machine."""
        self._signal(signal.SIGKILL)
        self._over.wait()

    def remove(self) -> None:
        """End the command at once and remove its files."""
        self._signal(signal.SIGKILL)
        self._over.wait()
        self._folder.cleanup()

    def _watch(self, time_limit: float | None) -> None:
        try:
            self._process.wait(time_limit)
        except subprocess.TimeoutExpired:
            self.timed_out = True
            self._end()
        self.ended = time.time()
        _guard.note(-self._process.pid)
        self._over.set()

    def _end(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(self._grace)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return
