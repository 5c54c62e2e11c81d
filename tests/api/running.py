"""Runs of the console program without this machine's environment: in this process, or in a separate one."""

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
#: One process of each kind: the tests check the output, not the speed.
FRUGAL = ("--engine", "embedded", "--render-workers", "1", "--ocr-workers", "1")
#: The same for the Python API.
FRUGALLY = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1}

#: Columns of an assembled dataset.
COLUMNS = [
    *("sample_id", "dataset_index", "source_image", "document_with_boxes_image", "document_markdown"),
    *("extracted_figures", "extracted_figures_metadata", "document_final_markdown", "document_id", "source"),
    *("page_number", "status", "reason", "engine", "blocks", "tokens_in", "tokens_out", "attempts"),
    *("primary_language", "is_rotation_valid", "rotation_correction", "rotation", "is_table", "is_diagram"),
    *("is_fallback", "quality", "invisible_chars", "ink", "unread_share", "unsupported_share", "furniture_share"),
    *("verified_by", "unread", "unsupported"),
]
Finished = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """Return the program's environment."""
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "COLUMNS": "100", **more}


def program(*arguments: str) -> list[str]:
    """Return the command line that runs `llm-ocr` with these arguments."""
    return [sys.executable, "-m", "llm_ocr", *arguments]


def cli(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> Finished:
    """Run a command in this process. Not thread-safe."""
    return in_process(list(map(str, arguments)), cwd=cwd, env=environment(**(env or {})))


def alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
        return listed.returncode == 0 and not listed.stdout.startswith("Z")
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def own_process(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None, timeout: float = 240) -> Finished:
    """Run a command in a separate process, for tests of exit, signals, imports, and pipes."""
    return finished(program(*map(str, arguments)), cwd=cwd, env=env, timeout=timeout)


def in_process(arguments: list[str], *, cwd: Path, env: Mapping[str, str]) -> Finished:
    """Call `main(arguments)` as a process would: in the folder `cwd`, with only the variables `env`.

    Saves the interpreter's start and the imports, which take longer than most commands.

    Returns:
        The exit code and the texts on standard output and standard error.
    """
    encoding = env.get("PYTHONIOENCODING", "utf-8")
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding, newline="") for name in ("stdout", "stderr")}
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch.object(tempfile, "tempdir", None),  # determined again, by TMPDIR
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
    """Return all output of a process, for messages of assertions."""
    return f"exit {run.returncode}\n{run.stdout}\n{run.stderr}"


def status_of(workspace: Path) -> dict[str, Any]:
    """Return `status --json` of a workspace."""
    run = cli("status", "-w", workspace, "--json", cwd=workspace.parent)
    assert run.returncode == 0, said(run)
    return json.loads(run.stdout)


def dataset_rows(workspace: Path, *columns: str) -> list[dict[str, Any]]:
    """Return the rows of the assembled dataset: these columns, or all."""
    import pyarrow.dataset

    return pyarrow.dataset.dataset(workspace / "dataset").to_table(columns=list(columns) or None).to_pylist()


def published(workspace: Path) -> dict[str, bytes]:
    """Return every marker's content, by its path below the workspace."""
    return {path.relative_to(workspace).as_posix(): path.read_bytes() for path in sorted(workspace.rglob("*.done"))}


def assert_markers_name_whole_data(workspace: Path) -> None:
    """Assert that every marker is complete JSON, and that its data exists in full length."""
    for path in workspace.rglob("*.done"):
        marker = json.loads(path.read_text())
        if "object" in marker:
            assert (workspace / marker["object"]).stat().st_size == marker["size"], path


def unfinished(workspace: Path) -> list[Path]:
    """Return the temporary files: only a killed process may leave any."""
    return [path for path in workspace.rglob(".*") if path.is_file()]


def assert_nothing_half_published(workspace: Path) -> None:
    """Assert that every marker names complete data, and that no temporary file remains."""
    assert_markers_name_whole_data(workspace)
    assert unfinished(workspace) == []


class Told(Silent):
    """Recorder of the lines for the user."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


def when(true: Callable[[], T], seconds: float = 120.0) -> T:
    """Return the result of `true` once it is true; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def side_by_side(*calls: Callable[[], object]) -> None:
    """Make these calls concurrently, each in a separate thread; raise an error of any of them."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for call in [pool.submit(one) for one in calls]:
            call.result()


def in_own_mounts(script: str, *arguments: str | Path, cwd: Path) -> Finished:
    """Run a shell script that may mount, in a mount namespace that ends with the script.

    Skips the test if the system does not allow namespaces; needs no root if users may create them.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed: no file system can be made for the test")
    inside = [unshare, "--map-root-user", "--mount", "sh", "-euc"]
    probe = subprocess.run([*inside, f"mount -t tmpfs -o size=1m tmpfs '{cwd}'"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no file system can be made for the test here: {probe.stderr.strip()}")
    return finished([*inside, script, "sh", *map(str, arguments)], cwd=cwd)
