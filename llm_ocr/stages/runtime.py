"""Open the resources of a command from its settings: documents, the model, the renderer, and the readers."""

import asyncio
import contextlib
import hashlib
import logging
import math
import os
import socket
import threading
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import yaml
from pydantic import SecretStr

from llm_ocr.config.environment import cache_folder, cores
from llm_ocr.config.groups import (
    DatasetSettings,
    DescribeGroup,
    EmbeddedSettings,
    Group,
    ModelSettings,
    QualitySettings,
    RemoteSettings,
    RenderSettings,
    ServerSettings,
    VllmSettings,
    WhichModel,
)
from llm_ocr.config.loading import DEFAULT
from llm_ocr.config.models import FigureCommand, PlanSettings, ReadingCommand, ServingCommand
from llm_ocr.documents.remote.urls import RemoteOptions, is_remote
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.documents.rows.address import DatasetOptions, row_address
from llm_ocr.engines import EngineOptions, FigureReader, LanguageModel, LocalReader, PageReader
from llm_ocr.engines.vllm.hardware import gpus
from llm_ocr.engines.vlm.figures import ModelFigureReader
from llm_ocr.engines.vlm.reader import ModelReader, has_places
from llm_ocr.engines.vlm.requests import DescribeOptions, QualityRule, ReadOptions
from llm_ocr.errors import UsageError, install_command
from llm_ocr.models.parsers import parser_named
from llm_ocr.models.profile import Profile
from llm_ocr.models.profile_file import profile_from
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.registry import all_profiles, find_profile, served_profile
from llm_ocr.plugins import ENGINES
from llm_ocr.results.quality import VERSION
from llm_ocr.results.quality.scoring import score
from llm_ocr.stages import Progress
from llm_ocr.stages.flow import Admission
from llm_ocr.stages.servers import EMBEDDED, SERVER, Engines, content_of, embedded_figures, on_store, server_key
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Box, DocumentPart, EncodedImage, Page, Unit, page_id
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, stage_keys
from llm_ocr.workspace.status import Worked

if TYPE_CHECKING:
    from llm_ocr.documents.remote.cache import Fetched, LocalCopy
    from llm_ocr.documents.remote.listing import RemoteDocuments
    from llm_ocr.documents.rows.images import RowImages
    from llm_ocr.engines.pool.pool import ServerPool
    from llm_ocr.engines.regions.detection import Detector
    from llm_ocr.engines.regions.reader import LayoutReader


# Source documents.


def remote_options(settings: RemoteSettings) -> RemoteOptions:
    """Return the options for reading remote documents."""
    return RemoteOptions(
        store=StoreOptions(
            settings.source_profile, settings.source_endpoint, settings.source_region, any_key=True, role="source"
        ),
        cache_bytes=settings.source_cache << 20,
        allow_private_addresses=settings.allow_private_addresses,
    )


def dataset_options(settings: DatasetSettings) -> DatasetOptions | None:
    """Return the selected dataset rows; None without a dataset."""
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
    """Provides remote documents as local files. Needs `close`. Nothing is opened before the first document."""

    def __init__(self, settings: Group) -> None:
        # Commands without these settings open no remote documents.
        self._options = remote_options(settings) if isinstance(settings, RemoteSettings) else RemoteOptions()
        self._documents: RemoteDocuments | None = None
        self._rows: RowImages | None = None

    def open(self, source: str, version: str = "") -> "AbstractAsyncContextManager[LocalCopy]":
        """Open a document. See `RemoteDocuments.open`."""
        return self._opened().open(source, version)

    async def look(self, source: str) -> "Fetched":
        """Inspect a document. See `RemoteDocuments.look`."""
        return await self._opened().look(source)

    def _opened(self) -> "RemoteDocuments":
        if self._documents is None:
            from llm_ocr.documents.remote.listing import RemoteDocuments

            self._documents = RemoteDocuments(self._options)
        return self._documents

    @contextlib.asynccontextmanager
    async def page(self, source: str, version: str, number: int) -> AsyncIterator[tuple[Path, int | None]]:
        """Open page `number` of a document.

        Each image in a list of a dataset's row is a separate file.

        Yields:
            A local file that contains the page, and the number of the page in that file. None: the file is one page.

        Raises:
            StorageError: The dataset cannot be read. For other documents, see `open`.
        """
        address = row_address(source)
        if address is None:
            async with self.open(source, version) as copy:
                yield copy.path, number
            return
        if self._rows is None:
            from llm_ocr.documents.rows.images import RowImages

            self._rows = RowImages(self._options, self.open)
        async with self._rows.open(address, number) as row:
            yield row

    async def close(self) -> None:
        """Remove the local files."""
        if self._rows is not None:
            await self._rows.close()
        if self._documents is not None:
            await self._documents.close()


# The job: one command with its open resources.


S_co = TypeVar("S_co", bound=Group, covariant=True)
SettingsT = TypeVar("SettingsT", bound=Group)


@dataclass(frozen=True, slots=True)
class Share:
    """Units that a worker processes.

    Attributes:
        units: The units.
        mine: Whether the rows of a unit may still be published.
        done: Called after the rows of a unit were published.
        begun: Called with the stage key before the first unit is taken.
    """

    units: Iterable[Unit]
    mine: Callable[[str], bool] = lambda unit: True
    done: Callable[[str], None] = lambda unit: None
    begun: Callable[[str], None] = lambda key: None


@dataclass(frozen=True, slots=True)
class Job(Generic[S_co]):
    """One command with its open resources.

    Attributes:
        opened: The workspace; None if single pages are read.
        settings: The settings of the command.
        progress: Receives the progress.
        engines: The models of the command.
        remote: Remote documents.
        given: The units to process. By default `stages.sharing` selects them.
        stop: Returns whether no further unit may be claimed. Units in progress are finished.
        command: The name of the command. It is stored with the settings that later commands need not repeat.
        worked: What the command has finished, and whether it shares units with other workers.
    """

    opened: Workspace | None
    settings: S_co
    progress: Progress
    engines: Engines
    remote: Remote
    given: Share | None = None
    stop: Callable[[], bool] = lambda: False
    command: str = ""
    worked: Worked = field(default_factory=Worked)

    @property
    def workspace(self) -> Workspace:
        """Return the workspace of a command that has one."""
        if self.opened is None:
            raise RuntimeError("a page without a workspace belongs to no stage")
        return self.opened


#: A stage over a workspace. The name of the command decides which settings its job has; types cannot express that.
Stage = Callable[[Job[Any]], Awaitable[None]]


#: Folder of server logs, below the workspace.
FOLDER = "logs"


def worker_name() -> str:
    """Return a name from time, host, and process, so that the logs of many workers do not mix."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{socket.gethostname()}-{os.getpid()}"


def log_folder(workspace: Workspace, worker: str) -> Path:
    """Return the folder for the logs of a worker's servers. It is not created.

    It is in the workspace if that is local, otherwise in the workspace's spool.
    """
    root = workspace.store.root if isinstance(workspace.store, LocalStore) else workspace.spool
    return root / FOLDER / worker


# The model: profile, weights, and commit.


_log = logging.getLogger(__name__)

#: Seconds that the request for a model's newest commit may take.
_HUB_TIMEOUT = 20.0
_FILES = (".toml", ".yaml", ".yml")
#: Mode names of other tools, with our names in order of preference.
_MODES = {"layout-all": ("layout",), "ocr": ("text", "markdown")}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A profile and the weights to load.

    Attributes:
        profile: The profile.
        name: A model id, a folder, or the URL of a store.
        chosen: The user's choices that change answers or their parsing and that no other setting contains, for keys.
    """

    profile: Profile
    name: str
    chosen: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model(ModelChoice):
    """A profile and weights at a commit.

    Attributes:
        revision: The commit; None if it is unknown or the model is a folder. For a store, a hash of the files.
    """

    revision: str | None = None


def model_choice(settings: WhichModel) -> ModelChoice:
    """Return the model that reads pages. Raises `UsageError` if the name is ambiguous or unknown."""
    # A command without a prompt setting reads no pages.
    own_prompt = not isinstance(settings, ModelSettings) or settings.prompt is not None
    served = isinstance(settings, ServerSettings) and bool(settings.server_url)
    asked = named_model(settings.model, settings.weights, own_prompt=own_prompt, parser=settings.parser, served=served)
    if isinstance(settings, ModelSettings) and not settings.ngram_processor:
        asked = replace(asked, profile=without_processor(asked.profile))
    return _with_template(asked, settings.chat_template)


async def with_served_model(settings: SettingsT, engine: str, say: Callable[[str], None]) -> SettingsT:
    """Return the settings with the model of the first server that answers, if no setting chooses a model.

    They are unchanged for other engines, and if the server has several models, or none with a profile.
    """
    # A stage that reads no pages has the model of the stage before it, and may wait for that stage.
    serving = settings if isinstance(settings, ServingCommand) else None
    if engine != SERVER or serving is None or serving.ray is not None or not isinstance(settings, ModelSettings):
        return settings
    from llm_ocr.engines.client.connections import address_of
    from llm_ocr.engines.client.endpoint import Endpoint

    if serving.origins.get("model") != DEFAULT or serving.server_model or serving.weights:
        return settings
    key = server_key(serving.server_key, serving.server_key_file)
    for url in serving.server_url:
        endpoint = Endpoint(address_of(url, "", key))
        try:
            served = await endpoint.served()
        finally:
            await endpoint.close()
        profile = served_profile(served, all_profiles())
        if profile is not None and profile.name != serving.model:
            say(f"Model: {profile.name}, which {url} serves")
            return settings.model_copy(update={"model": profile.name})
        if served:
            break
    return settings


def without_processor(profile: Profile) -> Profile:
    """Return the profile without its logits processor in vLLM. Raises `UsageError` if it has none."""
    name = "--logits-processors"
    if name not in profile.server_args or "vllm_xargs" not in profile.page_settings:
        raise UsageError(
            f"`ngram_processor=False` has no effect: {profile.name} has no logits processor", hint="Remove it."
        )
    place = profile.server_args.index(name)
    page_settings = {key: value for key, value in profile.page_settings.items() if key != "vllm_xargs"}
    server_args = (*profile.server_args[:place], *profile.server_args[place + 2 :])
    return replace(profile, page_settings=page_settings, server_args=server_args)


def named_model(
    name: str,
    weights: str | None = None,
    *,
    own_prompt: bool,
    parser: str | None = None,
    served: bool = False,
) -> ModelChoice:
    """Return the profile and the weights of a model.

    Args:
        name: The name of a profile, a profile file, or any model if the user provides the prompt.
        weights: The weights to load. By default those of the profile.
        own_prompt: Whether the user provides the prompt.
        parser: The name of the parser of the answers. By default that of the profile.
        served: Whether a running server has the model, whose name there may be any.

    Raises:
        UsageError: The name is unknown, or the profile file is invalid.
    """
    profile, of_user = _profile(name, own_prompt=own_prompt, parser=parser, served=served)
    if parser is not None and not of_user.get("generic"):
        profile = replace(profile, parsers={"": parser_named(parser).parse})
    chosen: dict[str, Any] = {}
    if of_user or parser is not None:
        chosen["parsers"] = {mode: one.__name__ for mode, one in sorted(profile.parsers.items())}
    return ModelChoice(profile, weights or profile.model, chosen)


def mode_of(profile: Profile, name: str | None) -> str | None:
    """Return the profile's mode that a name means. An unknown name is returned unchanged."""
    if name is None or name in profile.prompts:
        return name
    meant = _MODES.get(name, ())
    return next((mode for mode in meant if mode in profile.prompts), name)


async def pinned(settings: VllmSettings, engines: Engines, asked: ModelChoice, revision: str | None) -> Model:
    """Return the model at the requested commit, at that of the profile, or at the newest, which is then recorded."""
    name = asked.name
    commit = revision or (asked.profile.revision if name == asked.profile.model else None)
    if commit is None and engines.engine != SERVER:
        commit = await commit_now(settings, engines, name)
    return Model(asked.profile, name, asked.chosen, commit)


async def commit_now(settings: VllmSettings, engines: Engines, name: str) -> str | None:
    """Return `newest_commit`, requested once per command, because a later answer could be another model."""
    if name not in engines.commits:
        offline, cache = settings.offline, settings.model_cache
        engines.commits[name] = await asyncio.to_thread(newest_commit, name, offline=offline, cache=cache)
    return engines.commits[name]


def newest_commit(model: str, *, offline: bool, cache: Path | None) -> str | None:
    """Return the commit of `main` on the Hub, or offline in the local cache.

    For a model on a store, return a hash of its files.

    Returns:
        The commit; None for a folder, and if the commit cannot be found.
    """
    if on_store(model):
        return content_of(model, offline=offline, cache=cache)
    if Path(model).is_dir():
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if not offline:
        # The HTTP library's error for a missing response. Its class depends on the release.
        no_answer: type[BaseException] = HfHubHTTPError.__bases__[0]
        try:
            return HfApi().model_info(model, timeout=_HUB_TIMEOUT).sha
        except (HfHubHTTPError, no_answer, OSError, ValueError) as error:
            _log.warning("the newest commit of %s is unknown: %s", model, error)
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(cache or HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "refs" / "main"
    try:
        return folder.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _profile(name: str, *, own_prompt: bool, parser: str | None, served: bool) -> tuple[Profile, Mapping[str, bool]]:
    """Return the profile, and whether it is the user's own: from a file, or of a model without a profile."""
    if not on_store(name) and name.endswith(_FILES):
        return profile_from(_read(name), name), {"file": True}
    try:
        return find_profile(name), {}
    except UsageError as error:
        if not own_prompt:
            raise UsageError(
                f"{error.args[0]}, and `prompt` is missing", hint=_without_profile(name, error.hint)
            ) from None
        if not (served or on_store(name) or "/" in name or Path(name).is_dir()):
            place = (
                "With `prompt`, a model is OWNER/NAME on the Hub, a folder, an s3:// or gs:// URL, or any name of a "
                "running server (`server_url`)."
            )
            raise UsageError(error.args[0], hint=f"{place} {error.hint}") from None
    return generic(name, parser=parser or "plain"), {"generic": True}


def _without_profile(name: str, hint: str) -> str:
    """Return a hint for a model without a profile."""
    tail = name.rstrip("/").rpartition("/")[2].casefold()
    like = [one for one in all_profiles() if tail in (one.name, one.model.rpartition("/")[2].casefold(), *one.aliases)]
    if like:
        return f"If it is that model: `model={like[0].name}` and `weights={name}`"
    return f"A model without a profile needs `prompt`, and `parser` for answers that are not Markdown. {hint}"


def _read(path: str) -> Mapping[str, Any]:
    """Read the values of a profile file. Raises `UsageError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"`model={path}`: {why or error}", hint="A profile is a TOML or YAML file.") from error
    try:
        values = tomllib.loads(text) if path.endswith(".toml") else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"`model={path}`: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict):
        raise UsageError(f"`model={path}`: the file contains no keys")
    return values


def _with_template(asked: ModelChoice, path: str | None) -> ModelChoice:
    """Add the user's chat template for a server that we start."""
    if path is None:
        return asked
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"`chat_template={path}`: {error.strerror or error}") from error
    place = str(Path(path).absolute())
    profile = replace(asked.profile, server_args=(*asked.profile.server_args, "--chat-template", place))
    chosen = {**asked.chosen, "chat_template": hashlib.sha256(content).hexdigest()[:12]}
    return replace(asked, profile=profile, chosen=chosen)


# Rendering and the embedded engine.


#: Longest side of page images for the embedded engine, in pixels. Scans keep more of their own pixels: OCR finds 3,450
#: words on a newspaper of 4,056 pixels at 2560, 3,290 at 2000, and 1,770 at 1540.
EMBEDDED_IMAGE_SIZE, EMBEDDED_SCAN_SIZE = 1540, 2560


def passwords(given: Sequence[SecretStr], file: Path | None) -> tuple[str, ...]:
    """Return the passwords to try; those of the file are last. Raises `UsageError` if the file cannot be read."""
    found = [secret.get_secret_value() for secret in given]
    if file is not None:
        try:
            found += [line for line in file.read_text(encoding="utf-8").splitlines() if line]
        except OSError as error:
            raise UsageError(f"`password_file={file}`: {error.strerror or error}") from error
    return tuple(found)


def render_options(settings: RenderSettings, secrets: tuple[str, ...], profile: Profile | None = None) -> RenderOptions:
    """Return the options for rendering pages.

    The profile determines size and format. Without a profile, the embedded engine's values apply, with JPEG by default.
    """
    chosen: str = settings.image_format
    if chosen == "auto":
        chosen = profile.image.format if profile else "jpeg"
    return RenderOptions(
        image_size=settings.image_size or (profile.image.longest_side if profile else EMBEDDED_IMAGE_SIZE),
        scan_size=0 if profile or settings.image_size else EMBEDDED_SCAN_SIZE,
        image_format=chosen,
        text_layer=profile is None or (isinstance(settings, ModelSettings) and _needs_text(settings, profile)),
        renderer=settings.renderer,
        timeout=settings.render_timeout,
        page_timeout=settings.page_timeout if isinstance(settings, EmbeddedSettings) else math.inf,
        memory=settings.render_memory << 20,
        passwords=secrets,
        workers=settings.render_workers or cores(),
        confined=settings.confinement != "off",
    )


def _needs_text(settings: ModelSettings, profile: Profile) -> bool:
    """Return whether most pages need their text layer. Reading it later would open the document again."""
    from_page = settings.figures_from == "page" or (
        settings.figures_from == "auto" and not has_places(profile, mode_of(profile, settings.mode) or profile.mode)
    )
    return from_page or settings.rotate == "probe" or settings.anchor_text > 0


def embedded_reader(
    settings: EmbeddedSettings,
    *,
    ocr: bool = True,
    background: bool = False,
    figure_labels: frozenset[str] | None = None,
    language: LanguageModel | None = None,
) -> LocalReader:
    """Return the CPU engine, by default with one process per core.

    Args:
        settings: The settings.
        ocr: Whether OCR is available to it.
        background: See `EngineOptions`.
        figure_labels: See `EngineOptions`.
        language: The recognizer of another language; see `ocr_language`.
    """
    return ENGINES.get(EMBEDDED).page_reader(
        EngineOptions(
            workers=settings.ocr_workers or cores(),
            memory=settings.ocr_memory << 20,
            timeout=settings.page_timeout,
            text_layer=settings.text_layer == "auto",
            ocr=ocr,
            confined=settings.confinement != "off",
            background=background,
            figure_labels=figure_labels,
            language=language,
        )
    )


async def ocr_language(settings: EmbeddedSettings, say: Callable[[str], object]) -> LanguageModel | None:
    """Return the recognizer of the user's language; None without one. It is downloaded if it is not in the cache.

    Args:
        settings: The settings.
        say: Receives messages on the progress of a download.

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
        find = ENGINES.get(EMBEDDED).language_model
        return await asyncio.to_thread(find, language, folder, say=say, stopped=stop.is_set)
    finally:
        stop.set()  # a canceled download ends its thread


class PartRenderer:
    """Renderer of parts of the plan. A file that changed since it was planned fails."""

    def __init__(self, renderer: Renderer, remote: Remote) -> None:
        self._renderer = renderer
        self._remote = remote
        self.crop = renderer.crop

    async def count(self, part: DocumentPart) -> int:
        """Return the number of pages of the document. Raises `PageFailure`."""
        if row_address(part.source) is not None:
            async with self._remote.page(part.source, part.version, 1) as (path, _):
                return await self._renderer.open(str(path))
        if is_remote(part.source):
            async with self._remote.open(part.source, part.version) as copy:
                return await self._renderer.open(str(copy.path))
        return await self._renderer.open(part.source, "", part.version)

    async def page(self, part: DocumentPart, number: int) -> Page:
        """Render page `number`, counted from 1. Raises `PageFailure`."""
        names = {"page_id": page_id(part.document_id, number), "document_id": part.document_id}
        if is_remote(part.source) or row_address(part.source) is not None:
            async with self._remote.page(part.source, part.version, number) as (path, number_there):
                page = await self._renderer.page(str(path), "", number_there or 1, **names)
                # The plan counts an image in a list, and one whose name says so, as one page.
                if row_address(part.source) and (number_there is None or part.page_total == 1):
                    pages = await self._renderer.open(str(path))
                    if pages > 1:
                        page = replace(page, damage=f"only the first of the {pages} pages of the row's image was read")
            return replace(page, number=number, source=part.source, version=part.version)
        return await self._renderer.page(part.source, "", number, **names, version=part.version)


class RendererTools:
    """Image operations for readers of pages. They run in the renderer's processes."""

    def __init__(self, renderer: Renderer, remote: Remote) -> None:
        self._renderer = renderer
        self._remote = remote

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        """Return the image with its sides multiplied by `scale`."""
        return await self._renderer.resized(image, scale)

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        """Return the image turned clockwise by 90, 180, or 270 degrees."""
        return await self._renderer.turned(image, degrees)

    async def blank(self, image: EncodedImage) -> bool:
        """Return whether the image shows nothing."""
        return await self._renderer.blank(image)

    async def content(self, page: Page) -> Page:
        """Return the page with its text layer. A page without text layer is returned unchanged."""
        if row_address(page.source) is not None:
            if page.evidence is None or not (page.evidence.lines or page.evidence.pictured):
                return page  # an image
            async with self._remote.page(page.source, page.version, page.number) as (path, number):
                return await self._renderer.content(str(path), "", number or 1, page)
        if is_remote(page.source):
            async with self._remote.open(page.source, page.version) as copy:
                return await self._renderer.content(str(copy.path), "", page.number, page)
        return await self._renderer.content(page.source, "", page.number, page, page.version)


# The page reader.


#: Bytes of rendered pages that may wait for the server: seconds of work for most GPUs.
AHEAD = 8 << 20
#: Bytes of a page in a layout detector.
DETECTED = 2 << 20
#: Rendered pages that may wait, whatever their size.
MOST_AHEAD = 512


@dataclass(frozen=True, slots=True)
class Reading:
    """A page reader, the admission of its pages, and whether a model is asked for their own text (see `rated`)."""

    reader: PageReader
    admission: Admission
    transcribes: Callable[[], bool] = lambda: False


def page_profile(settings: WhichModel, engines: Engines) -> Profile | None:
    """Return the profile of the model that reads pages; None with the embedded engine. Raises `UsageError`."""
    if not engines.uses_models:
        return None
    return model_choice(settings).profile


def _asks_for_text(settings: ReadingCommand, chosen: Mapping[str, Any]) -> bool:
    """Return whether a model is asked for a page's own text: in a known profile's first mode, with its own prompts."""
    return settings.prompt is None and settings.mode is None and not settings.region_task and not chosen


async def page_model(settings: ServingCommand, engines: Engines, workspace: Workspace | None) -> Model:
    """Return the model that reads pages, at the commit that the workspace was begun with."""
    asked = model_choice(settings)
    standing = await asyncio.to_thread(known_revision, workspace, EXTRACT, asked.name) if workspace else None
    return await pinned(settings, engines, asked, settings.revision or standing)


def known_revision(workspace: Workspace, stage: str, model: str) -> str | None:
    """Return the commit in the stage's newest key of this model."""
    for key in reversed(stage_keys(workspace, stage)):
        reader: Mapping[str, Any] = key.settings.get("reader", {})
        if reader.get("model") == model and reader.get("revision"):
            return str(reader["revision"])
    return None


async def reading(job: Job[ReadingCommand], renderer: Renderer) -> Reading:
    """Return the reader of the command's pages. A model's servers start at the first page."""
    settings, engines = job.settings, job.engines
    if not engines.uses_models:
        labels = embedded_figures(settings)
        language = await ocr_language(settings, job.progress.say)
        embedded = embedded_reader(settings, figure_labels=labels, language=language)
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
    embedded = embedded_reader(settings, ocr=settings.fallback == "embedded", background=True)
    fallback = None if settings.fallback == "none" else embedded
    inspector = embedded if _needs_inspection(settings) else None
    tools = RendererTools(renderer, job.remote)
    reader = ModelReader(pool, model.profile, tools, options, fallback, inspector, _rule(settings))
    layout = await by_regions(job, renderer, reader)
    detected = 0 if layout is None else layout.detector.parallel * DETECTED
    own_text = _asks_for_text(settings, model.chosen)
    admission = _measured(job, pool, Admission(MOST_AHEAD, AHEAD + detected))
    # Whether a server is the simulator is known when it has answered.
    return Reading(layout or reader, admission, lambda: own_text and not pool.simulated)


def _measured(job: Job[Group], pool: "ServerPool", admission: Admission) -> Admission:
    """Report the pool's load and the waiting bytes to the progress; return the admission."""
    job.progress.measure(lambda: replace(pool.load(), bytes_waiting=admission.bytes))
    return admission


def _rule(settings: QualitySettings) -> QualityRule | None:
    return QualityRule(settings.min_quality, score, VERSION) if settings.min_quality else None


def _needs_inspection(settings: ModelSettings) -> bool:
    """Return whether the CPU engine inspects pages that the model reads. Raises `MissingExtra` if OCR is missing."""
    if settings.rotate == "probe" and (missing := ENGINES.get(EMBEDDED).missing()):
        raise missing
    return settings.rotate == "probe" or settings.anchor_text > 0 or settings.figures_from in ("auto", "page")


@dataclass(frozen=True, slots=True)
class Describing:
    """A figure reader, the admission of its figures, and the function that closes it."""

    reader: FigureReader
    admission: Admission
    close: Callable[[], Awaitable[None]]


async def describing(job: Job[FigureCommand]) -> Describing:
    """Return the reader of the command's figures. A model's servers start at the first figure."""
    settings = job.settings
    if not job.engines.uses_models:
        pages = embedded_reader(settings, language=await ocr_language(settings, job.progress.say))
        reader = ENGINES.get(EMBEDDED).figure_reader(settings.describe_mode, settings.describe_prompt or "", pages)
        return Describing(reader, Admission(2 * pages.workers), pages.close)
    other = settings.describe_model
    model = await (_figure_model(job, other) if other else page_model(settings, job.engines, job.workspace))
    if not other and _cannot_describe(model.profile, settings):
        job.progress.say(
            f"{model.profile.name} does not describe figures. Their descriptions come from the page's answer, "
            "otherwise from their captions and the text inside them. Another model: `describe_model=qwen3-vl-8b`."
        )
        return Describing(ENGINES.get(EMBEDDED).figure_reader(), Admission(MOST_AHEAD, AHEAD), _nothing)
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
    figures = ModelFigureReader(pool, model.profile, options)
    return Describing(figures, _measured(job, pool, Admission(MOST_AHEAD, AHEAD)), figures.close)


def _cannot_describe(profile: Profile, settings: DescribeGroup) -> bool:
    """Return whether the default description is requested and the model has no prompt for it."""
    usual = settings.describe_mode == "describe" and settings.describe_prompt is None
    return usual and "describe" not in profile.prompts


async def _nothing() -> None:
    """Close nothing."""


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


async def _figure_model(job: Job[FigureCommand], name: str) -> Model:
    """Return the model that describes figures, if another than that of the pages, at the commit of its first use."""
    asked = named_model(name, own_prompt=True, served=job.engines.engine == SERVER)
    standing = await asyncio.to_thread(known_revision, job.workspace, DESCRIBE, asked.name)
    return await pinned(job.settings, job.engines, asked, standing)


# Reading by regions.


class LayoutTools(RendererTools):
    """Image operations for readers of regions. They run in the renderer's processes."""

    async def crops(self, image: EncodedImage, boxes: Sequence[Box]) -> tuple[EncodedImage, ...]:
        """Return the parts of an image under relative boxes, in order."""
        return await self._renderer.crop(image, boxes)


async def by_regions(job: Job[ReadingCommand], renderer: Renderer, whole: ModelReader) -> "LayoutReader | None":
    """Return the reader of pages by regions, or None if pages are read whole.

    The progress receives a message if the choice differs from the model's default.

    Args:
        job: The command.
        renderer: Crops the regions.
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

    tools = LayoutTools(renderer, job.remote)
    tasks = tasks_with(settings.region_task, any_label=name not in (MODEL, EMBEDDED))
    detector = _embedded(job, tools) if name == EMBEDDED else await _trained(job, name)
    return LayoutReader(whole.engine, whole.profile, detector, tools, tasks, whole, whole.options, whole.rule)


def chosen_detector(settings: PlanSettings, profile: Profile, say: Callable[[str], None]) -> str | None:
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


def _embedded(job: Job[ReadingCommand], tools: LayoutTools) -> "Detector":
    return ENGINES.get(EMBEDDED).detector(embedded_reader(job.settings), tools)


async def _trained(job: Job[ReadingCommand], name: str) -> "Detector":
    from llm_ocr.engines.regions.doclayout import DetectorOptions, DocLayout

    settings = job.settings
    commit = settings.detector_revision or await asyncio.to_thread(_known_detector_revision, job.opened, name)
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


def _known_detector_revision(workspace: Workspace | None, name: str) -> str | None:
    """Return the commit in the workspace's newest key of this detector."""
    for key in reversed(stage_keys(workspace, EXTRACT)) if workspace else ():
        layout: Mapping[str, Any] = key.settings.get("reader", {}).get("layout_first", {})
        detector = layout.get("detector", {})
        if detector.get("model") == name and detector.get("revision"):
            return str(detector["revision"])
    return None
