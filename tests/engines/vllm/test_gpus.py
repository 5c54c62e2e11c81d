"""Which GPUs there are, and which servers they get."""

import pytest
from supervised import COMMAND, made_profile

from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.server import servers
from llm_ocr.engines.vllm.sizing import gpu_capability, gpu_memory, gpus, parsed, plan, visible, vllm_installed
from llm_ocr.errors import UsageError
from llm_ocr.models.choosing import numbers

FOUR = ("0", "1", "2", "3")
LISTED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb)
"""
DIVIDED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)
  MIG 3g.20gb     Device  0: (UUID: MIG-cccc)
  MIG 3g.20gb     Device  1: (UUID: MIG-dddd)
"""


def shares(profile, options, devices):
    """CUDA_VISIBLE_DEVICES of each server."""
    return list(plan(profile, options, devices, cores=4, memory={}, capability={}, weights=0.0).devices)


def test_gpus_are_listed_and_so_are_parts_of_divided_ones():
    assert parsed(LISTED) == ("0", "1")
    assert parsed(DIVIDED) == ("MIG-cccc", "MIG-dddd")
    assert parsed("No devices were found\n") == ()


@pytest.mark.parametrize(
    ("setting", "left"),
    [
        (None, FOUR),
        ("2,3", ("2", "3")),
        (" 3 , 1 ", ("3", "1")),
        ("", ()),
        ("-1", ()),
        ("0,7,1", ("0",)),
        ("GPU-aaaa", ("GPU-aaaa",)),
    ],
)
def test_cuda_visible_devices_is_heard(setting, left):
    assert visible(FOUR, setting) == left


def test_nvidia_smi_is_asked(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTED}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus() == ("0", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpus() == ("1",)


def test_nvidia_smi_runs_once_for_each_question(tmp_path, monkeypatch):
    program, runs = tmp_path / "nvidia-smi", tmp_path / "runs"
    program.write_text(f"#!/bin/sh\necho run >> {runs}\ncat <<'END'\n{LISTED}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for _ in range(2):
        assert gpus()
        assert gpu_memory() == gpu_capability() == {}
    assert len(runs.read_text().split()) == 3


def test_without_a_driver_there_are_no_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == ()
    assert not vllm_installed((str(tmp_path / "vllm"),))
    assert vllm_installed(COMMAND)


@pytest.mark.parametrize(
    ("options", "devices", "expected"),
    [
        ({}, FOUR, ["0", "1", "2", "3"]),
        ({}, ("2",), [""]),
        ({}, (), [""]),
        ({"replicas": 2}, FOUR, ["0", "1"]),
        ({"replicas": 2}, (), ["", ""]),
        ({"tensor_parallel": 2}, FOUR, ["0,1", "2,3"]),
        ({"tensor_parallel": 3}, FOUR, ["0,1,2"]),
        ({"data_parallel": 4}, FOUR, [""]),
        ({"data_parallel": 2}, FOUR, ["0,1"]),
        ({"args": ("-tp=2",)}, FOUR, ["0,1", "2,3"]),
        ({"args": ("--data-parallel-size", "2", "--tensor_parallel_size=2")}, FOUR, [""]),
    ],
)
def test_each_server_gets_its_gpus(options, devices, expected):
    assert shares(made_profile(), ServeOptions(**options), devices) == expected


@pytest.mark.parametrize("options", [{"replicas": 5}, {"tensor_parallel": 8}, {"data_parallel": 8}])
def test_more_than_there_is_is_refused(options):
    with pytest.raises(UsageError, match="more than the 4"):
        shares(made_profile(), ServeOptions(**options), FOUR)


def test_a_model_that_needs_two_gpus_gets_them():
    profile = made_profile(server_args=("--tensor-parallel-size=2",))
    assert shares(profile, ServeOptions(), FOUR) == ["0,1", "2,3"]


def test_servers_have_numbers_and_separate_gpus_and_keys():
    made = servers(made_profile(), ServeOptions(command=COMMAND), FOUR)
    assert [server.name for server in made] == ["vLLM 0", "vLLM 1", "vLLM 2", "vLLM 3"]
    assert [server._environment["CUDA_VISIBLE_DEVICES"] for server in made] == list(FOUR)
    assert len({server._key for server in made}) == 4


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.32.0", (0, 32, 0)), ("v0.14.0rc1.dev162+g1", (0, 14, 0)), ("0.9", (0, 9, 0)), ("unknown", ())],
)
def test_versions_are_compared_by_their_numbers(text, version):
    assert numbers(text) == version
