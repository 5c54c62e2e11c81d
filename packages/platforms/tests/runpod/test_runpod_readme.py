"""runpod-serverless/README.md, word for word: its commands run in a shell, with a fake RunPod."""

import os
import shlex
import shutil
import sys

import pytest
from fake_runpod import ENDPOINT, KEY, FakeRunPod
from readme_commands import blocks, followed, repository_copy

from tests.fakes.loopback import served

SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr_simulator"])
#: The address of RunPod's server is another one; all else is the command.
CURL = """#!{python}
import os, sys
url = "https://api.runpod.ai"
words = [word.replace(url, "FAKE") if word.startswith(url) else word for word in sys.argv[1:]]
os.execv("CURL", ["curl", *words])
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_works_in_its_order(tmp_path, repository, monkeypatch):
    pytest.importorskip("runpod")
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    text = (repository / "runpod-serverless" / "README.md").read_text()
    for name in [one for one in os.environ if one.startswith(("LLM_OCR_", "RUNPOD_"))]:
        monkeypatch.delenv(name)
    worker = {"LLM_OCR_VLLM_COMMAND": SIMULATOR, "LLM_OCR_ENGINE": "vllm", "LLM_OCR_OFFLINE": "true"}
    with served(FakeRunPod({**worker, "LLM_OCR_VLLM_ARG": "--preset=h100\n--speed=100"})) as fake:
        command = CURL.replace("FAKE", fake.url).replace("CURL", curl)
        repository_copy(tmp_path, ["runpod-serverless", "examples"], {"curl": command})
        script = "\n".join(blocks(text))
        script = script.replace("YOUR_KEY", KEY).replace("YOUR_ENDPOINT", ENDPOINT)
        run = followed(script, tmp_path, dict(os.environ))
        said = f"{run.stdout}\n{run.stderr}\n{fake.logs()}"
        assert run.returncode == 0, said
        jobs = list(fake.jobs.values())
    warmed, read = jobs
    assert warmed.output["warmup"] is True, said
    assert [page["status"] for page in read.output["pages"]] == ["ok", "ok"]
    assert {job.status for job in jobs} == {"COMPLETED"}
