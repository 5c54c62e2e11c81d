"""The commit of a model that was named without one, when the Hub does not answer."""

import os
import socket
import subprocess
import sys

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ASK = """
import sys
from pathlib import Path
from llm_ocr.stages.runtime import newest_commit
print(newest_commit("owner/model", offline=False, cache=Path(sys.argv[1])))
"""


@pytest.fixture
def closed_port():
    """A port of this machine at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def asked(cache, port):
    """In a process of its own: the client reads the Hub's address when it is imported."""
    away = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return subprocess.run([sys.executable, "-c", ASK, str(cache)], env=away, capture_output=True, text=True, check=True)


def test_without_a_network_the_model_goes_on_without_a_commit(tmp_path, closed_port):
    ended = asked(tmp_path, closed_port)
    assert ended.stdout.strip() == "None"
    assert "newest commit of owner/model is unknown" in ended.stderr


def test_without_a_network_the_commit_that_was_fetched_last_counts(tmp_path, closed_port):
    refs = tmp_path / "models--owner--model" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text(COMMIT)
    assert asked(tmp_path, closed_port).stdout.strip() == COMMIT
