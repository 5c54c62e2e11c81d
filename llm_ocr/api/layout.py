"""From settings to a reader of pages by their regions: whether there is one, by which detector, at which commit."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_ocr.api.job import Job
from llm_ocr.api.models import commit_now
from llm_ocr.api.wiring import RendererTools, embedded_reader
from llm_ocr.documents.rendering import Renderer
from llm_ocr.engines.layout.detector import Detector
from llm_ocr.engines.layout.doclayout import MODEL, DetectorOptions, DocLayout, installed
from llm_ocr.engines.layout.embedded_detector import EmbeddedDetector
from llm_ocr.engines.layout.reader import LayoutReader
from llm_ocr.engines.layout.tasks import tasks_with
from llm_ocr.engines.model.reader import ModelReader
from llm_ocr.engines.vllm.hardware import gpus
from llm_ocr.errors import UsageError, install_command
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import PROFILES
from llm_ocr.settings.environment import cores
from llm_ocr.settings.models import PlanSettings, ReadingCommand
from llm_ocr.types import Box, EncodedImage
from llm_ocr.work.keys import EXTRACT, stage_keys
from llm_ocr.work.workspace import Workspace

EMBEDDED = "embedded"


class LayoutTools(RendererTools):
    """What readers of regions need done with images: in the renderer's processes, never in the event loop."""

    async def crops(self, image: EncodedImage, boxes: Sequence[Box]) -> tuple[EncodedImage, ...]:
        """The parts of an image under relative boxes, in order."""
        return await self._renderer.crop(image, boxes)


async def by_regions(job: Job[ReadingCommand], renderer: Renderer, whole: ModelReader) -> LayoutReader | None:
    """The reader of pages by their regions, over that of whole pages; None where pages are read whole.

    Says so where the model's usual way is another. Raises `UsageError` where it was asked for and cannot be.
    """
    settings = job.settings
    name = chosen_detector(settings, whole.profile, job.progress.say)
    if name is None:
        return None
    tools = LayoutTools(renderer, job.remote)
    tasks = tasks_with(settings.region_task, any_label=name not in (MODEL, EMBEDDED))
    detector = _embedded(job, tools) if name == EMBEDDED else await _trained(job, name)
    return LayoutReader(whole.engine, whole.profile, detector, tools, tasks, whole, whole.options, whole.rule)


def chosen_detector(settings: PlanSettings, profile: Profile, say: Callable[[str], None]) -> str | None:
    """The detector's id, folder or `embedded`; None for whole pages. Raises `UsageError`."""
    always = settings.layout_first == "always"
    if settings.layout_first == "never" or not (always or profile.layout_first):
        return None
    if not profile.region_tasks:
        able = ", ".join(sorted(one.name for one in PROFILES if one.region_tasks))
        raise UsageError(
            f"--layout-first always: {profile.name} has no prompts for regions", hint=f"Those have: {able}."
        )
    for flag, value in (("--prompt", settings.prompt), ("--mode", settings.mode)):
        if value is not None and always:
            raise UsageError(f"{flag} is about whole pages", hint=f"Leave out {flag} or --layout-first always.")
        if value is not None:
            say(f"{profile.name}: whole pages are read, since {flag} was given")
            return None
    if settings.detector is not None or settings.detector_python is not None or installed():
        return settings.detector or MODEL
    install = f"Install it: {install_command('detector')}"
    if always:
        say(f"The embedded engine's layout stands in for {MODEL}, which is not installed. {install}")
        return EMBEDDED
    say(
        f"{profile.name} is best at regions that a detector found, and none is installed: whole pages are read. "
        f"{install}; or use the embedded engine's layout: --layout-first always"
    )
    return None


def _embedded(job: Job[ReadingCommand], tools: LayoutTools) -> Detector:
    reader = embedded_reader(job.settings)
    return EmbeddedDetector(reader, tools, workers=reader.workers)


async def _trained(job: Job[ReadingCommand], name: str) -> Detector:
    settings = job.settings
    commit = settings.detector_revision or await asyncio.to_thread(_standing, job.opened, name)
    commit = commit or await commit_now(settings, job.engines, name)
    return DocLayout(
        DetectorOptions(
            workers=settings.detector_workers or cores(),
            model=name,
            revision=commit,
            threshold=settings.detector_threshold,
            device=settings.detector_device,
            gpu=settings.detector_device != "cpu" and bool(gpus()),
            offline=settings.offline,
            cache=settings.model_cache,
            python=str(settings.detector_python or ""),
            timeout=settings.page_timeout,
            confined=settings.confinement != "off",
        )
    )


def _standing(workspace: Workspace | None, name: str) -> str | None:
    """The commit with which the workspace's newest key of this detector was begun."""
    for key in reversed(stage_keys(workspace, EXTRACT)) if workspace else ():
        layout: Mapping[str, Any] = key.settings.get("reader", {}).get("layout_first", {})
        detector = layout.get("detector", {})
        if detector.get("model") == name and detector.get("revision"):
            return str(detector["revision"])
    return None
