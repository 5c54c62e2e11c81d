"""A stand-in for what looks at pages beside a model, and ways to ask with it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from scripted_model import PAGE, ScriptedEngine, Tools

from llm_ocr.engines import Inspection
from llm_ocr.engines.vlm.reader import ModelReader
from llm_ocr.engines.vlm.requests import ReadOptions
from llm_ocr.errors import PageFailure
from llm_ocr.models.profile import Profile
from llm_ocr.types import Attempt, Page


class ScriptedInspector:
    """A `ScriptedInspector` with given replies; what it was asked is kept."""

    def __init__(
        self,
        seen: Inspection | PageFailure | None = None,
        *,
        degrees: int | PageFailure = 0,
        text: str | PageFailure = "",
    ) -> None:
        self._seen, self._degrees, self._text = seen or Inspection(), degrees, text
        self.asked: list[str] = []
        self.closed = 0

    def identity(self) -> Mapping[str, Any]:
        return {"engine": "embedded"}

    async def inspect(self, page: Page, *, hinted: bool) -> Inspection:
        self.asked.append(f"see{' hinted' * hinted}")
        return self._given(self._seen)

    async def text(self, page: Page) -> str:
        self.asked.append("text")
        return self._given(self._text)

    async def orientation(self, page: Page) -> int:
        self.asked.append("orientation")
        return self._given(self._degrees)

    async def close(self) -> None:
        self.closed += 1

    def _given(self, reply: Any) -> Any:
        if isinstance(reply, PageFailure):
            raise reply
        return reply


def reading(
    engine: ScriptedEngine,
    profile: Profile,
    inspector: ScriptedInspector | None = None,
    tools: Tools | None = None,
    **options: Any,
) -> ModelReader:
    chosen = ReadOptions(**{"backoff": 0.0, **options})
    return ModelReader(engine, profile, tools or Tools(), chosen, None, inspector)


def asked(
    engine: ScriptedEngine,
    profile: Profile,
    inspector: ScriptedInspector | None = None,
    tools: Tools | None = None,
    page: Page = PAGE,
    **options: Any,
) -> Attempt:
    return asyncio.run(reading(engine, profile, inspector, tools, **options).read(page))
