"""Jobs with one shared model; no data of a request remains afterward."""

import asyncio
import contextlib
import logging
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
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
    Numbered,
    WarmUp,
    advised,
    parts_of,
    read_input,
)
from llm_ocr_platforms.runpod.replies import PageAnswer, Replies, answer_of, page_answer

# Warm-up: a generated page is read once, so that the model is ready for the first document.


_WORDS = "Ready to read."
_SIZE, _MARGIN, _FONT = (420, 120), 40, 32  # pixels


async def warm_up(session: Session) -> dict[str, Any]:
    """Start the model and send one request.

    Raises:
        ServerError: The model cannot be started.
    """
    began = time.monotonic()
    rows: list[PageRecord] = []

    async def finished(position: int, record: PageRecord) -> None:
        rows.append(record)

    with tempfile.TemporaryDirectory(prefix="llm-ocr-request-") as folder:
        part = DocumentPart("warm-up", str(_page(Path(folder))), "warm-up", "", (1,), 1, 0)
        await session.read(part, finished)
    detail = {"detail": advised(rows[0].detail)} if rows[0].detail else {}
    return {"status": rows[0].status.value, **detail, "seconds": round(time.monotonic() - began, 3)}


def _page(folder: Path) -> Path:
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", _SIZE, "white")
    ImageDraw.Draw(page).text((_MARGIN, _MARGIN), _WORDS, fill="black", font=ImageFont.load_default(_FONT))
    file = folder / "page.png"
    page.save(file)
    return file


# Worker: handles jobs with one model for all of them, and removes all data of a request.


_log = logging.getLogger("llm_ocr.serverless")

#: Seconds between two reports of progress: each is a request to RunPod.
_PAUSE = 2.0
#: Reports a job's progress to RunPod: the job, and JSON values.
Report = Callable[[dict[str, Any], Any], None]


class _Told(Silent):
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
            return await self._documents(job, request, session)

    async def close(self) -> None:
        """Stop the model."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @contextlib.asynccontextmanager
    async def _reading(self) -> AsyncIterator[Session]:
        """Yield the session; a session without servers is closed, so that the next request starts a new one."""
        session = self._session = self._session or Session.from_settings(self._settings, _Told())
        try:
            yield session
        except ServerError:
            if self._session is session:
                self._session = None
            await session.close()
            raise

    async def _documents(self, job: Mapping[str, Any], request: DocumentRequest, session: Session) -> dict[str, Any]:
        about = await self._about(session)
        async with contextlib.AsyncExitStack() as held:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="llm-ocr-request-")))
            parts = await parts_of(request, session, self._settings, folder, held)
            pages = await self._pages(job, request, session, parts, folder / "pictures")
            answer = answer_of(pages, request)
            _anything_read(pages, request)
            replies = Replies(self._settings, about)
            return await asyncio.to_thread(replies.reply, str(job.get("id") or "job"), answer, request)

    async def _pages(
        self,
        job: Mapping[str, Any],
        request: DocumentRequest,
        session: Session,
        parts: list[Numbered],
        folder: Path,
    ) -> list[PageAnswer]:
        total = sum(one.part.expected for one in parts)
        pages: list[PageAnswer] = []
        failed = 0
        report = _Paced(self._report, job)

        async def of_part(numbered: Numbered) -> None:
            async def finished(position: int, record: PageRecord) -> None:
                nonlocal failed
                pages.append(await page_answer(numbered.first + position, record, request, folder))
                failed += record.status is Status.FAILED
                if len(pages) < total:  # the reply follows the last page, and no report may follow the reply
                    report({"pages": total, "done": len(pages), "failed": failed})

            await session.read(numbered.part, finished, DocumentOptions(request.whole, request.tasks))

        try:
            async with asyncio.TaskGroup() as tasks:
                for numbered in parts:
                    tasks.create_task(of_part(numbered))
        except BaseExceptionGroup as group:
            raise _as_input(_first(group)) from group
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


class _Paced:
    """Reports of one job, at the rate that RunPod accepts."""

    def __init__(self, report: Report, job: Mapping[str, Any]) -> None:
        self._report = report
        self._job = dict(job)
        self._next = time.monotonic() + _PAUSE

    def __call__(self, progress: Any) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PAUSE
            self._report(self._job, progress)


def _anything_read(pages: list[PageAnswer], request: DocumentRequest) -> None:
    """Raise an error if no page could be read: a reply with status success would hide the failure."""
    if all(page.record.status is Status.FAILED for page in pages):
        first = min(pages, key=lambda page: page.number)
        why = first.record.reason.value if first.record.reason else "failed"
        detail = f": {first.record.detail}" if first.record.detail else ""
        field = request.files[0].field.partition("[")[0]
        raise LlmOcrError(f"{field}: all {len(pages)} pages failed; page {first.number}: {why}{detail}")


def _as_input(error: BaseException) -> BaseException:
    """Return an error about regions as an error of the one field that requests regions."""
    if isinstance(error, UsageError) and not isinstance(error, InputError):
        message = re.sub(r"^`region_task=([^`]*)`", r"\1", str(error.args[0]))
        return InputError(f"label_task_mapping: {message}", hint=error.hint)
    return error


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
