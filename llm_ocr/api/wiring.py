"""From settings to the parts that do the work."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.documents.sources import version_of
from llm_ocr.engines.embedded.reader import EmbeddedOptions, EmbeddedReader
from llm_ocr.errors import LlmOcrError, PageFailure, UsageError
from llm_ocr.settings.environment import cores
from llm_ocr.settings.models import EngineSettings, RenderSettings
from llm_ocr.types import DocumentPart, Page, Reason, page_id

#: Longest side of page images for the embedded engine, in pixels.
EMBEDDED_IMAGE_SIZE = 1540
#: A page costs this engine seconds when it is scanned: small units are published often.
EMBEDDED_PAGES_PER_UNIT = 16
#: Documents whose content was compared with the plan, remembered; far more than are read at a time.
_PROVED = 256


def choose_engine(settings: EngineSettings, *, command: str) -> str:
    """The engine's name. `run` falls back to the embedded engine; a stage of its own must be told so."""
    if settings.engine != "auto":
        return settings.engine
    if command in ("run", "plan", "retry-failed"):
        return "embedded"
    raise LlmOcrError(
        f"{command}: no engine was chosen",
        hint="Say --engine embedded to use the CPU engine (text layer and OCR, no GPU).",
    )


def passwords(given: Sequence[SecretStr], file: Path | None) -> tuple[str, ...]:
    """The passwords to try, those of the file last. Raises UsageError when the file cannot be read."""
    found = [secret.get_secret_value() for secret in given]
    if file is not None:
        try:
            found += [line for line in file.read_text(encoding="utf-8").splitlines() if line]
        except OSError as error:
            raise UsageError(f"--password-file {file}: {error.strerror or error}") from error
    return tuple(found)


def render_options(settings: RenderSettings, secrets: tuple[str, ...]) -> RenderOptions:
    """How pages are rendered for the embedded engine, JPEG where the settings leave it open."""
    return RenderOptions(
        image_size=settings.image_size or EMBEDDED_IMAGE_SIZE,
        image_format="png" if settings.image_format == "png" else "jpeg",
        text_layer=True,
        renderer=settings.renderer,
        timeout=settings.render_timeout,
        memory=settings.render_memory << 20,
        passwords=secrets,
        workers=settings.render_workers or cores(),
    )


def embedded_reader(settings: EngineSettings) -> EmbeddedReader:
    """The CPU engine, one process a core unless the settings say otherwise."""
    return EmbeddedReader(
        EmbeddedOptions(
            workers=settings.ocr_workers or cores(),
            memory=settings.ocr_memory << 20,
            timeout=settings.page_timeout,
            text_layer=settings.text_layer == "auto",
        )
    )


class PartRenderer:
    """A renderer that is asked by the plan's parts, and reads only what was planned: a changed file fails."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._proved: dict[str, tuple[str, int, int]] = {}  # by source: version, size and time of change when proved
        self.crop = renderer.crop

    async def page(self, part: DocumentPart, number: int) -> Page:
        """Page `number`, from 1. Raises PageFailure."""
        await asyncio.to_thread(self._prove, part)
        return await self._renderer.page(
            part.source, "", number, page_id=page_id(part.document_id, number), document_id=part.document_id
        )

    def _prove(self, part: DocumentPart) -> None:
        """The file's content is that of the plan; read again only when its size or time has changed."""
        if not part.version:
            return
        try:
            about = Path(part.source).stat()
            proof = (part.version, about.st_size, about.st_mtime_ns)
            if self._proved.get(part.source) == proof:
                return
            version = version_of(part.source)
        except FileNotFoundError as error:
            raise PageFailure(Reason.NOT_FOUND, part.source) from error
        except OSError as error:
            raise PageFailure(Reason.UNREADABLE, f"{part.source}: {error.strerror or error}") from error
        if version != part.version:
            raise PageFailure(Reason.SOURCE_CHANGED, f"{part.source} is not the file that was planned")
        if len(self._proved) >= _PROVED:
            self._proved.pop(next(iter(self._proved)))
        self._proved[part.source] = proof
