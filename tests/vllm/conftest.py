"""One server for all tests of this folder: a real vLLM on the CPU, started by our own supervisor."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_server import ENVIRONMENT, PROFILE, TinyServer, serve_options

from llm_ocr.engines.vllm.server import VllmServer

_HERE = Path(__file__).resolve().parent

#: Seconds of one step of a test. A start takes 30 to 40 s on two idle cores, and took 115 s on busy ones.
TIMEOUT = 240.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs a coroutine in the one loop of the session, which goes on between the tests: servers are watched there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(TIMEOUT)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="session")
def tiny_models(vllm: Path) -> Iterator[Path]:
    """The folder of the tiny models, in an environment in which vLLM can serve them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        # A setting of these tests, which llm-ocr would not know.
        patch.delenv("LLM_OCR_TEST_VLLM", raising=False)
        yield vllm.parent.parent / "models"


@pytest.fixture(scope="session")
def session_server(vllm, tiny_models, run, tmp_path_factory) -> Iterator[TinyServer]:
    options = serve_options((str(vllm),), tiny_models / "deepseek-ocr", tmp_path_factory.mktemp("server"))
    server = TinyServer(VllmServer(PROFILE, options))
    try:
        yield server
    finally:
        run(server.close())


@pytest.fixture
def server(session_server, run) -> TinyServer:
    """The server, running: started if a test before this one has ended it."""
    run(session_server.ensure())
    return session_server
