"""Run the console program in an empty folder, with nothing of this machine's environment."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stub_api
from running import Finished, environment, in_process

_HERE = Path(__file__).resolve().parent
_STUBBED = """
import sys
sys.path.insert(0, {here!r})
import stub_api
sys.modules["llm_ocr.runs"] = sys.modules["llm_ocr.stages.execute"] = stub_api
from llm_ocr.cli import main
main()
"""


@pytest.fixture
def llm_ocr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """Return `llm_ocr("run", "a.pdf", stub={...})`, which runs a command; `stub` puts the stub in the API's place.

    The command runs in this process. A process of its own is started for `process=True`, for another `module`, and for
    options of `subprocess.run`.
    """

    def call(
        *arguments: str,
        stub: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        module: str = "",
        process: bool = False,
        **options: Any,
    ) -> Finished:
        variables = environment(**(env or {}))
        if stub is not None:
            variables |= {"STUB_API": json.dumps(stub), "STUB_CALLS": str(tmp_path / "calls.json")}
        if process or module or options:
            program = ["-m", "llm_ocr" + module] if stub is None else ["-c", _STUBBED.format(here=str(_HERE))]
            return subprocess.run(
                [sys.executable, *program, *arguments],
                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
                text=True,
                encoding="utf-8",
                cwd=tmp_path,
                env=variables,
                timeout=240,
            )
        with monkeypatch.context() as patch:
            if stub is not None:
                patch.setitem(sys.modules, "llm_ocr.runs", stub_api)
                patch.setitem(sys.modules, "llm_ocr.stages.execute", stub_api)
            return in_process(list(arguments), cwd=tmp_path, env=variables)

    return call


@pytest.fixture
def workspace(repository: Path, tmp_path: Path) -> Path:
    """A workspace of two pages of one document, in the folder in which the program runs."""
    return Path(shutil.copytree(repository / "tests/fixtures/workspace-format-1", tmp_path / "out"))


@pytest.fixture
def called(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """What the stub was called with: the command and its settings."""
    return lambda: json.loads((tmp_path / "calls.json").read_text())
