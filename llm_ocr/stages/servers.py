"""Choose the engine of a command, check that it can start, and start it."""

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

from llm_ocr.config.environment import cores
from llm_ocr.config.groups import EMBEDDED as EMBEDDED
from llm_ocr.config.groups import SERVER as SERVER
from llm_ocr.config.groups import VLLM as VLLM
from llm_ocr.config.groups import DescribeGroup, EmbeddedSettings, EngineSettings, Group, ModelSettings, VllmSettings
from llm_ocr.config.loading import ABOUT, check_effect
from llm_ocr.config.models import ServingCommand
from llm_ocr.engines import Server
from llm_ocr.engines.vllm.command import ServeOptions, number_of, value_of
from llm_ocr.engines.vllm.hardware import gpu_capability, gpu_memory, gpus, vllm_installed
from llm_ocr.engines.vlm.requests import PLACE
from llm_ocr.errors import LlmOcrError, ServerError, StorageError, UsageError
from llm_ocr.models.choosing import PRESETS, Wants, needed_memory, numbers, rank, share_of, smallest_gpu, weights_of
from llm_ocr.models.parsers.labels import normal
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import all_profiles, choose_served
from llm_ocr.plugins import ENGINES
from llm_ocr.storage import ObjectInfo, ObjectStore, open_store
from llm_ocr.storage.local.locks import NoLocks, exclusive
from llm_ocr.types import BlockKind

if TYPE_CHECKING:
    from llm_ocr.engines.pool.pool import ServerPool
    from llm_ocr.engines.vllm.server import Release


_log = logging.getLogger(__name__)

#: No engine was chosen, and none is needed yet.
UNDECIDED = "auto"
#: Labels of the blocks that the CPU engine can crop: figures, and its other kinds of blocks.
_EMBEDDED_LABELS = frozenset({"image", "chart", "diagram", *BlockKind}) - {BlockKind.FIGURE}
#: Pages per unit. A scanned page takes the embedded engine seconds, so its units are small and published often.
PAGES_PER_UNIT = {EMBEDDED: 16, VLLM: 64, SERVER: 64, UNDECIDED: 64}
#: Pages per unit in small plans, where the incomplete units of a killed worker have a large share of all pages. In a
#: folder of this machine, where publishing takes some 10 ms, and in other stores.
LEAST_PER_LOCAL_UNIT, LEAST_PER_UNIT = 1, 16


def choose_engine(settings: EngineSettings, *, command: str) -> str:
    """Return the engine's name; `auto` if none is needed yet.

    `run` falls back to the embedded engine. Other stages need a choice.

    Args:
        settings: The settings of the command.
        command: The name of the command.

    Raises:
        UsageError: Engine and servers contradict each other, or a setting that the caller named has no effect.
        LlmOcrError: No engine is available.
    """
    engine = _engine(settings, command)
    _check_effect(settings, engine)
    return engine


def _check_effect(settings: EngineSettings, engine: str) -> None:
    if engine == UNDECIDED:
        return
    reason = "vLLM is not installed" if gpus() else "no GPU was found"
    why = "which `server_url` chose" if engine == SERVER else f"which `engine=auto` chose because {reason}"
    if idle := check_effect(settings, engine, why):
        _log.warning("no effect with %s: %s", ABOUT[engine], ", ".join(idle))
    if engine == EMBEDDED:  # unsupported settings fail here, not after planning or reading
        if isinstance(settings, ModelSettings):
            embedded_figures(settings)
        if isinstance(settings, DescribeGroup):
            ENGINES.get(EMBEDDED).figure_reader(settings.describe_mode, settings.describe_prompt or "")
        if isinstance(settings, EmbeddedSettings) and settings.ocr_language:
            ENGINES.get(EMBEDDED).check_language(settings.ocr_language)
    elif isinstance(settings, ModelSettings) and PLACE in (settings.prompt or "") and not settings.anchor_text:
        raise UsageError(
            f"`prompt` contains {PLACE}, but the text of the page is not in use",
            hint=f"Set the length of the text: `anchor_text=4000`. Or remove {PLACE} from the prompt.",
        )


def embedded_figures(settings: ModelSettings) -> frozenset[str] | None:
    """Return the labels of the blocks that the CPU engine crops. Raises `UsageError`.

    None means pictures and drawings.
    """
    if settings.figures_from == "model":
        raise UsageError(
            "`figures_from=model`: the CPU engine has no model",
            hint="Remove it to detect figures on the page, or use `figures_from=none`.",
        )
    if settings.figures_from == "none":
        return frozenset()
    unknown = [label for label in settings.crop if normal(label) not in _EMBEDDED_LABELS]
    if unknown:
        raise UsageError(
            f"`crop={','.join(unknown)}`: the CPU engine does not detect such blocks",
            hint=f"Supported labels: {', '.join(sorted(_EMBEDDED_LABELS))}.",
        )
    return frozenset(settings.crop) or None


def _engine(settings: EngineSettings, command: str) -> str:
    chosen = settings.engine
    if command in ("plan", "retry-failed") or not isinstance(settings, ServingCommand):
        return chosen
    urls = settings.server_url
    if chosen == SERVER and not urls:
        raise UsageError("`engine=server` needs a server", hint="Set its URL: `server_url=http://HOST:PORT`")
    if urls and chosen in (EMBEDDED, VLLM):
        raise UsageError(
            f"`server_url` has no effect with `engine={chosen}`",
            hint="Use `engine=server`, or remove `server_url`.",
        )
    if chosen != UNDECIDED:
        return chosen
    if urls:
        return SERVER
    if settings.ray is not None:
        return VLLM  # on the cluster's nodes, whatever this machine has
    if vllm_installed(tuple(shlex.split(settings.vllm_command))) and gpus():
        return VLLM
    if command == "run":
        return EMBEDDED
    raise LlmOcrError(
        f"{command}: no engine is chosen, and this machine has no vLLM with a GPU",
        hint="Use `server_url=URL` for a running server, `engine=vllm` if vLLM is installed, or `engine=embedded` for "
        "the CPU engine (text layer and OCR, no GPU).",
    )


class Engines:
    """The models of one command. Only one is served at a time, because the next one needs the GPU's memory.

    Args:
        engine: The engine's name.
        settings: The settings of the command.
        logs: The folder for the logs of servers.
        say: Receives messages for the user.
    """

    def __init__(self, engine: str, settings: Group, logs: Path, say: Callable[[str], None]) -> None:
        self.engine = engine
        self.commits: dict[str, str | None] = {}  # of models named without a commit; None: unknown
        self._settings = settings
        self._logs = logs
        self._say = say
        self._pool: ServerPool | None = None
        self._serves = ""
        self._checks: Checks | None = None  # of servers that we start
        self._noticed: set[str] = set()

    @property
    def uses_models(self) -> bool:
        """Whether a model on a server reads pages. False for the embedded engine."""
        return self.engine in (VLLM, SERVER)

    @property
    def _serving(self) -> ServingCommand:
        """The settings of a command that uses an engine."""
        if not isinstance(self._settings, ServingCommand):
            raise RuntimeError(f"{type(self._settings).__name__} has no settings of servers")
        return self._settings

    async def pool(self, profile: Profile, *, model: str, revision: str | None) -> "ServerPool":
        """Return the servers of a model, which start at the first request. Servers of another model are stopped."""
        wanted = f"{model}@{revision}"
        if self._pool is None or self._serves != wanted:
            await self.close()
            self._pool, self._serves = self._made(profile, model, revision), wanted
            self._notice(profile)
        return self._pool

    async def check(self) -> None:
        """Check now whether the servers can start, instead of at the first request.

        Raises:
            ServerError: The servers cannot start.
            UsageError: The model does not exist.
        """
        if self._checks is not None:
            await self._checks.check()

    def hold(self) -> int | None:
        """Stop sending requests.

        Returns:
            The number of requests without an answer; None with the embedded engine.
        """
        if not self.uses_models:
            return None
        if self._pool is None:
            return 0
        self._pool.hold()
        return self._pool.load().in_flight

    async def close(self) -> None:
        """Close the connections and stop the servers."""
        pool, self._pool, self._checks = self._pool, None, None
        if pool is not None:
            await pool.close()

    def _notice(self, profile: Profile) -> None:
        """Show the model's notice, once."""
        if profile.notice and profile.notice not in self._noticed:
            self._noticed.add(profile.notice)
            self._say(profile.notice)

    def _made(self, profile: Profile, model: str, revision: str | None) -> "ServerPool":
        # Commands without a model need no HTTP client.
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
        """Return the preset's number of concurrent requests to all started servers; None without a preset."""
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
                "`chat_template` applies only to a server that llm-ocr starts",
                hint="Start the server with the template: vllm serve … --chat-template FILE",
            )
        key = server_key(settings.server_key, settings.server_key_file)
        # In a job the server may start at the same time, and no user waits at a terminal.
        chosen = bool(settings.model_fields_set & {"launch", "server_timeout"})
        wait = settings.server_wait or (settings.server_timeout if chosen else WRONG_ADDRESS)
        return [
            ExternalServer(
                address_of(url, settings.server_model or "", key),
                timeout=settings.server_timeout,
                wait=wait,
                stall=settings.request_timeout,
                say=self._say,
                choose=partial(choose_served, url=url, profile=profile, model=model, profiles=all_profiles()),
            )
            for url in settings.server_url
        ]

    def _own(self, profile: Profile, model: str, revision: str | None) -> Sequence[Server]:
        from llm_ocr.engines.vllm.server import release_of, servers
        from llm_ocr.engines.vllm.sizing import plan

        settings = self._serving
        asked = serve_options(settings, model, revision, self._logs)
        release = release_of(asked)
        pinned = settings.revision is not None or (model, revision) == (profile.model, profile.revision)
        start = Start(profile, model, revision, pinned, asked, release)
        self._checks = Checks(start, self._say)
        # A folder has no revision. The same is true of the local copy of a model on a store.
        folder = start.folder
        options = asked if folder is None else replace(asked, model=str(folder), revision=None)
        planned = plan(
            profile,
            options,
            gpus(),
            cores=cores(),
            memory=gpu_memory(),
            capability=gpu_capability(),
            weights=_weights(start),
        )
        self._say(f"{profile.name}: {planned.why}")
        options = replace(options, sizes=planned.sizes)
        return servers(profile, options, planned.devices, say=self._say, release=release, before=self._checks.prepare)


def serve_options(settings: VllmSettings, model: str, revision: str | None, logs: Path | None = None) -> "ServeOptions":
    """Return the options of the servers that we start."""
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
        replicas_per_gpu=settings.replicas_per_gpu,
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
    """Return the API key; empty without one. Raises `UsageError` if the file cannot be read or is empty."""
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return ""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"`server_key_file={file}`: {error.strerror or error}") from error
    if not key:
        raise UsageError(f"`server_key_file={file}`: the file is empty")
    return key


# Checks before a model's servers start. They find errors that would otherwise end the servers minutes later.


#: Seconds for the Hub's response.
_HUB_TIMEOUT = 20.0
_TRUST, _SHARE, _CONTEXT = "trust-remote-code", "gpu-memory-utilization", "max-model-len"
#: Arguments that reduce the weights in GPU memory.
_SMALLER = ("quantization", "cpu-offload-gb", "hf-overrides")


@dataclass(frozen=True, slots=True)
class Start:
    """Servers that are about to start.

    Attributes:
        profile: The profile of the model.
        model: The name that the user gave: an id, a folder, or the URL of a store.
        revision: The commit; None for a folder.
        pinned: Whether the profile or the user names the revision. If not, it is the newest.
        options: The options of the servers.
        release: The installed version of vLLM.
    """

    profile: Profile
    model: str
    revision: str | None
    pinned: bool
    options: ServeOptions
    release: "Release"

    @property
    def cache(self) -> Path | None:
        """The folder of downloaded models; None for the default of Hugging Face."""
        return self.options.model_cache

    @property
    def folder(self) -> Path | None:
        """The model's folder on this machine, which may not exist yet; None for a model of the Hub."""
        if on_store(self.model):
            return folder_of(self.model, self.revision or "", self.cache)
        return Path(self.model) if is_path(self.model) else None


class Checks:
    """The checks before a start, and the download of a model on a store. Each is done once."""

    def __init__(self, start: Start, say: Callable[[str], None]) -> None:
        self._start = start
        self._say = say
        self._lock = asyncio.Lock()
        self._checked = self._ready = False
        self._version = ""

    async def check(self) -> None:
        """Raise `ServerError` or `UsageError`, within seconds, if the servers cannot start."""
        async with self._lock:
            await self._check()

    async def prepare(self) -> None:
        """Run the checks, and fetch a model on a store."""
        async with self._lock:
            await self._check()
            if not self._ready:
                await asyncio.to_thread(self._fetch)
                self._ready = True

    async def _check(self) -> None:
        if self._checked:
            return
        from llm_ocr.engines.vllm.server import check_release

        start = self._start
        self._version = await start.release.version()
        check_release(start.profile, start.options.command, self._version, start.release.transformers())
        await asyncio.to_thread(self._look)
        self._checked = True

    def _look(self) -> None:
        start = self._start
        check_folder(start)
        self._report(memory_shortage(start, gpu_memory(), self._version))
        self._report(trust_note(start))
        if start.folder is None and not start.options.offline:
            check_access(start.model, start.revision, start.cache)

    def _fetch(self) -> None:
        start = self._start
        if not on_store(start.model):
            return
        if start.revision is None:
            raise ServerError(
                f"{start.model} is not in the model cache of this machine",
                hint="Run once with a network and without `offline`.",
            )
        fetch(start.model, start.revision, start.cache, offline=start.options.offline, say=self._say)
        self._report(memory_shortage(start, gpu_memory(), self._version))

    def _report(self, message: str) -> None:
        if message:
            self._say(message)


def is_path(model: str) -> bool:
    """Return whether a model name is a local folder: an existing folder, or a name that can only be a path."""
    return not on_store(model) and (model.startswith(("/", "./", "../", "~")) or Path(model).is_dir())


def check_folder(start: Start) -> None:
    """Raise `UsageError` for a folder that does not exist or contains no model."""
    if not is_path(start.model) or len(start.options.command) > 1:  # a container may mount it elsewhere
        return
    folder = Path(start.model)
    if not folder.is_dir():
        raise UsageError(f"no such folder: {start.model}", hint="Models on the Hub have the form OWNER/NAME.")
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{start.model} contains no model: config.json is missing",
            hint="Use the folder that contains config.json and the weights (in a Hub cache: snapshots/COMMIT).",
        )


def memory_shortage(start: Start, memory: dict[str, int], version: str = "") -> str:
    """Return a warning if the model may not fit into GPU memory; empty if it fits or its size is unknown.

    Args:
        start: The servers.
        memory: Bytes of each GPU.
        version: The version of vLLM.

    Raises:
        ServerError: The weights alone are too large.
    """
    profile, options = start.profile, start.options
    arguments = [*profile.server_args, *options.args]
    weights = _weights(start)
    if not memory or not weights or any(value_of(arguments, name) is not None for name in _SMALLER):
        return ""
    from llm_ocr.engines.vllm.sizing import split_over

    split = split_over(profile, options)
    share = options.gpu_memory_utilization or _number(value_of([*options.preset, *options.args], _SHARE))
    share = share or share_of(profile)
    context = number_of(options.args, _CONTEXT) or options.max_model_len or profile.context
    least = min(memory.values())
    needed = needed_memory(weights, context, gpus=split, share=share)
    if needed <= least:
        return ""
    size = "a GPU" if split == 1 else f"each of {split} GPUs"
    message = f"{profile.name} needs about {needed / 1e9:.0f} GB of {size}; {least / 1e9:.0f} GB are available"
    wants = Wants(vllm=numbers(version), gpu_bytes=least, open_only=True)
    hint = _smaller(start, wants, split, len(memory))
    if weights / split > share * least:
        weight = f"{weights / 1e9:.1f} GB of weights alone" + (f" over {split} GPUs" if split > 1 else "")
        raise ServerError(f"{message} ({weight})", hint=hint)
    return f"{message}. If it does not start: {hint}"


def trust_note(start: Start) -> str:
    """Return a note if the model's own code runs at a commit that nobody named; otherwise an empty string."""
    trusted = start.profile.trust_remote_code or value_of(start.options.args, _TRUST) is not None
    if not trusted or start.pinned or start.folder is not None:
        return ""
    commit = f"commit {start.revision}" if start.revision else "its newest commit"
    return (
        f"{start.profile.name} runs code from the model's repository (--{_TRUST}): {start.model} at "
        f"{commit}. Pin the commit that you reviewed with `revision`."
    )


def check_access(model: str, revision: str | None, cache: Path | None) -> None:
    """Check that a model of the Hub exists and that this account may load it. Without a network, nothing is checked.

    Raises:
        UsageError: The model does not exist.
        ServerError: The model is gated, and the account has no access.
    """
    from huggingface_hub import constants, get_session, hf_raise_for_status
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]  # no __all__

    held = (
        Path(cache or constants.HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "snapshots" / (revision or "-")
    )
    if held.is_dir():
        return
    no_answer: type[BaseException] = HfHubHTTPError.__bases__[0]  # the HTTP library's error for a missing response
    try:
        validate_repo_id(model)
        # Like HfApi.auth_check, which has no timeout.
        url = f"{constants.ENDPOINT}/api/models/{model}/auth-check"
        hf_raise_for_status(get_session().get(url, headers=build_hf_headers(), timeout=_HUB_TIMEOUT))
    except GatedRepoError as error:
        raise ServerError(
            f"{model} is gated, and this account has no access to it",
            hint=f"Accept its terms at https://huggingface.co/{model} and set HF_TOKEN to a token of that account. Or "
            "choose another model: llm-ocr models --recommend",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        near = get_close_matches(model, [one.model for one in all_profiles()], n=2, cutoff=0.7)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            f"the Hub has no model {model}, or it is private and this account has no access",
            hint=f"{meant}For a private model, set HF_TOKEN. For a folder, use its path.",
        ) from error
    except (HfHubHTTPError, no_answer, OSError) as error:
        _log.warning("cannot check the access to %s: %s", model, error)


def _weights(start: Start) -> float:
    folder = start.folder
    if folder is not None:
        return weights_in(folder)
    return weights_of(start.profile) if start.model == start.profile.model else 0.0


def _smaller(start: Start, wants: Wants, split: int, gpus: int) -> str:
    """Return a hint: the ways to make the model fit."""
    ways = []
    if gpus > split:
        ways.append(f"split it over more GPUs (`tensor_parallel_size={2 * split}`)")
    if start.profile.weight_bytes > 1:
        ways.append("quantize the weights (`vllm_arg=--quantization=fp8`)")
    ways.append("shorten the context (`max_model_len`)")
    if size := smallest_gpu(start.profile):
        ways.append(f"use {size} of GPU memory")
    fitting = rank(all_profiles(), wants).ranked
    if fitting:
        ways.append(f"use a smaller model (`model={fitting[0].profile.name}`)")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}." if len(ways) > 1 else f"{ways[0]}."


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


# Models on a store are fetched into the local cache, file by file, before a server starts.


#: Files fetched concurrently, and seconds that another process may take to fetch the same model.
_AT_ONCE, _FETCH_TIMEOUT = 4, 6 * 3600.0
_COMPLETE = ".llm-ocr-complete.json"
#: The file that every model for transformers and vLLM contains.
_NEEDED = "config.json"


def on_store(model: str) -> bool:
    """Return whether a model name is the URL of a store."""
    return "://" in model


def content_of(url: str, *, offline: bool, cache: Path | None) -> str | None:
    """Return a hash that takes the place of a commit: 12 hexadecimal digits that change with any file of the model.

    Args:
        url: The URL of the model.
        offline: Whether to return the hash of the newest local copy; None without one.
        cache: The folder of downloaded models.

    Raises:
        StorageError: The store cannot be read.
        UsageError: The URL contains no model.
    """
    if not offline:
        return _digest(_listed(open_store(url), url))
    copies = [place.parent for place in _home(url, cache).glob(f"*/{_COMPLETE}")]
    return max(copies, key=lambda copy: (copy / _COMPLETE).stat().st_mtime).name if copies else None


def folder_of(url: str, content: str, cache: Path | None) -> Path:
    """Return the local folder of the model with this hash."""
    return _home(url, cache) / content


def fetch(url: str, content: str, cache: Path | None, *, offline: bool, say: Callable[[str], None]) -> Path:
    """Fetch the missing files of a model and return its folder.

    Each file is fetched completely or not at all, so an interrupted fetch continues where it stopped. Of several
    processes on a machine, one fetches and the others wait.

    Args:
        url: The URL of the model.
        content: The hash of the model's files.
        cache: The folder of downloaded models.
        offline: Whether the model must already be complete.
        say: Receives messages for the user.

    Raises:
        ServerError: The model has changed, the disk is too small, or there is no copy while offline.
        StorageError: The store cannot be read.
    """
    folder = folder_of(url, content, cache)
    if _whole(folder):
        return folder
    if offline:
        raise ServerError(
            f"{url} is not in the model cache of this machine", hint="Run once with a network and without `offline`."
        )
    with _alone(folder):
        if not _whole(folder):  # fetched by another process meanwhile
            _fetch(open_store(url), url, content, folder, say)
    return folder


def weights_in(folder: Path) -> int:
    """Return the bytes of the weights in a model's folder; 0 if there are none."""
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
            f"{url} needs {size / 1e9:.1f} GB in {folder}; {free / 1e9:.1f} GB are free",
            hint="Free space, or set `model_cache` to a folder on another disk.",
        )
    say(f"fetching {url}: {len(missing)} of {len(files)} files, {size / 1e9:.1f} GB, to {folder}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda one: _get(store, one, folder, url), missing))
    try:
        _check_same(_listed(store, url), content, url)
    except ServerError:
        shutil.rmtree(folder)  # it may contain files of both versions
        raise
    (folder / _COMPLETE).write_text(json.dumps({"url": url, "files": {one.key: one.size for one in files}}))
    say(f"{url} is complete")


def _get(store: ObjectStore, one: ObjectInfo, folder: Path, url: str) -> None:
    place = folder / one.key
    place.parent.mkdir(parents=True, exist_ok=True)
    store.download(one.key, place)
    if not _has(folder, one):
        found = place.stat().st_size
        place.unlink()
        raise StorageError(
            f"{url}/{one.key} has {one.size} bytes, but {found} arrived", hint="Run the same command again."
        )


def _listed(store: ObjectStore, url: str) -> list[ObjectInfo]:
    """List the model's files, without the empty objects that consoles create for folders."""
    files = [one for one in store.list() if one.size or not one.key.endswith("/")]
    if not any(one.key == _NEEDED for one in files):
        found = ", ".join(one.key for one in files[:3]) or "nothing"
        raise UsageError(
            f"{url} contains no model: {_NEEDED} is missing; found: {found}",
            hint="Use the URL of the folder that contains config.json and the weights.",
        )
    return files


def _check_same(files: Sequence[ObjectInfo], content: str, url: str) -> None:
    found = _digest(files)
    if found != content:
        raise ServerError(
            f"{url} contains another model ({found}) than at the start of this workspace ({content})",
            hint="Restore the first model, or use a new workspace for this model.",
        )


def _digest(files: Sequence[ObjectInfo]) -> str:
    rows = sorted((one.key, one.size, one.version) for one in files)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]


def _home(url: str, cache: Path | None) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    # A readable name and a hash that makes it unique.
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
    """Prevent other processes of this machine from fetching the same model, if the file system supports locks."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(NoLocks):  # without locks, concurrent fetches only repeat work
            folder.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(exclusive(folder.parent, folder.name, timeout=_FETCH_TIMEOUT))
        yield
