"""Choose and start the inference engine of a command."""

import asyncio
import contextlib
import hashlib
import json
import logging
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from llm_ocr.config.effect import ABOUT, check_effect
from llm_ocr.config.groups import EMBEDDED as EMBEDDED
from llm_ocr.config.groups import SERVER as SERVER
from llm_ocr.config.groups import VLLM as VLLM
from llm_ocr.config.groups import DescribeGroup, EngineSettings, Group, ModelSettings, VllmSettings
from llm_ocr.config.models import ServingCommand
from llm_ocr.engines import Server
from llm_ocr.engines.embedded.describe import EmbeddedFigureReader
from llm_ocr.engines.vllm.command import ServeOptions, number_of, value_of
from llm_ocr.engines.vllm.hardware import gpu_memory, gpus, vllm_installed
from llm_ocr.engines.vllm.server import Release, check_release, split_over
from llm_ocr.engines.vlm.requests import PLACE
from llm_ocr.errors import LlmOcrError, ServerError, StorageError, UsageError
from llm_ocr.models.choosing import PRESETS, Wants, needed_memory, numbers, rank, share_of, smallest_gpu, weights_of
from llm_ocr.models.parsers.labels import normal
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import PROFILES, choose_served
from llm_ocr.storage import ObjectInfo, ObjectStore, open_store
from llm_ocr.storage.local.locks import NoLocks, exclusive
from llm_ocr.types import BlockKind

if TYPE_CHECKING:
    from llm_ocr.engines.pool.pool import ServerPool


# Models on a store: fetched once into the folder of downloaded models, file by file, before a server starts.


#: Files fetched at the same time, and seconds that another process may take to fetch the same model.
_AT_ONCE, _FETCH_TIMEOUT = 4, 6 * 3600.0
_COMPLETE = ".llm-ocr-complete.json"
#: What every model has that transformers and vLLM can load.
_NEEDED = "config.json"


def on_store(model: str) -> bool:
    """Whether a model is named by the URL of a store."""
    return "://" in model


def content_of(url: str, *, offline: bool, cache: Path | None) -> str | None:
    """What stands for a commit of such a model: 12 hex that change with any of its files.

    Offline that of the copy that was fetched last, None without one. Raises `StorageError`, and `UsageError` for a
    place that holds no model.
    """
    if not offline:
        return _digest(_listed(open_store(url), url))
    copies = [place.parent for place in _home(url, cache).glob(f"*/{_COMPLETE}")]
    return max(copies, key=lambda copy: (copy / _COMPLETE).stat().st_mtime).name if copies else None


def folder_of(url: str, content: str, cache: Path | None) -> Path:
    """Where the model of this content stands once it is fetched."""
    return _home(url, cache) / content


def fetch(url: str, content: str, cache: Path | None, *, offline: bool, say: Callable[[str], None]) -> Path:
    """The model's folder, with all of its files in it; those that are missing are fetched, each whole or not at all.

    A fetch that was cut off goes on where it stopped; of several processes on a machine one fetches, the others wait.
    Raises `ServerError` when the model is another by now, when the disk is too small, and offline without a copy;
    `StorageError` when it cannot be read.
    """
    folder = folder_of(url, content, cache)
    if _whole(folder):
        return folder
    if offline:
        raise ServerError(
            f"{url} is not among the models on this machine", hint="Run it once with a network and without --offline."
        )
    with _alone(folder):
        if not _whole(folder):  # by somebody else meanwhile
            _fetch(open_store(url), url, content, folder, say)
    return folder


def weights_in(folder: Path) -> int:
    """Bytes of the weights in a model's folder; 0 where none are found."""
    sizes = {end: [one.stat().st_size for one in folder.glob(f"*.{end}")] for end in ("safetensors", "bin")}
    return sum(sizes["safetensors"] or sizes["bin"])


def _fetch(store: ObjectStore, url: str, content: str, folder: Path, say: Callable[[str], None]) -> None:
    files = _listed(store, url)
    _check_same(files, content, url)
    missing = [one for one in files if not _has(folder, one)]
    size = sum(one.size for one in missing)
    folder.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder).free) < size:
        raise ServerError(
            f"{url} needs {size / 1e9:.1f} GB in {folder}, and {free / 1e9:.1f} GB are free",
            hint="Make room, or name a folder on another disk with --model-cache.",
        )
    say(f"fetching {url}: {len(missing)} of {len(files)} files, {size / 1e9:.1f} GB, to {folder}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda one: _get(store, one, folder, url), missing))
    try:
        _check_same(_listed(store, url), content, url)
    except ServerError:
        shutil.rmtree(folder)  # nobody knows which of its files are the new ones
        raise
    (folder / _COMPLETE).write_text(json.dumps({"url": url, "files": {one.key: one.size for one in files}}))
    say(f"{url} is here")


def _get(store: ObjectStore, one: ObjectInfo, folder: Path, url: str) -> None:
    place = folder / one.key
    place.parent.mkdir(parents=True, exist_ok=True)
    store.download(one.key, place)
    if not _has(folder, one):
        found = place.stat().st_size
        place.unlink()
        raise StorageError(
            f"{url}/{one.key} has {one.size} bytes, and {found} came", hint="Run the same command again."
        )


def _listed(store: ObjectStore, url: str) -> list[ObjectInfo]:
    """The model's files. What consoles leave where a folder was made is none."""
    files = [one for one in store.list() if one.size or not one.key.endswith("/")]
    if not any(one.key == _NEEDED for one in files):
        found = ", ".join(one.key for one in files[:3]) or "nothing"
        raise UsageError(
            f"{url} holds no model: there is no {_NEEDED}, but {found}",
            hint="Give the URL of the folder that holds config.json and the weights.",
        )
    return files


def _check_same(files: Sequence[ObjectInfo], content: str, url: str) -> None:
    found = _digest(files)
    if found != content:
        raise ServerError(
            f"{url} is another model by now ({found}) than the one with which this workspace was begun ({content})",
            hint="Put the first one back, or begin a new workspace with this one.",
        )


def _digest(files: Sequence[ObjectInfo]) -> str:
    rows = sorted((one.key, one.size, one.version) for one in files)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]


def _home(url: str, cache: Path | None) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    # A readable name, and what makes it the only one.
    name = "--".join(part for part in url.replace(":", "").split("/") if part)
    return Path(cache or HF_HUB_CACHE) / f"llm-ocr--{name[-80:]}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"


def _whole(folder: Path) -> bool:
    try:
        files: Mapping[str, int] = json.loads((folder / _COMPLETE).read_text())["files"]
    except (OSError, ValueError):
        return False
    return all(_size(folder / key) == size for key, size in files.items())


def _has(folder: Path, one: ObjectInfo) -> bool:
    return _size(folder / one.key) == one.size


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process of this machine fetches the same model, where the file system has locks."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(NoLocks):  # files come whole or not at all: two who fetch at once do the same twice
            folder.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(exclusive(folder.parent, folder.name, patience=_FETCH_TIMEOUT))
        yield


# What is looked at before a model's servers start: all that would end them later, with what to do about it.


_log = logging.getLogger(__name__)

#: Seconds for the Hub's answer.
_PATIENCE = 20.0
_TRUST, _SHARE, _CONTEXT = "trust-remote-code", "gpu-memory-utilization", "max-model-len"
#: Arguments that make the weights smaller than they are, or leave them out of the GPU.
_SMALLER = ("quantization", "cpu-offload-gb", "hf-overrides")


@dataclass(frozen=True, slots=True)
class Start:
    """Servers that are to start. `model` is as it was named: an id, a folder or the URL of a store.

    `pinned`: whether the profile or the user names the revision; else it is the newest one.
    """

    profile: Profile
    model: str
    revision: str | None
    pinned: bool
    options: ServeOptions
    release: Release

    @property
    def cache(self) -> Path | None:
        """The folder of downloaded models; None for Hugging Face's."""
        return self.options.model_cache

    @property
    def folder(self) -> Path | None:
        """The model's folder on this machine, whether it is there yet or not; None for one of the Hub."""
        if on_store(self.model):
            return folder_of(self.model, self.revision or "", self.cache)
        return Path(self.model) if is_path(self.model) else None


class Checks:
    """The checks of one start, and what must be fetched for it; each done once, however often it is asked for."""

    def __init__(self, start: Start, say: Callable[[str], None]) -> None:
        self._start = start
        self._say = say
        self._turn = asyncio.Lock()
        self._checked = self._ready = False
        self._version = ""

    async def check(self) -> None:
        """Raises `ServerError` or `UsageError` for what would keep the servers from starting, within seconds."""
        async with self._turn:
            await self._check()

    async def prepare(self) -> None:
        """The checks, and a model on a store fetched."""
        async with self._turn:
            await self._check()
            if not self._ready:
                await asyncio.to_thread(self._fetch)
                self._ready = True

    async def _check(self) -> None:
        if self._checked:
            return
        start = self._start
        self._version = await start.release.version()
        check_release(start.profile, start.options.command, self._version, start.release.transformers())
        await asyncio.to_thread(self._look)
        self._checked = True

    def _look(self) -> None:
        start = self._start
        check_folder(start)
        self._tell(memory_trouble(start, gpu_memory(), self._version))
        self._tell(trust_note(start))
        if start.folder is None and not start.options.offline:
            check_access(start.model, start.revision, start.cache)

    def _fetch(self) -> None:
        start = self._start
        if not on_store(start.model):
            return
        if start.revision is None:
            raise ServerError(
                f"{start.model} is not among the models on this machine",
                hint="Run it once with a network and without --offline.",
            )
        fetch(start.model, start.revision, start.cache, offline=start.options.offline, say=self._say)
        self._tell(memory_trouble(start, gpu_memory(), self._version))

    def _tell(self, text: str) -> None:
        if text:
            self._say(text)


def is_path(model: str) -> bool:
    """Whether a model is named by a folder of this machine: one that is there, or a name that can be nothing else."""
    return not on_store(model) and (model.startswith(("/", "./", "../", "~")) or Path(model).is_dir())


def check_folder(start: Start) -> None:
    """Raise `UsageError` for a folder that is not there, or holds no model."""
    if not is_path(start.model) or len(start.options.command) > 1:  # a container may have it elsewhere
        return
    folder = Path(start.model)
    if not folder.is_dir():
        raise UsageError(f"no such folder: {start.model}", hint="A model of the Hub is named OWNER/NAME.")
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{start.model} holds no model: there is no config.json",
            hint="Give the folder that holds config.json and the weights (of a Hub cache: snapshots/COMMIT).",
        )


def memory_trouble(start: Start, memory: dict[str, int], version: str = "") -> str:
    """A warning for a model that hardly fits into the GPUs' `memory` (bytes), "" for one that does, or is not known.

    `version` is vLLM's. Raises `ServerError` when the weights alone are too large.
    """
    profile, options = start.profile, start.options
    words = [*profile.server_args, *options.args]
    weights = _weights(start)
    if not memory or not weights or any(value_of(words, name) is not None for name in _SMALLER):
        return ""
    split = split_over(profile, options)
    share = options.gpu_memory_utilization or _number(value_of([*options.preset, *options.args], _SHARE))
    share = share or share_of(profile)
    context = number_of(options.args, _CONTEXT) or options.max_model_len or profile.context
    least = min(memory.values())
    needed = needed_memory(weights, context, gpus=split, share=share)
    if needed <= least:
        return ""
    size = "a GPU" if split == 1 else f"each of {split} GPUs"
    told = f"{profile.name} needs about {needed / 1e9:.0f} GB of {size}, and there are {least / 1e9:.0f} GB"
    wants = Wants(vllm=numbers(version), gpu_bytes=least, open_only=True)
    hint = _smaller(start, wants, split, len(memory))
    if weights / split > share * least:
        weight = f"{weights / 1e9:.1f} GB of weights alone" + (f" over {split} GPUs" if split > 1 else "")
        raise ServerError(f"{told} ({weight})", hint=hint)
    return f"{told}; if it does not start: {hint}"


def trust_note(start: Start) -> str:
    """What it means that a model brings code of its own, where nobody named the commit of that code; else ""."""
    trusted = start.profile.trust_remote_code or value_of(start.options.args, _TRUST) is not None
    if not trusted or start.pinned or start.folder is not None:
        return ""
    commit = f"commit {start.revision}" if start.revision else "its newest commit"
    return (
        f"{start.profile.name} runs code that comes with the model (--{_TRUST}), here that of {start.model} at "
        f"{commit}. Name the one that you have looked at with --revision."
    )


def check_access(model: str, revision: str | None, cache: Path | None) -> None:
    """Raise for a model of the Hub that is gated, private or not there; without a network nothing is known.

    Raises `UsageError` for one that is not there, `ServerError` for one that this account may not load.
    """
    from huggingface_hub import constants, get_session, hf_raise_for_status
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]  # no __all__

    held = (
        Path(cache or constants.HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "snapshots" / (revision or "-")
    )
    if held.is_dir():
        return
    no_answer: type[BaseException] = HfHubHTTPError.__bases__[0]  # the HTTP library's error: no answer at all
    try:
        validate_repo_id(model)
        # As HfApi.auth_check does it, which has no time-out.
        url = f"{constants.ENDPOINT}/api/models/{model}/auth-check"
        hf_raise_for_status(get_session().get(url, headers=build_hf_headers(), timeout=_PATIENCE))
    except GatedRepoError as error:
        raise ServerError(
            f"{model} is gated, and this account has no access to it",
            hint=f"Accept its terms at https://huggingface.co/{model} and set HF_TOKEN to a token of that account; or "
            "take another model: llm-ocr models --recommend",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        near = get_close_matches(model, [one.model for one in PROFILES], n=2, cutoff=0.7)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            f"the Hub has no model {model}, or a private one that this account may not see",
            hint=f"{meant}For a private one set HF_TOKEN; a folder is given by its path.",
        ) from error
    except (HfHubHTTPError, no_answer, OSError) as error:
        _log.warning("whether %s may be loaded is not known: %s", model, error)


def _weights(start: Start) -> float:
    folder = start.folder
    if folder is not None:
        return weights_in(folder)
    return weights_of(start.profile) if start.model == start.profile.model else 0.0


def _smaller(start: Start, wants: Wants, split: int, gpus: int) -> str:
    """What helps, in words."""
    ways = []
    if gpus > split:
        ways.append(f"split it over more GPUs (--tensor-parallel-size {2 * split})")
    if start.profile.weight_bytes > 1:
        ways.append("let vLLM make the weights smaller (--vllm-arg=--quantization=fp8)")
    ways.append("shorten the context (--max-model-len)")
    if size := smallest_gpu(start.profile):
        ways.append(f"take {size} of GPU memory")
    fitting = rank(PROFILES, wants).ranked
    if fitting:
        ways.append(f"take a smaller model (--model {fitting[0].profile.name})")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}." if len(ways) > 1 else f"{ways[0]}."


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


# The engines of one command: made when they are needed, shared by its stages, closed at its end.


UNDECIDED = "auto"
#: Labels of what the CPU engine can cut out: its figures, and its other kinds of blocks.
_EMBEDDED_LABELS = frozenset({"image", "chart", "diagram", *BlockKind}) - {BlockKind.FIGURE}


#: Pages of a unit: a page costs the embedded engine seconds when it is scanned, so that its units are published often.
PAGES_PER_UNIT = {EMBEDDED: 16, VLLM: 64, SERVER: 64, UNDECIDED: 64}
#: In small plans, where a unit that was not whole when a worker was killed is a large share of all pages.
LEAST_PER_UNIT = 16


def choose_engine(settings: EngineSettings, *, command: str) -> str:
    """Return the engine's name, `auto` where none is needed yet.

    `run` falls back to the embedded engine; other stages need it named.

    Raises:
        UsageError: engine and servers do not go together, or a setting that the caller named is without effect.
        LlmOcrError: no engine can be had.
    """
    engine = _engine(settings, command)
    _check_effect(settings, engine)
    return engine


def _check_effect(settings: EngineSettings, engine: str) -> None:
    if engine == UNDECIDED:
        return
    reason = "vLLM is not installed" if gpus() else "no GPU was found"
    why = "which --server-url chose" if engine == SERVER else f"which --engine auto chose because {reason}"
    if idle := check_effect(settings, engine, why):
        _log.warning("without effect with %s: %s", ABOUT[engine], ", ".join(idle))
    if engine == EMBEDDED:  # each refuses what it cannot do, now instead of after the plan or the pages
        if isinstance(settings, ModelSettings):
            embedded_figures(settings)
        if isinstance(settings, DescribeGroup):
            EmbeddedFigureReader(settings.describe_mode, settings.describe_prompt or "")
    elif isinstance(settings, ModelSettings) and PLACE in (settings.prompt or "") and not settings.anchor_text:
        raise UsageError(
            f"--prompt holds {PLACE}, and no text of the page is put there",
            hint=f"Say how much: --anchor-text 4000; or leave {PLACE} out of the prompt.",
        )


def embedded_figures(settings: ModelSettings) -> frozenset[str] | None:
    """Labels of the blocks that the CPU engine cuts out; None for its pictures and drawings. Raises `UsageError`."""
    if settings.figures_from == "model":
        raise UsageError(
            "--figures-from model: the CPU engine asks no model",
            hint="Leave it out, for figures that are found on the page, or say --figures-from none.",
        )
    if settings.figures_from == "none":
        return frozenset()
    unknown = [label for label in settings.crop if normal(label) not in _EMBEDDED_LABELS]
    if unknown:
        raise UsageError(
            f"--crop {','.join(unknown)}: the CPU engine finds no such blocks",
            hint=f"It knows {', '.join(sorted(_EMBEDDED_LABELS))}.",
        )
    return frozenset(settings.crop) or None


def _engine(settings: EngineSettings, command: str) -> str:
    chosen = settings.engine
    if command in ("plan", "retry-failed") or not isinstance(settings, ServingCommand):
        return chosen
    urls = settings.server_url
    if chosen == SERVER and not urls:
        raise UsageError("--engine server: no server was named", hint="Say where it is: --server-url http://HOST:PORT")
    if urls and chosen in (EMBEDDED, VLLM):
        raise UsageError(
            f"--server-url was given, and the engine is {chosen}",
            hint="Use --engine server, or leave out --server-url.",
        )
    if chosen != UNDECIDED:
        return chosen
    if urls:
        return SERVER
    if settings.ray is not None:
        return VLLM  # on the cluster's nodes, whatever is here
    if vllm_installed(tuple(shlex.split(settings.vllm_command))) and gpus():
        return VLLM
    if command == "run":
        return EMBEDDED
    raise LlmOcrError(
        f"{command}: no engine was chosen, and vLLM with a GPU is not here",
        hint="Say --server-url URL for a running server, --engine vllm where vLLM is installed, or --engine embedded "
        "for the CPU engine (text layer and OCR, no GPU).",
    )


class Engines:
    """The models of one command. One is served at a time: the next one needs the GPU's memory."""

    def __init__(self, engine: str, settings: Group, logs: Path, say: Callable[[str], None]) -> None:
        self.engine = engine
        self.commits: dict[str, str | None] = {}  # of models that are named without one; None: nobody can tell
        self._settings = settings
        self._logs = logs
        self._say = say
        self._fleet: ServerPool | None = None
        self._serves = ""
        self._checks: Checks | None = None  # of servers of our own
        self._told: set[str] = set()  # notices

    @property
    def uses_models(self) -> bool:
        """False for the embedded engine."""
        return self.engine in (VLLM, SERVER)

    @property
    def _serving(self) -> ServingCommand:
        """The settings, of a command that asks an engine."""
        if not isinstance(self._settings, ServingCommand):
            raise RuntimeError(f"{type(self._settings).__name__} has no settings of servers")
        return self._settings

    async def fleet(self, profile: Profile, *, model: str, revision: str | None) -> "ServerPool":
        """The servers of a model, which start at the first question; those of another model are stopped before."""
        wanted = f"{model}@{revision}"
        if self._fleet is None or self._serves != wanted:
            await self.close()
            self._fleet, self._serves = self._made(profile, model, revision), wanted
            self._notice(profile)
        return self._fleet

    async def check(self) -> None:
        """Look now at what would keep the servers from starting, instead of when the first question is asked.

        Raises `ServerError` and `UsageError`.
        """
        if self._checks is not None:
            await self._checks.check()

    def hold(self) -> int | None:
        """Ask no question any more; how many are still to be answered. None where none is asked of models."""
        if not self.uses_models:
            return None
        if self._fleet is None:
            return 0
        self._fleet.hold()
        return self._fleet.load().in_flight

    async def close(self) -> None:
        """Close the connections and stop the servers."""
        fleet, self._fleet, self._checks = self._fleet, None, None
        if fleet is not None:
            await fleet.close()

    def _notice(self, profile: Profile) -> None:
        """What users of the model must know, once."""
        if profile.notice and profile.notice not in self._told:
            self._told.add(profile.notice)
            self._say(profile.notice)

    def _made(self, profile: Profile, model: str, revision: str | None) -> "ServerPool":
        # Imported here: an HTTP client is no matter of commands that ask no model.
        from llm_ocr.engines.pool.pool import PoolOptions, ServerPool

        settings = self._serving
        servers = self._servers(profile, model, revision)
        options = PoolOptions(
            max_inflight=settings.max_inflight_requests or self._preset_window(len(servers)),
            page_tokens=profile.page_tokens,
            stall=settings.request_timeout,
            hangs=min(PoolOptions().hangs, settings.max_page_attempts),
            max_restarts=settings.max_server_restarts,
        )
        return ServerPool(profile.name, servers, options, self._say)

    def _preset_window(self, servers: int) -> int | None:
        """Requests under way at all servers of our own together, as the preset has it; None without one."""
        preset = PRESETS.get(self._serving.preset or "") if self.engine == VLLM else None
        return preset.window * servers * self._serving.data_parallel_size if preset else None

    def _servers(self, profile: Profile, model: str, revision: str | None) -> Sequence[Server]:
        return self._running(profile, model) if self.engine == SERVER else self._own(profile, model, revision)

    def _running(self, profile: Profile, model: str) -> Sequence[Server]:
        from llm_ocr.engines.client.connections import address_of
        from llm_ocr.engines.vllm.external import WRONG_ADDRESS, ExternalServer

        settings = self._serving
        if settings.chat_template is not None:
            raise UsageError(
                "--chat-template is for a server that llm-ocr starts",
                hint="Start that one with it: vllm serve … --chat-template FILE",
            )
        key = server_key(settings.server_key, settings.server_key_file)
        # In a job the server may be started at the same time, and no user waits at a terminal.
        patient = bool(settings.model_fields_set & {"launch", "server_timeout"})
        wait = settings.server_wait or (settings.server_timeout if patient else WRONG_ADDRESS)
        return [
            ExternalServer(
                address_of(url, settings.server_model or "", key),
                timeout=settings.server_timeout,
                wait=wait,
                stall=settings.request_timeout,
                say=self._say,
                choose=partial(choose_served, url=url, profile=profile, model=model, profiles=PROFILES),
            )
            for url in settings.server_url
        ]

    def _own(self, profile: Profile, model: str, revision: str | None) -> Sequence[Server]:
        from llm_ocr.engines.vllm.server import release_of, servers

        settings = self._serving
        asked = serve_options(settings, model, revision, self._logs)
        release = release_of(asked)
        pinned = settings.revision is not None or (model, revision) == (profile.model, profile.revision)
        start = Start(profile, model, revision, pinned, asked, release)
        self._checks = Checks(start, self._say)
        # A folder has no revision, and neither has the copy of a model that stands on a store.
        folder = start.folder
        options = asked if folder is None else replace(asked, model=str(folder), revision=None)
        return servers(profile, options, gpus(), say=self._say, release=release, before=self._checks.prepare)


def serve_options(settings: VllmSettings, model: str, revision: str | None, logs: Path | None = None) -> "ServeOptions":
    """How the settings say that our own servers are started."""
    from llm_ocr.engines.vllm.command import ServeOptions

    return ServeOptions(
        command=tuple(shlex.split(settings.vllm_command)),
        args=tuple(settings.vllm_arg),
        preset=PRESETS[settings.preset].server_args if settings.preset else (),
        model=model,
        revision=revision,
        tensor_parallel=settings.tensor_parallel_size,
        data_parallel=settings.data_parallel_size,
        replicas=settings.replicas,
        max_model_len=settings.max_model_len,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        port=settings.vllm_port,
        model_cache=settings.model_cache,
        compile_cache=settings.compile_cache,
        offline=settings.offline,
        startup_timeout=settings.server_timeout,
        log_folder=logs,
    )


def server_key(given: SecretStr | None, file: Path | None) -> str:
    """The API key, "" for none. Raises UsageError when the file cannot be read or is empty."""
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return ""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"--server-key-file {file}: {error.strerror or error}") from error
    if not key:
        raise UsageError(f"--server-key-file {file}: the file is empty")
    return key
