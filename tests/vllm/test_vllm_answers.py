"""A real vLLM and our client: answers come back whole, to the page that asked, and can be cut."""

import asyncio
import re

import pytest
from tiny_questions import endless, grounded, literal, picture, request

from llm_ocr.engines import Finish
from llm_ocr.errors import RequestLost, RequestRefused, ServerError
from llm_ocr.models.profiles.markers import DEEPSEEK_OCR
from llm_ocr.types import EncodedImage


def test_the_facts_of_the_server_are_read_at_its_start(server):
    facts = server.facts
    assert facts.vllm
    assert re.match(r"\d+\.\d+", facts.version)
    assert facts.max_model_len == server.max_model_len
    assert facts.max_num_seqs == server.max_num_seqs
    assert facts.kv_tokens > facts.max_model_len


def test_an_answer_comes_back_letter_by_letter(server, run):
    async def complete():
        async with server.endpoint() as endpoint:
            return await endpoint.complete(request("page", literal(grounded(1))))

    answer = run(complete())
    assert answer.text == grounded(1)
    assert answer.finish is Finish.STOP
    assert answer.tokens_in > 200  # the image's tokens are counted
    assert 20 < answer.tokens_out < len(answer.text.encode())
    assert answer.seconds > 0
    assert answer.server == server.address.url


def test_a_page_is_asked_as_the_profile_of_deepseek_ocr_says(server, run):
    settings = {**DEEPSEEK_OCR.vllm_settings, **DEEPSEEK_OCR.page_settings, **literal(grounded(4))}

    async def complete():
        async with server.endpoint() as endpoint:
            return await endpoint.complete(request("page", settings, image=picture(1190, 1684)))

    answer = run(complete())
    assert answer.text == grounded(4)
    assert answer.tokens_in < DEEPSEEK_OCR.context - DEEPSEEK_OCR.max_tokens
    assert [block.label for block in DEEPSEEK_OCR.parsers["layout"](answer.text).blocks] == ["title", "image", "text"]


def test_twenty_pages_at_once_get_their_own_answers(server, run):
    async def complete():
        async with server.endpoint() as endpoint:
            pages = [
                request(f"page {n}", literal(grounded(n)), image=picture(300 + 20 * n, 400, seed=n)) for n in range(20)
            ]
            return await asyncio.gather(*map(endpoint.complete, pages))

    answers = run(complete())
    assert [answer.text for answer in answers] == [grounded(number) for number in range(20)]


def test_answers_in_a_grammar_are_whole(server, run):
    box = r"\[\[\d{1,3}, \d{1,3}, \d{1,3}, \d{1,3}\]\]"
    pattern = rf"(<\|ref\|>(text|image)<\|/ref\|><\|det\|>{box}<\|/det\|>\n[a-z ]{{5,40}}\n){{3}}"
    settings = {"structured_outputs": {"regex": pattern}}

    async def complete():
        async with server.endpoint() as endpoint:
            return await asyncio.gather(*(endpoint.complete(request(f"page {n}", settings)) for n in range(4)))

    for answer in run(complete()):
        assert re.fullmatch(pattern, answer.text)


def test_an_answer_that_reaches_its_limit_says_so(server, run):
    async def complete():
        async with server.endpoint() as endpoint:
            return await endpoint.complete(endless("page", max_tokens=40))

    answer = run(complete())
    assert (answer.finish, answer.tokens_out) == (Finish.LENGTH, 40)


def test_the_gauges_follow_the_work(server, run):
    async def watch():
        async with server.endpoint() as endpoint:
            before = await endpoint.gauges()
            asked = [
                asyncio.create_task(endpoint.complete(endless(f"page {n}"))) for n in range(server.max_num_seqs + 4)
            ]
            busy = await server.gauges_when(lambda now: now.running == server.max_num_seqs and now.waiting == 4)
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            idle = await server.gauges_when(lambda now: now.running == now.waiting == 0)
            return before, busy, idle

    before, busy, idle = run(watch())
    assert 0 < busy.kv_usage < 1
    assert idle.kv_usage == 0
    assert idle.prompt_tokens > before.prompt_tokens
    assert idle.generation_tokens > before.generation_tokens


class CutAfter:
    """Sees a loop when an answer has become this long."""

    def __init__(self, characters):
        self.left = characters

    def feed(self, piece):
        self.left -= len(piece)
        return self.left <= 0


def test_an_answer_that_is_cut_ends_on_the_server_too(server, run):
    """Of several: a busy machine may have made a whole answer before it hears that nobody wants it."""

    async def cut(endpoint):
        before = await endpoint.gauges()
        answer = await endpoint.complete(endless("page", watch=lambda: CutAfter(200)))
        after = await server.gauges_when(lambda now: now.running == 0)
        assert answer.finish is Finish.CUT
        assert len(answer.text) >= 200
        return after.generation_tokens - before.generation_tokens

    async def complete():
        async with server.endpoint() as endpoint:
            generated = [await cut(endpoint) for _ in range(3)]
            return generated, await endpoint.complete(request("next", literal(grounded(2))))

    generated, whole = run(complete())
    assert min(generated) < 3000
    assert whole.text == grounded(2)


def of(data: bytes, media_type: str = "image/png") -> EncodedImage:
    return EncodedImage(data, media_type, 10, 10)


LONG_PROMPT = "page of the invoice " * 3000

REFUSED = {
    "not an image": (request("page", {}, image=of(b"no picture")), "image"),
    "half an image": (request("page", {}, image=of(b"\x89PNG\r\n\x1a\n" + bytes(40))), "image"),
    "a bad setting": (request("page", {"temperature": -3}), "temperature"),
    "bad arguments of the n-gram processor": (
        request("page", {"vllm_xargs": {"ngram_size": "three", "window_size": 90}}),
        "ngram_size",
    ),
}
TOO_LONG = {
    "the prompt": request("page", {}, prompt=LONG_PROMPT),
    "the answer": request("page", {}, max_tokens=100_000),
}


@pytest.mark.parametrize("case", REFUSED)
def test_input_the_server_rejects_is_refused_with_its_reason(server, run, case):
    asked, word = REFUSED[case]
    error = server.refusal(run, asked)
    assert isinstance(error, RequestRefused)
    assert (error.status, error.too_long, error.retryable) == (400, False, False)
    assert word in str(error)


@pytest.mark.parametrize("case", TOO_LONG)
def test_too_long_input_is_distinguished_to_try_a_smaller_image(server, run, case):
    error = server.refusal(run, TOO_LONG[case])
    assert isinstance(error, RequestRefused)
    assert (error.status, error.too_long) == (400, True)


def test_an_error_inside_the_server_is_a_lost_request(server, run):
    error = server.refusal(run, request("page", {}, image=of(b"", "text,")))  # a data URL that it has no code for
    assert isinstance(error, RequestLost)
    assert (error.status, error.unreachable, error.retryable) == (501, False, True)


def test_a_model_that_is_not_served_is_named_with_those_that_are(server, run):
    error = server.refusal(run, request("page", {}), model="other")
    assert isinstance(error, ServerError)
    assert "'other'" in str(error) and server.address.model in str(error)


def test_a_wrong_key_is_a_server_that_cannot_be_used(server, run):
    error = server.refusal(run, request("page", {}), key="wrong-key-of-mine")
    assert isinstance(error, ServerError)
    assert "401" in str(error) and "wrong-key-of-mine" not in str(error)


def test_n_gram_processor_takes_its_arguments_and_breaks_loops(server, run):
    plain = {"ignore_eos": True}
    blocking = {**plain, "vllm_xargs": {"ngram_size": 3, "window_size": 90, "whitelist_token_ids": [9, 10]}}

    async def complete():
        async with server.endpoint() as endpoint:
            return [
                await endpoint.complete(request("page", settings, max_tokens=120)) for settings in (plain, blocking)
            ]

    looping, broken = run(complete())
    assert broken.tokens_out == looping.tokens_out == 120
    assert broken.text != looping.text
