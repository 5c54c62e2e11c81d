"""The wheel that jobs install: of a checkout, of an installation, and how a job fetches it."""

import configparser
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from wheels import make_wheel

from llm_ocr.launch import bootstrap
from llm_ocr.launch.library import library_wheel
from llm_ocr.plugins import EXPORTS, PLATFORMS
from tests.fakes import loopback

POINTS = (EXPORTS, PLATFORMS)


def installed(wheel: Path, folder: Path) -> Path:
    words = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run([sys.executable, "-m", *words], check=True)
    return folder


def test_wheel_of_editable_checkout_is_whole_without_build_tool(wheel, repository):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for one in ("llm_ocr/launch/library.py", "llm_ocr/stages/__main__.py"):
            assert archive.read(one) == (repository / one).read_bytes()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        assert b"Name: llm-ocr" in archive.read(metadata)
    for package in (repository / "llm_ocr", *(repository / "packages").glob("*/llm_ocr_*")):
        built = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
        assert {name for name in built if "__pycache__" not in name} <= set(names)
    assert "llm_ocr/examples/paper.pdf" in names
    assert not any("__editable__" in name or name.endswith(".pth") for name in names)


def test_wheel_has_each_module_that_an_entry_point_names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (found,) = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
        groups = configparser.ConfigParser()
        groups.read_string(archive.read(found).decode())
    assert all(sorted(groups[point.group]) == list(point.names()) for point in POINTS)
    modules = [value.partition(":")[0].replace(".", "/") for one in groups.values() for value in one.values()]
    assert [one for one in modules if not {f"{one}.py", f"{one}/__init__.py"} & set(names)] == []


@pytest.mark.slow
def test_installed_wheel_finds_what_this_checkout_finds(wheel, tmp_path):
    """The platforms and export formats are imported from the installation, which is packed again as it was."""
    site = installed(Path(wheel), tmp_path / "a")
    code = (
        "import json, sys\n"
        "from llm_ocr.launch.library import library_wheel\n"
        "from llm_ocr.plugins import EXPORTS, PLATFORMS\n"
        "found = {name: point.get(name) for point in (EXPORTS, PLATFORMS) for name in point.names()}\n"
        "files = {name: sys.modules[one.__module__].__file__ for name, one in found.items()}\n"
        "print(json.dumps([library_wheel().sha256, files]))"
    )
    words = [sys.executable, "-c", code]
    run = subprocess.run(words, env={"PYTHONPATH": str(site)}, cwd=tmp_path, capture_output=True, text=True, check=True)
    sha256, files = json.loads(run.stdout)
    assert sha256 == library_wheel(wheel).sha256 == library_wheel().sha256
    assert sorted(files) == sorted(name for point in POINTS for name in point.names())
    assert all(Path(file).is_relative_to(site) for file in files.values())


class Download(loopback.LoopbackFake):
    """With a `target`, it asks for the token and sends on to there; without one, it refuses a token."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        self._server = loopback.Server(_Handler, self)


class _Handler(loopback.Handler):
    server: loopback.Server[Download]

    def reply(self) -> None:
        target, signed = self.server.fake.target, self.headers.get("Authorization")
        data = b"" if target or signed else b"content"
        if target:
            self.send_response(302 if signed == "Bearer secret" else 401)
            self.send_header("Location", target)
        else:
            self.send_response(400 if signed else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def test_the_token_is_not_sent_to_the_storage_behind_the_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    digest = hashlib.sha256(b"content").hexdigest()
    with loopback.served(Download()) as storage, loopback.served(Download(f"{storage.url}/storage")) as hub:
        monkeypatch.setenv("LLM_OCR_WORKSPACE_ENDPOINT", hub.url)
        wheel = bootstrap.fetch("hf://buckets/me/ocr/run/a.whl", digest, str(tmp_path))
    assert Path(wheel).read_bytes() == b"content"


def test_what_an_image_has_stays_as_it_is(tmp_path, monkeypatch):
    """Each version is a constraint, but those of system packages that pip cannot read, and our own."""
    there = {"first/vllm": "0.32.0+cu130", "first/distro_info": "1.1build1", "first/llm_ocr": "0.0.1"}
    for place, version in {**there, "second/vllm": "0.1", "second/torch": "2.13.0rc1.dev3"}.items():
        folder = tmp_path / f"{place}-{version}.dist-info"
        folder.mkdir(parents=True)
        name = place.partition("/")[2]
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    assert sorted(bootstrap.constraints().split()) == ["torch==2.13.0rc1.dev3", "vllm==0.32.0+cu130"]


def started(job: dict[str, object], tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The bootstrap as a container runs it: its source, and what it is to do."""
    words = [sys.executable, "-c", Path(bootstrap.__file__).read_text(), json.dumps(job)]
    own = {"PIP_TARGET": str(tmp_path / "site"), "PIP_NO_INDEX": "1", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    return subprocess.run(words, env={**own, **variables}, cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("keep", [True, False])
def test_only_jobs_with_vllm_keep_older_packages_of_the_image(tmp_path, keep):
    """The image has an older package than the library needs."""
    wheel = str(make_wheel(tmp_path, "llm_ocr", "9.9", "needed>=2", files={}))
    make_wheel(tmp_path, "needed", "2.0", files={})
    image = tmp_path / "image" / "needed-1.0.dist-info"
    image.mkdir(parents=True)
    (image / "METADATA").write_text("Metadata-Version: 2.1\nName: needed\nVersion: 1.0\n")
    code = (
        "import sys; sys.argv = ['', '']\n"
        "from llm_ocr.launch import bootstrap\n"
        f"try: bootstrap.install({wheel!r}, {str(tmp_path)!r}, {keep})\n"
        "except bootstrap.Failed as error: sys.exit('llm-ocr: ' + str(error))\n"
    )
    own = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_TARGET": str(tmp_path / "site")}
    own |= {"PYTHONPATH": f"{image.parent}:{Path(bootstrap.__file__).parents[2]}", "HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=own, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == keep, run.stderr
    if keep:  # the message of pip is whole
        assert "llm-ocr: pip cannot install llm-ocr without changing the packages of this image:" in run.stderr
        assert "needed>=2" in run.stderr


@pytest.mark.slow
def test_a_reason_is_left_where_the_platform_shows_it(tmp_path):
    job = {"wheel": "hf://buckets/me/ocr/x.whl", "sha256": "0", "extras": [], "command": ["true"]}
    message = tmp_path / "message"
    hub = {"LLM_OCR_WORKSPACE_ENDPOINT": "http://127.0.0.1:9"}
    run = started(job, tmp_path, **hub, LLM_OCR_ERROR_FILE=str(message))
    assert run.returncode == 1
    assert message.read_text() in run.stderr
    assert "the llm-ocr wheel cannot be downloaded from hf://buckets/me/ocr/x.whl" in run.stderr
    nowhere = started(job, tmp_path, **hub, LLM_OCR_ERROR_FILE="/proc/nowhere/message")
    assert (nowhere.returncode, nowhere.stderr) == (1, run.stderr)


def test_a_google_key_becomes_a_file_that_only_the_job_reads(tmp_path):
    show = (
        "import os; path = os.environ['GOOGLE_APPLICATION_CREDENTIALS']; "
        "print(open(path).read(), oct(os.stat(os.path.dirname(path)).st_mode))"
    )
    job = {"wheel": "", "command": ["python", "-c", show]}
    run = started(job, tmp_path, GOOGLE_APPLICATION_CREDENTIALS_JSON='{"type": "service_account"}')
    assert run.stdout == '{"type": "service_account"} 0o40700\n', run.stderr


#: Driver, GPU -> whether vLLM is told to use the compatibility libraries.
DRIVERS = {
    ("NVIDIA UNIX x86_64 Kernel Module  570.195.03  Sat Sep 20 2026", "NVIDIA A100-SXM4-80GB"): True,
    ("NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build", "NVIDIA L40S"): True,
    ("NVIDIA UNIX x86_64 Kernel Module  535.216.03  Fri Oct 25 2024", "Tesla T4"): True,
    ("NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build", "NVIDIA H100 80GB HBM3"): False,
    ("NVIDIA UNIX x86_64 Kernel Module  570.195.03  Sat Sep 20 2026", "NVIDIA GeForce RTX 4090"): False,
    ("NVIDIA UNIX x86_64 Kernel Module  570.195.03  Sat Sep 20 2026", "NVIDIA RTX A6000"): False,
}
SHOW = {"wheel": "", "command": ["python", "-c", "import os; print(os.environ.get('VLLM_ENABLE_CUDA_COMPATIBILITY'))"]}


def on_driver(tmp_path: Path, driver: str, gpu: str, cuda: str = "13.0", **variables: str) -> list[str]:
    """What a job prints in a container with this driver, GPU, and CUDA."""
    folder = tmp_path / "nvidia" / "gpus" / "0000:00:1e.0"
    folder.mkdir(parents=True)
    (tmp_path / "nvidia" / "version").write_text(f"NVRM version: {driver}\nGCC version:  gcc version 12.2.0\n")
    (folder / "information").write_text(f"Model: \t\t {gpu}\nIRQ:   \t\t 35\nGPU UUID: \t GPU-0123\n")
    (tmp_path / "usr" / f"cuda-{cuda}" / "compat").mkdir(parents=True)
    source = Path(bootstrap.__file__).read_text().replace("/proc/driver/nvidia", str(tmp_path / "nvidia"))
    source = source.replace("/usr/local", str(tmp_path / "usr"))
    words = [sys.executable, "-c", source, json.dumps(SHOW)]
    run = subprocess.run(words, env={"HOME": str(tmp_path), **variables}, capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


@pytest.mark.parametrize(("driver", "gpu"), DRIVERS)
def test_an_older_driver_gets_compatibility_libraries(driver, gpu, tmp_path):
    *said, variable = on_driver(tmp_path, driver, gpu)
    assert variable == ("1" if DRIVERS[driver, gpu] else "None")
    assert bool(said) == ("580" not in driver)
    if said:
        assert ("vLLM uses the compatibility libraries" in said[0]) == DRIVERS[driver, gpu], said


def test_cuda_12_and_a_users_choice_stay_as_they_are(tmp_path):
    older = ("NVIDIA UNIX x86_64 Kernel Module  570.195.03  Sat Sep 20 2026", "NVIDIA L4")
    assert on_driver(tmp_path / "a", *older, cuda="12.9") == ["None"]
    assert on_driver(tmp_path / "b", *older, VLLM_ENABLE_CUDA_COMPATIBILITY="0") == ["0"]


def test_a_machine_without_a_gpu_needs_no_decision(tmp_path):
    assert started(SHOW, tmp_path).stdout == "None\n"
