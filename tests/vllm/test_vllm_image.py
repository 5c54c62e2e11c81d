"""The gates of images against a real vLLM's packages, and this library installed beside them."""

import os
import subprocess

import pytest
from image_checks import Site, allowed_edges, image_checks

from llm_ocr.cli.doctor import State
from llm_ocr.models.registry import PROFILES, find_profile


@pytest.fixture
def packages(vllm):
    """The folder of vLLM's packages."""
    (folder,) = (vllm.parent.parent / "lib").glob("python3*/site-packages")
    return folder


@pytest.mark.parametrize("name", [profile.name for profile in PROFILES if not profile.experimental])
def test_this_vllm_passes_the_gates_of_every_model(name, packages):
    checks = image_checks(find_profile(name), allowed_edges(None), Site(packages))
    broken = [check for check in checks if check.state not in (State.WORKS, State.LIMITED)]
    assert broken == []
    assert not any(check.state is State.LIMITED and check.name == "architecture" for check in checks)


def test_the_registry_is_read_as_vllm_reads_it(vllm, packages):
    """What is found in the file is what vLLM itself says when it is imported."""
    code = "from vllm.model_executor.models.registry import ModelRegistry as r; print(*r.get_supported_archs())"
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "VLLM_NO_USAGE_STATS": "1"}
    python = str(vllm.parent / "python")
    done = subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    known = set(done.stdout.splitlines()[-1].split())
    read = Site(packages).table("vllm", "model_executor/models/registry.py")
    assert known - {"small_towers"} <= read.keys()


def test_the_library_installs_beside_this_vllm_without_a_change(vllm, repository, tmp_path):
    """As the GPU image does it, without doing it."""
    python = str(vllm.parent / "python")
    script = [python, str(repository / "docker" / "install.py"), "--dry-run", "--extras", "embedded,detector,s3,gcs"]
    done = subprocess.run([*script, str(repository)], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
