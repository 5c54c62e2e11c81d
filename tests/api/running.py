"""Run the console program with nothing of this machine's environment: in this process, or in a process of its own."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest

from llm_ocr.cli import main
from llm_ocr.stages import Silent

T = TypeVar("T")
REPOSITORY = Path(__file__).resolve().parents[2]
#: One process of each kind: what is tested here is what comes out, not how fast.
FRUGAL = ("--engine", "embedded", "--render-workers", "1", "--ocr-workers", "1")
#: The same for the Python API.
FRUGALLY = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1}

#: The columns of an assembled dataset.
COLUMNS = [
    "sample_id",
    "dataset_index",
    "source_image",
    "document_with_boxes_image",
    "document_markdown",
    "extracted_figures",
    "extracted_figures_metadata",
    "document_final_markdown",
    "document_id",
    "source",
    "page_number",
    "status",
    "reason",
    "engine",
    "blocks",
    "tokens_in",
    "tokens_out",
    "attempts",
    "primary_language",
    "is_rotation_valid",
    "rotation_correction",
    "rotation",
    "is_table",
    "is_diagram",
    "is_fallback",
    "quality",
]
Finished = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """What the program gets of an environment."""
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "COLUMNS": "100", **more}


def program(*arguments: str) -> list[str]:
    """The command line that runs `llm-ocr` with these arguments."""
    return [sys.executable, "-m", "llm_ocr", *arguments]


def cli(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Finished:
    """Run a command in this process. Not for use by two threads at a time."""
    return in_process(list(map(str, arguments)), cwd=cwd, env=environment(**(env or {})))


def own_process(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None, timeout: float = 240) -> Finished:
    """Run a command in a process of its own, for tests of what only a process does: exit, signals, imports, pipes."""
    return finished(program(*map(str, arguments)), cwd=cwd, env=env, timeout=timeout)


def in_process(arguments: list[str], *, cwd: Path, env: Mapping[str, str]) -> Finished:
    """Call `main(arguments)` as a process would: in the folder `cwd`, with the variables `env` and no other.

    Saves the interpreter's start and the imports, which take longer than most commands.

    Returns:
        The exit code and the texts written to standard output and standard error.
    """
    encoding = env.get("PYTHONIOENCODING", "utf-8")
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding, newline="") for name in ("stdout", "stderr")}
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch.object(tempfile, "tempdir", None),  # found again, by TMPDIR
        Path(os.devnull).open() as nothing,
        mock.patch.multiple(sys, stdin=nothing, **streams),
    ):
        code = main(arguments)
    texts = {}
    for name, stream in streams.items():
        stream.flush()
        texts[name] = stream.detach().getvalue().decode(encoding)
    return subprocess.CompletedProcess(arguments, code, **texts)


def finished(command: list[str], *, cwd: Path, env: dict[str, str] | None = None, timeout: float = 240) -> Finished:
    """Run a command line to its end, with its output as text."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment(**(env or {})),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
    )


def said(run: Finished) -> str:
    """All that a process wrote, for messages of assertions."""
    return f"exit {run.returncode}\n{run.stdout}\n{run.stderr}"


def status_of(workspace: Path) -> dict[str, Any]:
    """`status --json` of a workspace."""
    run = cli("status", "-w", workspace, "--json", cwd=workspace.parent)
    assert run.returncode == 0, said(run)
    return json.loads(run.stdout)


def published(workspace: Path) -> dict[str, bytes]:
    """Every marker and its content, by its path below the workspace."""
    return {path.relative_to(workspace).as_posix(): path.read_bytes() for path in sorted(workspace.rglob("*.done"))}


def assert_markers_name_whole_data(workspace: Path) -> None:
    """Every marker is whole JSON, and what it names is there in its whole length."""
    for path in workspace.rglob("*.done"):
        marker = json.loads(path.read_text())
        if "object" in marker:
            assert (workspace / marker["object"]).stat().st_size == marker["size"], path


def unfinished(workspace: Path) -> list[Path]:
    """Temporary files: only a process that was killed may leave some."""
    return [path for path in workspace.rglob(".*") if path.is_file()]


def assert_nothing_half_published(workspace: Path) -> None:
    """Every marker names whole data, and no temporary file has been left."""
    assert_markers_name_whole_data(workspace)
    assert unfinished(workspace) == []


class Told(Silent):
    """Keeps the lines for the user."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


def when(true: Callable[[], T], seconds: float = 120.0) -> T:
    """What `true` gives once it is true; fails after some seconds."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def side_by_side(*calls: Callable[[], object]) -> None:
    """Make these calls at the same time, each in a thread of its own; raises what one of them raises."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for call in [pool.submit(one) for one in calls]:
            call.result()


def in_own_mounts(script: str, *arguments: str | Path, cwd: Path) -> Finished:
    """Run a shell script that may mount: in a mount namespace of its own, gone when the script ends.

    Skips the test where the system allows no such thing; needs no root where users may make namespaces.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed: no file system can be made for the test")
    inside = [unshare, "--map-root-user", "--mount", "sh", "-euc"]
    probe = subprocess.run([*inside, f"mount -t tmpfs -o size=1m tmpfs '{cwd}'"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no file system can be made for the test here: {probe.stderr.strip()}")
    return finished([*inside, script, "sh", *map(str, arguments)], cwd=cwd)
