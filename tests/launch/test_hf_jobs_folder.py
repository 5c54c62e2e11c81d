"""The folder `hf-jobs/`: its README's commands as they stand there, and its scripts."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.launch import launching
from llm_ocr.launch.hf_jobs.plan import HARDWARE, TIME_LIMIT

SIMULATOR = f"{shlex.quote(sys.executable)} -m llm_ocr.testing.simulator"


@pytest.fixture
def folder(repository) -> Path:
    return repository / "hf-jobs"


def commands(text: str, heading: str) -> list[str]:
    """The lines of the shell blocks below a heading."""
    part = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.mark.long
def test_the_readme_can_be_followed_word_for_word(folder, platform, monkeypatch, capsys, repository, tmp_path):
    """On a Hub of ours; what takes the place of vLLM in the image is our simulator of it."""
    hub = platform.hub
    with_gpu_image(platform, monkeypatch, repository)
    text = (folder / "README.md").read_text().replace("your-name", "tester")
    for heading in ("Run", "Watch"):
        for line in commands(text, heading):
            followed(line, hub, monkeypatch, tmp_path)
    for run in ("try", "run"):
        status = llm_ocr.open(f"hf://buckets/tester/ocr/{run}", endpoint=hub.url).status
        assert status.finished
        assert status.pages.ok == status.pages.expected == 9
    assert [job.spec["flavor"] for job in hub.state.jobs.by_id.values()] == [
        *["cpu-upgrade"] * 3,
        *("l40sx1", "l40sx1", "cpu-upgrade"),
    ]
    capsys.readouterr()
    for line in commands(text, "Clean up"):
        followed(line, hub, monkeypatch, tmp_path)
    assert "left: ended jobs and their logs" in capsys.readouterr().out
    assert hub.state.buckets == {}


@pytest.mark.long
def test_the_readme_of_the_project_can_be_followed_too(platform, monkeypatch, repository, tmp_path):
    with_gpu_image(platform, monkeypatch, repository)
    monkeypatch.setenv("IMAGE", f"vllm/vllm-openai@sha256:{'0' * 64}")
    platform.api.create_bucket("tester/ocr", private=True)
    part = (repository / "README.md").read_text().partition("\n## Rented GPUs\n")[2].partition("\n## ")[0]
    block = part.partition("```\n")[2].partition("```")[0].replace("/me/", "/tester/")
    lines = [line.partition("  # ")[0] for line in block.splitlines()]
    assert [line.split()[1] for line in lines] == ["estimate", "launch", "launch", "jobs"]
    for line in lines:
        followed(line, platform.hub, monkeypatch, tmp_path)
    status = llm_ocr.open("hf://buckets/tester/ocr/run", endpoint=platform.hub.url).status
    assert status.finished
    assert status.pages.ok == status.pages.expected == 9


def with_gpu_image(platform, monkeypatch, repository) -> None:
    """Everything asks our Hub; in the image our simulator takes the place of vLLM."""
    hub = platform.hub
    hub.state.jobs.image |= {
        "LLM_OCR_VLLM_COMMAND": SIMULATOR,
        "LLM_OCR_VLLM_ARG": "--speed=50",
        "LLM_OCR_OFFLINE": "1",
        "LLM_OCR_IMAGE_SIZE": "256",
    }
    monkeypatch.chdir(repository)
    monkeypatch.setattr(launching, "EVERY", 0.2)
    monkeypatch.setenv("LLM_OCR_PLATFORM_ENDPOINT", hub.url)
    monkeypatch.setenv("LLM_OCR_WORKSPACE_ENDPOINT", hub.url)
    monkeypatch.setenv("LLM_OCR_WHEEL", platform.wheel)


def followed(line: str, hub, monkeypatch, home: Path) -> None:
    """One line of a shell, with the variables that were set before."""
    words = shlex.split(os.path.expandvars(line))
    if words[0] == "export":
        monkeypatch.setenv(*words[1].split("=", 1))
    elif words[0] == "llm-ocr":
        assert main(words[1:]) == 0, line
    else:
        # A script needs uv, a release and the network: what would be sent is all that can be seen here.
        rest = [*words[1:4], "--dry-run", *words[4:]] if words[1:4] == ["jobs", "uv", "run"] else words[1:]
        environment = {**os.environ, **hub.environment(str(home))}
        run = subprocess.run([hf(), *rest], env=environment, capture_output=True, text=True)
        assert run.returncode == 0, f"{line}\n{run.stdout}\n{run.stderr}"


def hf() -> str:
    found = shutil.which("hf", path=str(Path(sys.executable).parent))
    assert found
    return found


@pytest.mark.parametrize("stage", ["extract", "describe", "assemble"])
def test_the_scripts_name_what_they_need(folder, repository, stage):
    text = (folder / f"{stage}.py").read_text()
    block = re.search(r"^# /// script\n(.*?)^# ///$", text, re.MULTILINE | re.DOTALL)
    assert block
    header = tomllib.loads("".join(line.removeprefix("#").removeprefix(" ") for line in block[1].splitlines(True)))
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert header["requires-python"] == project["requires-python"]
    (needed,) = header["dependencies"]
    assert needed in (f"llm-ocr=={project['version']}", f"llm-ocr[vllm]=={project['version']}")
    assert "vllm" in project["optional-dependencies"]
    assert header["tool"]["hf-jobs"] == {
        "flavor": HARDWARE[stage],
        "timeout": f"{TIME_LIMIT // 3600}h",
        "secrets": ["HF_TOKEN"],
    }


@pytest.mark.slow
def test_a_script_is_its_stage(folder, examples, tmp_path):
    words = [sys.executable, str(folder / "extract.py"), str(examples / "invoice.png"), "-w", "out"]
    run = subprocess.run([*words, "--engine", "embedded"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert llm_ocr.open(tmp_path / "out").status.pages.ok == 1
