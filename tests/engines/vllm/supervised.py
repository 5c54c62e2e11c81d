"""A scripted vLLM, and looks at processes."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from llm_ocr.engines import Address, ServerFacts
from llm_ocr.engines.vllm.server import Pace, VllmServer
from llm_ocr.models.profile import ImageRule, Profile

FAKE = Path(__file__).with_name("fake_vllm.py")
COMMAND = (sys.executable, str(FAKE))
PACE = Pace(poll=0.03, progress=0.1, stop_timeout=5.0, device=0.05)


def made_profile(**changes) -> Profile:
    fields = {
        "name": "tiny",
        "model": "maker/tiny",
        "licence": "MIT",
        "prompts": {"layout": "Read."},
        "parsers": {},
        "image": ImageRule(1024),
        "max_tokens": 1024,
        "context": 8192,
        "page_tokens": 2000,
    }
    return Profile(**(fields | changes))


async def started_and_stopped(server: VllmServer) -> tuple[Address, ServerFacts]:
    """Return what the start of the server gave."""
    try:
        return await server.start()
    finally:
        await server.stop()


def scattered(path: Path) -> list[int]:
    """Return the ids of what the scripted server has put into other sessions (`--fake-scatter=PATH`)."""
    return [int(line) for line in path.read_text().split()]


def end(pids: Iterable[int]) -> None:
    """Kill what a failed test would leave behind."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Returns when the condition holds; fails the test when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


async def fetch(url: str) -> None:
    """GET without caring for the answer."""
    reader, writer = await asyncio.open_connection(*url.removeprefix("http://").partition("/")[0].split(":"))
    writer.write(f"GET /{url.removeprefix('http://').partition('/')[2]} HTTP/1.0\r\n\r\n".encode())
    await reader.read()
    writer.close()
