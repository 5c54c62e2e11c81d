"""Replies that are larger than RunPod takes."""

import base64
import json

import pytest
from serverless_running import asked, b64

from llm_ocr.errors import LlmOcrError
from llm_ocr.storage import open_store


def test_a_reply_above_the_limit_says_what_to_do(examples):
    with pytest.raises(LlmOcrError, match=r"(?s)exceeds the limit of a reply, 0.001 MB.*LLM_OCR_WORKSPACE.*end_page"):
        asked({"pdf_base64": b64(examples / "paper.pdf")}, reply_limit=0.001)


def test_a_reply_above_the_limit_goes_to_the_workspace(examples, tmp_path):
    given = {"pdf_base64": b64(examples / "paper.pdf"), "return_crop_images": True, "crop_images_base64": True}
    whole = asked(given)
    small = asked(given, reply_limit=0.002, workspace=str(tmp_path / "w"))
    assert small["json_result"] is None and small["markdown_result"] is None
    assert read(small["markdown_result_url"]).decode() == whole["markdown_result"]
    assert json.loads(read(small["json_result_url"])) == whole["json_result"]
    assert len(whole["crop_images"]) == 4
    for there, here in zip(small["crop_images"], whole["crop_images"], strict=True):
        assert read(there["url"]) == base64.b64decode(here["base64"])
        assert {**there, "url": ""} == {name: value for name, value in here.items() if name != "base64"} | {"url": ""}


def test_only_the_pictures_go_there_when_that_is_enough(examples, tmp_path):
    given = {"pdf_base64": b64(examples / "paper.pdf"), "return_crop_images": True, "crop_images_base64": True}
    reply = asked(given, reply_limit=0.1, workspace=str(tmp_path / "w"))
    assert reply["markdown_result"] and "markdown_result_url" not in reply
    assert [("url" in crop, "base64" in crop) for crop in reply["crop_images"]] == [(True, False)] * 4


def read(url: str) -> bytes:
    root, _, key = url.rpartition("/replies/")
    return open_store(root).get(f"replies/{key}")
