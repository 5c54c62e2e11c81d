"""A server of our own over a scripted vLLM, with looks at it every few hundredths of a second."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from running import alive
from supervised import COMMAND, PACE, made_profile

from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.server import Pace, VllmServer
from llm_ocr.models.profile import Profile


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., SimpleNamespace]:
    """`fake("--fake-stubborn=1", port=…)`: a server, what was said of it, its record and log."""
    everything: list[Path] = []

    def make(*args: str, profile: Profile | None = None, pace: Pace = PACE, **options) -> SimpleNamespace:
        folder = tmp_path / f"server-{len(everything)}"
        folder.mkdir()
        record = folder / "record.json"
        everything.append(record)
        said: list[str] = []
        usual = {"command": COMMAND, "log_folder": folder / "logs", "startup_timeout": 30.0}
        chosen = ServeOptions(args=(*args, f"--fake-record={record}"), **(usual | options))
        server = VllmServer(profile or made_profile(), chosen, say=said.append, pace=pace)
        log = folder / "logs" / "vllm-0.log"
        return SimpleNamespace(
            server=server, said=said, log=log, begun=record.exists, record=lambda: json.loads(record.read_text())
        )

    yield make
    for record in everything:
        if record.exists():
            told = json.loads(record.read_text())
            for pid in (told["pid"], told["engine"]):
                assert not alive(pid), "a test left a server behind"
