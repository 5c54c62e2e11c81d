"""Local programs, processes, and secrets in the environment, for launchers."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence

from llm_ocr.config.environment import environment
from llm_ocr.errors import LaunchError

#: Seconds after which a program is stopped.
TIMEOUT = 120.0


def run_program(
    words: Sequence[str],
    *,
    stdin: str = "",
    absent: str = "",
    hints: Mapping[str, str] | None = None,
    offers: Callable[[], str] | None = None,
) -> str:
    """Run a program and return its standard output.

    Args:
        words: Program and its arguments.
        stdin: Text for its standard input.
        absent: Hint for a program that is not installed.
        hints: Lower-case text of an error message -> its hint; the first match counts.
        offers: Returns the hint if the value in `hints` is empty.

    Raises:
        LaunchError: The program is not installed, fails, or times out. The message is the program's own.
    """
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, errors="replace", timeout=TIMEOUT)
    except FileNotFoundError as error:
        raise LaunchError(f"{words[0]} is not installed on this machine", hint=absent) from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{words[0]} did not respond within {TIMEOUT:.0f} s") from error
    if not done.returncode:
        return done.stdout
    message = " ".join((done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").split())
    found = next((hint for text, hint in (hints or {}).items() if text in message.casefold()), None)
    if found == "" and offers:
        with contextlib.suppress(LaunchError):  # the user needs the first error
            found = offers()
    raise LaunchError(f"{words[0]}: {message}", hint=found or "")


def secrets_here(names: Iterable[str], hint: str) -> dict[str, str]:
    """Return the values of these environment variables.

    Args:
        names: Names of the variables.
        hint: Hint of the error, in which `{name}` is the name.

    Raises:
        LaunchError: A variable is not set, or empty.
    """
    now = environment()
    values = {name: now.get(name, "") for name in names}
    for name, value in values.items():
        if not value:
            raise LaunchError(f"the secret {name} is not set on this machine", hint=hint.format(name=name))
    return values


def end_group(process: subprocess.Popen[bytes] | subprocess.Popen[str], grace: float) -> bool:
    """End a process that leads its own process group, and its children.

    A running process receives SIGTERM. SIGKILL ends the rest of the group after at most `grace` seconds.

    Returns:
        Whether the process ended before SIGKILL.
    """
    stopped = True
    if process.poll() is None:
        signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            stopped = False
    signal_group(process.pid, signal.SIGKILL)
    process.wait()
    return stopped


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
