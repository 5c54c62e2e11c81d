"""Runs the console program as users do: a process of its own, in an empty folder, with nothing from this machine."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).resolve().parent
_STUBBED = """
import sys
sys.path.insert(0, {here!r})
import stub_api
sys.modules["llm_ocr.api"] = stub_api
from llm_ocr.cli import main
main()
"""

Finished = subprocess.CompletedProcess[str]


@pytest.fixture
def llm_ocr(tmp_path: Path, repository: Path) -> Callable[..., Finished]:
    """`llm_ocr("run", "a.pdf", stub={...})`: the finished process. `stub` puts the stub in the place of the API."""

    def call(
        *arguments: str,
        stub: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        module: str = "",
        **options: Any,
    ) -> Finished:
        program = ["-m", "llm_ocr" + module]
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(repository), "COLUMNS": "100", **(env or {})}
        if stub is not None:
            program = ["-c", _STUBBED.format(here=str(_HERE))]
            environment |= {"STUB_API": json.dumps(stub), "STUB_CALLS": str(tmp_path / "calls.json")}
        return subprocess.run(
            [sys.executable, *program, *arguments],
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            env=environment,
            timeout=120,
        )

    return call


@pytest.fixture
def workspace(repository: Path, tmp_path: Path) -> Path:
    """A workspace of two pages of one document, in the folder in which the program runs."""
    return Path(shutil.copytree(repository / "tests/fixtures/workspace-format-1", tmp_path / "out"))


@pytest.fixture
def called(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """What the stub was called with: the command and its settings."""
    return lambda: json.loads((tmp_path / "calls.json").read_text())
