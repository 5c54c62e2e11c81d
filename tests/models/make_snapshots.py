"""What each profile sends and how its server is started, word for word: `python tests/models/make_snapshots.py`.

Writes `snapshots/<profile>.json`: the line of `vllm serve`, the body of the first request for a page, and what is other
in those of each other mode, and in that of a page to a server that is not vLLM (null: absent), all without the image.
Look at the changes before you commit them.
"""

import asyncio
import contextlib
import json
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from llm_ocr.engines import Completion, CompletionRequest, Finish, Load, noop
from llm_ocr.engines.client.connections import Body, body_parts
from llm_ocr.engines.descriptions import MODES
from llm_ocr.engines.vllm.command import ServeOptions, serve_command
from llm_ocr.engines.vlm.figures import ModelFigureReader
from llm_ocr.engines.vlm.reader import ModelReader
from llm_ocr.engines.vlm.requests import DescribeOptions, ReadOptions
from llm_ocr.errors import PageFailure
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import PROFILES
from llm_ocr.types import Box, EncodedImage, Figure, Page
from llm_ocr_simulator.answers import data_url

FOLDER = Path(__file__).parent / "snapshots"
#: The vLLM whose arguments are written.
VERSION = (0, 32, 0)
_WIDTH = 120  # columns
IMAGE = EncodedImage(b"pixels", "image/png", 100, 140)
PAGE = Page("d-p00001", "d", 1, IMAGE, source="d.pdf")
FIGURE = Figure("d-p00001-f01", "image", Box(0, 0, 1, 1), IMAGE)


class Kept:
    """An engine that keeps the question and answers a word."""

    name = "kept"

    def __init__(self) -> None:
        self.requests: list[CompletionRequest] = []

    async def complete(self, request: CompletionRequest, on_dispatched: Callable[[], None] = noop) -> Completion:
        self.requests.append(request)
        return Completion("word", Finish.STOP)

    def load(self) -> Load:
        return Load()

    async def close(self) -> None:
        pass


class NoTools:
    """Image tools that are given what they are asked for."""

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        return image

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        return image

    async def content(self, page: Page) -> Page:
        return page


def snapshot(profile: Profile) -> dict[str, Any]:
    """All that is written of a profile."""
    asked = {mode: _question(profile, mode) for mode in profile.prompts}
    bodies = {mode: _body(request, profile, vllm=True) for mode, request in asked.items()}
    page = bodies[profile.mode]
    return {
        "serve": shlex.join(serve_command(profile, ServeOptions(), 8000, version=VERSION)),
        profile.mode: page,
        "other modes": {mode: _other(body, page) for mode, body in bodies.items() if mode != profile.mode},
        "elsewhere": _other(_body(asked[profile.mode], profile, vllm=False), page),
    }


def path_of(profile: Profile) -> Path:
    return FOLDER / f"{profile.name}.json"


def _question(profile: Profile, mode: str) -> CompletionRequest:
    engine = Kept()
    asking: Awaitable[object]
    if mode in MODES:
        options = DescribeOptions(mode=mode, max_attempts=1, backoff=0.0)
        asking = ModelFigureReader(engine, profile, options).describe(FIGURE, PAGE.id, PAGE.document_id)
    else:
        asking = ModelReader(engine, profile, NoTools(), ReadOptions(mode=mode, max_attempts=1, backoff=0.0)).read(PAGE)
    asyncio.run(_asked(asking))
    return engine.requests[0]


async def _asked(asking: Awaitable[object]) -> None:
    with contextlib.suppress(PageFailure):  # "word" is no answer in its format
        await asking


def _body(request: CompletionRequest, profile: Profile, *, vllm: bool) -> dict[str, Any]:
    body = Body(body_parts(request, profile.model, vllm)).decode()
    return dict(json.loads(body.replace(data_url(IMAGE).decode(), "IMAGE")))


def _other(body: dict[str, Any], page: dict[str, Any]) -> dict[str, Any]:
    """What is other in a body than in that of the page; None for what only the page's has."""
    return {key: body.get(key) for key in {**page, **body} if body.get(key) != page.get(key)}


def written(value: object, columns: int = 0) -> str:
    """Return JSON with each object and list on one line if it fits."""
    line = json.dumps(value, ensure_ascii=False)
    if columns + len(line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    if isinstance(value, list):
        parts = [written(part, columns + 1) for part in value]
    else:
        parts = [f"{json.dumps(key)}: {written(part, columns + 1)}" for key, part in value.items()]
    indent = " " * columns
    return "\n".join((line[0], ",\n".join(f"{indent} {part}" for part in parts), indent + line[-1]))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    wanted = {path_of(profile) for profile in PROFILES}
    for old in set(FOLDER.glob("*.json")) - wanted:
        old.unlink()
    for one in PROFILES:
        path_of(one).write_text(written(snapshot(one)) + "\n", encoding="utf-8")
