"""What stands around a reader of regions: a detector with given regions, tools, a model that answers by question."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llm_ocr.engines import Completion, CompletionRequest, Finish, Load, noop
from llm_ocr.engines.regions.detection import Layout, Region, tasks_with
from llm_ocr.engines.regions.reader import LayoutReader
from llm_ocr.engines.vlm.requests import ReadOptions
from llm_ocr.errors import PageFailure
from llm_ocr.models.registry import find_profile
from llm_ocr.types import Attempt, Block, BlockKind, Box, EncodedImage, Page, PageContent, Reason, Status
from tests.engines.vlm.scripted_model import Fallback

GLM = find_profile("glm-ocr")
PADDLE = find_profile("paddleocr-vl-1.6")
PAGE = Page("d-p00001", "d", 1, EncodedImage(b"page" * 900, "image/png", 1000, 1400), source="d.pdf")
LOOP = "Total of the year 2019 is not known. " * 400

#: An event: the answer comes when it is set.
Reply = str | Completion | Exception | asyncio.Event


def region(label: str, *sides: float, score: float = 0.9, order: int | None = None) -> Region:
    return Region(label, Box(*sides), score, order)


def rows(*labels: str) -> tuple[Region, ...]:
    """Regions one below the other, over the page's width."""
    return tuple(region(label, 0.1, 0.05 * i + 0.01, 0.9, 0.05 * i + 0.05, order=i) for i, label in enumerate(labels))


class GivenDetector:
    """A `Detector` that finds what it was given, or fails."""

    name = "given"
    parallel = 4

    def __init__(self, found: Sequence[Region] | Layout | PageFailure) -> None:
        self._found = found
        self.pages: list[Page] = []
        self.closed = 0

    def identity(self) -> Mapping[str, Any]:
        return {"model": self.name, "revision": "1"}

    async def detect(self, page: Page) -> Layout:
        self.pages.append(page)
        if isinstance(self._found, PageFailure):
            raise self._found
        return self._found if isinstance(self._found, Layout) else Layout(tuple(self._found))

    async def close(self) -> None:
        self.closed += 1


class RegionWorkbench:
    """`ImageTools`: a crop's bytes are the corner of its box, unless `same` are given."""

    def __init__(self, *, crop: Callable[[Box], bytes] | None = None, fails: bool = False) -> None:
        self._crop = crop or (lambda box: f"crop {box.x0:.2f} {box.y0:.2f} ".encode() * 300)
        self._fails = fails
        self.looked_at: list[bytes] = []

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        return replace(image, data=image.data[:15] + f" at {scale}".encode())

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        raise AssertionError("regions are not turned")

    async def blank(self, image: EncodedImage) -> bool:
        self.looked_at.append(image.data)
        return image.data.startswith(b"blank")

    async def content(self, page: Page) -> Page:
        return Page(page.id, page.document_id, page.number, page.image, PageContent(100, 100), page.source)

    async def crop(self, image: EncodedImage, boxes: Sequence[Box]) -> tuple[EncodedImage, ...]:
        if self._fails:
            raise PageFailure(Reason.RENDER_CRASHED, "no crops")
        return tuple(
            EncodedImage(self._crop(box), "image/png", max(1, int(box.width * image.width)), 60) for box in boxes
        )


class SeeingModel:
    """An `Engine` whose answers depend on the question: by the text of its prompt, or by its region's number."""

    name = "seeing"

    def __init__(self, answers: Mapping[str, Reply | Sequence[Reply]], *, hold: asyncio.Barrier | None = None) -> None:
        self._answers = {key: list(one) if isinstance(one, list) else [one] for key, one in answers.items()}
        self._hold = hold
        self.requests: list[CompletionRequest] = []
        self.answered = 0

    async def complete(self, request: CompletionRequest, on_dispatched: Callable[[], None] = noop) -> Completion:
        self.requests.append(request)
        on_dispatched()
        if self._hold is not None:
            await self._hold.wait()
        number = request.id.rpartition("-r")[2]
        left = self._answers.get(number) or self._answers[request.prompt]
        reply = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(reply, asyncio.Event):
            await reply.wait()
            return said("late")
        if isinstance(reply, Exception):
            raise reply
        self.answered += 1
        return reply if isinstance(reply, Completion) else said(reply)

    def load(self) -> Load:
        return Load()

    async def close(self) -> None:
        raise AssertionError("the engine is shared")


class WholeReader(Fallback):
    """A `PageReader` of whole pages with one reply."""

    name = "seeing"

    def __init__(self, reply: Attempt | PageFailure | None = None) -> None:
        super().__init__(reply or whole_page())

    def identity(self) -> Mapping[str, Any]:
        return {"engine": "model", "model": "nobody/seeing", "revision": "abc"}


def said(text: str, finish: Finish = Finish.STOP) -> Completion:
    return Completion(text, finish, 100, 50, seconds=2.0, waited=0.5, server="one")


def whole_page(text: str = "the whole page", status: Status = Status.OK) -> Attempt:
    blocks = (Block(BlockKind.TEXT, Box(0, 0, 1, 1), text),)
    return Attempt("seeing", "model", status, blocks, tokens_in=1000, tokens_out=500, seconds=5.0)


def reader_of(
    found: Sequence[Region] | Layout | PageFailure,
    model: SeeingModel,
    *,
    profile: Any = GLM,
    tools: RegionWorkbench | None = None,
    whole: WholeReader | None = None,
    tasks: Sequence[str] = (),
    **options: Any,
) -> LayoutReader:
    return LayoutReader(
        model,
        profile,
        GivenDetector(found),
        tools or RegionWorkbench(),
        tasks_with(tasks),
        whole or WholeReader(),
        ReadOptions(**{"backoff": 0.0, **options}),
    )


def read_regions(
    found: Sequence[Region] | Layout | PageFailure, answers: Mapping[str, Any] | SeeingModel, **more: Any
) -> Attempt:
    model = answers if isinstance(answers, SeeingModel) else SeeingModel(answers)
    return asyncio.run(reader_of(found, model, **more).read(PAGE))


def shown(attempt: Attempt) -> list[tuple[str, str]]:
    """Kind and text of each block."""
    return [(block.kind.value, block.text) for block in attempt.blocks]
