"""google-cloud-run/README.md, word for word: its commands run in a shell, with stand-ins for Google and `gcloud`."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from llm_ocr.testing.fake_gcs import running as gcs_running
from llm_ocr.testing.fake_run import running

pytest.importorskip("google.cloud.run_v2")
pytest.importorskip("google.cloud.storage")

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "google-cloud-run"
HEADINGS = ["## Needs", "## Run", "## Watch", "## Cost", "## Clean up"]

#: Looks at jobs more often than for real; all else is the command.
LLM_OCR = """#!{python}
import sys
import llm_ocr.launch.launching as launching
launching.EVERY = 0.2
from llm_ocr.cli import main
sys.exit(main(sys.argv[1:]))
"""
PYTHON = """#!/bin/sh
exec {python} "$@"
"""
GCLOUD = """#!/bin/sh
exec {python} {gcloud} "$@"
"""


@pytest.fixture
def desk(tmp_path) -> Path:
    """A folder like the repository's root, with the commands beside it."""
    for path in REPOSITORY.iterdir():
        if path.name in {"google-cloud-run", "examples", "docker", "llm_ocr", "pyproject.toml", "README.md", "LICENSE"}:
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "hf-token.txt").write_text("hf_geheimnis\n")
    commands = tmp_path / "bin"
    commands.mkdir()
    python, gcloud = shlex.quote(sys.executable), Path(__file__).with_name("gcloud_command.py")
    for name, text in {"llm-ocr": LLM_OCR, "python": PYTHON, "gcloud": GCLOUD}.items():
        file = commands / name
        file.write_text(text.format(python=python, gcloud=gcloud))
        file.chmod(0o755)
    return tmp_path


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_works_in_its_order(desk):
    text = (FOLDER / "README.md").read_text()
    assert [row for row in text.splitlines() if row.startswith("## ")] == HEADINGS
    script = "\n".join(["set -eu", *re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)])
    with gcs_running() as gcs, running() as run:
        run.account.images = set()
        run.environment = {
            "STORAGE_EMULATOR_HOST": gcs.url,
            "LLM_OCR_VLLM_COMMAND": f"{sys.executable} -m llm_ocr.testing.simulator",
        }
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LLM_OCR_", "GOOGLE_"))},
            "PATH": f"{desk / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": str(REPOSITORY),
            "HOME": str(desk),
            "STORAGE_EMULATOR_HOST": gcs.url,
            "LLM_OCR_PLATFORM_ENDPOINT": run.url,
        }
        done = subprocess.run(
            ["bash", "-c", script], cwd=desk, env=environment, capture_output=True, text=True, timeout=800
        )
        said = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said
        runs = [(one.name.split("/")[5], one.json()["conditions"][0]["state"]) for one in run.executions]
        created = [one for one in run.requests if one[1].endswith(":run")]
    assert "9 ok" in done.stdout, said
    assert runs == []  # deleted with their jobs
    assert [path.split("/")[7] for _, path, *_ in created] == [
        "llm-ocr-extract-nvidia-l4:run",
        "llm-ocr-describe-nvidia-l4:run",
        "llm-ocr-assemble-cpu:run",
    ]
    assert "hf_geheimnis" not in said
    assert run.account.images == {
        "us-central1-docker.pkg.dev/my-project/llm-ocr/llm-ocr-gpu:1",
        "us-central1-docker.pkg.dev/my-project/llm-ocr/llm-ocr-cpu:1",
    }


def test_roles_are_given_to_no_more_than_they_need():
    text = (FOLDER / "README.md").read_text()
    given = re.findall(r"gcloud (\S+ \S+).*--member=\S+ --role=(\S+)", text)
    assert [role for _, role in given] == ["roles/storage.objectUser", "roles/secretmanager.secretAccessor"]
    assert not re.search(r"roles/(owner|editor)|projects add-iam-policy-binding", text)


def test_no_folder_here_is_a_package():
    assert not list(FOLDER.rglob("*.py"))
