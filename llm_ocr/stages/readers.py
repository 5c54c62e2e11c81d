"""Open the readers of pages and figures that the settings choose, and OCR that verifies the text of a model."""

import asyncio
import contextlib
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from llm_ocr.config.environment import cache_folder, cores
from llm_ocr.config.groups import (
    EMBEDDED,
    HYBRID,
    SERVER,
    DescribeGroup,
    EmbeddedSettings,
)
from llm_ocr.config.models import FigureCommand, PlanSettings, ReadingCommand, RepairSettings
from llm_ocr.documents.rendering import Renderer
from llm_ocr.engines import EngineOptions, FigureReader, LanguageModel, LocalReader, PageReader
from llm_ocr.engines.slices import slices_of
from llm_ocr.engines.vllm.sizing import gpus
from llm_ocr.engines.vlm.figures import ModelFigureReader
from llm_ocr.engines.vlm.reader import ModelReader
from llm_ocr.engines.vlm.requests import DescribeOptions, ImageTools, QualityRule, ReadOptions
from llm_ocr.errors import PageFailure, UsageError, install_command
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import all_profiles
from llm_ocr.plugins import ENGINES
from llm_ocr.results.quality import VERSION
from llm_ocr.results.quality.scoring import Limits
from llm_ocr.results.quality.text_layer import is_true
from llm_ocr.results.routing import THRESHOLD, gain_probability
from llm_ocr.stages.engine_choice import figure_labels
from llm_ocr.stages.flow import Admission
from llm_ocr.stages.job import Job
from llm_ocr.stages.model_choice import commit_now, known_revision, mode_of, named_model, page_model, pinned
from llm_ocr.stages.rendering import PartRenderer
from llm_ocr.types import Attempt, Box, OcrText, Page, PageRecord, Status
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, used_settings

if TYPE_CHECKING:
    from llm_ocr.engines.regions.detection import Detector
    from llm_ocr.engines.regions.reader import LayoutReader


def embedded_reader(
    settings: EmbeddedSettings,
    *,
    engine: str = EMBEDDED,
    ocr: bool = True,
    background: bool = False,
    workers: int | None = None,
    figure_labels: frozenset[str] | None = None,
    language: LanguageModel | None = None,
    with_ocr: bool = False,
) -> LocalReader:
    """Return the CPU engine, by default with one process per core.

    Args:
        settings: The settings.
        engine: The engine's name, if it is that of another package.
        ocr: Whether OCR is available to it.
        background: See `EngineOptions`.
        workers: Number of processes, instead of that of the settings.
        figure_labels: See `EngineOptions`.
        language: The recognizer of another language; see `ocr_language`.
        with_ocr: See `EngineOptions`.
    """
    return ENGINES.get(engine).page_reader(
        EngineOptions(
            workers=workers or settings.ocr_workers or cores(),
            memory=settings.ocr_memory << 20,
            timeout=settings.page_timeout,
            text_layer=settings.text_layer == "auto",
            ocr=ocr,
            confined=settings.confinement != "off",
            background=background,
            figure_labels=figure_labels,
            language=language,
            with_ocr=with_ocr,
        )
    )


async def ocr_language(
    settings: EmbeddedSettings, say: Callable[[str], object], engine: str = EMBEDDED
) -> LanguageModel | None:
    """Return the recognizer of the user's language; None without one. It is downloaded if it is not in the cache.

    Args:
        settings: The settings.
        say: Receives messages on the progress of a download.
        engine: The engine's name.

    Raises:
        LlmOcrError: The recognizer of the language is not available.
        MissingExtra: There is a language, and OCR is not installed.
    """
    language = settings.ocr_language
    if not language:
        return None
    stop = threading.Event()
    try:
        folder = cache_folder() / "ocr"
        find = ENGINES.get(engine).language_model
        return await asyncio.to_thread(find, language, folder, say=say, stopped=stop.is_set)
    finally:
        stop.set()  # a canceled download ends its thread


#: Bytes of page images that wait for OCR above which new requests wait: 150 to 400 pages, minutes of a process.
MOST_WAITING = 64 << 20
#: Bytes of rendered pages that may wait for the server: seconds of work for most GPUs.
AHEAD = 8 << 20
#: Bytes of a page in a layout detector.
DETECTED = 2 << 20
#: Rendered pages that may wait, whatever their size.
MOST_AHEAD = 512
#: Bytes of pages that the CPU engine has read, and that wait for the model.
READ_AHEAD = 64 << 20


class Verifier:
    """OCR of pages that a model reads, as evidence for their text. `close()` ends its processes.

    OCR of a page starts when its request is sent, and the page's row waits for it. Requests never wait for OCR while
    the images that OCR has not read yet have less than `MOST_WAITING` bytes together. From there on, pages wait before
    their first request. Pages whose layer is true are not read.

    Args:
        reader: The CPU engine, which no other part uses: fallbacks must not wait for OCR.
        cropper: Cuts tall pages into slices.
        most_waiting: Bytes of waiting images.
    """

    def __init__(self, reader: LocalReader, cropper: ImageTools, most_waiting: int = MOST_WAITING) -> None:
        self._reader = reader
        self._cropper = cropper
        self._most_waiting = most_waiting
        self.waiting = 0  # bytes of the images that OCR has not read yet
        self._read = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[OcrText]] = {}  # by the page object: sessions read pages of one id

    def identity(self) -> Mapping[str, Any]:
        """Return what changes the evidence, as JSON values for the stage's key."""
        version = ENGINES.get(self._reader.name).result_version
        return {"result_version": version, **self._reader.ocr_models()}

    async def wait_for_room(self) -> None:
        """Return when fewer bytes wait than the limit."""
        while self.waiting >= self._most_waiting:
            self._read.clear()
            await self._read.wait()

    def begin(self, page: Page) -> None:
        """Start the OCR of a page whose request is sent.

        A page with a true layer needs none, and neither does one that OCR has read before.
        """
        evidence = page.evidence
        if id(page) in self._tasks or evidence is None or evidence.undrawn or evidence.ocr:
            return
        if is_true(evidence, Attempt("", "model", Status.OK)):
            return
        self.waiting += len(page.image.data)
        task = self._tasks[id(page)] = asyncio.create_task(self._ocr_text(page))
        task.add_done_callback(lambda done: self._done(done, len(page.image.data)))

    def _done(self, task: asyncio.Task[OcrText], size: int) -> None:
        self.waiting -= size
        self._read.set()
        if not task.cancelled():
            task.exception()  # consumed, also if the page fails before it is asked for

    async def _ocr_text(self, page: Page) -> OcrText:
        """Read a page, in slices if it is tall: small letters of a tall page are too small as a whole."""
        if not page.slice_height:
            return await self._reader.ocr_text(page)
        boxes = slices_of(page)
        images = await self._cropper.crop(page.image, boxes)
        parts = await asyncio.gather(*(self._reader.ocr_text(replace(page, image=image)) for image in images))
        lines = []
        for slice_box, part in zip(boxes, parts, strict=True):
            for line in part.lines:
                top, bottom = (slice_box.y0 + side * slice_box.height for side in (line.box.y0, line.box.y1))
                lines.append(replace(line, box=Box(line.box.x0, top, line.box.x1, bottom), boxes=()))
        return OcrText(tuple(lines), parts[0].scripts)

    async def verified(self, page: Page) -> tuple[Page, str]:
        """Return the page with the text of OCR as evidence, or unchanged, and the reason if OCR failed."""
        task = self._tasks.get(id(page))
        if task is None or page.evidence is None:
            return page, ""
        try:
            text = await asyncio.shield(task)
        except PageFailure as failure:  # no fault of the page
            return page, f"the text was not compared with OCR: {failure.why}"
        return replace(page, evidence=replace(page.evidence, ocr=text)), ""

    def forget(self, page: Page) -> None:
        """Drop the text of a page whose row is complete. The OCR of a page that failed stops."""
        if task := self._tasks.pop(id(page), None):
            task.cancel()

    async def close(self) -> None:
        """End the processes."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reader.close()


@dataclass(frozen=True, slots=True)
class Route:
    """Choice of the pages that a model reads."""

    threshold: float = THRESHOLD  # least probability that the model's answer is better
    share: float | None = None  # largest share of the pages of a unit; None: all pages from the threshold on

    def chosen(self, unit: str, rows: Sequence[PageRecord]) -> list[int]:
        """Return the positions of the pages for the model, those with the highest probabilities first.

        Args:
            unit: Id of the unit. It decides whether a part of a page is rounded up or down, so that many small units
                have the share together, and a unit that is read twice has the same pages.
            rows: The rows of the unit's pages by the CPU engine.
        """
        probabilities = [gain_probability(row) for row in rows]
        found = [place for place, probability in enumerate(probabilities) if probability >= self.threshold]
        found.sort(key=lambda place: -probabilities[place])
        if self.share is None:
            return found
        return found[: int(self.share * len(rows) + zlib.crc32(unit.encode()) / 2**32)]


@dataclass(frozen=True, slots=True)
class Reading:
    """A page reader, and what belongs to its pages."""

    reader: PageReader
    admission: Admission  # of its pages
    transcribes: Callable[[], bool] = lambda: False  # whether a model is asked for the pages' own text; see `rated`
    verifier: Verifier | None = None  # OCR that verifies the text, if asked
    first: PageReader | None = None  # the CPU engine, which reads each page before `reader` with the engine `hybrid`
    route: Route = field(default_factory=Route)  # chooses the pages that `reader` reads after `first`
    ahead: Admission | None = None  # admission of the pages that `first` has read, and that wait for `reader`

    async def close(self) -> None:
        """Close the readers and the verifier."""
        for part in (self.reader, self.verifier, self.first):
            if part is not None:
                await part.close()


#: Modes whose own prompts ask for the whole text of a page.
_WHOLE_TEXT = (None, "layout", "layout-markdown", "markdown", "text")


def limits_of(settings: ReadingCommand) -> Limits:
    """Return the limits of a page that is `ok`. Those of ink are measured for answers in a profile's first mode."""
    measured = settings.mode is None
    return Limits(settings.min_quality, settings.max_unread, settings.max_unsupported, settings.verify, measured)


async def reading(job: Job[ReadingCommand], renderer: Renderer) -> Reading:
    """Return the reader of the command's pages. A model's servers start at the first page."""
    settings, engines = job.settings, job.engines
    if not engines.uses_models:
        name = engines.engine
        labels = figure_labels(settings, name)
        language = await ocr_language(settings, job.progress.say, name)
        embedded = embedded_reader(settings, engine=name, figure_labels=labels, language=language)
        return Reading(embedded, Admission(2 * (renderer.workers + embedded.workers)))
    model = await page_model(settings, engines, job.opened)
    pool = await engines.pool(model.profile, model=model.name, revision=model.revision)
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
    hybrid = settings.engine == HYBRID
    first = await _first_reader(job) if hybrid else None
    # Only then: without OCR as evidence, the setting has no effect with a model.
    language = await ocr_language(settings, job.progress.say) if settings.verify == "ocr" else None
    has_ocr = settings.fallback == "embedded"
    embedded = first or embedded_reader(settings, ocr=has_ocr, background=True, language=language if has_ocr else None)
    fallback = None if hybrid or settings.fallback == "none" else embedded
    if settings.rotate == "probe" and (missing := ENGINES.get(EMBEDDED).missing()):
        raise missing
    inspects = settings.rotate == "probe" or settings.anchor_text > 0 or settings.figures_from in ("auto", "page")
    inspector = embedded if inspects else None
    limits = limits_of(settings)
    asked: dict[str, float] = {"min_quality": limits.min_quality} if limits.min_quality else {}
    for name, limit in (("max_unread", limits.max_unread), ("max_unsupported", limits.max_unsupported)):
        asked |= {} if limit is None else {name: limit}
    tools = PartRenderer(renderer, job.remote)
    verifier = None
    if settings.verify == "ocr":
        workers = settings.ocr_workers or max(1, cores() // 2)  # the others are for the model's pages
        verifier = Verifier(embedded_reader(settings, background=True, workers=workers, language=language), tools)
    judged = {**asked, "version": VERSION}
    rule = QualityRule(limits.judge, judged, verifier.verified if verifier else None) if asked else None
    reader = ModelReader(pool, model.profile, tools, options, fallback, inspector, rule)
    layout = await by_regions(job, tools, reader)
    detected = 0 if layout is None else layout.detector.parallel * DETECTED
    # A model is asked for a page's own text in such a mode of a known profile, with its own prompts.
    transcribes = settings.prompt is None and settings.mode in _WHOLE_TEXT
    own_text = transcribes and not settings.region_task and not model.chosen
    ahead = Admission(MOST_AHEAD, READ_AHEAD if first else AHEAD + detected)
    admission = Admission(2 * (renderer.workers + first.workers)) if first else ahead
    job.progress.measure(lambda: replace(pool.load(), bytes_waiting=ahead.bytes, capped=admission.capped))
    route = Route(THRESHOLD if settings.model_threshold is None else settings.model_threshold, settings.model_share)
    # Whether a server is the simulator is known when it has answered.
    return Reading(layout or reader, admission, lambda: own_text and not pool.simulated, verifier, first, route, ahead)


async def _first_reader(job: Job[ReadingCommand]) -> LocalReader:
    """Return the CPU engine that reads each page before the model."""
    settings = job.settings
    labels = frozenset() if settings.figures_from == "none" else frozenset(settings.crop) or None
    language = await ocr_language(settings, job.progress.say)
    if missing := ENGINES.get(EMBEDDED).missing():
        job.progress.say(f"OCR is not installed: the model reads all scans. {missing.hint}")
    return embedded_reader(
        settings,
        ocr=missing is None,
        background=True,
        figure_labels=labels,
        language=language,
        with_ocr=settings.verify == "ocr",
    )


@contextlib.asynccontextmanager
async def describing(job: Job[FigureCommand]) -> AsyncIterator[tuple[FigureReader, Admission]]:
    """Open the reader of the command's figures, with their admission. A model's servers start at the first figure."""
    settings = job.settings
    if not job.engines.uses_models:
        name = job.engines.engine
        pages = embedded_reader(settings, engine=name, language=await ocr_language(settings, job.progress.say, name))
        try:
            reader = ENGINES.get(name).figure_reader(settings.describe_mode, settings.describe_prompt or "", pages)
            yield reader, Admission(2 * pages.workers)
        finally:
            await pages.close()
        return
    other = settings.describe_model
    if other:  # at the commit of its first use
        asked = named_model(other, own_prompt=True, served=job.engines.engine == SERVER)
        used = await asyncio.to_thread(known_revision, job.workspace, DESCRIBE, asked.name)
        model = await pinned(settings, job.engines, asked, used)
    else:
        model = await page_model(settings, job.engines, job.workspace)
    usual = settings.describe_mode == "describe" and settings.describe_prompt is None
    if not other and usual and "describe" not in model.profile.prompts:
        job.progress.say(
            f"{model.profile.name} does not describe figures. Their descriptions come from the page's answer, "
            "otherwise from their captions and the text inside them. Another model: `describe_model=qwen3-vl-8b`."
        )
        yield ENGINES.get(EMBEDDED).figure_reader(), Admission(MOST_AHEAD, AHEAD)
        return
    pool = await job.engines.pool(model.profile, model=model.name, revision=model.revision)
    options = DescribeOptions(
        mode=settings.describe_mode,
        prompt=settings.describe_prompt,
        classes=tuple(settings.describe_classes),
        max_tokens=settings.describe_max_tokens,
        temperature=settings.describe_temperature,
        max_attempts=settings.max_page_attempts,
        model=model.name,
        revision=model.revision,
        chosen={name: value for name, value in model.chosen.items() if name != "parsers"},  # of pages only
    )
    admission = Admission(MOST_AHEAD, AHEAD)
    job.progress.measure(lambda: replace(pool.load(), bytes_waiting=admission.bytes, capped=admission.capped))
    yield ModelFigureReader(pool, model.profile, options), admission


def keeps_known(settings: DescribeGroup) -> bool:
    """Return whether figures keep the description from when their page was read.

    Raises:
        UsageError: The settings request another kind of description.
    """
    if settings.describe_known != "keep":
        return False
    if settings.describe_mode != "describe" or settings.describe_prompt is not None:
        raise UsageError(
            "`describe_known=keep` keeps descriptions only",
            hint="Remove `describe_prompt` and `describe_mode`, or describe all figures: `describe_known=ask`.",
        )
    return True


async def by_regions(job: Job[ReadingCommand], tools: PartRenderer, whole: ModelReader) -> "LayoutReader | None":
    """Return the reader of pages by regions, or None if pages are read whole.

    The progress receives a message if the choice differs from the model's default.

    Args:
        job: The command.
        tools: Crops the regions.
        whole: The reader of whole pages.

    Raises:
        UsageError: Reading by regions was requested and is not possible.
    """
    settings = job.settings
    name = chosen_detector(settings, whole.profile, job.progress.say)
    if name is None:
        return None
    from llm_ocr.engines.regions.detection import tasks_with
    from llm_ocr.engines.regions.doclayout import MODEL
    from llm_ocr.engines.regions.reader import LayoutReader

    tasks = tasks_with(settings.region_task, any_label=name not in (MODEL, EMBEDDED))
    if name == EMBEDDED:
        detector = ENGINES.get(EMBEDDED).detector(embedded_reader(settings), tools)
    else:
        detector = await _trained(job, name)
    return LayoutReader(whole.engine, whole.profile, detector, tools, tasks, whole, whole.options, whole.rule)


def chosen_detector(
    settings: PlanSettings | RepairSettings, profile: Profile, say: Callable[[str], None]
) -> str | None:
    """Return the detector's id, folder, or `embedded`; None for whole pages. Raises `UsageError`."""
    always = settings.layout_first == "always"
    if settings.layout_first == "never" or not (always or profile.layout_first):
        return None
    if not profile.region_tasks:
        able = ", ".join(sorted(one.name for one in all_profiles() if one.region_tasks))
        raise UsageError(
            f"`layout_first=always`: {profile.name} has no prompts for regions", hint=f"Models that have: {able}."
        )
    for name, value in (("`prompt`", settings.prompt), ("`mode`", settings.mode)):
        if value is not None and always:
            raise UsageError(f"{name} applies to whole pages", hint=f"Remove {name} or `layout_first=always`.")
        if value is not None:
            say(f"{profile.name}: reading whole pages because of {name}")
            return None
    from llm_ocr.engines.regions.doclayout import MODEL, installed

    if settings.detector is not None or settings.detector_python is not None or installed():
        return settings.detector or MODEL
    install = f"Install it: {install_command('detector')}"
    if always:
        say(f"Using the embedded engine's layout because {MODEL} is not installed. {install}")
        return EMBEDDED
    say(
        f"{profile.name} works best with a layout detector, and none is installed: reading whole pages. "
        f"{install}, or use the embedded engine's layout: `layout_first=always`"
    )
    return None


async def _trained(job: Job[ReadingCommand], name: str) -> "Detector":
    """Return a trained detector, at the commit in the workspace's newest settings of it."""
    from llm_ocr.engines.regions.doclayout import DetectorOptions, DocLayout

    settings, commit = job.settings, job.settings.detector_revision
    if not commit and job.opened is not None:
        for used in await asyncio.to_thread(used_settings, job.opened, EXTRACT):
            detector = used.get("reader", {}).get("layout_first", {}).get("detector", {})
            if detector.get("model") == name and detector.get("revision"):
                commit = str(detector["revision"])
                break
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
