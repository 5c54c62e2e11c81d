"""Which model suits: by memory, vLLM, licence and language, each place with its reasons."""

from dataclasses import replace
from typing import get_args

import pytest

from llm_ocr.cli.models import one_model
from llm_ocr.config.groups import VllmSettings
from llm_ocr.config.models import ExtractSettings, ModelsSettings
from llm_ocr.engines.vllm.command import number_of, serve_command, value_of
from llm_ocr.errors import ServerError
from llm_ocr.models.choosing import (
    OPEN_LICENCES,
    PRESETS,
    Gpus,
    Wants,
    alternatives,
    describes,
    family,
    gives_boxes,
    loop_advice,
    needed_memory,
    rank,
    reads_language,
    score_of,
    share_of,
    smallest_gpu,
)
from llm_ocr.models.parsers.markers import parse_grounding
from llm_ocr.models.profile import Profile, Score
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.registry import DEFAULT, PROFILES, choose_served, find_profile
from llm_ocr.stages.servers import Engines, serve_options

BENCH = "olmOCR-bench"


L4 = 23_034 << 20  # bytes, as nvidia-smi tells of it


def made(name: str, **fields) -> Profile:
    boxes = {"parsers": {"": parse_grounding}, "figure_labels": frozenset({"image"})}
    usual = {"name": name, "licence": "MIT", "parameters": 1.0, **boxes}
    return replace(generic(f"maker/{name}"), **{**usual, **fields})


def names(choices) -> list[str]:
    return [choice.profile.name for choice in choices]


def reasons(choices, name: str) -> str:
    return "; ".join(next(choice.reasons for choice in choices if choice.profile.name == name))


def scored(value: float) -> dict:
    return {"scores": (Score(BENCH, value, "vendor"),)}


def test_memory_rule_is_weights_one_context_and_two_gigabytes():
    assert needed_memory(9e9, 0, share=1.0) == 11e9
    assert needed_memory(9e9, 0, gpus=2, share=1.0) == 6.5e9
    assert needed_memory(0, 1000, share=1.0) == pytest.approx(2e9 + 1000 * 144 * 1024)
    assert needed_memory(7e9, 0) == pytest.approx(10e9)


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({"parameters": 0.9, "context": 8192}, "8 GB"),
        ({"parameters": 3.3, "context": 8192}, "12 GB"),
        ({"parameters": 8.3, "context": 16_384}, "24 GB"),
        ({"parameters": 8.3, "context": 16_384, "weight_bytes": 1.0}, "16 GB"),
        ({"parameters": 235.0, "context": 32_768}, "4 x 141 GB"),
        ({"parameters": 8.3, "context": 16_384, "server_args": ("--gpu-memory-utilization", "0.5")}, "48 GB"),
    ],
)
def test_the_smallest_gpu_follows_from_size_weights_and_context(fields, size):
    assert str(smallest_gpu(made("one", **fields))) == size


def test_of_a_model_whose_size_is_not_known_no_gpu_is_named():
    assert smallest_gpu(made("one", parameters=0.0)) is None
    assert str(Gpus(2, 80)) == "2 x 80 GB"


def test_rank_is_by_figure_positions_then_scores_then_size():
    profiles = [
        made("plain", **scored(99), figure_labels=frozenset()),
        made("unscored"),
        made("good", **scored(80)),
        made("best", **scored(85)),
        made("small", **scored(80), parameters=0.5),
        made("tried", **scored(99), experimental=True),
        made("regions", **scored(99), layout_first=True),
    ]
    ranked, left_out = rank(profiles, Wants())
    assert names(ranked) == ["best", "small", "good", "unscored", "plain", "regions", "tried"]
    assert not left_out
    assert "olmOCR-bench 85" in reasons(ranked, "best")
    assert "no positions of figures" in reasons(ranked, "plain")
    assert "detector" in reasons(ranked, "regions")


def test_what_cannot_be_used_is_left_out_with_the_reason():
    profiles = [
        made("new", min_vllm="0.30.0"),
        made("large", parameters=30.0),
        made("closed", licence="MIT with terms"),
        made("latin", languages="English, French"),
        made("fits", min_vllm="0.11.0", languages="English, German"),
        made("unknown"),
    ]
    wants = Wants(vllm=(0, 20, 0), gpu_bytes=24e9, open_only=True, language="de")
    ranked, left_out = rank(profiles, wants)
    assert names(ranked) == ["fits", "unknown"]
    assert reasons(left_out, "new") == "needs vLLM 0.30.0"
    assert reasons(left_out, "large") == "needs a GPU of 80 GB"
    assert "MIT with terms" in reasons(left_out, "closed")
    assert "German" in reasons(left_out, "latin")
    assert "unknown whether it reads German" in reasons(ranked, "unknown")


def test_what_is_not_told_leaves_nothing_out():
    profiles = [made("new", min_vllm="99.0"), made("large", parameters=3000.0), made("closed", licence="")]
    assert len(rank(profiles, Wants())[0]) == 3


def test_more_gpus_or_a_shorter_context_admit_larger_models():
    large = made("large", parameters=12.0, context=32_768)
    assert rank([large], Wants(gpu_bytes=L4))[1]
    assert rank([large], Wants(gpu_bytes=L4, gpus=2))[0]
    middle = made("middle", parameters=8.0, context=32_768)
    assert rank([middle], Wants(gpu_bytes=L4))[1]
    assert rank([middle], Wants(gpu_bytes=L4, context=8192))[0]
    short = made("short", parameters=8.0, context=8192)
    left = rank([short], Wants(gpu_bytes=L4, context=32_768))[1]
    assert reasons(left, "short") == "needs a GPU of 32 GB"


@pytest.mark.parametrize(
    ("args", "share"),
    [
        (("--gpu-memory-utilization", ".5"), 0.5),
        (("--gpu-memory-utilization=0.5",), 0.5),
        (("--gpu_memory_utilization", "0.7", "--gpu-memory-utilization=0.5"), 0.5),
        (("--gpu-memory-utilization=much",), 0.9),
        (("--gpu-memory-utilization", "0"), 0.9),
        (("--gpu-memory-utilization",), 0.9),
    ],
)
def test_the_share_of_the_memory_is_what_vllm_would_read(args, share):
    assert share_of(made("one", server_args=args)) == share


@pytest.mark.parametrize(
    ("languages", "asked", "known"),
    [
        ("English, German", "de", True),
        ("English, German", "GERMAN", True),
        ("English, German", "fr", False),
        ("many scripts, Chinese among them", "zh", True),
        ("many scripts, Chinese among them", "fr", None),
        ("109 languages", "fr", None),
        ("English first", "fr", None),
        ("", "fr", None),
    ],
)
def test_languages_are_known_by_name_and_code(languages, asked, known):
    assert reads_language(made("one", languages=languages), asked) is known


def test_scores_of_a_benchmark_are_found_whatever_its_version():
    profile = made("one", scores=(Score("Omni v1.5", 93, ""), Score("Omni v1.6", 92, ""), Score("Omnibus", 99, "")))
    assert score_of(profile, "Omni") == Score("Omni v1.6", 92, "")
    assert score_of(profile, "Other") is None


def test_loops_on_over_two_percent_of_pages_name_other_families():
    assert loop_advice(2, 100, DEFAULT, PROFILES) == ""
    assert loop_advice(0, 0, DEFAULT, PROFILES) == ""
    said = loop_advice(31, 1000, DEFAULT, PROFILES)
    assert said.startswith("repetition loops on 3.1 % of the pages: try `model=")
    for name in alternatives(PROFILES, DEFAULT):
        assert f"`model={name}`" in said
        assert family(find_profile(name)) != family(find_profile(DEFAULT))
        assert find_profile(name).licence in OPEN_LICENCES
    assert alternatives(PROFILES, find_profile(DEFAULT).model) == alternatives(PROFILES, DEFAULT)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_known_model_can_be_chosen(profile):
    """Its size is known, and what is said of it agrees with what it is."""
    assert smallest_gpu(profile) is not None
    assert describes(profile) in ("yes", "in answers", "no")
    if gives_boxes(profile):
        assert profile.figure_labels
    assert rank([profile], Wants())[0]


def test_what_the_families_are_known_for():
    assert gives_boxes(find_profile("deepseek-ocr")) and describes(find_profile("deepseek-ocr")) == "yes"
    assert gives_boxes(find_profile("lightonocr-3")) and describes(find_profile("lightonocr-3")) == "in answers"
    assert gives_boxes(find_profile("dots.mocr")) and describes(find_profile("dots.mocr")) == "no"
    assert not gives_boxes(find_profile("glm-ocr"))
    assert describes(find_profile("qwen3-vl")) == "yes"


URL = "http://host:8000/v1"


def chosen(served: dict[str, str], name: str, model: str = "") -> str:
    profile = find_profile(name)
    return choose_served(served, URL, profile, model or profile.model, PROFILES)


@pytest.mark.parametrize(
    ("served", "root", "name"),
    [
        ("deepseek-ai/DeepSeek-OCR", "", "deepseek-ocr"),
        ("deepseek-ocr", "", "deepseek-ocr"),
        ("DeepSeek OCR", "", "deepseek-ocr"),
        ("model", "rednote-hilab/dots.mocr", "dots.mocr"),
        ("dots-mocr", "", "dots.mocr"),
        ("chandra", "/weights/chandra-ocr-2/", "chandra-2"),
        ("Qwen3-VL-8B-Instruct-AWQ", "", "qwen3-vl-8b"),
        ("PaddleOCR-VL-1.6-0.9B", "", "paddleocr-vl-1.6"),
        ("lightonai/LightOnOCR-2-1B-bbox", "", "lightonocr-2-1b-bbox"),
        ("nanonets/Nanonets-OCR2-3B", "", "nanonets-ocr2"),
        ("anything", "somebody/DeepSeek-OCR-FP8", "deepseek-ocr"),
        ("anything", "/cache/models--datalab-to--chandra-ocr-2/snapshots/0a1b", "chandra-2"),
    ],
)
def test_model_is_known_by_its_names_and_its_source(served, root, name):
    assert chosen({served: root}, name) == served


@pytest.mark.parametrize(
    ("served", "root", "name"),
    [
        ("deepseek-ai/DeepSeek-OCR-2", "", "deepseek-ocr"),
        ("deepseek-ocr-2-awq", "", "deepseek-ocr"),
        ("deepseek-ai/DeepSeek-OCR", "", "deepseek-ocr-2"),
        ("lightonai/LightOnOCR-2-1B", "", "lightonocr-3"),
        ("lightonai/LightOnOCR-2-1B-bbox", "", "lightonocr-2-1b"),
        ("glm-4.5v", "", "glm-ocr"),
        ("Qwen/Qwen3-VL-8B-Instruct", "", "qwen3-vl-2b"),
        ("gpt-oss", "", "deepseek-ocr"),
        ("model", "/weights/x", "deepseek-ocr"),
        ("chandra", "datalab-to/chandra-ocr-2", "chandra-1"),
        ("chandra-1", "/weights/chandra-ocr-2", "chandra-1"),
        ("chandra-2", "datalab-to/chandra", "chandra-2"),
        ("nemotron-parse", "nvidia/NVIDIA-Nemotron-Parse-9.5", "nemotron-parse"),
        ("NVIDIA-Nemotron-Parse-9.5", "", "nemotron-parse"),
        ("deepseek-ocr", "somebody/another-model", "deepseek-ocr"),
    ],
)
def test_another_model_is_refused_with_both_names_and_a_hint(served, root, name):
    with pytest.raises(ServerError) as caught:
        chosen({served: root}, name)
    assert served in str(caught.value) and find_profile(name).name in str(caught.value)
    assert f"`server_model={served}`" in caught.value.hint


def test_the_profile_of_what_is_served_is_named():
    with pytest.raises(ServerError) as caught:
        chosen({"Qwen/Qwen3-VL-8B-Instruct": ""}, "deepseek-ocr")
    assert "`model=qwen3-vl-8b`" in caught.value.hint


def test_of_several_the_one_that_is_asked_for_is_taken():
    served = {"deepseek-ai/DeepSeek-OCR": "", "Qwen/Qwen3-VL-8B-Instruct": ""}
    assert chosen(served, "qwen3-vl") == "Qwen/Qwen3-VL-8B-Instruct"
    with pytest.raises(ServerError, match="serves deepseek-ai/DeepSeek-OCR, Qwen/Qwen3-VL-8B-Instruct"):
        chosen(served, "dots.mocr")
    with pytest.raises(ServerError, match="several models"):
        chosen({"deepseek-ocr": "", "deepseek-ai/DeepSeek-OCR": ""}, "deepseek-ocr")


def test_other_weights_are_the_model_too():
    assert chosen({"/data/tuned": ""}, "deepseek-ocr", "/data/tuned") == "/data/tuned"
    assert chosen({"tuned": "/data/tuned"}, "deepseek-ocr", "/data/tuned") == "tuned"


def test_a_model_without_a_profile_is_known_by_its_own_name():
    profile = generic("maker/new-ocr")
    assert choose_served({"maker/new-ocr": ""}, URL, profile, profile.model, PROFILES) == "maker/new-ocr"
    assert choose_served({"new-ocr": ""}, URL, profile, profile.model, PROFILES) == "new-ocr"
    with pytest.raises(ServerError, match="serves other instead of maker/new-ocr"):
        choose_served({"other": ""}, URL, profile, profile.model, PROFILES)


def words(model, **settings):
    profile = find_profile(model)
    return serve_command(profile, serve_options(VllmSettings(**settings), profile.model, None), 8000)


def test_the_setting_offers_what_there_is():
    choices = get_args(VllmSettings.model_fields["preset"].annotation)
    assert set(get_args(choices[0])) == PRESETS.keys() == {"l4", "a40", "l40s", "a100", "h100"}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_sources_and_starts_the_server(name):
    preset = PRESETS[name]
    assert preset.source.startswith(("measured: ", "not measured: "))
    assert preset.window > preset.sequences
    assert 0 < preset.memory_share < 1
    line = words("deepseek-ocr", preset=name)
    assert number_of(line, "max-num-seqs") == preset.sequences
    assert float(value_of(line, "gpu-memory-utilization")) == preset.memory_share
    assert number_of(line, "max-model-len") == find_profile("deepseek-ocr").context, "the context stays the profile's"


def test_preset_overrides_profile_and_user_overrides_preset():
    own = find_profile("chandra-2")
    assert number_of(own.server_args, "max-num-seqs") not in (None, PRESETS["l4"].sequences)
    assert number_of(words("chandra-2", preset="l4"), "max-num-seqs") == PRESETS["l4"].sequences
    line = words("chandra-2", preset="l4", vllm_arg=("--max-num-seqs=7",), gpu_memory_utilization=0.5)
    assert number_of(line, "max-num-seqs") == 7
    assert value_of(line, "gpu-memory-utilization") == "0.5"
    assert " ".join(line).count("max-num-seqs") == 1


def window(tmp_path, engine="vllm", **own):
    settings = ExtractSettings(workspace="w", preset="a100", offline=True, **own)
    profile = find_profile("deepseek-ocr")
    fleet = Engines(engine, settings, tmp_path, lambda text: None)._made(profile, profile.model, None)
    return fleet._options.max_inflight


def test_preset_sets_the_window_per_server_unless_the_user_does(tmp_path):
    one = PRESETS["a100"].window
    assert window(tmp_path, replicas=1) == one
    assert window(tmp_path, replicas=4) == 4 * one
    assert window(tmp_path, replicas=1, data_parallel_size=2) == 2 * one
    assert window(tmp_path, replicas=1, max_inflight_requests=5) == 5
    others = window(tmp_path, "server", server_url=["http://127.0.0.1:9"])
    assert others is None, "a server of somebody else's has its own limits"


def test_models_shows_the_line_with_the_preset():
    shown = one_model(ModelsSettings(name="deepseek-ocr", preset="h100"))
    assert "--max-num-seqs 256 --gpu-memory-utilization 0.9" in shown["serve"]
    assert shown["preset"]["window"] == PRESETS["h100"].window
    assert one_model(ModelsSettings(name="deepseek-ocr"))["preset"] is None


def test_the_tuning_guide_has_the_numbers(repository):
    text = (repository / "docs" / "tuning.md").read_text()
    for preset in PRESETS.values():
        values = (f"{preset.gigabytes} GB", preset.sequences, preset.window, f"{preset.memory_share:g}")
        assert f"| `{preset.name}` | {' | '.join(map(str, values))} |" in text
