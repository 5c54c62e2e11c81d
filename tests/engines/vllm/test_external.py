"""Servers that somebody else runs."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from llm_ocr.engines import Address
from llm_ocr.engines.vllm.external import ExternalServer
from llm_ocr.errors import ServerError


class Handler(BaseHTTPRequestHandler):
    def answer(self, status: int, body: object = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


class Theirs(Handler):
    """Speaks as vLLM does; `health` is the status of that page."""

    health = 200

    def do_GET(self) -> None:
        if self.path.startswith("/v1") and self.headers.get("Authorization") != "Bearer their-key":
            return self.answer(401)
        models = {"data": [{"id": "theirs", "owned_by": "vllm", "max_model_len": 4096}]}
        pages = {"/version": {"version": "0.32.0"}, "/v1/models": models}
        if self.path in pages:
            return self.answer(200, pages[self.path])
        return self.answer(self.health if self.path == "/health" else 404)


@contextlib.contextmanager
def later(handler: type[Handler]) -> Iterator[tuple[int, Callable[[], None]]]:
    """A port that is bound and refuses, and what makes the server listen there."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False) as server:
        server.server_bind()
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, daemon=True)

        def begin() -> None:
            server.server_activate()
            thread.start()

        try:
            yield server.server_port, begin
        finally:
            if thread.ident:
                server.shutdown()


@contextlib.contextmanager
def listening(handler: type[Handler]) -> Iterator[int]:
    with later(handler) as (port, begin):
        begin()
        yield port


def external(port: int, key="their-key", model="theirs", said=None, timeout=60.0, **times) -> ExternalServer:
    address = Address(f"http://127.0.0.1:{port}/v1", model, key)
    said = [] if said is None else said
    return ExternalServer(address, timeout=timeout, poll=0.03, say=said.append, **times)


async def told(said: list[str]) -> None:
    """Returns when something has been said."""
    async with asyncio.timeout(30):
        while not said:  # noqa: ASYNC110 - what is waited for happens in other code
            await asyncio.sleep(0.01)


async def test_a_running_server_is_used_as_it_is():
    said = []
    with later(Theirs) as (port, begin):
        server = external(port, said=said)
        starting = asyncio.create_task(server.start())
        await told(said)
        begin()
        address, facts = await starting
        assert address == Address(f"http://127.0.0.1:{port}/v1", "theirs", "their-key")
        assert (facts.vllm, facts.max_model_len) == (True, 4096)
        await server.stop()
        assert (await server.restart("it was slow"))[1] == facts
        ended = asyncio.create_task(server.ended())
        await asyncio.sleep(0.05)
        assert not ended.done()
        ended.cancel()
    assert len(said) == 1
    assert said[0].startswith(f"waiting for http://127.0.0.1:{port}/v1, at most 5 s: cannot connect: [Errno 111]")


async def test_unhealthy_server_that_lists_its_models_is_waited_for(monkeypatch):
    said = []
    monkeypatch.setattr(Theirs, "health", 503)
    with listening(Theirs) as port:
        starting = asyncio.create_task(external(port, said=said).start())
        await told(said)
        monkeypatch.setattr(Theirs, "health", 200)
        assert (await starting)[0].model == "theirs"


def test_a_model_that_is_not_named_is_chosen_among_those_served():
    with listening(Theirs) as port:
        server = external(port, model="", choose=lambda served: next(iter(served)))
        assert asyncio.run(server.start())[0].model == "theirs"


class WithoutModels(Handler):
    def do_GET(self) -> None:
        self.answer(404)


def test_a_server_that_names_no_model_needs_to_be_told_one():
    with listening(WithoutModels) as port, pytest.raises(ServerError, match="does not list its model") as caught:
        asyncio.run(external(port, model="").start())
    assert "If it is not a model server, check `server_url`" in str(caught.value.hint)


def test_a_wrong_key_is_said_at_once():
    with listening(Theirs) as port, pytest.raises(ServerError, match="401"):
        asyncio.run(external(port, key="wrong", timeout=600).start())


def test_address_without_a_server_is_given_up_soon_with_reason():
    with (
        later(Theirs) as (port, _),
        pytest.raises(ServerError, match=f"http://127.0.0.1:{port}/v1 did not answer within 0.2 s: cannot") as caught,
    ):
        asyncio.run(external(port, timeout=600, wait=0.2).start())
    assert "Errno 111" in str(caught.value) and "`server_wait=SECONDS`" in caught.value.hint


def test_unknown_host_name_is_given_up_soon_with_reason():
    server = ExternalServer(Address("http://no-such-host.invalid:8000/v1", "theirs"), timeout=600, wait=0.2)
    with pytest.raises(ServerError, match=r"no-such-host\.invalid:8000/v1 did not answer within 0\.2 s: cannot"):
        asyncio.run(server.start())


async def test_server_that_does_not_listen_yet_gets_the_full_wait():
    with later(Theirs) as (port, begin):
        said = []
        starting = asyncio.create_task(external(port, said=said, timeout=0.1, wait=60).start())
        await told(said)
        await asyncio.sleep(0.3)
        begin()
        assert (await starting)[0].model == "theirs"


class Loading(Handler):
    """Says 503 until it has loaded its model."""

    loaded = Event()

    def do_GET(self) -> None:
        if not self.loaded.is_set():
            return self.answer(503)
        return self.answer(200 if self.path == "/v1/models" else 404, {"data": [{"id": "theirs"}]})


async def test_running_server_that_loads_its_model_is_waited_for():
    Loading.loaded.clear()
    with listening(Loading) as port:
        said = []
        starting = asyncio.create_task(external(port, said=said, timeout=60, wait=0.1).start())
        await told(said)
        await asyncio.sleep(0.5)
        assert not starting.done()
        Loading.loaded.set()
        assert (await starting)[0].model == "theirs"
        assert said == [f"waiting for http://127.0.0.1:{port}/v1, at most 60 s: it responds but is not ready"]


def test_a_server_that_loads_its_model_for_too_long_is_given_up():
    Loading.loaded.clear()
    with listening(Loading) as port, pytest.raises(ServerError, match=r"within 2 s: it responds but is not ready"):
        asyncio.run(external(port, timeout=2).start())


class Hanging(Handler):
    """Lists its model, and answers no question before `recovered`."""

    recovered = Event()

    def do_GET(self) -> None:
        models = self.path == "/v1/models"
        self.answer(200 if models else 404, {"data": [{"id": "theirs"}]} if models else None)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.recovered.wait()
        with contextlib.suppress(ConnectionError):  # who gave up has closed it
            self.answer(400)


@pytest.fixture
def hanging():
    Hanging.recovered.clear()
    with listening(Hanging) as port:
        yield port
        Hanging.recovered.set()


async def test_hung_server_is_back_on_an_answer_not_a_model_list(hanging):
    restarting = asyncio.create_task(external(hanging, key="").restart("it hangs"))
    await asyncio.sleep(0.3)
    assert not restarting.done()
    Hanging.recovered.set()
    assert (await restarting)[0].model == "theirs"


def test_a_server_that_goes_on_hanging_is_given_up(hanging):
    with pytest.raises(ServerError, match=r"completed no request within 0\.5 s") as error:
        asyncio.run(external(hanging, key="", timeout=0.5).restart("it hangs"))
    assert "Restart it" in str(error.value.hint)


def test_hung_server_is_given_up_in_proportion_to_answer_time(hanging):
    with pytest.raises(ServerError, match=r"completed no request within 1 s"):
        asyncio.run(external(hanging, key="", timeout=600, stall=0.1).restart("it hangs"))
