"""Which model suits: by memory, vLLM, licence and language, each place with its reasons."""

from dataclasses import replace

import pytest

from llm_ocr.models.choosing import (
    OPEN_LICENCES,
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
from llm_ocr.models.parsers.grounding import parse_grounding
from llm_ocr.models.profile import Profile, Score
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.registry import DEFAULT, PROFILES, find_profile

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


def test_the_rule_for_memory_is_weights_one_context_and_two_gigabytes():
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


def test_places_of_figures_come_before_scores_and_scores_before_size():
    profiles = [
        made("plain", **scored(99), figure_labels=frozenset()),
        made("unscored"),
        made("good", **scored(80)),
        made("best", **scored(85)),
        made("small", **scored(80), parameters=0.5),
        made("tried", **scored(99), experimental=True),
        made("regions", **scored(99), layout_first=True),
    ]
    ranking = rank(profiles, Wants())
    assert names(ranking.ranked) == ["best", "small", "good", "unscored", "plain", "regions", "tried"]
    assert not ranking.left_out
    assert "olmOCR-bench 85" in reasons(ranking.ranked, "best")
    assert "no positions of figures" in reasons(ranking.ranked, "plain")
    assert "detector" in reasons(ranking.ranked, "regions")


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
    ranking = rank(profiles, wants)
    assert names(ranking.ranked) == ["fits", "unknown"]
    assert reasons(ranking.left_out, "new") == "needs vLLM 0.30.0"
    assert reasons(ranking.left_out, "large") == "needs a GPU of 80 GB"
    assert "MIT with terms" in reasons(ranking.left_out, "closed")
    assert "German" in reasons(ranking.left_out, "latin")
    assert "unknown whether it reads German" in reasons(ranking.ranked, "unknown")


def test_what_is_not_told_leaves_nothing_out():
    profiles = [made("new", min_vllm="99.0"), made("large", parameters=3000.0), made("closed", licence="")]
    assert len(rank(profiles, Wants()).ranked) == 3


def test_more_gpus_for_one_server_and_a_shorter_context_let_larger_models_in():
    large = made("large", parameters=12.0, context=32_768)
    assert rank([large], Wants(gpu_bytes=L4)).left_out
    assert rank([large], Wants(gpu_bytes=L4, gpus=2)).ranked
    middle = made("middle", parameters=8.0, context=32_768)
    assert rank([middle], Wants(gpu_bytes=L4)).left_out
    assert rank([middle], Wants(gpu_bytes=L4, context=8192)).ranked
    short = made("short", parameters=8.0, context=8192)
    left = rank([short], Wants(gpu_bytes=L4, context=32_768)).left_out
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


def test_a_loop_on_more_than_two_pages_of_a_hundred_names_other_families():
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
    assert rank([profile], Wants()).ranked


def test_what_the_families_are_known_for():
    assert gives_boxes(find_profile("deepseek-ocr")) and describes(find_profile("deepseek-ocr")) == "yes"
    assert gives_boxes(find_profile("lightonocr-3")) and describes(find_profile("lightonocr-3")) == "in answers"
    assert gives_boxes(find_profile("dots.mocr")) and describes(find_profile("dots.mocr")) == "no"
    assert not gives_boxes(find_profile("glm-ocr"))
    assert describes(find_profile("qwen3-vl")) == "yes"
