"""runpod-serverless/README.md, word for word: its commands run in a shell, with a fake RunPod."""

import os
import shlex
import shutil
import sys

import pytest
from fake_runpod import ENDPOINT, KEY, FakeRunPod
from readme_commands import blocks, followed, put_programs

SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr_simulator"])
#: The address of RunPod's server is another one; all else is the command.
CURL = """#!{python}
import os, sys
url = "https://api.runpod.ai"
words = [word.replace(url, {url!r}) if word.startswith(url) else word for word in sys.argv[1:]]
os.execv({curl!r}, ["curl", *words])
"""


@pytest.fixture
def desk(tmp_path, repository):
    """A folder like the repository's root, with the commands beside it."""
    for name in ("runpod-serverless", "examples"):
        (tmp_path / name).symlink_to(repository / name)
    return tmp_path


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_works_in_its_order(desk, repository, monkeypatch):
    pytest.importorskip("runpod")
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    text = (repository / "runpod-serverless" / "README.md").read_text()
    for name in [one for one in os.environ if one.startswith(("LLM_OCR_", "RUNPOD_"))]:
        monkeypatch.delenv(name)
    worker = {"LLM_OCR_VLLM_COMMAND": SIMULATOR, "LLM_OCR_ENGINE": "vllm", "LLM_OCR_OFFLINE": "true"}
    with FakeRunPod({**worker, "LLM_OCR_VLLM_ARG": "--preset=h100\n--speed=100"}) as fake:
        put_programs(desk, {"curl": CURL}, url=fake.url, curl=curl)
        script = "\n".join(blocks(text))
        script = script.replace("YOUR_KEY", KEY).replace("YOUR_ENDPOINT", ENDPOINT)
        run = followed(script, desk, dict(os.environ))
        said = f"{run.stdout}\n{run.stderr}\n{fake.logs()}"
        assert run.returncode == 0, said
        jobs = list(fake.jobs.values())
    warmed, read = jobs
    assert warmed.output["warmup"] is True, said
    assert [page["status"] for page in read.output["pages"]] == ["ok", "ok"]
    assert {job.status for job in jobs} == {"COMPLETED"}
