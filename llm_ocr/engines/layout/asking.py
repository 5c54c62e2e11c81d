"""One region asked for: its crop and its task's prompt, up the profile's retry ladder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llm_ocr.engines.asking import Answer, Engine, Question
from llm_ocr.engines.model.climbing import Climber, Ended
from llm_ocr.engines.model.images import Images
from llm_ocr.engines.model.judging import Verdict, judge_page
from llm_ocr.engines.model.ladder import Ladder, rungs_as_json, rungs_for
from llm_ocr.engines.model.options import ReadOptions
from llm_ocr.engines.model.questions import json_values, question_of, what_fits
from llm_ocr.engines.model.tools import ImageTools
from llm_ocr.engines.model.tries import Step, Tries
from llm_ocr.errors import PageFailure
from llm_ocr.models.profile import Profile
from llm_ocr.types import Block, EncodedImage, Reason

#: A region without an answer that takes less than this share of the page is taken to be empty after so many tries.
SMALL, EMPTY_TRIES = 0.002, 3
_NOTHING = "nothing was read in it"

Blocks = tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A region to be read: `id` for messages and suspicions, its crop, what is asked, its share 0..1 of the page."""

    id: str
    image: EncodedImage
    mode: str
    share: float


@dataclass(frozen=True, slots=True)
class Asked:
    """How asking for a region ended, and with which requests."""

    ended: Ended[Blocks]
    tries: Tries


class Questions:
    """How regions are asked for: the prompts, settings and ladder of a profile, with the user's options."""

    def __init__(self, engine: Engine, profile: Profile, tools: ImageTools, options: ReadOptions) -> None:
        self.engine = engine
        self.profile = profile
        self.tools = tools
        self.options = options
        self.rungs = rungs_for(profile, modes=False)
        self.temperature = profile.temperature if options.temperature is None else options.temperature
        self.max_tokens = what_fits(profile, options.max_tokens)

    def identity(self) -> Mapping[str, Any]:
        """What changes the answers beside what stands in a reader of whole pages, as JSON values."""
        modes = sorted(set(self.profile.region_tasks.values()))
        return {
            "region_tasks": dict(self.profile.region_tasks),
            "prompts": {mode: self.profile.prompts[mode] for mode in modes},
            "guides": {mode: guide for mode in modes if (guide := json_values(self.guide(mode)))},
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "ladder": rungs_as_json(self.rungs),
        }

    def guide(self, mode: str) -> Mapping[str, Any]:
        """What forces the form of answers in a mode, where that is wanted."""
        return self.profile.guides.get(mode, {}) if self.options.guided else {}

    async def ask(self, piece: Piece, went_out: Callable[[], None]) -> Asked:
        """Never raises `PageFailure`; `ServerError` passes. `went_out` is called when the first request goes out."""
        tries = Tries(self.options.max_attempts)
        ladder = Ladder(Step(piece.mode, self.temperature, self.max_tokens), self.rungs)
        climber = Climber(self.engine, _Region(self, piece), ladder, tries, went_out, self.options.backoff)
        return Asked(await climber.run(), tries)


class _Region:
    """A region on its way."""

    def __init__(self, how: Questions, piece: Piece) -> None:
        self._how = how
        self._piece = piece
        self._images = Images(piece.image, how.tools)
        self._blank: bool | None = None
        self._empty = 0

    async def question(self, step: Step) -> Question:
        profile = self._how.profile
        return question_of(
            profile,
            step,
            self._piece.id,
            await self._images.sized(step.scale),
            profile.prompts[step.mode],
            vllm_settings={**profile.page_settings, **self._how.guide(step.mode)},
        )

    async def judge(self, answer: Answer, step: Step) -> Verdict[Blocks]:
        parsers = self._how.profile.parsers
        verdict = judge_page(answer, parsers.get(step.mode) or parsers[""], self._images.frame(step.scale))
        if verdict.reason is None:
            return verdict
        self._empty += verdict.reason is Reason.EMPTY
        if self._piece.share < SMALL and self._empty >= EMPTY_TRIES:
            return Verdict((), None, _NOTHING)
        return Verdict((), None, _NOTHING) if await self._is_blank() else verdict

    async def _is_blank(self) -> bool:
        """Asked of each region once, and only of one whose answer is no good."""
        if self._blank is None:
            try:
                self._blank = await self._how.tools.blank(self._piece.image)
            except PageFailure:
                self._blank = False  # then its answer is judged as it is
        return self._blank
