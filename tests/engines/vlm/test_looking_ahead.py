"""Figures are looked for while the model still reads the page, as often as must be, and in bounded memory."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from looking import ScriptedInspector, reading
from scripted_model import PAGE, PROFILE, ScriptedEngine, stop

from llm_ocr.engines import Completion, CompletionRequest, Inspection, noop
from llm_ocr.errors import PageFailure
from llm_ocr.types import Attempt, Page, Reason, Status

CAPTION = "Text.\n\nFigure 1: A bridge over the river."


class SlowEngine(ScriptedEngine):
    """Answers when it is let."""

    def __init__(self, *replies: Completion | Exception) -> None:
        super().__init__(*replies)
        self.go = asyncio.Event()

    async def complete(self, request: CompletionRequest, on_dispatched: Callable[[], None] = noop) -> Completion:
        on_dispatched()
        await self.go.wait()
        return await super().complete(request)


class CountingSight(ScriptedInspector):
    """Looks at pages in their order, each as long as it is not let."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.go = asyncio.Event()
        self.pages: list[tuple[str, bool]] = []
        self.cancelled = 0

    async def inspect(self, page: Page, *, hinted: bool) -> Inspection:
        self.pages.append((page.id, hinted))
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().inspect(page, hinted=hinted)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(inspector: CountingSight, *replies: Completion | Exception) -> Attempt:
    """One page whose answer comes after the first look is over."""

    async def steps() -> Attempt:
        engine = SlowEngine(*replies)
        page = asyncio.create_task(reading(engine, PROFILE, inspector, figures_from="page").read(PAGE))
        await settled()
        inspector.go.set()
        await settled()
        engine.go.set()
        return await asyncio.wait_for(page, 10)

    return asyncio.run(steps())


def test_a_page_is_looked_at_while_the_model_reads_it():
    inspector = CountingSight()
    assert run(inspector, stop()).status is Status.OK
    assert inspector.pages == [(PAGE.id, False)]


def test_unread_scan_is_read_once_its_answer_mentions_a_figure():
    inspector = CountingSight(Inspection(unread=True))
    run(inspector, stop(CAPTION))
    assert inspector.pages == [(PAGE.id, False), (PAGE.id, True)]


def test_what_was_read_is_not_read_again_for_a_caption():
    inspector = CountingSight(Inspection())
    run(inspector, stop(CAPTION))
    assert inspector.pages == [(PAGE.id, False)]


def test_a_failed_look_is_said_once():
    inspector = CountingSight(PageFailure(Reason.ENGINE_TIMEOUT, "killed after 300 s"))
    attempt = run(inspector, stop())
    assert attempt.status is Status.OK
    assert attempt.detail.count("killed after 300 s") == 1


async def test_no_answer_waits_for_other_pages_looks():
    engine, inspector = SlowEngine(stop(CAPTION)), CountingSight()
    made = reading(engine, PROFILE, inspector, figures_from="page")
    pages = [asyncio.create_task(made.read(replace(PAGE, id=name))) for name in ("one", "two")]
    await settled()
    assert inspector.pages == [("one", False)]  # the other's turn comes later
    engine.go.set()
    await settled()
    assert inspector.pages == [("one", False), ("two", True)]  # or, now that its answer is there, at once
    inspector.go.set()
    await asyncio.wait_for(asyncio.gather(*pages), 10)
    assert inspector.pages == [("one", False), ("two", True)]


async def test_no_page_is_asked_for_while_too_many_wait_for_a_look():
    engine, inspector = ScriptedEngine(stop()), CountingSight()
    made = reading(engine, PROFILE, inspector)
    made.backlog = asyncio.Semaphore(1)
    pages = [asyncio.create_task(made.read(PAGE)) for _ in range(2)]
    await settled()
    assert (len(inspector.pages), len(engine.requests)) == (1, 1)
    inspector.go.set()
    attempts = await asyncio.wait_for(asyncio.gather(*pages), 10)
    assert [attempt.status for attempt in attempts] == [Status.OK, Status.OK]
    assert len(engine.requests) == 2


async def test_closing_ends_what_looks_at_pages():
    inspector = ScriptedInspector()
    await reading(ScriptedEngine(stop()), PROFILE, inspector).close()
    assert inspector.closed == 1


async def test_a_page_that_fails_is_not_looked_at_any_longer():
    failure = PageFailure(Reason.QUARANTINED, "killed two servers")
    said: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))
    engine, inspector = SlowEngine(failure), CountingSight()
    page = asyncio.create_task(reading(engine, PROFILE, inspector, figures_from="page").read(PAGE))
    await settled()
    engine.go.set()
    with pytest.raises(PageFailure):
        await asyncio.wait_for(page, 10)
    await settled()
    assert inspector.pages == [(PAGE.id, False)]
    assert inspector.cancelled == 1
    gc.collect()
    assert said == []


def test_no_inspection_ahead_when_figures_come_from_the_answer():
    inspector = CountingSight()
    inspector.go.set()
    engine = ScriptedEngine(stop(CAPTION))
    asyncio.run(reading(engine, PROFILE, inspector, figures_from="model").read(PAGE))
    assert inspector.pages == []
