"""Connections that break, stall, are refused or closed; certificates; what a server says of itself."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from aiohttp import web
from chat_servers import (
    DONE,
    ENDLESS,
    HUGE,
    KEY,
    MODEL,
    REQUEST,
    WHOLE,
    abort,
    connected,
    endless,
    event,
    in_turn,
    replying,
    serving,
    streaming,
    usage,
)
from test_chat_events import ONE

from llm_ocr.engines import Completion, Finish, ServerFacts
from llm_ocr.engines.client import endpoint as endpoint_module
from llm_ocr.engines.client.replies import Bounds
from llm_ocr.errors import LlmOcrError, RequestLost, ServerError


def lost(handler, request=REQUEST, **options) -> LlmOcrError:
    async def run() -> None:
        async with serving(handler) as url, connected(url, **options) as endpoint:
            await endpoint.complete(request)

    with pytest.raises(LlmOcrError) as raised:
        asyncio.run(run())
    return raised.value


async def silent(request: web.Request) -> web.StreamResponse:
    """Takes the question and never says anything."""
    await request.read()
    await asyncio.sleep(60)
    return web.Response()


def stuck(*pieces: bytes):
    """Begins an answer and stops in the middle, the connection open."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await asyncio.sleep(0.05)
            await response.write(piece)
        await asyncio.sleep(60)
        return response

    return handler


def resetting(size: int):
    """Resets the connection after so many bytes of the question; -1: all."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await request.content.read(size)
        abort(request)
        return web.Response()

    return handler


@pytest.mark.parametrize(
    ("handler", "request_sent", "status"),
    [
        (resetting(1000), HUGE, 0),
        (resetting(-1), REQUEST, 0),
        (streaming(event("Hello"), pause=0.05, end=abort), REQUEST, 200),
    ],
    ids=["while the image goes out", "before the answer", "in the answer"],
)
def test_a_reset_loses_the_answer(handler, request_sent, status):
    error = lost(handler, request_sent)
    assert isinstance(error, RequestLost)
    assert (error.status, error.unreachable, error.stalled) == (status, False, False)


def test_the_tokens_of_an_answer_that_was_lost_are_counted():
    estimated = lost(streaming(event("word " * 200), pause=0.05, end=abort))
    assert (estimated.tokens_in, estimated.tokens_out) == (0, 250)
    known = lost(streaming(event("word " * 200), usage(completion_tokens=90), pause=0.05, end=abort))
    assert (known.tokens_in, known.tokens_out) == (300, 90)


async def test_a_server_that_is_not_there_is_unreachable():
    with socket.socket() as silent_port:
        silent_port.bind(("127.0.0.1", 0))  # held, and nobody listens
        async with connected(f"http://127.0.0.1:{silent_port.getsockname()[1]}") as endpoint:
            assert await endpoint.probe() is None
            assert await endpoint.gauges() is None
            with pytest.raises(RequestLost, match="cannot connect") as raised:
                await endpoint.complete(REQUEST)
    assert raised.value.unreachable and raised.value.status == 0


async def deaf(request: web.Request) -> web.StreamResponse:
    """Does not take the question."""
    await asyncio.sleep(60)
    return web.Response()


@pytest.mark.parametrize(
    ("handler", "request_sent", "status"),
    [(silent, REQUEST, 0), (stuck(event("Hello")), REQUEST, 200), (deaf, HUGE, 0)],
)
def test_an_answer_that_does_not_go_on_is_given_up(handler, request_sent, status):
    error = lost(handler, request_sent, stall=0.8)
    assert isinstance(error, RequestLost)
    assert error.stalled and not error.unreachable and error.status == status


async def test_a_slow_answer_is_not_given_up_while_it_goes_on():
    pieces = [event("x")] * 13  # 1.3 s in all, and no silence of more than 1 s
    handler = streaming(*pieces, event("", "stop"), DONE, pause=0.1)
    async with serving(handler) as url, connected(url, stall=1.0) as endpoint:
        assert (await endpoint.complete(REQUEST)).text == "x" * 13


async def test_answer_is_complete_after_done_though_body_stays_open():
    async with serving(in_turn(stuck(*WHOLE), streaming(*WHOLE))) as url, connected(url) as endpoint:
        assert (await endpoint.complete(REQUEST)).text == "Hello wörld"
        assert (await endpoint.complete(REQUEST)).text == "Hello wörld"


@pytest.fixture
def brief_usage(monkeypatch):
    """Counts of tokens are not waited for long."""
    monkeypatch.setattr(endpoint_module, "_USAGE_SECONDS", 0.3)


@pytest.mark.usefixtures("brief_usage")
@pytest.mark.parametrize("end", [stuck(*WHOLE[:3]), streaming(*WHOLE[:3], end=abort), streaming(*WHOLE[:4], end=abort)])
async def test_answer_with_finish_reason_is_complete_however_it_ends(end):
    async with serving(end) as url, connected(url, stall=20) as endpoint, asyncio.timeout(120):
        assert (await endpoint.complete(REQUEST)).text == "Hello wörld"


@pytest.mark.usefixtures("brief_usage")
async def test_complete_answer_does_not_wait_for_endless_comments():
    ending = endless(b"".join(WHOLE[:3]), lambda _: b": ping\n\n")
    async with serving(ending) as url, connected(url, stall=20) as endpoint, asyncio.timeout(120):
        assert (await endpoint.complete(REQUEST)).text == "Hello wörld"


#: Seconds of silence in the tests of answers that never end; an answer may take ten times as long.
STALL = 1.5


def unending(name: str, stall: float = STALL) -> Completion | LlmOcrError:
    """How a question ends whose answer never does."""

    async def run() -> Completion:
        async with serving(ENDLESS[name]) as url, connected(url, stall=stall) as endpoint, asyncio.timeout(120):
            return await endpoint.complete(replace(REQUEST, settings={"max_tokens": 500}))

    try:
        return asyncio.run(run())
    except LlmOcrError as error:
        return error


@pytest.mark.parametrize("name", ["comments", "empty deltas", "roles", "no choices", "blanks"])
def test_what_only_keeps_a_connection_awake_is_no_progress(name):
    error = unending(name)
    assert isinstance(error, RequestLost) and error.stalled
    assert f"no new text for {STALL:g} s" in str(error)


@pytest.mark.parametrize("name", ["text", "reasoning"])
def test_answer_far_beyond_requested_tokens_is_cut(name):
    answer = unending(name, stall=20)
    assert isinstance(answer, Completion)
    assert answer.finish is Finish.LENGTH
    assert len(answer.text) <= Bounds(500).characters
    assert answer.estimated and 1000 < answer.tokens_out < 5000


@pytest.mark.parametrize("name", ["JSON", "one event"])
def test_json_far_beyond_requested_tokens_is_not_read_to_its_end(name):
    error = unending(name, stall=20)
    assert isinstance(error, RequestLost) and not error.stalled
    assert f"more than {Bounds(500).bytes} bytes" in str(error)


async def test_far_too_slow_answer_is_cut_and_received_text_is_kept():
    async def answer_to(name: str) -> Completion:
        async with serving(ENDLESS[name]) as url, connected(url, stall=0.4) as endpoint, asyncio.timeout(120):
            return await endpoint.complete(REQUEST)

    text, reasoning = await asyncio.gather(answer_to("slow text"), answer_to("slow reasoning"))
    assert text.finish is reasoning.finish is Finish.LATE
    assert text.text and not reasoning.text


async def test_a_client_that_stood_still_does_not_take_it_for_silence(monkeypatch):
    monkeypatch.setattr(endpoint_module, "LONGEST", 4)
    async with serving(ENDLESS["slow text"]) as url, connected(url, stall=1.0) as endpoint, asyncio.timeout(120):
        asking = asyncio.create_task(endpoint.complete(REQUEST))
        await asyncio.sleep(0)
        sent = endpoint.received
        await until(lambda: endpoint.received > sent)
        time.sleep(2)  # noqa: ASYNC251 - nothing in this process runs
        assert (await asking).finish is Finish.LATE


async def test_keeping_a_connection_awake_is_no_news_for_the_watchdog():
    async with serving(ENDLESS["comments"]) as url, connected(url, stall=20) as endpoint:
        asking = asyncio.create_task(endpoint.complete(REQUEST))
        await asyncio.sleep(0)
        sent = endpoint.received
        await until(lambda: endpoint.received > sent)
        heard = endpoint.received
        await asyncio.sleep(0.5)
        assert endpoint.received == heard
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other code
            await asyncio.sleep(0.01)


async def test_closing_ends_open_requests_and_the_server_notices():
    begun: list[str] = []
    gone: list[str] = []

    def telling(handler):
        async def told(request: web.Request) -> web.StreamResponse:
            begun.append("begun")
            try:
                return await handler(request)
            finally:
                gone.append("told")

        return told

    tiny = [event("x")] * 3000
    handler = in_turn(*map(telling, (silent, stuck(event("Hello")), streaming(*tiny, pause=0.01), silent)))
    async with serving(handler) as url, connected(url) as endpoint:
        asks = [asyncio.create_task(endpoint.complete(REQUEST)) for _ in range(6)]
        await until(lambda: len(begun) == 6)
        await asyncio.sleep(0.2)
        assert gone == []
        await endpoint.close()
        ends = await asyncio.wait_for(asyncio.gather(*asks, return_exceptions=True), 20)
        with pytest.raises(RequestLost):
            await endpoint.complete(REQUEST)
        await until(lambda: len(gone) == 6)
    assert {type(end) for end in ends} == {RequestLost}
    assert not any(end.unreachable or end.stalled for end in ends)


async def test_a_cancelled_question_leaves_the_others_alone():
    arrived = asyncio.Event()

    async def first(request: web.Request) -> web.StreamResponse:
        arrived.set()
        return await stuck(event("a"))(request)

    async with serving(in_turn(first, streaming(*WHOLE))) as url, connected(url) as endpoint:
        asking = asyncio.create_task(endpoint.complete(REQUEST))
        await arrived.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await endpoint.complete(REQUEST)).text == "Hello wörld"


async def test_the_last_byte_is_known_for_the_watchdog():
    async with serving(stuck(event("Hello"))) as url, connected(url) as endpoint:
        before = endpoint.received
        await asyncio.sleep(0.05)
        first = asyncio.create_task(endpoint.complete(REQUEST))
        await asyncio.sleep(0)
        sent = endpoint.received
        assert sent > before
        await until(lambda: endpoint.received > sent)
        await asyncio.sleep(0.2)
        heard = endpoint.received
        second = asyncio.create_task(endpoint.complete(REQUEST))
        await asyncio.sleep(0)
        assert endpoint.received == heard  # another request is no news of the server
        for one in (first, second):
            one.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


MODELS = replying(
    200, {"data": [{"id": "other", "max_model_len": 5}, {"id": MODEL, "max_model_len": 8192, "owned_by": "vllm"}]}
)


async def test_a_vllm_server_says_what_it_is():
    pages = {
        "models": MODELS,
        "version": replying(200, {"version": "0.32.0"}),
        "metrics": replying(200, ONE.encode()),
    }
    async with serving(streaming(*WHOLE), **pages) as url, connected(url) as endpoint:
        facts, gauges, served = await endpoint.probe(), await endpoint.gauges(), await endpoint.served()
    assert facts == ServerFacts(
        vllm=True, version="0.32.0", max_model_len=8192, kv_tokens=65536, serves=MODEL, gauges="vLLM"
    )
    assert gauges is not None and gauges.running == 32
    assert tuple(served) == ("other", MODEL)


@pytest.mark.parametrize(
    ("models", "facts"),
    [
        (replying(200, {"data": [{"id": "other"}]}), ServerFacts(serves="other")),
        (replying(200, {"data": [{"id": "other", "root": "/models/x/"}]}), ServerFacts(serves="other (x)")),
        (replying(200, b"not JSON"), ServerFacts()),
        (replying(404), ServerFacts()),
        (replying(429), ServerFacts()),
        (replying(502), None),
        (replying(503), None),
    ],
)
async def test_other_servers_are_known_to_be_there_or_not(models, facts):
    async with serving(streaming(*WHOLE), models=models) as url, connected(url) as endpoint:
        assert (await endpoint.probe(), await endpoint.gauges()) == (facts, None)


@pytest.mark.parametrize("status", [401, 403, 301])
async def test_a_wrong_key_or_url_is_found_by_the_probe(status):
    page = replying(status, {"error": f"no {KEY}"}, Location="https://host.example/")
    async with serving(streaming(*WHOLE), models=page) as url, connected(url) as endpoint:
        with pytest.raises(ServerError) as raised:
            await endpoint.probe()
    assert KEY not in str(raised.value)


ASK = """
import asyncio, sys
from llm_ocr.engines import CompletionRequest
from llm_ocr.engines.client.connections import address_of
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.types import EncodedImage
async def run():
    endpoint = Endpoint(address_of(sys.argv[1], "m"))
    try:
        print((await endpoint.complete(CompletionRequest("1", EncodedImage(b"", "image/png", 1, 1), "Read.", {}))).text)
    finally:
        await endpoint.close()
asyncio.run(run())
"""


@pytest.fixture
def certificate(tmp_path):
    """A certificate that no system trusts, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    pem, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(["openssl", *words.split(), "-keyout", key, "-out", pem], check=True, capture_output=True)
    return pem, key


async def test_https_accepts_only_certificates_the_system_trusts(certificate):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)
    many = [event("tls ")] * 100
    async with serving(streaming(*many, event("", "stop"), usage(), DONE, pause=0.001), tls) as url:
        async with connected(url) as endpoint:
            for attempt in (endpoint.complete(REQUEST), endpoint.probe()):
                with pytest.raises(ServerError, match="not trusted"):
                    await attempt
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ASK, url),
            env={**os.environ, "SSL_CERT_FILE": str(certificate[0])},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()
    assert printed.decode().strip() == ("tls " * 100).strip()
