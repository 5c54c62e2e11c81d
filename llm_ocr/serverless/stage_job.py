"""Stage of a workspace as a job: any container runs the command in a separate process."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from llm_ocr.config.fields import PREFIX
from llm_ocr.config.groups import without_credentials
from llm_ocr.config.models import NONE, WorkerSettings
from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.runs import open as open_run
from llm_ocr.serverless.inputs import InputError, StageRequest
from llm_ocr.serverless.variables import OF_MACHINE
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.storage.names import split_scheme
from llm_ocr.workspace.stored import launched

#: Seconds between SIGTERM and SIGKILL: more than a stage needs to publish its finished units.
GRACE = 40.0
#: Lines of the stage's log in the error.
_TAIL = 12
_LONGEST_LINE = 1 << 20
_COMPLAINT = "llm-ocr: "
_SERVER, _REGION = "LLM_OCR_WORKSPACE_ENDPOINT", "LLM_OCR_WORKSPACE_REGION"


class StageFailed(LlmOcrError):
    """The stage failed; the message contains its last lines."""


def permitted(request: StageRequest, settings: WorkerSettings) -> StageRequest:
    """Return the request with the endpoint's own server for the workspace, if the endpoint allows the request.

    Blocking: the settings of a launch are read from the workspace.

    Raises:
        InputError: The endpoint does not allow the workspace, its server, or a setting of the launch.
        LlmOcrError: The launch cannot be read, or differs from the launched one.
    """
    own = () if settings.workspace == NONE else (settings.workspace,)
    allowed = settings.allowed_workspaces or own
    if not any(_is_below(request.workspace, one) for one in allowed):
        raise InputError(
            f"workspace: the endpoint does not allow {without_credentials(request.workspace)}",
            hint="Set LLM_OCR_ALLOWED_WORKSPACES on the endpoint to the URL of a bucket or folder. Stage requests may "
            "then name the workspaces in it.",
        )
    environment, server = dict(request.environment), settings.workspace_endpoint
    if environment.setdefault(_SERVER, server or "") != (server or ""):
        raise InputError(
            "workspace_endpoint: must be the server that the endpoint sets",
            hint=f"Set {_SERVER} on the endpoint to the server of the workspace's store.",
        )
    if not re.fullmatch(r"[a-z0-9-]*", environment.get(_REGION, "")):
        raise InputError(f"workspace_region: {environment[_REGION]!r:.80} is not the name of a region")
    if reference := environment.get("LLM_OCR_LAUNCH"):
        options = StoreOptions(settings.workspace_profile, server, environment.get(_REGION))
        try:
            chosen = launched(request.workspace, options, reference, request.stage)
        except UsageError as error:
            raise InputError(f"launch: {error.args[0]}", hint=error.hint) from error
        if refused := sorted(OF_MACHINE & chosen.keys()):
            raise InputError(
                f"launch: sets {', '.join(refused)}, but only the endpoint may choose programs and folders",
                hint=f"Set {PREFIX}{refused[0].upper()} on the endpoint.",
            )
    return replace(request, environment={name: value for name, value in environment.items() if value})


def _is_below(url: str, allowed: str) -> bool:
    """Return whether a workspace is the allowed one or below it."""
    if split_scheme(allowed)[0] in ("", "file"):
        return split_scheme(url)[0] in ("", "file") and _folder(url).is_relative_to(_folder(allowed))
    url, allowed = url.removesuffix("/"), allowed.rstrip("/")
    below = url.removeprefix(f"{allowed}/")
    return url == allowed or (below != url and not {"", ".", ".."} & set(below.split("/")))


def _folder(url: str) -> Path:
    return Path(url.removeprefix("file://")).expanduser().resolve()


async def run_stage(request: StageRequest, variables: Mapping[str, str], say: Callable[[str], None]) -> dict[str, Any]:
    """Run the stage; `say` receives its lines. The counts are those of the whole workspace.

    Cancellation stops the stage, which publishes its finished units.

    Raises:
        InputError: The workspace is impossible.
        StageFailed: The stage failed.
    """
    try:
        open_store(request.workspace)
    except UsageError as error:
        raise InputError(f"workspace: {error.args[0]}", hint=error.hint) from error
    share = {"LLM_OCR_SHARD_INDEX": str(request.index), "LLM_OCR_SHARD_COUNT": str(request.count)}
    environment = {**variables, **request.environment, **(share if request.count > 1 else {})}
    code, lines = await _finished(request.stage, environment, say)
    if code:
        raise StageFailed("\n".join([f"{request.stage} ended with exit code {code}: {_why(lines)}", *lines]))
    return await asyncio.to_thread(_counts, request)


def _why(lines: Sequence[str]) -> str:
    """Return the command's own error message, before its advice, or otherwise its last lines."""
    said = next((line for line in reversed(lines) if line.startswith(_COMPLAINT)), "")
    return said.removeprefix(_COMPLAINT) or (lines[-1] if lines else "no message")


async def _finished(stage: str, environment: Mapping[str, str], say: Callable[[str], None]) -> tuple[int, deque[str]]:
    lines: deque[str] = deque(maxlen=_TAIL)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llm_ocr.stages", stage),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=_LONGEST_LINE,
    )
    try:
        assert process.stdout
        async for line in process.stdout:
            lines.append(line.decode(errors="replace").rstrip())
            say(lines[-1])
        return await process.wait(), lines
    finally:
        await asyncio.shield(_ended(process))


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    _signal(process, signal.SIGTERM)
    try:
        # Keep reading its output: without a reader, the command would block and not exit.
        assert process.stdout
        await asyncio.wait_for(asyncio.gather(process.stdout.read(), process.wait()), GRACE)
    except TimeoutError:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Send SIGTERM to the command, which ends its children, or SIGKILL to all of them."""
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _counts(request: StageRequest) -> dict[str, Any]:
    held = request.environment
    run = open_run(
        request.workspace,
        endpoint=held.get("LLM_OCR_WORKSPACE_ENDPOINT"),
        region=held.get("LLM_OCR_WORKSPACE_REGION"),
    )
    status = run.status
    about = {"stage": request.stage, "workspace": request.workspace}
    share = {"shard": {"index": request.index, "count": request.count}}
    units = status.stages[request.stage]
    return {
        **about,
        **share,
        "units": {"done": units.done, "total": units.total},
        "pages": asdict(status.pages),
        "figures": asdict(status.figures),
    }
