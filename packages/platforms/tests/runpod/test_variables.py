"""The variables of GLM-OCR's worker: each of them is read."""

import re

import pytest

from llm_ocr.errors import UsageError
from llm_ocr.models.profiles.regions import GLM_OCR
from llm_ocr_platforms.runpod import worker_settings
from llm_ocr_platforms.runpod.variables import TABLE, translated


def settings(monkeypatch, **variables):
    monkeypatch.setattr("llm_ocr_platforms.runpod.environment", lambda: variables)
    return worker_settings()


@pytest.mark.parametrize("preset", ["a40", "h100"])
def test_the_presets_are_taken_whole(preset, repository, monkeypatch):
    lines = (repository / "runpod-serverless" / f".env.{preset}").read_text().splitlines()
    held = dict(line.split("=", 1) for line in lines)
    chosen = settings(monkeypatch, **held)
    assert chosen.revision == held["MODEL_REVISION"] == GLM_OCR.revision
    assert chosen.worker_concurrency == int(held["WORKER_MAX_CONCURRENCY"])
    assert chosen.max_model_len == int(held["MAX_MODEL_LEN"]) == GLM_OCR.context
    assert chosen.gpu_memory_utilization == float(held["GPU_MEMORY_UTILIZATION"])
    assert chosen.max_inflight_requests == int(held["GLMOCR_MAX_WORKERS"])
    assert f"--max-num-seqs={held['MAX_NUM_SEQS']}" in chosen.vllm_arg
    assert f"--max-num-batched-tokens={held['MAX_NUM_BATCHED_TOKENS']}" in chosen.vllm_arg
    assert set(held) - {"MAX_MODEL_LEN", "GPU_MEMORY_UTILIZATION"} == {one.name for one in TABLE}


def test_without_any_the_model_is_that_of_the_worker_before(monkeypatch):
    chosen = settings(monkeypatch)
    assert (chosen.model, chosen.revision, chosen.worker_concurrency) == ("glm-ocr", GLM_OCR.revision, 1)


def test_another_model_does_not_get_its_revision(monkeypatch):
    for name in ("LLM_OCR_MODEL", "MODEL_ID"):
        chosen = settings(monkeypatch, **{name: "deepseek-ocr"})
        assert (chosen.model, chosen.revision) == ("deepseek-ocr", None)


def test_the_smaller_of_two_caps_counts_and_ours_before_both(monkeypatch):
    both = {"GLMOCR_MAX_WORKERS": "64", "GLMOCR_CONNECTION_POOL_SIZE": "8"}
    assert settings(monkeypatch, **both).max_inflight_requests == 8
    assert settings(monkeypatch, **both, LLM_OCR_MAX_INFLIGHT_REQUESTS="5").max_inflight_requests == 5


def test_arguments_of_vllm_are_put_together(monkeypatch):
    held = {"MAX_NUM_SEQS": "64", "EXTRA_VLLM_ARGS": "--enforce-eager --seed=1"}
    assert settings(monkeypatch, **held).vllm_arg == ("--enforce-eager", "--seed=1", "--max-num-seqs=64")
    held = {"MAX_NUM_SEQS": "64", "LLM_OCR_VLLM_ARG": "--max-num-seqs=16\n--seed=2"}
    assert settings(monkeypatch, **held).vllm_arg == ("--max-num-seqs=16", "--seed=2")


@pytest.mark.parametrize("name", [one.name for one in TABLE if one.count])
def test_what_is_no_number_is_said_by_the_name_as_it_was_set(monkeypatch, name):
    with pytest.raises(UsageError, match=f"{name}=many: must be a whole number"):
        settings(monkeypatch, **{name: "many"})


def test_empty_ones_are_not_set(monkeypatch):
    chosen = settings(monkeypatch, MODEL_REVISION="", MAX_NUM_SEQS=" ", WORKER_MAX_CONCURRENCY="")
    assert (chosen.vllm_arg, chosen.revision, chosen.worker_concurrency) == ((), GLM_OCR.revision, 1)


def test_the_documented_table_is_the_one_that_counts(repository):
    text = (repository / "docs" / "migrating.md").read_text(encoding="utf-8").partition("| Variable | Our setting |")[2]
    rows = re.findall(r"^\| `(\w+)` \| `LLM_OCR_(\w+)` \|", text, re.MULTILINE)
    assert rows == [(one.name, one.setting.upper()) for one in TABLE]


def test_without_variables_none_is_made_up():
    assert translated({}) == {}
