"""runpod-serverless/README.md, word for word: its commands run in a shell, with a fake RunPod and a fake S3."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from unittest import mock

import pytest

import llm_ocr
from llm_ocr.testing.fake_runpod import ENDPOINT, KEY, FakeRunPod

HEADINGS = ["## Needs", "## Run", "## Watch", "## Cost", "## Clean up"]
SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr.testing.simulator"])
#: Looks at jobs more often than for real; all else is the command.
LLM_OCR = """#!{python}
import sys
import llm_ocr.launch.launching as launching
launching.EVERY = 0.2
from llm_ocr.cli import main
sys.exit(main(sys.argv[1:]))
"""
#: The address of RunPod's server is another one; all else is the command.
CURL = """#!{python}
import os, sys
url = "https://api.runpod.ai"
words = [word.replace(url, {url!r}) if word.startswith(url) else word for word in sys.argv[1:]]
os.execv({curl!r}, ["curl", *words])
"""
#: A link would not find what is installed beside the interpreter.
PYTHON = """#!/bin/sh
exec {python} "$@"
"""


def blocks(text):
    return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


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
    (tmp_path / "bin").mkdir()
    return tmp_path


def commands(desk, url):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    for name, text in {"llm-ocr": LLM_OCR, "curl": CURL, "python": PYTHON}.items():
        file = desk / "bin" / name
        file.write_text(text.format(python=sys.executable, url=url, curl=curl))
        file.chmod(0o755)


def test_the_headings_are_those_of_all_platforms(repository):
    text = (repository / "runpod-serverless" / "README.md").read_text()
    assert [row for row in text.splitlines() if row.startswith("## ")] == HEADINGS


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_works_in_its_order(desk, s3, repository):
    pytest.importorskip("runpod")
    text = (repository / "runpod-serverless" / "README.md").read_text()
    worker = {**s3, "LLM_OCR_VLLM_COMMAND": SIMULATOR, "LLM_OCR_ENGINE": "vllm", "LLM_OCR_OFFLINE": "true"}
    with FakeRunPod({**worker, "LLM_OCR_VLLM_ARG": "--preset=h100\n--speed=100"}) as fake:
        commands(desk, fake.url)
        script = "\n".join(["set -eu", *blocks(text)])
        script = script.replace("YOUR_KEY", KEY).replace("YOUR_ENDPOINT", ENDPOINT).replace("my-ocr-bucket", BUCKET)
        environment = {
            **os.environ,
            "PATH": f"{desk / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": str(repository),
            "HOME": str(desk),
            "LLM_OCR_PLATFORM_ENDPOINT": fake.url,
        }
        run = subprocess.run(
            ["bash", "-c", script], cwd=desk, env=environment, capture_output=True, text=True, timeout=800
        )
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
