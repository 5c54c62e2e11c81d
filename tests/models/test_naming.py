"""Whether what a server serves is the model that was asked for."""

import pytest

from llm_ocr.errors import ServerError
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.registry import PROFILES, choose_served, find_profile

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
    ],
)
def test_a_model_is_known_by_its_names_and_by_what_it_was_loaded_from(served, root, name):
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
    ],
)
def test_another_model_is_refused_with_both_names_and_the_ways_out(served, root, name):
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
