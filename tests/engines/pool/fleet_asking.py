"""What the tests of a fleet share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from scripted_server import Scripted, request_for

from llm_ocr.engines import Completion, Server, ServerFacts
from llm_ocr.engines.pool.pool import ServerPool
from llm_ocr.engines.pool.session import PoolOptions

QUICK = PoolOptions(grace=0.1, interval=0.05)
VLLM = ServerFacts(vllm=True, version="0.32.0", max_model_len=8192, kv_tokens=64_000, max_num_seqs=16)


def names(count: int) -> list[str]:
    return [f"page-{number}" for number in range(count)]


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110  # what is waited for are numbers of the fleet and of the server
        await asyncio.sleep(0.002)


async def until_window_follows(fleet: ServerPool, server: Scripted) -> None:
    """Ask until the window has followed the server's 40 slots, then 4, then 40 again."""
    enough = asyncio.Event()

    async def ask_on(name: str) -> None:
        while not enough.is_set():
            await fleet.complete(request_for(name))

    asking = asyncio.gather(*map(ask_on, names(150)))
    await until(lambda: fleet.load().window >= 40 and server.most == 40)
    assert fleet.load().running is not None
    server.slots = 4
    await until(lambda: fleet.load().window <= 16)
    server.slots = 40
    await until(lambda: fleet.load().window >= 40)
    enough.set()
    await asking


async def ask_all(fleet: ServerPool, asked: list[str]) -> dict[str, Completion | BaseException]:
    found = await asyncio.gather(*(fleet.complete(request_for(name)) for name in asked), return_exceptions=True)
    return dict(zip(asked, found, strict=True))


def answered(found: dict[str, Completion | BaseException]) -> list[str]:
    """The names whose own answer came."""
    return [name for name, one in found.items() if isinstance(one, Completion) and one.text == f"answer to {name}"]


def failing(times: int, make: Callable[[], web.Response]) -> Callable[[str], web.Response | None]:
    """The first `times` requests, of whatever question, get this response."""
    left = [times]

    def behave(_: str) -> web.Response | None:
        left[0] -= 1
        return make() if left[0] >= 0 else None

    return behave


@asynccontextmanager
async def fleet_of(
    servers: Sequence[Server], options: PoolOptions, said: list[str] | None = None
) -> AsyncIterator[ServerPool]:
    """A fleet that is closed at the end; what it tells users is added to `said`."""
    fleet = ServerPool("model", servers, options, ([] if said is None else said).append)
    try:
        yield fleet
    finally:
        await fleet.close()
