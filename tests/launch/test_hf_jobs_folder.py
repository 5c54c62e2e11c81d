"""The folder `hf-jobs/`: the commands of its README, word for word, and its scripts."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.launch import launching
from llm_ocr.launch.hf_jobs import HARDWARE, TIME_LIMIT
from llm_ocr.launch.library import GPU_IMAGE
from tests.fakes.hub.jobs import Mishap

SIMULATOR = f"{shlex.quote(sys.executable)} -m llm_ocr_simulator"


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
    assert "kept: finished jobs and their logs" in capsys.readouterr().out
    assert hub.state.buckets == {}


@pytest.mark.long
def test_the_readme_of_the_project_can_be_followed_too(platform, monkeypatch, repository, tmp_path):
    with_gpu_image(platform, monkeypatch, repository)
    monkeypatch.setenv("IMAGE", f"vllm/vllm-openai@sha256:{'0' * 64}")
    platform.api.create_bucket("tester/ocr", private=True)
    part = (repository / "docs/guides/rented-gpus.md").read_text()
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
    monkeypatch.setattr(launching, "EVERY", 0.5)
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
    elif words[0] == "pip":
        assert words[1:4] == ["wheel", ".", "--no-deps"], line  # the fixture has built one
    else:
        # A script needs uv and the network: what would be sent is all that can be seen here.
        rest = [*words[1:4], "--dry-run", *words[4:]] if words[1:4] == ["jobs", "uv", "run"] else words[1:]
        environment = {**os.environ, **hub.environment(str(home))}
        run = subprocess.run([hf(), *rest], env=environment, capture_output=True, text=True)
        assert run.returncode == 0, f"{line}\n{run.stdout}\n{run.stderr}"


def hf() -> str:
    found = shutil.which("hf", path=str(Path(sys.executable).parent))
    assert found
    return found


STAGES = ["extract", "describe", "assemble"]


@pytest.mark.parametrize("stage", STAGES)
def test_the_scripts_name_what_they_need(folder, repository, stage):
    text = (folder / f"{stage}.py").read_text()
    block = re.search(r"^# /// script\n(.*?)^# ///$", text, re.MULTILINE | re.DOTALL)
    assert block
    header = tomllib.loads("".join(line.removeprefix("#").removeprefix(" ") for line in block[1].splitlines(True)))
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert header["requires-python"] == project["requires-python"]
    assert header["dependencies"] == []  # `--with` brings the library, which is on no index
    assert header["tool"]["hf-jobs"] == {
        **({} if stage == "assemble" else {"image": GPU_IMAGE}),
        "flavor": HARDWARE[stage],
        "timeout": f"{TIME_LIMIT // 3600}h",
        "secrets": ["HF_TOKEN"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["extract", "assemble"])  # with the image of vLLM and without
def test_hf_sends_a_script_with_the_wheel_in_a_private_bucket(folder, platform, stage, tmp_path):
    wheel = Path(platform.wheel)
    hub = platform.hub
    hub.state.jobs.mishaps.append(Mishap("there is no uv here", never_starts=True))
    words = ["--volume", f"{wheel.parent}:/wheels", "--with", f"/wheels/{wheel.name}"]
    command = [hf(), "jobs", "uv", "run", "--detach", *words, str(folder / f"{stage}.py"), "-w", "out"]
    run = subprocess.run(command, env={**os.environ, **hub.environment(str(tmp_path))}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (job,) = hub.state.jobs.by_id.values()
    assert job.spec["command"] == ["uv", "run", "--with", f"/wheels/{wheel.name}", f"/data/{stage}.py", "-w", "out"]
    assert job.spec["flavor"] == HARDWARE[stage]
    assert (job.spec["dockerImage"] == GPU_IMAGE) == (stage != "assemble")
    assert (job.spec["timeoutSeconds"], list(job.spec["secrets"])) == (TIME_LIMIT, ["HF_TOKEN"])
    (bucket,) = hub.state.buckets.values()
    (wheels,) = [one for one in job.spec["volumes"] if one["mountPath"] == "/wheels"]
    assert bucket.private and wheels["source"] == bucket.id
    assert bucket.files[f"{wheels['path']}/{wheel.name}"].data == wheel.read_bytes()


def test_the_readme_names_the_wheel_of_this_version(folder):
    wheels = re.findall(r"llm_ocr-\S+?-py3-none-any\.whl", (folder / "README.md").read_text())
    assert set(wheels) == {f"llm_ocr-{llm_ocr.__version__}-py3-none-any.whl"}


@pytest.fixture
def clean(tmp_path) -> Path:
    """The Python of an empty environment, as uv makes it for a script."""
    venv.create(tmp_path / "environment", symlinks=True)
    return tmp_path / "environment" / "bin" / "python"


def site(python: Path) -> Path:
    """The packages of an environment."""
    return next(python.parent.parent.glob("lib/python3*/site-packages"))


def ran(python: Path, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A script that an environment has run, in a folder of its own."""
    work = python.parents[2] / "work"
    work.mkdir(exist_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(work)}
    command = [str(python), str(script), *words]
    return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_the_scripts_are_the_stages_with_the_wheel_alone(folder, digital, wheel, clean):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site(clean))
    needed = sysconfig.get_path("purelib")  # without what its own .pth files add: the checkout
    site(clean).joinpath("packages.pth").write_text(needed)
    words = ["-w", "out", "--engine", "embedded"]
    for stage, more in (
        ("extract", [str(digital / "one.pdf"), *words]),
        ("describe", words),
        ("assemble", words[:2]),
    ):
        run = ran(clean, folder / f"{stage}.py", *more)
        assert run.returncode == 0, run.stderr
    status = llm_ocr.open(clean.parents[2] / "work" / "out").status
    assert status.finished and status.pages.ok == 1


@pytest.mark.parametrize("stage", STAGES)
def test_a_script_without_the_library_says_how_it_is_given(folder, clean, stage):
    run = ran(clean, folder / f"{stage}.py", "-w", "out")
    assert run.returncode == 2
    assert "--with /wheels/llm_ocr-VERSION-py3-none-any.whl" in run.stderr
