"""The simulator, in a process of its own, as a `serving.Server`."""

import asyncio
import hashlib
import tempfile
from pathlib import Path
from typing import Any

from llm_ocr.engines import Address, CompletionRequest, ServerFacts
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.errors import ServerError
from llm_ocr.types import EncodedImage
from llm_ocr_simulator import Running, running


def page(name: str) -> CompletionRequest:
    """A page with an image of its own."""
    image = EncodedImage(hashlib.sha256(name.encode()).digest() * 30, "image/png", 100, 100)
    return CompletionRequest(name, image, f"Free OCR. {name}.", {"temperature": 0.0})


class Simulated:
    """`options` are the simulator's flags. What it counts of its starts stands in a state file."""

    managed = True

    def __init__(self, name: str = "simulator 0", **options: Any) -> None:
        self.name = name
        self.starts = 0
        self._folder = tempfile.TemporaryDirectory()
        self._options = {"state_file": Path(self._folder.name) / "state", **options}
        self._running: running | None = None
        self.now: Running | None = None

    async def start(self) -> tuple[Address, ServerFacts]:
        self.starts += 1
        self._running = running(**self._options)
        self.now = await self._running.__aenter__()
        address = Address(self.now.url, "deepseek-ocr")
        endpoint = Endpoint(address)
        try:
            facts = await endpoint.probe()
        finally:
            await endpoint.close()
        if facts is None:
            raise ServerError(f"{self.name} does not answer")
        return address, facts

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        await self.stop()
        return await self.start()

    async def ended(self) -> str:
        assert self.now is not None
        process = self.now.process
        while process.poll() is None:  # noqa: ASYNC110  # a process, not a coroutine
            await asyncio.sleep(0.02)
        return f"ended with code {process.returncode}"

    async def stop(self) -> None:
        if self._running is not None:
            await self._running.__aexit__(None, None, None)
            self._running = None
