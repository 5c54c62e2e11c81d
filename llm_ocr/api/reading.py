"""What reads the pages of a command: the embedded engine, or a model behind the engine's servers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from llm_ocr.api.engines import Engines, embedded_figures
from llm_ocr.api.job import Job
from llm_ocr.api.layout import by_regions
from llm_ocr.api.models import Model, asked_model, mode_of, named_model, pinned
from llm_ocr.api.wiring import RendererTools, embedded_reader
from llm_ocr.documents.rendering import Renderer
from llm_ocr.engines import FigureReader, PageReader
from llm_ocr.engines.embedded.describe import EmbeddedFigureReader
from llm_ocr.engines.embedded.ocr.models import require_models
from llm_ocr.engines.fleet.fleet import Fleet
from llm_ocr.engines.model.figures import ModelFigureReader
from llm_ocr.engines.model.options import DescribeOptions, ReadOptions
from llm_ocr.engines.model.reader import ModelReader
from llm_ocr.engines.model.tools import QualityRule
from llm_ocr.errors import UsageError
from llm_ocr.models.profile import Profile
from llm_ocr.results.quality import VERSION
from llm_ocr.results.quality.scoring import score
from llm_ocr.settings.groups import Group, QualitySettings
from llm_ocr.settings.model_groups import DescribeGroup, ModelSettings, WhichModel
from llm_ocr.settings.models import FigureCommand, ReadingCommand, ServingCommand
from llm_ocr.stages.admission import Admission
from llm_ocr.work.keys import DESCRIBE, EXTRACT, stage_keys
from llm_ocr.work.workspace import Workspace

#: Bytes of rendered pages that may wait for the server: some seconds' work of most GPUs.
AHEAD = 8 << 20
#: Bytes of a page that a layout detector is looking at.
DETECTED = 2 << 20
#: Rendered pages that may wait, however small they are.
MOST_AHEAD = 512


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader, and how many pages it wants prepared."""

    reader: PageReader
    admission: Admission


def page_profile(settings: WhichModel, engines: Engines) -> Profile | None:
    """The profile of the model that reads pages; None with the embedded engine. Raises `UsageError`."""
    if not engines.uses_models:
        return None
    return asked_model(settings).profile


async def page_model(settings: ServingCommand, engines: Engines, workspace: Workspace | None) -> Model:
    """The model that reads pages, at the commit with which the workspace was begun."""
    asked = asked_model(settings)
    standing = await asyncio.to_thread(known_revision, workspace, EXTRACT, asked.name) if workspace else None
    return await pinned(settings, engines, asked, settings.revision or standing)


def known_revision(workspace: Workspace, stage: str, model: str) -> str | None:
    """The commit with which the stage's newest key of this model was begun."""
    for key in reversed(stage_keys(workspace, stage)):
        reader: Mapping[str, Any] = key.settings.get("reader", {})
        if reader.get("model") == model and reader.get("revision"):
            return str(reader["revision"])
    return None


async def reading(job: Job[ReadingCommand], renderer: Renderer) -> Reading:
    """The reader of the command's pages; a model's servers start at the first page."""
    settings, engines = job.settings, job.engines
    if not engines.uses_models:
        embedded = embedded_reader(settings, figure_labels=embedded_figures(settings))
        return Reading(embedded, Admission(2 * (renderer.workers + embedded.workers)))
    model = await page_model(settings, engines, job.opened)
    fleet = await engines.fleet(model.profile, model=model.name, revision=model.revision)
    options = ReadOptions(
        model=model.name,
        revision=model.revision,
        mode=mode_of(model.profile, settings.mode),
        prompt=settings.prompt,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        max_attempts=settings.max_page_attempts,
        figure_labels=frozenset(settings.crop) or None,
        rotate=settings.rotate,
        figures_from=settings.figures_from,
        anchor=settings.anchor_text,
        guided=settings.guided,
        chosen=model.chosen,
    )
    embedded = embedded_reader(settings, ocr=settings.fallback == "embedded", beside=True)
    fallback = None if settings.fallback == "none" else embedded
    sight = embedded if _needs_sight(settings) else None
    tools = RendererTools(renderer, job.remote)
    reader = ModelReader(fleet, model.profile, tools, options, fallback, sight, _rule(settings))
    layout = await by_regions(job, renderer, reader)
    detected = 0 if layout is None else layout.detector.parallel * DETECTED
    return Reading(layout or reader, _measured(job, fleet, Admission(MOST_AHEAD, AHEAD + detected)))


def _measured(job: Job[Group], fleet: Fleet, admission: Admission) -> Admission:
    """The admission, with what waits there among the numbers that the progress reads."""
    job.progress.measure(lambda: replace(fleet.load(), bytes_waiting=admission.bytes))
    return admission


def _rule(settings: QualitySettings) -> QualityRule | None:
    return QualityRule(settings.min_quality, score, VERSION) if settings.min_quality else None


def _needs_sight(settings: ModelSettings) -> bool:
    """Whether pages are looked at beside the model. Raises `MissingExtra` for what needs OCR where there is none."""
    if settings.rotate == "probe":
        require_models()
    return settings.rotate == "probe" or settings.anchor_text > 0 or settings.figures_from in ("auto", "page")


@dataclass(frozen=True, slots=True)
class Describing:
    """A figure reader, how many figures it wants prepared, and what must be closed at the end."""

    reader: FigureReader
    admission: Admission
    close: Callable[[], Awaitable[None]]


async def describing(job: Job[FigureCommand]) -> Describing:
    """The reader of the command's figures; a model's servers start at the first figure."""
    settings = job.settings
    if not job.engines.uses_models:
        pages = embedded_reader(settings)
        reader = EmbeddedFigureReader(settings.describe_mode, settings.describe_prompt or "", pages.read_figure)
        return Describing(reader, Admission(2 * pages.workers), pages.close)
    other = settings.describe_model
    model = await (_figure_model(job, other) if other else page_model(settings, job.engines, job.workspace))
    if not other and _cannot_describe(model.profile, settings):
        job.progress.say(
            f"{model.profile.name} describes no figures: they get what it said of them when it read the page, else "
            "their captions and the text inside them. Another model describes them: --describe-model qwen3-vl-8b."
        )
        return Describing(EmbeddedFigureReader(), Admission(MOST_AHEAD, AHEAD), _nothing)
    fleet = await job.engines.fleet(model.profile, model=model.name, revision=model.revision)
    options = DescribeOptions(
        mode=settings.describe_mode,
        prompt=settings.describe_prompt,
        classes=tuple(settings.describe_classes),
        max_tokens=settings.describe_max_tokens,
        temperature=settings.describe_temperature,
        max_attempts=settings.max_page_attempts,
        model=model.name,
        revision=model.revision,
        chosen={name: value for name, value in model.chosen.items() if name != "parsers"},  # those are of pages
    )
    figures = ModelFigureReader(fleet, model.profile, options)
    return Describing(figures, _measured(job, fleet, Admission(MOST_AHEAD, AHEAD)), figures.close)


def _cannot_describe(profile: Profile, settings: DescribeGroup) -> bool:
    """Whether the model never learnt what is asked of figures when nothing is chosen."""
    usual = settings.describe_mode == "describe" and settings.describe_prompt is None
    return usual and "describe" not in profile.prompts


async def _nothing() -> None:
    """Nothing to close."""


def keeps_known(settings: DescribeGroup) -> bool:
    """Whether figures keep what was said of them when their page was read. Raises `UsageError` where that answers
    another question than the one that is asked."""
    if settings.describe_known != "keep":
        return False
    if settings.describe_mode != "describe" or settings.describe_prompt is not None:
        raise UsageError(
            "--describe-known keep: what the model said of figures is a description",
            hint="Leave out --describe-prompt and --describe-mode, or ask about all figures: --describe-known ask.",
        )
    return True


async def _figure_model(job: Job[FigureCommand], name: str) -> Model:
    """Another model than the one that read the pages, at the commit with which it first described."""
    asked = named_model(name, own_prompt=True)
    standing = await asyncio.to_thread(known_revision, job.workspace, DESCRIBE, asked.name)
    return await pinned(job.settings, job.engines, asked, standing)
