"""Whether a server answers, and what it says of itself."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import aiohttp

from llm_ocr.engines.chat.connections import open_session
from llm_ocr.engines.chat.endpoint import Endpoint
from llm_ocr.engines.chat.probing import identity
from llm_ocr.engines.chat.reading import read_whole
from llm_ocr.engines.serving import Address, ServerFacts
from llm_ocr.errors import ServerError

_PATIENCE = 10.0  # seconds for /health
_WORD_BYTES = 64 * 1024  # read of the answer to one word

#: From what a server's models were loaded from, by their names ("": it does not say), to the name to ask for.
Chooser = Callable[[Mapping[str, str]], str]


@dataclass(frozen=True, slots=True)
class NotReady:
    """A server that does not answer yet. `why`: nobody answers at its address; "": it is there and loads its model."""

    why: str = ""


async def look(address: Address, choose: Chooser | None = None) -> tuple[Address, ServerFacts] | NotReady:
    """What the server says of itself, `NotReady` while it does not answer; vLLM must call itself healthy too.

    An address without a model comes back with the one that `choose` names, without it the only one that the server has.
    Raises `ServerError` when the server refuses our key, or has several models and the address names none, and what
    `choose` raises.
    """
    endpoint = Endpoint(address)
    try:
        facts = await endpoint.probe()
        if facts is None:
            return NotReady(str(endpoint.absent or "").removeprefix(f"{address.url}: "))
        if facts.vllm and not await _healthy(address):
            return NotReady()
        if not address.model:
            served = await endpoint.served()
            name = choose(served) if choose is not None and served else _only(address, tuple(served))
            address, facts = replace(address, model=name), replace(facts, serves=identity(name, served.get(name, "")))
        return address, facts
    finally:
        await endpoint.close()


async def converses(address: Address, patience: float) -> bool:
    """False when one word gets no answer within `patience` seconds; an error, or a lost connection, is an answer."""
    asked = {"model": address.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    try:
        async with (
            asyncio.timeout(patience),
            open_session(address.key) as session,
            session.post(f"{address.url}/chat/completions", json=asked, allow_redirects=False) as response,
        ):
            await read_whole(response, _WORD_BYTES)
    except TimeoutError:
        return False
    except (aiohttp.ClientError, OSError):
        return True  # it does not hang; whether it is dead is seen by what is asked next
    return True


async def _healthy(address: Address) -> bool:
    # Its engine may be dead while /v1/models still answers; a proxy in front may not pass /health on.
    try:
        async with (
            asyncio.timeout(_PATIENCE),
            open_session(address.key) as session,
            session.get(f"{address.root}/health") as response,
        ):
            return response.status < 500
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return False


def _only(address: Address, models: tuple[str, ...]) -> str:
    if len(models) == 1:
        return models[0]
    several = f"has {len(models)} models, and none is named: {', '.join(models)}"
    what = several if models else "does not say which model it has"
    raise ServerError(f"the server {address.url} {what}", hint="Say which to ask for: --server-model NAME")
