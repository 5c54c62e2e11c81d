"""A server is judged by progress: one that answers /health and finishes nothing hangs."""

import asyncio
import time

from llm_ocr.engines.fleet.service import Service

_MOMENT = 0.1  # seconds


async def hang(service: Service, stall: float) -> str:
    """Returns why, when requests were under way for `stall` seconds without a byte of any answer."""
    pause = min(1.0, stall / 10)
    own_fault = 0.0  # until when this process itself stood still
    while True:
        before = time.monotonic()
        await asyncio.sleep(pause)
        now = time.monotonic()
        if now - before > pause + stall / 4:
            own_fault = now  # bytes may have come that nobody has read yet
        if service.holders and now - max(service.progressed(), own_fault) > stall:
            return f"no answer made progress for {stall:g} s"


async def moves_again(service: Service, stall: float) -> bool:
    """After a request that stalled: True as soon as another one gets on, False when the server has died meanwhile.

    With no other under way, those that have ended tell: while one of them got on lately, the server did not hang.
    """
    # A request sent to a server without others looks like progress: none is sent from now on, and what was being sent
    # in this moment does not count.
    since = time.monotonic() + _MOMENT
    service.stalled += 1
    try:
        while service.alive:
            if len(service.holders) == 1 and time.monotonic() - service.progressed() < stall / 2:
                return True
            await asyncio.wait({service.death}, timeout=min(0.5, stall / 10))
            if service.progressed() > since:
                return service.alive
    finally:
        service.stalled -= 1
    return False
