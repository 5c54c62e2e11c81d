"""Servers that somebody else runs."""

import asyncio
import contextlib
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest
from supervised import FAKE

from llm_ocr.engines.serving import Address
from llm_ocr.engines.vllm.external import ExternalServer
from llm_ocr.engines.vllm.ports import free_port
from llm_ocr.errors import ServerError


@pytest.fixture
def running():
    """Starts the scripted vLLM as somebody else would; gives its URL."""
    started = []

    def start(port: int) -> None:
        words = [sys.executable, str(FAKE), "serve", "m", f"--port={port}", "--host=127.0.0.1"]
        words += ["--served-model-name=theirs", "--max-model-len=4096"]
        process = subprocess.Popen(
            words, env={**os.environ, "VLLM_API_KEY": "their-key"}, stdout=subprocess.DEVNULL, start_new_session=True
        )
        started.append(process)

    yield start
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


def external(port: int, key="their-key", model="theirs", said=None, timeout=60.0) -> ExternalServer:
    address = Address(f"http://127.0.0.1:{port}/v1", model, key)
    return ExternalServer(address, timeout=timeout, poll=0.03, say=(said if said is not None else []).append)


def test_a_running_server_is_used_as_it_is(running):
    port = free_port("127.0.0.1")
    said = []

    async def check():
        server = external(port, said=said)
        starting = asyncio.create_task(server.start())
        while not said:  # noqa: ASYNC110 - the server that is waited for comes afterwards
            await asyncio.sleep(0.01)
        running(port)
        address, facts = await starting
        assert address == Address(f"http://127.0.0.1:{port}/v1", "theirs", "their-key")
        assert (facts.vllm, facts.max_model_len) == (True, 4096)
        await server.stop()
        assert (await server.restart("it was slow"))[1] == facts
        ended = asyncio.create_task(server.ended())
        await asyncio.sleep(0.05)
        assert not ended.done()
        ended.cancel()

    asyncio.run(check())
    assert said == [f"waiting for http://127.0.0.1:{port}/v1, at most 60 s"]


def test_the_only_model_of_a_server_need_not_be_named(running):
    port = free_port("127.0.0.1")
    running(port)
    server = external(port, model="")
    assert asyncio.run(server.start())[0].model == "theirs"


class WithoutModels(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None: ...


def test_a_server_that_names_no_model_needs_to_be_told_one():
    with ThreadingHTTPServer(("127.0.0.1", 0), WithoutModels) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ServerError, match="does not say which model it has"):
            asyncio.run(external(server.server_port, model="").start())
        server.shutdown()


def test_a_wrong_key_is_said_at_once(running):
    port = free_port("127.0.0.1")
    running(port)
    with pytest.raises(ServerError, match="401"):
        asyncio.run(external(port, key="wrong", timeout=600).start())


def test_a_server_that_never_comes_is_given_up_with_its_url():
    port = free_port("127.0.0.1")
    with pytest.raises(ServerError, match=f"http://127.0.0.1:{port}/v1 did not answer within 0.2 s"):
        asyncio.run(external(port, timeout=0.2).start())


class Hanging(BaseHTTPRequestHandler):
    """Lists its model, and answers no question before `recovered`."""

    recovered = Event()

    def do_GET(self) -> None:
        body = b'{"data": [{"id": "theirs"}]}' if self.path == "/v1/models" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.recovered.wait()
        with contextlib.suppress(ConnectionError):  # who gave up has closed it
            self.send_error(400)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hanging():
    Hanging.recovered.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hanging) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        Hanging.recovered.set()
        server.shutdown()


def test_a_server_that_hung_is_back_when_it_answers_a_question_not_when_it_lists_its_models(hanging):
    async def check():
        restarting = asyncio.create_task(external(hanging, key="").restart("it hangs"))
        await asyncio.sleep(0.3)
        assert not restarting.done()
        Hanging.recovered.set()
        assert (await restarting)[0].model == "theirs"

    asyncio.run(check())


def test_a_server_that_goes_on_hanging_is_given_up(hanging):
    with pytest.raises(ServerError, match=r"answered no question within 0\.5 s") as error:
        asyncio.run(external(hanging, key="", timeout=0.5).restart("it hangs"))
    assert "restart it" in str(error.value.hint)
