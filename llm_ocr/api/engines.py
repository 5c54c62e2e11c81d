"""The engines of one command: made when they are needed, shared by its stages, closed at its end."""

import logging
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from llm_ocr.engines.embedded.describe import EmbeddedFigureReader
from llm_ocr.engines.model.anchor import PLACE
from llm_ocr.engines.serving import Server
from llm_ocr.engines.vllm.hardware import gpus, vllm_installed
from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.models.labels import normal
from llm_ocr.models.naming import choose_served
from llm_ocr.models.presets import PRESETS
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import PROFILES
from llm_ocr.settings.effect import ABOUT, check_effect
from llm_ocr.settings.groups import EMBEDDED as EMBEDDED
from llm_ocr.settings.groups import SERVER as SERVER
from llm_ocr.settings.groups import VLLM as VLLM
from llm_ocr.settings.groups import EngineSettings, Group
from llm_ocr.settings.model_groups import DescribeGroup, ModelSettings, VllmSettings
from llm_ocr.settings.models import ServingCommand
from llm_ocr.types import BlockKind

if TYPE_CHECKING:
    from llm_ocr.api.model_checks import Checks
    from llm_ocr.engines.fleet.fleet import Fleet
    from llm_ocr.engines.vllm.command import ServeOptions

UNDECIDED = "auto"
#: Labels of what the CPU engine can cut out: its figures, and its other kinds of blocks.
_EMBEDDED_LABELS = frozenset({"image", "chart", "diagram", *BlockKind}) - {BlockKind.FIGURE}

_log = logging.getLogger(__name__)

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
        self._fleet: Fleet | None = None
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

    async def fleet(self, profile: Profile, *, model: str, revision: str | None) -> "Fleet":
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

    def _made(self, profile: Profile, model: str, revision: str | None) -> "Fleet":
        # Imported here: an HTTP client is no matter of commands that ask no model.
        from llm_ocr.engines.fleet.fleet import Fleet, FleetOptions

        settings = self._serving
        servers = self._servers(profile, model, revision)
        options = FleetOptions(
            max_inflight=settings.max_inflight_requests or self._preset_window(len(servers)),
            page_tokens=profile.page_tokens,
            stall=settings.request_timeout,
            hangs=min(FleetOptions().hangs, settings.max_page_attempts),
            max_restarts=settings.max_server_restarts,
        )
        return Fleet(profile.name, servers, options, self._say)

    def _preset_window(self, servers: int) -> int | None:
        """Requests under way at all servers of our own together, as the preset has it; None without one."""
        preset = PRESETS.get(self._serving.preset or "") if self.engine == VLLM else None
        return preset.window * servers * self._serving.data_parallel_size if preset else None

    def _servers(self, profile: Profile, model: str, revision: str | None) -> Sequence[Server]:
        return self._running(profile, model) if self.engine == SERVER else self._own(profile, model, revision)

    def _running(self, profile: Profile, model: str) -> Sequence[Server]:
        from llm_ocr.engines.chat.address import address_of
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
        from llm_ocr.api.model_checks import Checks, Start
        from llm_ocr.engines.vllm.replicas import release_of, servers

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
