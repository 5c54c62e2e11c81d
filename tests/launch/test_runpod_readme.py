"""runpod-serverless/README.md, word for word: its commands run in a shell, with a fake RunPod and a fake S3."""

import json
import os
import shlex
import shutil
import sys
from unittest import mock

import pytest
from readme_commands import blocks, followed, put_programs

import llm_ocr
from tests.fakes.runpod import ENDPOINT, KEY, FakeRunPod

SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr_simulator"])
#: The address of RunPod's server is another one; all else is the command.
CURL = """#!{python}
import os, sys
url = "https://api.runpod.ai"
words = [word.replace(url, {url!r}) if word.startswith(url) else word for word in sys.argv[1:]]
os.execv({curl!r}, ["curl", *words])
"""
BUCKET = "ocr-of-runpod"  # moto keeps one state for the whole process, and other READMEs have the same example


@pytest.fixture
def s3():
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    own = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
        "AWS_SECRET_ACCESS_KEY": "of the tests",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LLM_OCR_", "RUNPOD_"))}
    with mock.patch.dict(os.environ, {**kept, **own}, clear=True):
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield own
        server.stop()


@pytest.fixture
def desk(tmp_path, repository):
    """A folder like the repository's root, with the commands beside it."""
    for name in ("runpod-serverless", "examples"):
        (tmp_path / name).symlink_to(repository / name)
    return tmp_path


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_works_in_its_order(desk, s3, repository):
    pytest.importorskip("runpod")
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    text = (repository / "runpod-serverless" / "README.md").read_text()
    worker = {**s3, "LLM_OCR_VLLM_COMMAND": SIMULATOR, "LLM_OCR_ENGINE": "vllm", "LLM_OCR_OFFLINE": "true"}
    worker |= {"LLM_OCR_ALLOWED_WORKSPACES": f"s3://{BUCKET}"}
    with FakeRunPod({**worker, "LLM_OCR_VLLM_ARG": "--preset=h100\n--speed=100"}) as fake:
        put_programs(desk, {"curl": CURL}, url=fake.url, curl=curl)
        script = "\n".join(blocks(text))
        script = script.replace("YOUR_KEY", KEY).replace("YOUR_ENDPOINT", ENDPOINT).replace("my-ocr-bucket", BUCKET)
        run = followed(script, desk, {**os.environ, "LLM_OCR_PLATFORM_ENDPOINT": fake.url})
        said = f"{run.stdout}\n{run.stderr}\n{fake.logs()}"
        assert run.returncode == 0, said
        jobs = list(fake.jobs.values())
    warmed, read, *stages = jobs
    assert warmed.output["warmup"] is True, said
    assert [page["status"] for page in read.output["pages"]] == ["ok", "ok"]
    assert [job.body["input"]["stage"] for job in stages] == ["extract", "describe", "assemble"]
    assert {job.status for job in jobs} == {"COMPLETED"}
    assert "of the tests" not in json.dumps([dict(job.body) for job in jobs])
    assert llm_ocr.open(f"s3://{BUCKET}/run").status.pages.ok == 9
