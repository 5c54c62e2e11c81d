"""Pages read by a real vLLM whose every answer is a known one: the requests are the profile's own, word for word."""

from collections.abc import Callable
from dataclasses import replace

from tiny_questions import literal, picture

from llm_ocr.engines import Completion, CompletionRequest, Load, noop
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.vlm.reader import ModelReader
from llm_ocr.engines.vlm.requests import ReadOptions
from llm_ocr.models.profile import Profile
from llm_ocr.types import Attempt, EncodedImage, Page

WIDTH, HEIGHT = 1190, 1684


class Forced:
    """An engine that asks one server, and makes it answer with `text`; keeps what came back."""

    name = "forced"

    def __init__(self, endpoint: Endpoint, text: str) -> None:
        self._endpoint = endpoint
        self._text = text
        self.answers: list[Completion] = []

    async def complete(self, request: CompletionRequest, on_dispatched: Callable[[], None] = noop) -> Completion:
        forced = replace(request, vllm_settings={**request.vllm_settings, **literal(self._text)})
        self.answers.append(await self._endpoint.complete(forced))
        return self.answers[-1]

    def load(self) -> Load:
        return Load()

    async def close(self) -> None:
        pass


class _Tools:
    """None is needed."""

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        raise AssertionError("no second try was expected")

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        raise AssertionError("no turn was expected")

    async def content(self, page: Page) -> Page:
        return page


async def read(endpoint: Endpoint, profile: Profile, mode: str, text: str) -> tuple[Attempt, Completion]:
    """One page in one try, as `ModelReader` asks for it, and the answer that the server was made to give."""
    engine = Forced(endpoint, text)
    reader = ModelReader(engine, profile, _Tools(), ReadOptions(mode=mode, max_attempts=1, backoff=0.0))
    attempt = await reader.read(Page("d-p00001", "d", 1, picture(WIDTH, HEIGHT), source="d.pdf"))
    return attempt, engine.answers[0]
