"""Build renderers, readers, and remote documents from settings."""

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import yaml
from pydantic import SecretStr

from llm_ocr.config.environment import cores
from llm_ocr.config.groups import (
    DatasetSettings,
    DescribeGroup,
    EmbeddedSettings,
    Group,
    ModelSettings,
    QualitySettings,
    RemoteSettings,
    RenderSettings,
    VllmSettings,
    WhichModel,
)
from llm_ocr.config.models import FigureCommand, PlanSettings, ReadingCommand, ServingCommand
from llm_ocr.documents.remote.urls import RemoteOptions, is_remote
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.documents.rows.address import DatasetOptions, row_address
from llm_ocr.engines import FigureReader, PageReader
from llm_ocr.engines.embedded.describe import EmbeddedFigureReader
from llm_ocr.engines.embedded.ocr.models import require_models
from llm_ocr.engines.embedded.reader import EmbeddedOptions, EmbeddedReader
from llm_ocr.engines.pool.pool import ServerPool
from llm_ocr.engines.regions.detection import Detector, tasks_with
from llm_ocr.engines.regions.doclayout import MODEL, DetectorOptions, DocLayout, installed
from llm_ocr.engines.regions.embedded_detector import EmbeddedDetector
from llm_ocr.engines.regions.reader import LayoutReader
from llm_ocr.engines.vllm.hardware import gpus
from llm_ocr.engines.vlm.figures import ModelFigureReader
from llm_ocr.engines.vlm.reader import ModelReader, has_places
from llm_ocr.engines.vlm.requests import DescribeOptions, QualityRule, ReadOptions
from llm_ocr.errors import UsageError, install_command
from llm_ocr.models.parsers import parser_named
from llm_ocr.models.profile import Profile
from llm_ocr.models.profile_file import profile_from
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.registry import PROFILES, find_profile
from llm_ocr.results.quality import VERSION
from llm_ocr.results.quality.scoring import score
from llm_ocr.stages import Progress
from llm_ocr.stages.flow import Admission
from llm_ocr.stages.servers import SERVER, Engines, content_of, embedded_figures, on_store
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Box, DocumentPart, EncodedImage, Page, Unit, page_id
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, stage_keys

if TYPE_CHECKING:
    from llm_ocr.documents.remote.cache import Fetched, LocalCopy
    from llm_ocr.documents.remote.listing import RemoteDocuments
    from llm_ocr.documents.rows.images import RowImages


# Where a worker's servers write their logs.


#: Below the workspace.
FOLDER = "logs"


def worker_name() -> str:
    """Says when, where and by which process, so that many workers do not mix their logs."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{socket.gethostname()}-{os.getpid()}"


def log_folder(workspace: Workspace, worker: str) -> Path:
    """The folder for a worker's servers' logs: in the workspace when it is local, else in its spool. It is not made."""
    root = workspace.store.root if isinstance(workspace.store, LocalStore) else workspace.spool
    return root / FOLDER / worker


# Documents on stores, on the web and in datasets, for the parts that open them; nothing is made before one is.


def remote_options(settings: RemoteSettings) -> RemoteOptions:
    """How the settings say that remote documents are read."""
    return RemoteOptions(
        store=StoreOptions(settings.source_profile, settings.source_endpoint, settings.source_region, any_key=True),
        cache_bytes=settings.source_cache << 20,
        allow_private_addresses=settings.allow_private_addresses,
    )


def dataset_options(settings: DatasetSettings) -> DatasetOptions | None:
    """Which rows of a dataset the settings mean; None for none."""
    if settings.dataset is None:
        return None
    return DatasetOptions(
        name=settings.dataset,
        config=settings.dataset_config,
        split=settings.dataset_split,
        revision=settings.dataset_revision,
        image_column=settings.image_column,
        id_column=settings.id_column,
    )


class Remote:
    """Gives remote documents as local files, for as long as a block lasts; needs `close`."""

    def __init__(self, settings: Group) -> None:
        # Commands without these settings open no documents.
        self._options = remote_options(settings) if isinstance(settings, RemoteSettings) else RemoteOptions()
        self._documents: RemoteDocuments | None = None
        self._rows: RowImages | None = None

    def open(self, source: str, version: str = "") -> "AbstractAsyncContextManager[LocalCopy]":
        """As `RemoteDocuments.open`."""
        return self._opened().open(source, version)

    async def look(self, source: str) -> "Fetched":
        """As `RemoteDocuments.look`."""
        return await self._opened().look(source)

    def _opened(self) -> "RemoteDocuments":
        if self._documents is None:
            from llm_ocr.documents.remote.listing import RemoteDocuments

            self._documents = RemoteDocuments(self._options)
        return self._documents

    @contextlib.asynccontextmanager
    async def page(self, source: str, version: str, number: int) -> AsyncIterator[tuple[Path, int]]:
        """A local file that has page `number` of a document, and its number there; raises as `open`.

        Each image of a dataset's row is a file of its own; `StorageError` when the dataset cannot be read.
        """
        address = row_address(source)
        if address is None:
            async with self.open(source, version) as copy:
                yield copy.path, number
            return
        if self._rows is None:
            from llm_ocr.documents.rows.images import RowImages

            self._rows = RowImages(self._options, self.open)
        async with self._rows.open(address, number) as path:
            yield path, 1

    async def close(self) -> None:
        """Remove the local files."""
        if self._rows is not None:
            await self._rows.close()
        if self._documents is not None:
            await self._documents.close()


# What the stages of one command share.


S_co = TypeVar("S_co", bound=Group, covariant=True)


@dataclass(frozen=True, slots=True)
class Share:
    """Units to do. `mine` says whether a unit's rows may still be published, `done` that they were.

    `begun` hears of the key under which they are published, before the first one is taken.
    """

    units: Iterable[Unit]
    mine: Callable[[str], bool] = lambda unit: True
    done: Callable[[str], None] = lambda unit: None
    begun: Callable[[str], None] = lambda key: None


@dataclass(frozen=True, slots=True)
class Job(Generic[S_co]):
    """One command at work. `settings` are those of the command; without a workspace only single pages are read.

    `command` is its name as users type it; it is stored with the settings that later commands need not repeat.
    `given` are the units to do where somebody else hands them out; else `api.sharing` finds them. When `stop` says so,
    no unit is begun any more, and those that were begun are finished.
    """

    opened: Workspace | None
    settings: S_co
    progress: Progress
    engines: Engines
    remote: Remote
    given: Share | None = None
    stop: Callable[[], bool] = lambda: False
    command: str = ""

    @property
    def workspace(self) -> Workspace:
        """The workspace of a command that has one."""
        if self.opened is None:
            raise RuntimeError("a page without a workspace belongs to no stage")
        return self.opened


# From settings to the models of a command: which one, at which commit, asked how.


_log = logging.getLogger(__name__)

#: Seconds that asking for a model's newest commit may take.
_HUB_TIMEOUT = 20.0
_FILES = (".toml", ".yaml", ".yml")
#: Names of ways to read a page that other tools have, and ours: the first that a model has.
_MODES = {"layout-all": ("layout",), "ocr": ("text", "markdown")}


@dataclass(frozen=True, slots=True)
class Asked:
    """A profile and the weights to load: an id, a folder, or the URL of a store.

    `chosen`: what the user chose that changes answers, or what is made of them, and stands in nothing else; for keys.
    """

    profile: Profile
    name: str
    chosen: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model(Asked):
    """At a commit: None where it is not known or has none (a folder). For a store what stands for one."""

    revision: str | None = None


def asked_model(settings: WhichModel) -> Asked:
    """The model that reads pages. Raises `UsageError` when it cannot be told what is meant."""
    # A command that has no prompts reads no pages.
    own_prompt = not isinstance(settings, ModelSettings) or settings.prompt is not None
    asked = named_model(settings.model, settings.weights, own_prompt=own_prompt, parser=settings.parser)
    return _with_template(asked, settings.chat_template)


def named_model(name: str, weights: str | None = None, *, own_prompt: bool, parser: str | None = None) -> Asked:
    """The profile of a model, and what to load.

    `name`: that of a profile, a profile's file, or, where the user brings the prompt, any model. `parser`: the name of
    the one that reads its answers, where it is not the profile's. Raises `UsageError`.
    """
    profile, of_user = _profile(name, own_prompt=own_prompt, parser=parser)
    if parser is not None and not of_user.get("generic"):
        profile = replace(profile, parsers={"": parser_named(parser).parse})
    chosen: dict[str, Any] = {}
    if of_user or parser is not None:
        chosen["parsers"] = {mode: one.__name__ for mode, one in sorted(profile.parsers.items())}
    return Asked(profile, weights or profile.model, chosen)


def mode_of(profile: Profile, name: str | None) -> str | None:
    """The profile's mode that a user means; a name that is none comes back as it is."""
    if name is None or name in profile.prompts:
        return name
    meant = _MODES.get(name, ())
    return next((mode for mode in meant if mode in profile.prompts), name)


async def pinned(settings: VllmSettings, engines: Engines, asked: Asked, revision: str | None) -> Model:
    """The model at a commit: the one that was asked for, the profile's, or the newest, which is then recorded."""
    name = asked.name
    commit = revision or (asked.profile.revision if name == asked.profile.model else None)
    if commit is None and engines.engine != SERVER:
        commit = await commit_now(settings, engines, name)
    return Model(asked.profile, name, asked.chosen, commit)


async def commit_now(settings: VllmSettings, engines: Engines, name: str) -> str | None:
    """`newest_commit`, asked once a command: another answer later would be another model."""
    if name not in engines.commits:
        offline, cache = settings.offline, settings.model_cache
        engines.commits[name] = await asyncio.to_thread(newest_commit, name, offline=offline, cache=cache)
    return engines.commits[name]


def newest_commit(model: str, *, offline: bool, cache: Path | None) -> str | None:
    """The commit that `main` stands for, on the Hub or, offline, in the local cache.

    For a model on a store what stands for one. None for a folder, which has none, and when nobody can tell.
    """
    if on_store(model):
        return content_of(model, offline=offline, cache=cache)
    if Path(model).is_dir():
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if not offline:
        # The error of the HTTP library, which is another one in other releases: no answer at all.
        no_answer: type[BaseException] = HfHubHTTPError.__bases__[0]
        try:
            return HfApi().model_info(model, timeout=_HUB_TIMEOUT).sha
        except (HfHubHTTPError, no_answer, OSError, ValueError) as error:
            _log.warning("the newest commit of %s is not known: %s", model, error)
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(cache or HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "refs" / "main"
    try:
        return folder.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _profile(name: str, *, own_prompt: bool, parser: str | None) -> tuple[Profile, Mapping[str, bool]]:
    """The profile, and whether it is the user's own: of a file, or of a model without one."""
    if not on_store(name) and name.endswith(_FILES):
        return profile_from(_read(name), name), {"file": True}
    try:
        return find_profile(name), {}
    except UsageError as error:
        if not (on_store(name) or "/" in name or Path(name).is_dir()):
            raise
        if not own_prompt:
            raise UsageError(error.args[0], hint=_without_profile(name, error.hint)) from None
    return generic(name, parser=parser or "plain"), {"generic": True}


def _without_profile(name: str, hint: str) -> str:
    """What to do about a model that nothing is known of."""
    tail = name.rstrip("/").rpartition("/")[2].casefold()
    like = [one for one in PROFILES if tail in (one.name, one.model.rpartition("/")[2].casefold(), *one.aliases)]
    if like:
        return f"If it is that model: --model {like[0].name} --weights {name}"
    return f'{hint} Any other model needs the prompt that it knows: --prompt "…", and --parser for what it answers.'


def _read(path: str) -> Mapping[str, Any]:
    """The values of a profile's file. Raises `UsageError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"--model {path}: {why or error}", hint="A profile is a TOML or YAML file.") from error
    try:
        values = tomllib.loads(text) if path.endswith(".toml") else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"--model {path}: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict):
        raise UsageError(f"--model {path}: holds no names and values")
    return values


def _with_template(asked: Asked, path: str | None) -> Asked:
    """With a chat template of the user's for our own server."""
    if path is None:
        return asked
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"--chat-template {path}: {error.strerror or error}") from error
    place = str(Path(path).absolute())
    profile = replace(asked.profile, server_args=(*asked.profile.server_args, "--chat-template", place))
    chosen = {**asked.chosen, "chat_template": hashlib.sha256(content).hexdigest()[:12]}
    return replace(asked, profile=profile, chosen=chosen)


# From settings to the parts that do the work.


#: Longest side of page images for the embedded engine, in pixels.
EMBEDDED_IMAGE_SIZE = 1540


def passwords(given: Sequence[SecretStr], file: Path | None) -> tuple[str, ...]:
    """The passwords to try, those of the file last. Raises UsageError when the file cannot be read."""
    found = [secret.get_secret_value() for secret in given]
    if file is not None:
        try:
            found += [line for line in file.read_text(encoding="utf-8").splitlines() if line]
        except OSError as error:
            raise UsageError(f"--password-file {file}: {error.strerror or error}") from error
    return tuple(found)


def render_options(settings: RenderSettings, secrets: tuple[str, ...], profile: Profile | None = None) -> RenderOptions:
    """How pages are rendered: for a model as its profile says, else for the embedded engine, JPEG where left open."""
    chosen: str = settings.image_format
    if chosen == "auto":
        chosen = profile.image.format if profile else "jpeg"
    return RenderOptions(
        image_size=settings.image_size or (profile.image.longest_side if profile else EMBEDDED_IMAGE_SIZE),
        image_format=chosen,
        text_layer=profile is None or (isinstance(settings, ModelSettings) and _leans_on_text(settings, profile)),
        renderer=settings.renderer,
        timeout=settings.render_timeout,
        memory=settings.render_memory << 20,
        passwords=secrets,
        workers=settings.render_workers or cores(),
        confined=settings.confinement != "off",
    )


def _leans_on_text(settings: ModelSettings, profile: Profile) -> bool:
    """Whether most pages' text layers are needed beside the model: later, the document would be opened once more."""
    from_page = settings.figures_from == "page" or (
        settings.figures_from == "auto" and not has_places(profile, mode_of(profile, settings.mode) or profile.mode)
    )
    return from_page or settings.rotate == "probe" or settings.anchor_text > 0


def embedded_reader(
    settings: EmbeddedSettings, *, ocr: bool = True, beside: bool = False, figure_labels: frozenset[str] | None = None
) -> EmbeddedReader:
    """The CPU engine, one process a core unless the settings say otherwise.

    `beside` and `figure_labels`: see `EmbeddedOptions`.
    """
    return EmbeddedReader(
        EmbeddedOptions(
            workers=settings.ocr_workers or cores(),
            memory=settings.ocr_memory << 20,
            timeout=settings.page_timeout,
            text_layer=settings.text_layer == "auto",
            ocr=ocr,
            confined=settings.confinement != "off",
            beside=beside,
            figure_labels=figure_labels,
        )
    )


class PartRenderer:
    """A renderer that is asked by the plan's parts, and reads only what was planned: a changed file fails."""

    def __init__(self, renderer: Renderer, remote: Remote) -> None:
        self._renderer = renderer
        self._remote = remote
        self.crop = renderer.crop

    async def count(self, part: DocumentPart) -> int:
        """How many pages the document has. Raises PageFailure."""
        if is_remote(part.source):
            async with self._remote.open(part.source, part.version) as copy:
                return await self._renderer.open(str(copy.path))
        return await self._renderer.open(part.source, "", part.version)

    async def page(self, part: DocumentPart, number: int) -> Page:
        """Page `number`, from 1. Raises PageFailure."""
        names = {"page_id": page_id(part.document_id, number), "document_id": part.document_id}
        if is_remote(part.source):
            async with self._remote.page(part.source, part.version, number) as (path, number_there):
                page = await self._renderer.page(str(path), "", number_there, **names)
            return replace(page, number=number, source=part.source, version=part.version)
        return await self._renderer.page(part.source, "", number, **names, version=part.version)


class RendererTools:
    """What readers of pages need done with images: in the renderer's processes, never in the event loop."""

    def __init__(self, renderer: Renderer, remote: Remote) -> None:
        self._renderer = renderer
        self._remote = remote

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        """The image with its sides multiplied by `scale`."""
        return await self._renderer.resized(image, scale)

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        """The image turned clockwise by 90, 180 or 270 degrees."""
        return await self._renderer.turned(image, degrees)

    async def blank(self, image: EncodedImage) -> bool:
        """Whether nothing is to be seen on it."""
        return await self._renderer.blank(image)

    async def content(self, page: Page) -> Page:
        """The page with its text layer read; as it is where it has none."""
        if row_address(page.source) is not None:
            return page  # an image
        if is_remote(page.source):
            async with self._remote.open(page.source, page.version) as copy:
                return await self._renderer.content(str(copy.path), "", page.number, page)
        return await self._renderer.content(page.source, "", page.number, page, page.version)


# From settings to a reader of pages by their regions: whether there is one, by which detector, at which commit.


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


# What reads the pages of a command: the embedded engine, or a model behind the engine's servers.


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


def _measured(job: Job[Group], fleet: ServerPool, admission: Admission) -> Admission:
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
