"""The first job starts: the three commands of the README, in environments with the packages of the stock images.

Each environment is made once with packages of the index: those that the library uses are real, in the version of the
image; of the others (torch, CUDA, vLLM itself) only the metadata is there, which is what pip looks at. The jobs run in
it, and pip in the job is the real one with the real index.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from hf_jobs_running import Platform
from sagemaker_account import REPOSITORY, signed_in

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.launch import launching
from tests.fakes import cloud_run, sagemaker
from tests.fakes.gcs import running as gcs_running

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

#: Lists of packages in images with vLLM, `VERSION.txt`; they are not part of the repository.
PACKAGES = REPOSITORY.parent / "shared" / "reference" / "vllm_packages"
#: In place of the server that the image brings; it needs none of the job's packages.
SERVED = {
    "LLM_OCR_VLLM_COMMAND": f"{shlex.quote(sys.executable)} -m llm_ocr_simulator",
    "LLM_OCR_VLLM_ARG": "--speed=50",
    "LLM_OCR_IMAGE_SIZE": "256",
    "LLM_OCR_OFFLINE": "1",  # weights are not looked for
}


def uv(*words: str, **more: str) -> str:
    program = shutil.which("uv") or str(REPOSITORY / ".venv-tools/bin/uv")
    run = subprocess.run([program, *words], capture_output=True, text=True, env={**os.environ, **more})
    if run.returncode and re.search("dns error|connect|fetch|timed out", run.stderr):
        pytest.skip(f"the package index cannot be reached: {run.stderr.splitlines()[-1]}")
    assert run.returncode == 0, run.stderr
    return run.stdout


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)
    return {re.sub("[-_.]+", "-", name).lower(): version for name, version in found}


def image(folder: Path, vllm: str = "") -> str:
    """The Python of an environment like the image of a release of vLLM, or like `python:3.12-slim`."""
    if not (shutil.which("uv") or (REPOSITORY / ".venv-tools/bin/uv").exists()):
        pytest.skip("uv is not there: make beside-vllm installs it")
    try:
        uv("venv", "--seed", "--python", "3.12", str(folder), UV_PYTHON_DOWNLOADS="never")
    except AssertionError as error:
        pytest.skip(f"the images have Python 3.12, which is not here: {error}")
    inside = str(folder / "bin/python")
    if vllm:
        listed = PACKAGES / f"{vllm}.txt"
        if not listed.is_file():
            pytest.skip(f"no list of packages of the image: {listed}")
        held = pins(listed.read_text())
        project = str(REPOSITORY / "pyproject.toml")
        extras = [word for extra in ("s3", "gcs") for word in ("--extra", extra)]
        needed = pins(
            uv("pip", "compile", "--no-header", "--constraint", str(listed), "--python", inside, *extras, project)
        )
        real = {name: held[name] for name in needed if name in held and name != "llm-ocr"}
        uv("pip", "install", "--python", inside, "--no-deps", *(f"{name}=={version}" for name, version in real.items()))
        (site,) = (folder / "lib").glob("python3.*/site-packages")
        for name, version in held.items():
            about = site / f"{name.replace('-', '_')}-{version}.dist-info"
            if name not in real and not about.exists():
                about.mkdir()
                (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return inside


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("images")
    return {version or "slim": image(folder / (version or "slim"), version) for version in ("", "0.33.0", "0.30.0")}


@pytest.fixture
def quick(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(launching, "EVERY", 0.5)
    monkeypatch.chdir(REPOSITORY)
    yield


def versions(interpreter: str) -> dict[str, str]:
    code = (
        "import json; from importlib.metadata import distributions as d; "
        "print(json.dumps({one.metadata['Name']: one.version for one in d()}))"
    )
    run = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(run.stdout))


def unchanged(before: dict[str, str], interpreter: str) -> None:
    """The job has added packages, the library among them, and changed none."""
    after = versions(interpreter)
    assert "llm-ocr" in after
    assert {name: after[name] for name in before} == before


@pytest.fixture
def hub(platform: Platform, images, monkeypatch) -> Platform:
    jobs, gpu = platform.hub.state.jobs, images["0.33.0"]
    jobs.image |= SERVED
    jobs.images = {"vllm/vllm-openai:v0.33.0": gpu, "python:3.12-slim": images["slim"]}
    monkeypatch.setenv("LLM_OCR_PLATFORM_ENDPOINT", platform.hub.url)
    monkeypatch.setenv("LLM_OCR_WORKSPACE_ENDPOINT", platform.hub.url)
    platform.api.create_bucket("tester/ocr", private=True)
    return platform


def test_hugging_face_jobs(hub, images, quick, capsys):
    before = versions(images["0.33.0"])
    code = main(["launch", "hf-jobs", "pipeline", "examples/", "-w", "hf://buckets/tester/ocr/run", "--wait"])
    wrote = capsys.readouterr()
    assert (code, wrote.out.splitlines()[-1:]) == (0, ["9 ok"]), wrote.err
    unchanged(before, images["0.33.0"])


def test_conflict_in_the_job_ends_the_launch_with_pip_message(hub, images, quick, capsys, tmp_path):
    (site,) = Path(images["0.33.0"]).parents[1].glob("lib/python3.*/site-packages")
    older = site / "markdown_it_py-1.0.dist-info"
    for found in site.glob("markdown_it_py-*.dist-info"):
        found.rename(tmp_path / found.name)
    older.mkdir()
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: markdown-it-py\nVersion: 1.0\n")
    try:
        code = main(["launch", "hf-jobs", "extract", "examples/", "-w", "hf://buckets/tester/ocr/other", "--wait"])
    finally:
        shutil.rmtree(older)
        for found in tmp_path.glob("markdown_it_py-*.dist-info"):
            found.rename(site / found.name)
    said = capsys.readouterr().err
    assert code == 1
    assert "pip cannot install llm-ocr without changing the packages of this image" in said
    assert "markdown-it-py>=3" in said
    assert "markdown-it-py==1.0" in said


def test_sagemaker(images, quick, capsys):
    of_image = {**SERVED, "IMAGE_PYTHON": images["0.30.0"]}
    before = versions(images["0.30.0"])
    with sagemaker.running("bucket", image_environment=of_image) as fake, signed_in(fake.url):
        trust = (REPOSITORY / "sagemaker" / "trust-policy.json").read_text()
        role = boto3.client("iam").create_role(RoleName="llm-ocr-job", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        code = main(["launch", "sagemaker", "pipeline", "examples/", "-w", "s3://bucket/run", "--role", role, "--wait"])
    wrote = capsys.readouterr()
    assert (code, wrote.out.splitlines()[-1:]) == (0, ["9 ok"]), wrote.err
    unchanged(before, images["0.30.0"])


def test_cloud_run(images, quick, capsys, monkeypatch):
    with gcs_running("bucket") as gcs, cloud_run.running() as run:
        run.environment = {**SERVED, "STORAGE_EMULATOR_HOST": gcs.url, "IMAGE_PYTHON": images["0.33.0"]}
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        monkeypatch.setenv("LLM_OCR_PLATFORM_ENDPOINT", run.url)
        place = ["--project", "my-project", "--region", "us-central1"]
        code = main(["launch", "cloud-run", "pipeline", "examples/", "-w", "gs://bucket/run", *place, "--wait"])
    wrote = capsys.readouterr()
    assert (code, wrote.out.splitlines()[-1:]) == (0, ["9 ok"]), wrote.err


def test_the_scripts_of_hf_jobs_uv_run(wheel, examples, tmp_path):
    """`uv` makes an environment for the library alone, and the program `vllm` of the image is on the path."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {SERVED["LLM_OCR_VLLM_COMMAND"]} "$@" --speed=50\n')
    program.chmod(0o755)
    variables = {"PATH": f"{program.parent}:/usr/bin:/bin", "LLM_OCR_IMAGE_SIZE": "256", "LLM_OCR_OFFLINE": "1"}
    place, engine = ["-w", str(tmp_path / "out")], ["--engine", "vllm"]
    for stage, words in {"extract": [str(examples / "paper.pdf"), *engine], "describe": engine, "assemble": []}.items():
        script = str(REPOSITORY / "hf-jobs" / f"{stage}.py")
        uv("run", "--python", sys.executable, "--with", wheel, script, *words, *place, **variables)
    status = llm_ocr.open(tmp_path / "out").status
    assert status.finished and status.pages.ok == 3
