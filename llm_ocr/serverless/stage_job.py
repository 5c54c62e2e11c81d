"""A stage of a workspace as a job: the command that any container runs, in a process of its own."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from llm_ocr.api import open as open_run
from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.serverless.inputs import InputError, StageRequest
from llm_ocr.storage import open_store

#: Seconds between SIGTERM and SIGKILL: more than a stage takes to publish what is whole.
GRACE = 40.0
#: Lines of the stage's log that stand in the error.
_TAIL = 12
_LONGEST_LINE = 1 << 20
_COMPLAINT = "llm-ocr: "


class StageFailed(LlmOcrError):
    """The stage ended otherwise than well; the message holds its last lines."""


async def run_stage(request: StageRequest, variables: Mapping[str, str], say: Callable[[str], None]) -> dict[str, Any]:
    """Carry out the stage; `say` hears its lines. The counts are those of the whole workspace.

    Cancelled, it stops the stage, which publishes what is whole. Raises `InputError` for a workspace that cannot be,
    `StageFailed`.
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
    """The command's own complaint, which its advice follows; else its last words."""
    said = next((line for line in reversed(lines) if line.startswith(_COMPLAINT)), "")
    return said.removeprefix(_COMPLAINT) or (lines[-1] if lines else "no word")


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
        # Its output is read on: it would wait for a reader, and not end.
        assert process.stdout
        await asyncio.wait_for(asyncio.gather(process.stdout.read(), process.wait()), GRACE)
    except TimeoutError:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """SIGTERM to the command, which ends what it has started; SIGKILL to all of them."""
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
