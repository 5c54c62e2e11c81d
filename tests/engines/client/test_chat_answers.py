"""Whole answers, from streams of every form that servers send."""

import asyncio
import base64
import json
from dataclasses import replace

import pytest
from aiohttp import web
from chat_servers import (
    DONE,
    HUGE,
    KEY,
    MODEL,
    REQUEST,
    WHOLE,
    CutAfter,
    complete,
    connected,
    event,
    replying,
    serving,
    streaming,
    usage,
)

from llm_ocr.engines import Completion, Finish


def test_an_answer_comes_whole_with_its_counts():
    answer = complete(streaming(*WHOLE))
    assert (answer.text, answer.finish, answer.tokens_in, answer.tokens_out) == ("Hello wörld", Finish.STOP, 300, 77)
    assert answer.server.startswith("http://127.0.0.1:") and answer.server.endswith("/v1")
    assert answer.seconds > 0 and answer.waited == 0


def test_how_the_network_cuts_the_stream_makes_no_difference():
    stream = b"".join(WHOLE)
    bytewise = complete(streaming(*(stream[at : at + 1] for at in range(len(stream)))))
    at_once, windows = complete(streaming(stream)), complete(streaming(stream.replace(b"\n", b"\r\n")))
    assert {answer.text for answer in (bytewise, at_once, windows)} == {"Hello wörld"}
    assert {answer.tokens_out for answer in (bytewise, at_once, windows)} == {77}


def test_the_text_may_end_in_the_event_that_says_why():
    assert complete(streaming(event("a"), event("b", "length"), DONE)).finish is Finish.LENGTH
    assert complete(streaming(event("a"), event("b", "length"), DONE)).text == "ab"


def test_an_answer_may_be_empty():
    answer = complete(streaming(event(None, "stop"), usage(completion_tokens=0), DONE))
    assert (answer.text, answer.tokens_out) == ("", 0)


def test_reasoning_roles_comments_and_nulls_are_not_the_answer():
    first = {"choices": [{"delta": {"role": "assistant", "reasoning_content": "Hm", "content": None}}], "usage": None}
    second = {"choices": [{"delta": {"reasoning": "Well"}, "finish_reason": None}], "error": None}
    stream = [
        b": keep-alive\n\n",
        b"data:\n\n",
        *(b"data:" + json.dumps(one).encode() + b"\n\n" for one in (first, second)),
        *WHOLE,
    ]
    assert complete(streaming(*stream)).text == "Hello wörld"


def test_content_in_parts_is_joined():
    parts = [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Hello"}]
    body = {"choices": [{"delta": {"content": parts}, "finish_reason": "stop"}]}
    assert complete(streaming(b"data: " + json.dumps(body).encode() + b"\n\n", DONE)).text == "Hello"


def test_without_usage_the_events_are_counted():
    answer = complete(streaming(event("a"), event("b"), event("c"), event("", "stop"), DONE))
    assert (answer.tokens_in, answer.tokens_out) == (0, 3)


@pytest.mark.parametrize("sent", [(), (usage(prompt_tokens=0, completion_tokens=2),), (usage(prompt_tokens=None),)])
def test_prompt_that_a_server_does_not_count_is_estimated(sent):
    answer = complete(streaming(event("a"), event("", "stop"), *sent, DONE), replace(REQUEST, prompt_tokens=1500))
    assert (answer.tokens_in, answer.estimated) == (1500, True)
    exact = complete(streaming(*WHOLE), replace(REQUEST, prompt_tokens=1500))
    assert (exact.tokens_in, exact.estimated) == (300, False)


def counted(usage_sent: object, text: str = "Hello wörld") -> Completion:
    end = b"data: " + json.dumps({"choices": [], "usage": usage_sent}).encode() + b"\n\n"
    return complete(streaming(event(text), event("", "stop"), end, DONE))


IMPOSSIBLE = [10**30, 10**9, -1, True, 2.5, "77", None, [], {}]


@pytest.mark.parametrize(
    "usage_sent",
    [None, 7, "many", [], *({"prompt_tokens": count, "completion_tokens": count} for count in IMPOSSIBLE)],
)
def test_a_usage_that_cannot_be_is_no_usage(usage_sent):
    answer = counted(usage_sent)
    assert (answer.tokens_in, answer.tokens_out, answer.estimated) == (0, 3, True)


def test_count_far_too_small_for_the_text_is_not_trusted():
    answer = counted({"prompt_tokens": 300, "completion_tokens": 5}, "word " * 400)
    assert (answer.tokens_in, answer.tokens_out, answer.estimated) == (300, 500, True)


def test_the_last_count_that_can_be_is_kept():
    answer = complete(streaming(event("Hello", "stop"), usage(), usage(completion_tokens=10**30), DONE))
    assert (answer.tokens_out, answer.estimated) == (77, False)


def test_cut_answer_without_counts_is_estimated_by_characters():
    large = [event("loop " * 200)] * 5
    answer = complete(
        streaming(*large, event("", "stop")),
        replace(REQUEST, settings={"max_tokens": 2000}, watch=lambda: CutAfter(3000)),
    )
    assert answer.finish is Finish.CUT
    assert (answer.tokens_out, answer.estimated) == (750, True)


@pytest.mark.parametrize("streams", [True, False])
def test_of_several_choices_only_the_first_is_the_answer(streams):
    name = "delta" if streams else "message"
    first, other = ({"index": at, name: {"content": f"text {at}"}, "finish_reason": "stop"} for at in (0, 1))
    events = [b"data: " + json.dumps({"choices": [one]}).encode() + b"\n\n" for one in (other, first, other)]
    answer = complete(streaming(*events, DONE) if streams else replying(200, {"choices": [other, first]}))
    assert answer.text == "text 0"


@pytest.mark.parametrize("count", [{}, {"usage": {"completion_tokens": 1}}, {"usage": None}])
def test_equal_events_are_all_taken(count):
    assert complete(streaming(*[event("-", **count)] * 5, *WHOLE[2:])).text == "-----"


def test_a_server_that_does_not_stream_is_understood():
    message = {"role": "assistant", "content": "Hello", "reasoning_content": "Hm"}
    body = {"choices": [{"message": message, "finish_reason": "length"}], "usage": {"prompt_tokens": 5}}
    answer = complete(replying(200, body))
    assert (answer.text, answer.finish, answer.tokens_in, answer.tokens_out) == ("Hello", Finish.LENGTH, 5, 1)


def test_a_stream_may_end_without_done_when_it_said_why():
    assert complete(streaming(event("a"), event("", "stop"))).finish is Finish.STOP
    assert complete(streaming(event("a"), event("", "stop")[:-2])).text == "a"


@pytest.mark.parametrize("reason", ["eos", "end_turn", "eos_token"])
def test_other_words_for_a_sound_end_are_known(reason):
    assert complete(streaming(event("a", reason), DONE)).finish is Finish.STOP


async def test_a_watch_cuts_the_answer_and_the_server_is_told():
    gone: list[str] = []

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(event("loop ", usage={"prompt_tokens": 9, "completion_tokens": 20}))
                await asyncio.sleep(0.001)
        except (ConnectionError, asyncio.CancelledError):
            gone.append("yes")
            raise

    async with serving(endless) as url, connected(url) as endpoint:
        answer = await endpoint.complete(replace(REQUEST, watch=lambda: CutAfter(500)))
        for _ in range(3000):
            if gone:
                break
            await asyncio.sleep(0.01)
    assert answer.finish is Finish.CUT
    assert answer.text == "loop " * 100
    assert (answer.tokens_in, answer.tokens_out) == (9, 20)
    assert gone == ["yes"]


def test_a_watch_sees_an_answer_that_came_at_once_too():
    body = {"choices": [{"message": {"content": "loop " * 100}, "finish_reason": "stop"}]}
    assert complete(replying(200, body), replace(REQUEST, watch=lambda: CutAfter(50))).finish is Finish.CUT


async def test_each_answer_has_a_watch_of_its_own():
    async with serving(streaming(*WHOLE)) as url, connected(url) as endpoint:
        request = replace(REQUEST, watch=lambda: CutAfter(12))
        assert {(await endpoint.complete(request)).finish for _ in range(3)} == {Finish.STOP}


def test_a_request_carries_key_length_and_body_in_one_piece():
    seen: list[tuple[web.Request, bytes]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request, await request.read()))
        return await streaming(*WHOLE)(request)

    complete(handler, HUGE)
    request, body = seen[0]
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert request.headers["Content-Type"] == "application/json"
    assert int(request.headers["Content-Length"]) == len(body) > 15_000_000
    assert "Transfer-Encoding" not in request.headers and request.headers["Accept-Encoding"] == "identity"
    sent = json.loads(body)
    head, image = sent["messages"][0]["content"][0]["image_url"]["url"].split(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(image, validate=True) == HUGE.image.data
    assert sent["model"] == MODEL


async def test_hundreds_of_parallel_answers_match_their_requests():
    async def echo(request: web.Request) -> web.StreamResponse:
        text = (await request.json())["messages"][0]["content"][1]["text"]
        return await streaming(*map(event, text), event("", "stop"), usage(), DONE)(request)

    async with serving(echo) as url, connected(url) as endpoint:
        requests = [replace(REQUEST, prompt=f"prompt {number}") for number in range(300)]
        answers = await asyncio.gather(*map(endpoint.complete, requests))
    assert [answer.text for answer in answers] == [f"prompt {number}" for number in range(300)]


def connections_of(*, at_once: int, rounds: int) -> int:
    """How many connections such a load opens. Each answer waits until all are under way."""
    sockets: set[object] = set()
    arrived = 0

    async def run() -> None:
        full = asyncio.Event()

        async def handler(request: web.Request) -> web.StreamResponse:
            nonlocal arrived
            sockets.add(request.transport)
            arrived += 1
            if arrived >= at_once:
                full.set()
            await full.wait()
            return await streaming(*WHOLE, pause=0.01)(request)  # the body's end comes behind [DONE]

        async with serving(handler) as url, connected(url) as endpoint:
            for _ in range(rounds):
                await asyncio.gather(*(endpoint.complete(REQUEST) for _ in range(at_once)))

    asyncio.run(run())
    assert arrived == at_once * rounds
    return len(sockets)


def test_connections_are_used_again():
    assert connections_of(at_once=1, rounds=6) == 1


def test_there_is_no_limit_of_connections():
    assert connections_of(at_once=130, rounds=1) == 130
