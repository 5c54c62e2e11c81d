"""Start the servers of a command's models, or connect to running ones."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from llm_ocr.config.environment import cores
from llm_ocr.config.groups import SERVER, VLLM, Group, VllmSettings
from llm_ocr.config.models import ServingCommand
from llm_ocr.engines import Server
from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.sizing import gpu_capability, gpu_memory, gpus
from llm_ocr.errors import ServerError, UsageError
from llm_ocr.models.choosing import PRESETS
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import all_profiles, choose_served
from llm_ocr.stages.start_checks import Checks, Start, weight_bytes

if TYPE_CHECKING:
    from llm_ocr.engines.pool.pool import ServerPool


@dataclass(slots=True)
class ModelState:
    """State of the model of a run."""

    answered: bool = False  # whether it has read a page
    lost: str = ""  # why no server of it is left; "" while there is one


class Engines:
    """The models of one command. Only one is served at a time, because the next one needs the GPU's memory.

    Args:
        engine: The engine's name.
        settings: The settings of the command.
        logs: The folder for the logs of servers.
        say: Receives messages for the user.
        elsewhere: Whether the servers run on other machines. Readers of these models have keys but no servers.
    """

    def __init__(
        self, engine: str, settings: Group, logs: Path, say: Callable[[str], None], *, elsewhere: bool = False
    ) -> None:
        self.engine = engine
        self.model_state = ModelState()
        self.commits: dict[str, str | None] = {}  # of models named without a commit; None: unknown
        self._settings = settings
        self._logs = logs
        self._say = say
        self._elsewhere = elsewhere
        self._pool: ServerPool | None = None
        self._serves = ""
        self._checks: Checks | None = None  # of servers that we start
        self._noticed: set[str] = set()
        self._refusal: ServerError | None = None  # of servers that are closed

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
            if profile.notice and profile.notice not in self._noticed:
                self._noticed.add(profile.notice)
                self._say(profile.notice)
        return self._pool

    async def check(self) -> None:
        """Check now whether the servers can start, instead of at the first request.

        Raises:
            ServerError: The servers cannot start.
            UsageError: The model does not exist.
        """
        if self._checks is not None:
            await self._checks.check()

    async def need(self, profile: Profile, *, model: str, revision: str | None) -> None:
        """Check whether the servers of a model can be used: our own can start, and one of the others answers.

        Raises:
            ServerError: No server can be used.
            UsageError: The model does not exist.
        """
        if self._elsewhere:
            return
        pool = await self.pool(profile, model=model, revision=revision)
        await self.check()
        if self.engine == SERVER:
            await pool.ready()

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

    def check_answers(self) -> None:
        """Check, after `close`, that each model that was asked has answered.

        Raises:
            ServerError: The servers of a model refused all requests.
        """
        if self._refusal is not None:
            raise self._refusal

    def refused(self, error: ServerError | None) -> None:
        """Record that servers refused all requests, if they did, for `check_answers`."""
        self._refusal = self._refusal or error

    async def close(self) -> None:
        """Close the connections and stop the servers."""
        pool, self._pool, self._checks = self._pool, None, None
        if pool is not None:
            self.refused(pool.refused_all())
            await pool.close()

    def _made(self, profile: Profile, model: str, revision: str | None) -> "ServerPool":
        # Commands without a model need no HTTP client.
        from llm_ocr.engines.pool.pool import ServerPool
        from llm_ocr.engines.pool.session import PoolOptions

        settings = self._serving
        servers: Sequence[Server] = []
        if not self._elsewhere:
            running = self.engine == SERVER
            servers = self._running(profile, model) if running else self._own(profile, model, revision)
        preset = PRESETS.get(settings.preset or "") if self.engine == VLLM else None
        window = preset.window * len(servers) * settings.data_parallel_size if preset else None
        options = PoolOptions(
            max_inflight=settings.max_inflight_requests or window,
            page_tokens=profile.page_tokens,
            stall=settings.request_timeout,
            hangs=min(PoolOptions().hangs, settings.max_page_attempts),
            max_restarts=settings.max_server_restarts,
        )
        return ServerPool(profile.name, servers, options, self._say)

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
        from llm_ocr.engines.vllm.server import Release, servers
        from llm_ocr.engines.vllm.sizing import plan

        settings = self._serving
        asked = serve_options(settings, model, revision, self._logs)
        release = Release(asked)
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
            weights=weight_bytes(start),
        )
        self._say(f"{profile.name}: {planned.why}")
        options = replace(options, sizes=planned.sizes)
        return servers(profile, options, planned.devices, say=self._say, release=release, before=self._checks.prepare)


def serve_options(settings: VllmSettings, model: str, revision: str | None, logs: Path | None = None) -> ServeOptions:
    """Return the options of the servers that we start."""
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
        key = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"`server_key_file={file}`: {why or error}") from error
    if not key:
        raise UsageError(f"`server_key_file={file}`: the file is empty")
    return key
