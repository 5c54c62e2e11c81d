"""`llm-ocr models`: what there is, everything about one, and which suits."""

import json
import shlex
from pathlib import Path

import pytest
from PIL import Image

from llm_ocr.engines.vllm.command import ServeOptions, serve_command
from llm_ocr.models.choosing import describes, gives_boxes
from llm_ocr.models.registry import DEFAULT, PROFILES, find_profile


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path) -> dict[str, str]:
    """A machine with vLLM 0.20.1 and one L4: its environment."""
    program(tmp_path / "bin", "vllm", "echo 0.20.1")
    gpu = 'if [ "$1" = -L ]; then echo "GPU 0: NVIDIA L4 (UUID: GPU-a)"; else echo "0, GPU-a, 23034"; fi'
    program(tmp_path / "bin", "nvidia-smi", gpu)
    return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}


def values(run) -> object:
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_the_table_has_every_model_the_default_first(llm_ocr):
    run = llm_ocr("models")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[1].startswith("deepseek-ocr *")
    assert [line.split()[0] for line in lines[1 : 1 + len(PROFILES)]] == [profile.name for profile in PROFILES]
    row = next(line for line in lines if line.startswith("olmocr-2 "))
    assert all(word in row for word in ("8.3 B", "Apache-2.0", "16 GB", "82.4"))


def test_the_table_for_programs_has_the_same(llm_ocr):
    models = {model["name"]: model for model in values(llm_ocr("models", "--json"))}
    assert list(models) == [profile.name for profile in PROFILES]
    one = models["lightonocr-3-0.8b"]
    assert one["best"]["olmOCR-bench"] == {"value": 85.4, "benchmark": "olmOCR-bench"}
    assert (one["smallest_gpu"], one["figures"], one["describes"]) == ("8 GB", "boxes", "in answers")
    assert models["glm-ocr"]["figures"] == "detector"


@pytest.mark.parametrize("name", ["chandra-2", "olmocr-2", "lightonocr-3-0.8b"])
def test_one_model_is_shown_in_full_with_its_server_command(llm_ocr, name):
    profile = find_profile(name)
    run = llm_ocr("models", name)
    assert run.returncode == 0, run.stderr
    assert profile.model in run.stdout
    assert all(f"  {mode}" in run.stdout for mode in profile.prompts)
    assert profile.prompts[profile.mode].strip().splitlines()[-1] in run.stdout
    assert profile.notice.split(";")[0][:40] in " ".join(run.stdout.split())
    line = next(line for line in run.stdout.splitlines() if line.startswith("  vllm serve"))
    served = ServeOptions(model=profile.model, tensor_parallel=1, data_parallel=1)
    assert shlex.split(line) == serve_command(profile, served, 8000, version=(99,))


def test_server_command_follows_the_given_options_and_vllm(llm_ocr, tmp_path, machine):
    program(tmp_path / "old", "vllm", "echo 0.11.2")
    command = str(tmp_path / "old" / "vllm")
    flags = ("--vllm-command", command, "--max-model-len", "4096", "--vllm-arg=--max-num-seqs=8", "--vllm-port=9001")
    found = values(llm_ocr("models", "deepseek-ocr", "--json", *flags, env=machine))
    words = shlex.split(found["serve"])
    assert found["vllm"] == "0.11.2"
    assert words[:2] == [command, "serve"]
    assert "--stream-interval" not in words  # not known to that version
    assert words[-1] == "--max-num-seqs=8"
    assert "9001" in words and "4096" in words


def test_a_profile_of_ones_own_is_shown_too(llm_ocr, tmp_path):
    (tmp_path / "mine.toml").write_text('base = "dots.mocr"\nmodel = "me/tuned"\ntemperature = 0.3\n')
    found = values(llm_ocr("models", "mine.toml", "--json"))
    assert (found["model"], found["temperature"], found["trust_remote_code"]) == ("me/tuned", 0.3, True)


def test_a_misspelt_model_is_answered_with_near_names(llm_ocr):
    run = llm_ocr("models", "chandr")
    assert run.returncode == 2
    assert "Did you mean chandra" in run.stderr


def test_models_are_ranked_for_this_vllm_and_this_gpu(llm_ocr, machine):
    run = llm_ocr("models", "--recommend", env=machine)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("For vLLM 0.20.1, a GPU of 24.2 GB, any license, any language:")
    found = values(llm_ocr("models", "--recommend", "--json", env=machine))
    left = {one["name"]: one["reasons"] for one in found["left_out"]}
    assert left["lightonocr-3-0.8b"] == ["needs vLLM 0.30.0"]
    assert left["qwen3-vl-32b"] == ["needs a GPU of 80 GB"]
    ranked = [one["name"] for one in found["ranked"]]
    assert ranked.index("dots.mocr") < ranked.index("deepseek-ocr") < ranked.index("glm-ocr")
    assert {*ranked, *left} == {profile.name for profile in PROFILES}


def test_memory_licence_and_language_can_be_given(llm_ocr):
    flags = ("--gpu-memory", "8", "--licence", "open", "--language", "de")
    found = values(llm_ocr("models", "--recommend", "--json", *flags))
    assert (found["gpu_gb"], found["licence"], found["language"], found["vllm"]) == (8, "open", "German", None)
    assert found["ranked"][0]["name"].startswith("lightonocr-3")
    left = {one["name"]: "; ".join(one["reasons"]) for one in found["left_out"]}
    assert "license" in left["chandra-2"] and "needs a GPU of" in left["chandra-2"]


def test_a_name_and_a_ranking_are_not_asked_for_together(llm_ocr):
    run = llm_ocr("models", "dots.mocr", "--recommend")
    assert (run.returncode, "--recommend does not accept a model" in run.stderr) == (2, True)


def test_the_ranking_explains_the_default(llm_ocr):
    text = llm_ocr("models", "--recommend").stdout
    assert "The default is deepseek-ocr, not the first of this list" in text
    default = next(one for one in PROFILES if one.name == DEFAULT)
    assert gives_boxes(default) and describes(default) == "yes"  # the reasons in the text


def test_the_short_name_of_a_family_says_which_member_it_means(llm_ocr):
    assert "lightonocr-3-0.8b (lightonocr-3 means this model)" in llm_ocr("models", "lightonocr-3").stdout
    assert "lightonocr-3 means lightonocr-3-0.8b" in llm_ocr("models").stdout


@pytest.mark.parametrize("name", ["nobody/new-ocr", "deepsek-ocr"])
def test_unknown_model_is_first_reported_with_its_missing_prompt(llm_ocr, tmp_path, name):
    Image.new("RGB", (40, 40), "white").save(tmp_path / "a.png")
    done = llm_ocr("run", "a.png", "-w", "out", "--server-url", "http://127.0.0.1:9", "--model", name)
    assert done.returncode == 2
    said = f"no profile for model {name!r}, and --prompt is missing\n"
    assert done.stderr.index(said) < done.stderr.index("All models with a profile: llm-ocr models")
    assert "Engine:" not in done.stderr and not (tmp_path / "out").exists()
