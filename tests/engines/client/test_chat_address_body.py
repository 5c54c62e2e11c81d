"""What a user types becomes an address; a question becomes JSON around an untouched image."""

import json
from dataclasses import replace
from types import MappingProxyType

import pytest
from chat_servers import KEY, MODEL, REQUEST, URL
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.engines.client.connections import Body, address_of, body_parts
from llm_ocr.errors import UsageError


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("http://localhost:8000/", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        (" http://localhost:8000/v1/ ", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/chat/completions", "http://localhost:8000/v1"),
        ("https://host/some/proxy", "https://host/some/proxy/v1"),
        ("https://host/openai/v1", "https://host/openai/v1"),
        ("https://host/api/paas/v4/", "https://host/api/paas/v4"),
        ("https://host/v1beta/openai", "https://host/v1beta/openai"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_a_server_is_given_in_any_of_the_usual_forms(given, url):
    assert address_of(given, MODEL).url == url


@pytest.mark.parametrize(
    "given",
    ["localhost:8000", "", "ftp://host", "http://", "http://host:port/v1", "http://host/v1?key=1", "http://a b/"],
)
def test_what_is_no_server_is_refused(given):
    with pytest.raises(UsageError):
        address_of(given, MODEL)


def test_a_password_in_the_url_is_refused_and_not_repeated():
    with pytest.raises(UsageError) as refused:
        address_of("http://me:hunter2@host/v1", MODEL)
    assert "hunter2" not in str(refused.value)


def test_a_key_loses_the_line_end_of_its_file_and_is_never_shown():
    address = address_of("http://host", MODEL, f"{KEY}\n")
    assert address.key == KEY
    assert KEY not in repr(address)
    with pytest.raises(UsageError) as refused:
        address_of("http://host", MODEL, f"{KEY}\nX-Other: 1")
    assert KEY not in str(refused.value)


def _body(request, model, vllm):
    return Body(body_parts(request, model, vllm)).decode()


def test_request_is_streamed_chat_with_image_before_prompt():
    assert json.loads(_body(REQUEST, MODEL, vllm=False)) == {
        "model": MODEL,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": URL.decode()}},
                    {"type": "text", "text": "Read it."},
                ],
            }
        ],
        "max_tokens": 100,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_prompt_may_precede_image_and_system_prompt_comes_first():
    request = replace(REQUEST, image_first=False, system='You "read".', prompt='<|grounding|>\n"é" \ud800')
    system, user = json.loads(_body(request, MODEL, vllm=False))["messages"]
    assert system == {"role": "system", "content": 'You "read".'}
    assert [part["type"] for part in user["content"]] == ["text", "image_url"]
    assert user["content"][0]["text"] == request.prompt


def test_an_empty_prompt_leaves_the_image_alone():
    for image_first in (True, False):
        body = json.loads(_body(replace(REQUEST, prompt="", image_first=image_first), MODEL, vllm=False))
        assert [part["type"] for part in body["messages"][0]["content"]] == ["image_url"]


def test_vllms_settings_go_to_vllm_only():
    xargs = MappingProxyType({"ngram_size": 30, "whitelist_token_ids": frozenset({128822, 128821})})
    request = replace(REQUEST, vllm_settings={"vllm_xargs": xargs, "temperature": 0.5})
    plain, vllm = (json.loads(_body(request, MODEL, vllm=flag)) for flag in (False, True))
    assert "vllm_xargs" not in plain and plain["temperature"] == 0.0
    assert vllm["vllm_xargs"] == {"ngram_size": 30, "whitelist_token_ids": [128821, 128822]}
    assert vllm["temperature"] == 0.5


def test_settings_cannot_disable_stream_or_name_another_model():
    request = replace(REQUEST, settings={"stream": False, "model": "other", "messages": [], "stream_options": {}})
    body = json.loads(_body(request, MODEL, vllm=False))
    assert body["stream"] is True and body["model"] == MODEL and len(body["messages"]) == 1


def test_a_request_without_an_image_has_text_alone():
    for image_first in (True, False):
        asked = replace(REQUEST, image=None, image_first=image_first)
        (message,) = json.loads(_body(asked, MODEL, vllm=False))["messages"]
        assert message["content"] == [{"type": "text", "text": asked.prompt}]


def test_the_image_is_not_copied():
    assert body_parts(REQUEST, MODEL, vllm=False)[1] is REQUEST.image.data


@given(st.binary(max_size=100))
def test_the_length_that_is_told_is_that_of_what_is_sent(data):
    body = Body(body_parts(replace(REQUEST, image=replace(REQUEST.image, data=data)), MODEL, vllm=False))
    assert body.size == len(body.decode().encode())
