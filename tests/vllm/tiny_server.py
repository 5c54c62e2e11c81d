"""A vLLM server with a tiny model, as the tests use it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from llm_ocr.engines import Address, CompletionRequest, Server, ServerFacts
from llm_ocr.engines.client.endpoint import Endpoint, Gauges
from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.errors import LlmOcrError
from llm_ocr.models.profiles.markers import DEEPSEEK_OCR

MAX_MODEL_LEN, MAX_NUM_SEQS = 4096, 8

#: One thread is faster than two with models as small as these; binding threads to cores fails in many containers.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
}
_ARGUMENTS = ("--enforce-eager", "--seed=0", f"--max-num-seqs={MAX_NUM_SEQS}")
#: DeepSeek-OCR is made without weights.
TINY_ARGUMENTS = (*_ARGUMENTS, "--load-format=dummy")

#: The real profile, with what it gives a server and each request; a smaller context, for tests of what does not fit.
PROFILE = replace(DEEPSEEK_OCR, context=MAX_MODEL_LEN)


def serve_options(command: tuple[str, ...], model: Path, log_folder: Path) -> ServeOptions:
    """How the supervisor starts a tiny model."""
    return ServeOptions(
        command=command,
        args=TINY_ARGUMENTS if model.name == "deepseek-ocr" else _ARGUMENTS,
        model=str(model),
        startup_timeout=220.0,
        log_folder=log_folder,
    )


class TinyServer:
    """A server under our supervisor."""

    managed = True
    max_model_len, max_num_seqs = MAX_MODEL_LEN, MAX_NUM_SEQS

    def __init__(self, supervisor: Server) -> None:
        self.supervisor = supervisor
        self.address = Address("", "")
        self.facts = ServerFacts()
        self._end: asyncio.Task[str] | None = None

    async def ensure(self) -> None:
        """Start it, unless it runs."""
        if self._end is None or self._end.done():
            await self.follow(self.supervisor.start())

    async def follow(self, starting: Coroutine[Any, Any, tuple[Address, ServerFacts]]) -> None:
        """Take what a start or restart gives."""
        self.address, self.facts = await starting
        self._end = asyncio.create_task(self.supervisor.ended())

    async def ended(self) -> str:
        """How it ended, once it has."""
        assert self._end is not None
        return await asyncio.shield(self._end)

    async def close(self) -> None:
        await self.supervisor.stop()
        if self._end is not None:
            self._end.cancel()

    @contextlib.asynccontextmanager
    async def endpoint(self, *, model: str | None = None, key: str | None = None) -> AsyncIterator[Endpoint]:
        """Our client of it."""
        address = Address(
            self.address.url,
            self.address.model if model is None else model,
            self.address.key if key is None else key,
        )
        client = Endpoint(address, vllm=True)
        try:
            yield client
        finally:
            await client.close()

    async def gauges_when(self, holds: Callable[[Gauges], bool], seconds: float = 20.0) -> Gauges:
        """The gauges once the condition holds."""
        deadline = time.monotonic() + seconds
        async with self.endpoint() as client:
            while (now := await client.gauges()) is None or not holds(now):
                assert time.monotonic() < deadline, f"after {seconds:.0f} s still {now}"
                await asyncio.sleep(0.1)
        return now

    def refusal(self, run: Callable[[Any], Any], request: CompletionRequest, **address: str) -> LlmOcrError:
        """The error that a question ends with."""

        async def complete() -> LlmOcrError:
            async with self.endpoint(**address) as client:
                try:
                    answer = await client.complete(request)
                except LlmOcrError as error:
                    return error
            raise AssertionError(f"answered with {answer.text!r}")

        return run(complete())
