"""Each way in which a server can say no becomes the error that says what to do."""

import asyncio
import json
import time
from email.utils import formatdate

import pytest
from chat_servers import (
    DONE,
    KEY,
    LARGE,
    MODEL,
    REQUEST,
    URL,
    complete,
    connected,
    event,
    in_turn,
    replying,
    serving,
    speaking,
    streaming,
)

from llm_ocr.engines import Completion
from llm_ocr.engines.client.replies import retry_after, shown
from llm_ocr.errors import LlmOcrError, RequestError, RequestLost, RequestRefused, ServerBusy, ServerError


def vllm_error(message: str, status: int = 400, kind: str = "BadRequestError", param: str | None = None) -> dict:
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def asked(handler, request=REQUEST, **pages) -> LlmOcrError:
    with pytest.raises(LlmOcrError) as raised:
        complete(handler, request, **pages)
    return raised.value


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_busy_server_asks_to_retry_later(status):
    error = asked(replying(status, vllm_error("too many requests"), Retry_After="7"))
    assert isinstance(error, ServerBusy) and error.retry_after == 7.0
    assert "too many requests" in str(error)
    silent = asked(replying(status))
    assert isinstance(silent, ServerBusy) and silent.retry_after is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("12", 12.0), ("0.5", 0.5), ("-3", 0.0), ("soon", None), ("nan", None), ("inf", None), ("", None)],
)
def test_retry_after_in_seconds(header, seconds):
    assert retry_after({"Retry-After": header}) == seconds


def test_retry_after_date_is_measured_by_server_clock():
    wrong = 1_000_000_000.0
    headers = {"Retry-After": formatdate(wrong + 90, usegmt=True), "Date": formatdate(wrong, usegmt=True)}
    assert retry_after(headers) == 90.0
    assert retry_after({"Retry-After": formatdate(wrong, usegmt=True)}) == 0.0
    ahead = retry_after({"Retry-After": formatdate(time.time() + 3600, usegmt=True)})
    assert ahead is not None and 3000 < ahead <= 3601


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_question_that_the_server_does_not_take_is_refused(status):
    error = asked(replying(status, vllm_error("Failed to load image: cannot identify image file", status)))
    assert isinstance(error, RequestRefused)
    assert error.status == status and not error.retryable
    assert error.too_long is (status == 413)


TOO_LONG = [
    vllm_error(
        "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens.",
        param="input_tokens",
    ),
    vllm_error("max_tokens=4096 cannot be greater than max_model_len=2048. Please request fewer output tokens."),
    vllm_error("'max_tokens' or 'max_completion_tokens' is too large: 4096. The model has 2048."),
    vllm_error("The decoder prompt (length 2049) is longer than the maximum model length of 2048."),
    vllm_error("The decoder prompt contains an image item which exceeds the pre-allocated encoder cache size 2048."),
    {
        "error": {
            "message": "Please reduce the length.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    },
    {
        "object": "error",
        "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "code": 400,
    },
    {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size",
            "type": "exceed_context_size_error",
        }
    },
    {"error": "prompt is too long: 9000 tokens > 8192 maximum"},
    {"detail": "Requested token count exceeds the model's maximum context length of 8192 tokens."},
]


@pytest.mark.parametrize("body", TOO_LONG)
def test_a_prompt_that_does_not_fit_is_told_apart(body):
    error = asked(replying(400, body))
    assert isinstance(error, RequestRefused) and error.too_long


@pytest.mark.parametrize(
    "message",
    ["At most 1 image(s) may be provided in one prompt.", "Non-base64 digit found", "ngram_size must be positive", ""],
)
def test_other_refusals_are_not_taken_for_long_prompts(message):
    error = asked(replying(400, vllm_error(message)))
    assert isinstance(error, RequestRefused) and not error.too_long


@pytest.mark.parametrize("status", [408, 500, 502, 504])
def test_a_server_that_fails_loses_the_answer(status):
    error = asked(replying(status, vllm_error("EngineCore encountered an issue.", status, "InternalServerError")))
    assert isinstance(error, RequestLost)
    assert (error.status, error.unreachable, error.stalled) == (status, False, False)
    assert isinstance(asked(replying(status, [])), RequestLost)


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_is_no_pages_fault(status):
    error = asked(replying(status, {"error": "Unauthorized"}))
    assert isinstance(error, ServerError) and "key" in error.hint


def test_an_account_that_is_used_up_is_not_waited_for():
    quota = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    assert isinstance(asked(replying(429, quota)), ServerError)
    assert isinstance(asked(replying(402, quota)), ServerError)


def test_error_for_unserved_model_lists_served_models():
    missing = vllm_error(f"The model `{MODEL}` does not exist.", 404, "NotFoundError")
    error = asked(replying(404, missing), models=replying(200, {"data": [{"id": "big"}, {"id": "small"}]}))
    assert isinstance(error, ServerError)
    assert repr(MODEL) in str(error) and "big, small" in str(error)


def test_wrong_path_is_reported_even_if_models_cannot_be_listed():
    error = asked(replying(404, b"<html><title>404</title><p>Not here</p></html>"))
    assert isinstance(error, ServerError)
    assert "answered 404: 404 Not here" in str(error)
    served = asked(replying(404, b"no"), models=replying(200, {"data": [{"id": MODEL}]}))
    assert "answered 404: no" in str(served)


def test_a_redirect_is_not_followed():
    error = asked(replying(307, b"", Location="https://elsewhere.example/v1/chat/completions?token=abc"))
    assert isinstance(error, ServerError)
    assert "https://elsewhere.example/v1/chat/completions" in str(error) and "abc" not in str(error)


ECHOES = [
    vllm_error(f"bad request {URL.decode()} with {KEY}"),
    {"detail": [{"loc": ["body"], "msg": f"bad {KEY}", "input": {"url": URL.decode()}}]},
    {"error": f"not a url: {URL.decode()[22:]}"},
    {"message": URL.decode().replace("/", "\\/")},
    b"\x1b[31m" + URL * 400 + KEY.encode(),
    KEY.encode() * 100,
]


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
@pytest.mark.parametrize("body", ECHOES)
def test_neither_key_nor_image_is_ever_shown(body, status):
    error = asked(replying(status, body), LARGE)
    assert KEY not in str(error) and "iVBOR" not in str(error) and "\x1b" not in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (vllm_error("engine died", 500, "InternalServerError"), RequestLost),
        ({"error": {"message": "Internal", "type": "server_error", "code": None}}, RequestLost),
        ({"object": "error", "message": "bad", "code": 400}, RequestRefused),
        (vllm_error("too long: maximum context length is 10"), RequestRefused),
        ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, ServerBusy),
        ({"error": {"message": "Overloaded", "type": "overloaded_error"}}, ServerBusy),
        ({"error": {"message": "x", "type": "invalid_request_error"}}, RequestRefused),
        ({"error": "just words"}, RequestLost),
        ({"error": {"message": "x", "code": "9" * 5000}}, RequestLost),  # more digits than Python reads
    ],
)
def test_an_error_inside_the_stream_is_an_error(value, kind):
    data = b"data: " + json.dumps(value).encode() + b"\n\n"
    assert type(asked(streaming(event("Hello"), data, DONE))) is kind
    assert type(asked(replying(200, value))) is kind


def test_an_answer_that_a_filter_ended_is_refused():
    assert isinstance(asked(streaming(event("a", "content_filter"), DONE)), RequestRefused)


NOT_WHOLE = [
    streaming(event("Hello"), DONE),
    streaming(event("Hello")),
    streaming(DONE),
    streaming(),
    streaming(event("Hello", "abort"), DONE),
    streaming(event("Hello", "error"), DONE),
    streaming(event("Hello"), b'data: {"choices": [{"del'),
    streaming(event("Hello"), b"data: \xff\xfe\n\n"),
    streaming(b"data: 17\n\n"),
    streaming(event("Hello", "stop")[:-2] + b" {}\n\n", DONE),
    streaming(b"data: " + b"[" * 100_000 + b"\n\n"),
    streaming(b'data: {"choices": ["text"]}\n\n'),
    streaming(b'data: {"choices": [{"delta": "text"}]}\n\n'),
    streaming(b'data: {"choices": {"0": {}}}\n\n', DONE),
    replying(200, {"choices": []}),
    replying(200, {}),
    replying(200, [1]),
    replying(200, {"choices": [{"message": {"content": "Hello"}, "finish_reason": None}]}),
    replying(200, b"<html>Please log in</html>"),
    replying(200, {"x": 1}, Content_Encoding="gzip"),
    speaking(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"choices"'),
    speaking(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event("Hello")),
    speaking(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nnot a length\r\n"),
    speaking(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n: x\n\n\r\nzz\r\n"),
    speaking(b"SSH-2.0-OpenSSH_9.6\r\n"),
    speaking(b""),
]


@pytest.mark.parametrize("number", range(len(NOT_WHOLE)))
def test_an_answer_that_is_not_whole_is_never_accepted(number):
    error = asked(NOT_WHOLE[number])
    assert isinstance(error, RequestLost)
    assert not error.unreachable and not error.stalled and str(error)


async def test_a_stream_that_is_cut_anywhere_is_whole_or_lost():
    parts = [event("Hello "), event("world"), event("", "stop"), DONE]
    stream = b"".join(parts)
    known = len(b"".join(parts[:3])) - 2  # the event that says why is there; its empty line need not be
    places = [*range(0, len(stream), 3), len(stream)]
    handler = in_turn(*(streaming(stream[:at]) for at in places))
    async with serving(handler) as url, connected(url) as endpoint:
        ends = [(await asyncio.gather(endpoint.complete(REQUEST), return_exceptions=True))[0] for _ in places]
    for at, end in zip(places, ends, strict=True):
        whole = isinstance(end, Completion) and end.text == "Hello world"
        assert (whole and at >= known) or isinstance(end, RequestLost)
    assert isinstance(ends[-1], Completion)


def test_after_an_error_the_next_question_is_answered():
    whole = streaming(event("Hello", "stop"), DONE)
    handler = in_turn(replying(500), replying(429), replying(400, b"x" * 200_000), streaming(event("a")), whole)
    for _ in range(4):
        assert isinstance(asked(handler), RequestError)
    assert complete(handler).text == "Hello"


def test_the_long_path_of_a_model_is_shown():
    path = (
        "/data/a_folder_whose_name_is_long_enough/for_more_than_a_hundred_characters/of_letters_and/models/deepseek-ocr"
    )
    assert shown(f"it serves: {path}", "") == f"it serves: {path}"
