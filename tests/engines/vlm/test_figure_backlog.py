"""Pages that wait to be looked at for figures hold back new questions, so that memory stays bounded."""

import asyncio

from looking import ScriptedInspector, reading
from scripted_model import PAGE, PROFILE, ScriptedEngine, stop

from llm_ocr.engines import Inspection
from llm_ocr.types import Page, Status


class Slow(ScriptedInspector):
    """Looks at a page when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.looking = asyncio.Event()
        self.go = asyncio.Event()

    async def inspect(self, page: Page, *, hinted: bool) -> Inspection:
        self.looking.set()
        await self.go.wait()
        return await super().inspect(page, hinted=hinted)


def test_no_page_is_asked_for_while_too_many_wait():
    async def steps() -> None:
        engine, inspector = ScriptedEngine(stop()), Slow()
        made = reading(engine, PROFILE, inspector)
        made.backlog = asyncio.Semaphore(1)
        first = asyncio.create_task(made.read(PAGE))
        await inspector.looking.wait()
        second = asyncio.create_task(made.read(PAGE))
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(engine.requests) == 1
        inspector.go.set()
        attempts = await asyncio.wait_for(asyncio.gather(first, second), 10)
        assert [attempt.status for attempt in attempts] == [Status.OK, Status.OK]
        assert len(engine.requests) == 2

    asyncio.run(steps())


def test_closing_ends_what_looks_at_pages():
    inspector = ScriptedInspector()
    asyncio.run(reading(ScriptedEngine(stop()), PROFILE, inspector).close())
    assert inspector.closed == 1
