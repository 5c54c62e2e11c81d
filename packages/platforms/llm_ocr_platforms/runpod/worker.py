"""Jobs with one shared model; no data of a request remains afterward."""

import asyncio
import contextlib
import logging
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_ocr import __version__
from llm_ocr.config.models import WorkerSettings
from llm_ocr.errors import LlmOcrError, ServerError, UsageError
from llm_ocr.session import DocumentOptions, Session
from llm_ocr.stages import Silent
from llm_ocr.types import DocumentPart, PageRecord, Status
from llm_ocr_platforms.runpod.inputs import (
    DocumentRequest,
    InputError,
    WarmUp,
    advised,
    parts_of,
    read_input,
)
from llm_ocr_platforms.runpod.replies import PageAnswer, page_answer, reply_of

_log = logging.getLogger("llm_ocr.serverless")

#: Seconds between two reports of progress: each is a request to RunPod.
_PAUSE = 2.0
#: Reports a job's progress to RunPod: the job, and JSON values.
Report = Callable[[dict[str, Any], Any], None]


async def warm_up(session: Session) -> dict[str, Any]:
    """Start the model and read one generated page, so that the model is ready for the first document.

    Raises:
        ServerError: The model cannot be started.
    """
    from PIL import Image, ImageDraw, ImageFont

    began = time.monotonic()
    image = Image.new("RGB", (420, 120), "white")
    ImageDraw.Draw(image).text((40, 40), "Ready to read.", fill="black", font=ImageFont.load_default(32))
    record = await session.read_page(image)
    detail = {"detail": advised(record.detail)} if record.detail else {}
    return {"status": record.status.value, **detail, "seconds": round(time.monotonic() - began, 3)}


class _Logged(Silent):
    """Progress that writes the library's messages to the worker's log."""

    def say(self, message: str) -> None:
        _log.info("%s", message)


class Worker:
    """Handler of jobs, in one event loop. The model starts at the first document or warm-up, and ends with the process.

    `variables` is the worker's environment.
    """

    def __init__(self, settings: WorkerSettings, variables: Mapping[str, str], report: Report) -> None:
        self._settings = settings
        self._variables = variables
        self._report = report
        self._session: Session | None = None

    async def handle(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to a job.

        Raises:
            LlmOcrError: The job failed. An `InputError` names the invalid field.
        """
        request = read_input(job)
        async with self._reading() as session:
            if isinstance(request, WarmUp):
                return {"warmup": True, **await warm_up(session), **await self._about(session)}
            about = await self._about(session)
            async with contextlib.AsyncExitStack() as held:
                folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="llm-ocr-request-")))
                parts = await parts_of(request, session, self._settings, folder, held)
                pages = await self._pages(job, request, session, parts, folder / "pictures")
                # A reply with status success would hide that no page could be read.
                if all(page.record.status is Status.FAILED for page in pages):
                    first = min(pages, key=lambda page: page.number)
                    why = first.record.reason.value if first.record.reason else "failed"
                    detail = f": {first.record.detail}" if first.record.detail else ""
                    field = request.files[0].field.partition("[")[0]
                    raise LlmOcrError(f"{field}: all {len(pages)} pages failed; page {first.number}: {why}{detail}")
                name = str(job.get("id") or "job")
                return await asyncio.to_thread(reply_of, name, pages, request, self._settings, about)

    async def close(self) -> None:
        """Stop the model."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @contextlib.asynccontextmanager
    async def _reading(self) -> AsyncIterator[Session]:
        """Yield the session; a session without servers is closed, so that the next request starts a new one."""
        session = self._session = self._session or Session.from_settings(self._settings, _Logged())
        try:
            yield session
        except ServerError:
            if self._session is session:
                self._session = None
            await session.close()
            raise

    async def _pages(
        self,
        job: Mapping[str, Any],
        request: DocumentRequest,
        session: Session,
        parts: Sequence[tuple[DocumentPart, int]],
        folder: Path,
    ) -> list[PageAnswer]:
        total = sum(part.expected for part, _ in parts)
        pages: list[PageAnswer] = []
        failed, reported = 0, time.monotonic()

        async def of_part(part: DocumentPart, first: int) -> None:
            async def finished(position: int, record: PageRecord) -> None:
                nonlocal failed, reported
                pages.append(await asyncio.to_thread(page_answer, first + position, record, request, folder))
                failed += record.status is Status.FAILED
                # The reply follows the last page, and no report may follow the reply.
                if len(pages) < total and time.monotonic() >= reported + _PAUSE:
                    reported = time.monotonic()
                    self._report(dict(job), {"pages": total, "done": len(pages), "failed": failed})

            await session.read(part, finished, DocumentOptions(request.whole, request.tasks))

        try:
            async with asyncio.TaskGroup() as tasks:
                for part, first in parts:
                    tasks.create_task(of_part(part, first))
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if isinstance(error, UsageError) and not isinstance(error, InputError):
                # Only one field requests regions.
                message = re.sub(r"^`region_task=([^`]*)`", r"\1", str(error.args[0]))
                error = InputError(f"label_task_mapping: {message}", hint=error.hint)
            raise error from group
        return pages

    async def _about(self, session: Session) -> dict[str, Any]:
        """Return the model or engine that read the pages."""
        model = await session.model()
        return {
            "glmocr_ref": self._variables.get("GLMOCR_REF") or None,
            "vllm_base_image_ref": self._variables.get("VLLM_BASE_IMAGE") or None,
            "model": model.name if model else None,
            "model_revision": model.revision if model else None,
            "llm_ocr_version": __version__,
        }
