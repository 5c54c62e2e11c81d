"""The task that reads a server's gauges and steers its window."""

import asyncio
import time
from collections.abc import Callable

from llm_ocr.engines.chat.gauges import Gauges
from llm_ocr.engines.fleet.service import Service

#: Readings without gauges after which a server counts as one that has none.
_PATIENCE = 5
#: Longest time for one reading in seconds: a server that preprocesses images answers late.
_READING = 10.0


async def steer(service: Service, dispatch: Callable[[], None], interval: float) -> None:
    """Steer until cancelled; `dispatch` is called after each step, for a window that has grown."""
    missing = 0
    while True:
        await asyncio.sleep(interval)
        if not service.blind:
            gauges = await _read(service)
            if gauges is not None:
                missing = 0
                service.gauges = gauges
                service.by_gauges.read(gauges, service.under_way)
            else:
                missing += 1
                service.blind = missing >= _PATIENCE and service.gauges is None
        if service.blind:
            service.by_latency.tick(time.monotonic(), service.window.full(len(service.holders)))
        dispatch()


async def _read(service: Service) -> Gauges | None:
    try:
        async with asyncio.timeout(_READING):
            return await service.endpoint.gauges()
    except TimeoutError:
        return None
