"""google-cloud-run/README.md, word for word: its commands run in a shell, with stand-ins for Google and `gcloud`."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from readme_commands import REPOSITORY, blocks, followed, repository_copy, stand_in

from tests.fakes.cloud_run import running
from tests.fakes.gcs import running as gcs_running

pytestmark = pytest.mark.needs("google.cloud.run_v2", "google.cloud.storage")

FOLDER = REPOSITORY / "google-cloud-run"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_works_in_its_order(tmp_path):
    text = (FOLDER / "README.md").read_text()
    gcloud = stand_in(Path(__file__).with_name("gcloud_command.py"))
    desk = repository_copy(tmp_path, ["google-cloud-run", "examples"], {"gcloud": gcloud})
    with gcs_running() as gcs, running() as run:
        run.environment = {
            "STORAGE_EMULATOR_HOST": gcs.url,
            "LLM_OCR_VLLM_COMMAND": f"{shlex.quote(sys.executable)} -m llm_ocr_simulator",
        }
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("LLM_OCR_", "GOOGLE_"))
        }
        environment |= {"STORAGE_EMULATOR_HOST": gcs.url, "LLM_OCR_PLATFORM_ENDPOINT": run.url}
        done = followed("\n".join(blocks(text)), desk, environment)
        said = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said
        runs = [(one.name.split("/")[5], one.json()["conditions"][0]["state"]) for one in run.executions]
        created = [one for one in run.requests if one[1].endswith(":run")]
    assert "9 ok" in done.stdout, said
    assert runs == []  # deleted with their jobs
    stages = [path.split("/")[7].rpartition("-")[2] for _, path, *_ in created]
    assert stages == ["extract:run", "describe:run", "assemble:run"]
    assert "hf_geheimnis" not in said


def test_roles_are_given_to_no_more_than_they_need():
    text = (FOLDER / "README.md").read_text()
    given = re.findall(r"gcloud (\S+ \S+).*--member=\S+ --role=(\S+)", text)
    assert [role for _, role in given] == ["roles/storage.objectUser", "roles/secretmanager.secretAccessor"]
    assert not re.search(r"roles/(owner|editor)|projects add-iam-policy-binding", text)
