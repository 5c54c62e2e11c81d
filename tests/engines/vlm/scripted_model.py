"""An engine whose answers are written beforehand, and the other parts that stand around the model readers."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from llm_ocr.engines import Completion, CompletionRequest, Finish, Load, PageReader, noop
from llm_ocr.engines.vlm.reader import ModelReader
from llm_ocr.engines.vlm.requests import ReadOptions
from llm_ocr.errors import PageFailure
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Parsed, Profile, Rung
from llm_ocr.types import Attempt, Block, BlockKind, Box, EncodedImage, Page, PageContent, Reason, Status

LOOP = "Total of the year 2019 is not known. " * 400
GOOD = "# Rivers\n\nThe Danube flows through ten countries."

Reply = Completion | Exception


def stop(text: str = GOOD, *, tokens_in: int = 100, tokens_out: int = 50) -> Completion:
    return Completion(text, Finish.STOP, tokens_in, tokens_out, seconds=2.0, waited=0.5, server="one")


def ended(text: str, finish: Finish) -> Completion:
    return Completion(text, finish, 100, 50, seconds=2.0, waited=0.5, server="one")


class ScriptedEngine:
    """An `Engine`: gives the replies in order, the last one for ever, and keeps the questions."""

    name = "scripted"

    def __init__(self, *replies: Reply) -> None:
        self._replies = deque(replies)
        self.requests: list[CompletionRequest] = []
        self.closed = 0

    async def complete(self, request: CompletionRequest, on_dispatched: Callable[[], None] = noop) -> Completion:
        self.requests.append(request)
        on_dispatched()
        reply = self._replies.popleft() if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def load(self) -> Load:
        return Load()

    async def close(self) -> None:
        self.closed += 1


class Tools:
    """`ImageTools` that name what was done in the image's bytes; `fails` are given."""

    def __init__(self, *, fails: Iterable[str] = ()) -> None:
        self._fails = set(fails)
        self.done: list[str] = []

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what.split()[0] in self._fails:
            raise PageFailure(Reason.RENDER_CRASHED, f"no {what}")

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        self._do(f"resized {scale:.2f}")
        made = image.data + f" at {scale:.2f}".encode()
        return EncodedImage(made, image.media_type, round(image.width * scale), round(image.height * scale))

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        self._do(f"turned {degrees}")
        width, height = (image.height, image.width) if degrees % 180 else (image.width, image.height)
        return EncodedImage(f"turned {degrees}".encode(), "image/png", width, height)

    async def content(self, page: Page) -> Page:
        self._do("content")
        return Page(page.id, page.document_id, page.number, page.image, PageContent(100, 100), page.source)


class Fallback:
    """A `PageReader` with one reply."""

    name = "embedded"

    def __init__(self, reply: Attempt | PageFailure) -> None:
        self._reply = reply
        self.pages: list[Page] = []
        self.closed = 0

    def identity(self) -> Mapping[str, Any]:
        return {"engine": self.name}

    async def read(self, page: Page, on_dispatched: Callable[[], None] = noop) -> Attempt:
        self.pages.append(page)
        if isinstance(self._reply, PageFailure):
            raise self._reply
        return self._reply

    async def close(self) -> None:
        self.closed += 1


def by_layer(text: str = "The Rhine, read from the text layer of the document", status: Status = Status.OK) -> Attempt:
    blocks = (Block(BlockKind.TEXT, Box(0, 0, 1, 0.1), text),) if text else ()
    reason = None if status is Status.OK else Reason.SCRIPT_NOT_SUPPORTED
    return Attempt("embedded", "text-layer", status, blocks, reason, seconds=1.0)


def marked(text: str, frame: object = None) -> Parsed:
    """Each line is a block; `fig:LABEL` lines are figures, `tab:TEXT` tables, and `bad` lines are lost."""
    blocks, lost = [], []
    for number, line in enumerate(filter(None, text.split("\n"))):
        box = Box(0.1, 0.01 * number, 0.9, 0.01 * number + 0.01).clipped()
        mark, _, rest = line.partition(":")
        if line == "bad":
            lost.append(f"the box of line {number} is malformed")
        elif mark == "fig":
            blocks.append(Block(BlockKind.FIGURE, box, label=rest, inside="words inside", caption="Figure 1"))
        elif mark == "tab":
            blocks.append(Block(BlockKind.TABLE, box, rest, label="table"))
        else:
            blocks.append(Block(BlockKind.TEXT, box, line, label="text"))
    return Parsed(tuple(blocks), tuple(lost))


PROFILE = Profile(
    name="scripted",
    model="nobody/scripted",
    licence="none",
    prompts={"layout": "Read it with boxes.", "text": "Read it.", "marked": "Mark it."},
    parsers={"": parse_plain, "marked": marked},
    image=ImageRule(100),
    max_tokens=800,
    context=1000,
    page_tokens=300,
    revision="0123abc",
    settings={"top_p": 0.9},
    vllm_settings={"skip_special_tokens": False},
    page_settings={"vllm_xargs": {"ngram_size": 30}},
    figure_labels=frozenset({"image"}),
    ladder=(Rung(0.1), Rung(0.2, scale=0.8), Rung(0.3, mode="text")),
)

PAGE = Page("d-p00001", "d", 1, EncodedImage(b"pixels", "image/png", 100, 100), source="d.pdf")


def reader(
    engine: ScriptedEngine, tools: Tools | None = None, fallback: PageReader | None = None, **options: Any
) -> ModelReader:
    return ModelReader(engine, PROFILE, tools or Tools(), ReadOptions(**{"backoff": 0.0, **options}), fallback)


def read(
    engine: ScriptedEngine,
    tools: Tools | None = None,
    fallback: PageReader | None = None,
    *,
    page: Page = PAGE,
    on_dispatched: Callable[[], None] = noop,
    **options: Any,
) -> Attempt:
    return asyncio.run(reader(engine, tools, fallback, **options).read(page, on_dispatched))


def text_of(attempt: Attempt) -> str:
    return "\n".join(block.text for block in attempt.blocks)
