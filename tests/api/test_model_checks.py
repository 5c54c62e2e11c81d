"""What is said before a model's servers start: what would end them, and what to do about it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import HfApi

import llm_ocr
from llm_ocr.engines.vllm import server as vllm_server
from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.server import Release, check_release
from llm_ocr.engines.vllm.sizing import gpu_memory, numbers_in
from llm_ocr.errors import LlmOcrError, ServerError, UsageError
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import find_profile
from llm_ocr.stages.start_checks import Checks, Start, memory_shortage, trust_note
from tests.fakes.hub import TOKEN, running

MIB = 1 << 20
T4 = {"0": 15_360 * MIB}


def program(folder: Path, name: str, text: str) -> Path:
    """A small script on its own."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def environment(folder: Path, vllm: str, transformers: str = "") -> Path:
    """A Python environment with these versions; its `vllm`."""
    packages = folder / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    (packages / f"vllm-{vllm}.dist-info").mkdir()
    if transformers:
        (packages / f"transformers-{transformers}.dist-info").mkdir()
    return program(folder / "bin", "vllm", "exit 1")


@pytest.fixture
def start(tmp_path) -> Callable[..., Start]:
    """`start("dots.mocr", vllm="0.20.0")`: servers of a model that are to start."""

    def make(
        name: str | Profile = "deepseek-ocr",
        model: str | None = None,
        *,
        vllm: str = "0.32.0",
        transformers: str = "",
        revision: str | None = None,
        pinned: bool = False,
        **options,
    ) -> Start:
        profile = find_profile(name) if isinstance(name, str) else name
        command = (str(environment(tmp_path / f"env-{len(list(tmp_path.iterdir()))}", vllm, transformers)),)
        chosen = ServeOptions(**{"command": command, "offline": True, **options})
        return Start(profile, model or profile.model, revision, pinned, chosen, Release(chosen))

    return make


def check(start: Start) -> list[str]:
    """What is said; raises what the check raises."""
    said: list[str] = []
    asyncio.run(Checks(start, said.append).check())
    return said


def test_a_vllm_that_is_too_old_is_named_with_what_is_needed(start):
    with pytest.raises(ServerError, match=r"lightonocr-3-0.8b needs vLLM 0.30.0 or newer; .*vllm is 0.20.1") as error:
        check(start("lightonocr-3", vllm="0.20.1"))
    assert "llm-ocr models --recommend" in error.value.hint
    check(start("dots.mocr", vllm="0.20.1"))


def test_a_vllm_that_must_be_asked_is_asked(start, tmp_path):
    told = program(tmp_path / "elsewhere", "vllm", "echo 0.12.0")
    given = start("lightonocr-3")
    chosen = replace(given.options, command=(str(told),))
    asked = replace(given, options=chosen, release=Release(chosen))
    with pytest.raises(ServerError, match=r"is 0\.12\.0"):
        check(asked)


def test_outdated_transformers_are_named_if_detectable(start):
    assert find_profile("glm-ocr").min_transformers
    with pytest.raises(ServerError, match=r"glm-ocr needs transformers 5.3.0 or newer; that of .*vllm is 4.57.1"):
        check(start("glm-ocr", transformers="4.57.1"))
    check(start("glm-ocr", transformers="5.4.0"))
    check(start("glm-ocr"))


def test_nvidia_smi_gives_the_memory_of_the_usable_gpus(tmp_path, monkeypatch):
    answers = 'if [ "$1" = -L ]; then printf "GPU 0: A (UUID: GPU-a)\\nGPU 1: B (UUID: GPU-b)\\n"'
    program(tmp_path, "nvidia-smi", f'{answers}; else printf "0, GPU-a, 81559\\n1, GPU-b, 15360\\n"; fi')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_memory() == {"0": 81_559 * MIB, "1": 15_360 * MIB}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert gpu_memory() == {"GPU-b": 15_360 * MIB}
    assert numbers_in("No devices were found\n0, GPU-a, [N/A]\n") == {}


def test_too_large_weights_are_refused_with_alternatives(start):
    given = start("qwen3-vl-8b")
    with pytest.raises(ServerError, match=r"qwen3-vl-8b needs about \d+ GB of a GPU; 16 GB are available") as error:
        memory_shortage(given, T4)
    assert "quantization=fp8" in error.value.hint and "`model=lightonocr-3-" in error.value.hint
    with pytest.raises(ServerError, match="`model=deepseek-ocr`"):
        memory_shortage(given, T4, "0.20.0")
    with pytest.raises(ServerError, match="`tensor_parallel_size=2`"):
        memory_shortage(given, {"0": T4["0"], "1": T4["0"]})


@pytest.mark.parametrize(
    "options",
    [
        {"tensor_parallel": 4, "max_model_len": 16_384},
        {"args": ("--quantization=fp8",)},
        {"args": ("--tensor-parallel-size=4", "--max-model-len=16k")},
        {"args": ("--cpu-offload-gb", "8")},
    ],
)
def test_what_makes_the_model_fit_is_counted(start, options):
    assert memory_shortage(start("qwen3-vl-8b", **options), T4) == ""


def test_a_model_that_may_just_not_fit_is_only_warned_of(start):
    said = memory_shortage(start("qwen3-vl-8b"), {"0": 23_034 * MIB})
    assert "about 25 GB" in said and "`max_model_len`" in said
    assert memory_shortage(start("qwen3-vl-8b", max_model_len=8192), {"0": 23_034 * MIB}) == ""


def test_fp8_weights_need_half(start):
    assert memory_shortage(start("olmocr-2"), T4) == ""
    with pytest.raises(ServerError, match="weights alone"):
        memory_shortage(start("olmocr-2-bf16"), T4)


def test_other_weights_count_by_file_size_and_unknown_ones_pass(start, tmp_path):
    folder = tmp_path / "tuned"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(20 * 10**9)  # sparse
    with pytest.raises(ServerError, match=r"20\.0 GB of weights alone"):
        memory_shortage(start("deepseek-ocr", str(folder)), T4)
    assert memory_shortage(start("qwen3-vl-8b", "someone/quantised"), T4) == ""
    assert memory_shortage(start("qwen3-vl-8b"), {}) == ""


def test_running_model_code_is_noted_unless_commit_is_pinned(start):
    said = trust_note(start("dots.mocr", revision="abc"))
    assert "rednote-hilab/dots.mocr at commit abc" in said and "`revision`" in said
    assert trust_note(start("dots.mocr", revision="abc", pinned=True)) == ""
    assert trust_note(start("deepseek-ocr", revision="abc")) == ""
    assert "commit abc" in trust_note(start("deepseek-ocr", revision="abc", args=("--trust-remote-code",)))


def test_a_folder_that_holds_no_model_is_named(start, tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        check(start("deepseek-ocr", str(tmp_path / "nothing")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"config.json is missing"):
        check(start("deepseek-ocr", str(tmp_path / "empty")))


ASK = """
import sys
from llm_ocr.stages.start_checks import check_access
from llm_ocr.errors import LlmOcrError
for model in sys.argv[1:]:
    try:
        check_access(model, None, None)
    except LlmOcrError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def hub():
    with running() as (server, variables):
        api = HfApi(endpoint=server.url, token=TOKEN)
        for name in ("open", "gated", "private"):
            api.create_repo(f"tester/{name}", private=name == "private")
        server.state.repositories.by_id["model", "tester/gated"].gated = True
        yield variables


def asked(variables: dict[str, str], *models: str) -> str:
    """In a process of its own: the client reads the Hub's address when it is imported."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *models], env={**others, **variables}, capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_only_a_gated_model_without_access_is_refused(hub):
    anonymous = {name: value for name, value in hub.items() if name != "HF_TOKEN"}
    output = asked(anonymous, "tester/open", "tester/gated")
    assert output.startswith("ServerError tester/gated is gated")
    assert "https://huggingface.co/tester/gated" in output and "HF_TOKEN" in output


@pytest.mark.slow
def test_only_a_model_that_is_not_there_is_said_with_near_names(hub):
    output = asked(hub, "tester/gated", "deepseek-ai/DeepSeek-OCR-3")
    assert output.startswith("UsageError the Hub has no model deepseek-ai/DeepSeek-OCR-3")
    assert "deepseek-ai/DeepSeek-OCR-2" in output


@pytest.mark.slow
def test_without_a_network_nothing_is_refused(hub):
    output = asked({**hub, "HF_ENDPOINT": "http://127.0.0.1:9"}, "tester/gated")
    assert "Error tester" not in output
    assert "cannot check the access to" in output


def test_server_start_obstacle_is_reported_before_planning(examples, tmp_path):
    command = str(environment(tmp_path / "env", "0.20.1"))
    with pytest.raises(ServerError, match=r"needs vLLM 0\.30\.0"):
        llm_ocr.extract(
            examples, workspace=tmp_path / "w", engine="vllm", vllm_command=command, model="lightonocr-3", offline=True
        )
    assert not (tmp_path / "w" / "plan").exists()
    assert not (tmp_path / "w" / "extract").exists()


@pytest.mark.parametrize(("vllm", "often"), [("0.32.0", 1), ("0.10.0", 2)])
def test_checks_are_done_once_and_again_after_a_failure(start, monkeypatch, vllm, often):
    asked = []
    monkeypatch.setattr(vllm_server, "check_release", lambda *about: (asked.append(about), check_release(*about)))
    checks = Checks(start("lightonocr-3", vllm=vllm), lambda _: None)

    async def twice() -> list[BaseException | None]:
        return await asyncio.gather(checks.prepare(), checks.prepare(), return_exceptions=True)

    ends = asyncio.run(twice())
    assert [isinstance(one, LlmOcrError) for one in ends] == [often == 2] * 2
    assert len(asked) == often
