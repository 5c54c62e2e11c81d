"""What a job's container runs on SageMaker: `python -m llm_ocr.launch.sagemaker.entry FILE COMMAND…`.

Puts the job's secrets from AWS Secrets Manager into the environment of the command, passes SIGTERM on to it, and leaves
the last lines of a failure in FILE, whose text SageMaker shows in the job's description.
"""

import contextlib
import ctypes
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from llm_ocr.errors import LaunchError, LlmOcrError
from llm_ocr.launch.sagemaker.client import Clients, translated
from llm_ocr.launch.sagemaker.requests import SECRETS
from llm_ocr.settings.environment import environment

#: Seconds from SIGTERM until the command is killed; SageMaker itself waits 120.
GRACE = 100.0
#: Bytes that SageMaker shows.
_SHOWN = 1024
_KEPT = 65_536
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_NOT_STARTED = 127  # as in a shell: no such command
_OWN_CODES = range(1, 6)  # of our commands, which say in words what they mean
#: Of terminals; they would only take room.
_COLOURS = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")


def main(arguments: Sequence[str]) -> int:
    """Run the command to its end; its exit code, 1 when its secrets cannot be had."""
    if len(arguments) < 2:
        sys.stderr.write("llm-ocr: usage: python -m llm_ocr.launch.sagemaker.entry FILE COMMAND...\n")
        return 2
    failure, command = Path(arguments[0]), list(arguments[1:])
    given = dict(environment())
    try:
        found = fetched(given.pop(SECRETS, ""), given)
    except LlmOcrError as error:
        sys.stderr.write(f"llm-ocr: {error}\n")
        leave(failure, str(error))
        return error.exit_code
    code, last = run(command, {**given, **found})
    if code:
        how = "" if code in _OWN_CODES else f"exit code {code}: "  # of a kill, say
        leave(failure, how + _without(found, ending(last)))
    return code


def fetched(wanted: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The values of secrets, `wanted` as NAME=ID,…; of one that is a JSON object the value under its NAME, if any.

    Raises `LaunchError` for one that is not there or may not be read, with the permission that is missing.
    """
    pairs = [one.partition("=") for one in wanted.split(",") if one]
    return {name: _fetched(name, where, variables) for name, _, where in pairs}


def _fetched(name: str, where: str, variables: Mapping[str, str]) -> str:
    hint = f"Allow secretsmanager:GetSecretValue on it to the job's role: sagemaker/job-policy.json ({where})."
    absent = f"Create it: aws secretsmanager create-secret --name {where} --secret-string file://FILE"
    client = Clients(_region(where, variables)).of("secretsmanager")
    hints = {"AccessDeniedException": hint, "ResourceNotFoundException": absent}
    with translated(f"read the secret {where} for {name}", hints):
        text = client.get_secret_value(SecretId=where).get("SecretString")
    if not text:
        raise LaunchError(f"the secret {where} for {name} holds no text", hint="Store it with --secret-string.")
    return _value(name, str(text))


def _region(where: str, variables: Mapping[str, str]) -> str | None:
    """Where the secret is: its ARN says it, or what SageMaker tells its containers, or the SDK."""
    for arn in (where, variables.get("TRAINING_JOB_ARN", "")):
        if arn.startswith("arn:"):
            return arn.split(":")[3]
    return variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")


def _value(name: str, text: str) -> str:
    """The console of AWS stores pairs, as JSON."""
    try:
        pairs = json.loads(text)
    except ValueError:
        return text.rstrip("\n")
    return str(pairs[name]) if isinstance(pairs, dict) and name in pairs else text.rstrip("\n")


def run(command: Sequence[str], variables: Mapping[str, str], *, grace: float = GRACE) -> tuple[int, bytes]:
    """Its exit code, 128 + N when signal N ended it, and the end of what it wrote."""
    with _passing_on(grace) as begun:
        try:
            # A session of its own: what SIGTERM means to the command is said to it once, by us.
            process = subprocess.Popen(
                command,
                env=dict(variables),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,  # one log takes both
                start_new_session=True,
                preexec_fn=_end_with_us,
            )
        except OSError as error:
            text = f"cannot run {command[0]}: {error.strerror}\n"
            sys.stderr.write(text)
            return _NOT_STARTED, text.encode()
        begun(process)
        kept = _Kept(process.stdout)
        code = process.wait()
    return (128 - code if code < 0 else code), kept.text()


class _Kept:
    """Passes what a command writes on while it comes, and keeps its end."""

    def __init__(self, source: Any) -> None:
        self._tail = b""
        self._thread = threading.Thread(target=self._pass_on, args=(source,), daemon=True)
        self._thread.start()

    def text(self) -> bytes:
        self._thread.join(5.0)  # a process that the command left behind may hold the other end
        return self._tail

    def _pass_on(self, source: Any) -> None:
        while piece := source.read1(_KEPT):
            self._tail = (self._tail + piece)[-_KEPT:]
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


class _Stop:
    """SIGTERM goes on to the command, once; `grace` seconds later it is killed, so that its end can still be told.

    One that comes while the command is begun goes on to it as soon as it is there.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._told = False
        self._process: subprocess.Popen[bytes] | None = None
        self._killer: threading.Timer | None = None

    def begun(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        if self._told:
            self._pass_on(process)

    def tell(self, number: int, frame: FrameType | None) -> None:
        self._told = True
        if self._process is not None:
            self._pass_on(self._process)

    def _pass_on(self, process: "subprocess.Popen[bytes]") -> None:
        if self._killer is None:
            self._killer = threading.Timer(self._grace, process.kill)
            self._killer.daemon = True
            self._killer.start()
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def over(self) -> None:
        if self._killer is not None:
            self._killer.cancel()


@contextlib.contextmanager
def _passing_on(grace: float) -> Iterator[Callable[["subprocess.Popen[bytes]"], None]]:
    """Our signals are the command's (`_Stop`); it is named to what this gives as soon as it has begun."""
    stop = _Stop(grace)
    before = {number: signal.signal(number, stop.tell) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop.begun
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.over()


def _end_with_us() -> None:
    """In the command's process: it must not outlive this one, as it would not outlive a container."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def ending(text: bytes) -> str:
    """What matters of a command's last lines: from its own last complaint on, else the last lines."""
    said = _COLOURS.sub(b"", text).decode(errors="replace").replace("\r", "\n")
    rows = [row.rstrip() for row in said.splitlines() if row.strip()]
    complaints = [place for place, row in enumerate(rows) if row.startswith("llm-ocr: ") and "warning:" not in row]
    return "\n".join(rows[complaints[-1] :] if complaints else rows[-8:]) or "it wrote nothing"


def _without(secrets: Mapping[str, str], text: str) -> str:
    for name, value in secrets.items():
        text = text.replace(value, f"<secret {name}>") if value else text
    return text


def leave(file: Path, text: str) -> None:
    """Write the text where SageMaker looks for it; that it cannot be written must not hide what it says."""
    data = f"{text.strip()}\n".encode()
    data = data if len(data) <= _SHOWN else data[: _SHOWN - 4].decode(errors="ignore").encode() + "…".encode()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except OSError as error:
        sys.stderr.write(f"llm-ocr: cannot write {file}: {error.strerror}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
