"""Open source documents, wherever they are, as local files, and render their pages in the renderer's processes."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from llm_ocr.config.environment import cores
from llm_ocr.config.groups import (
    EMBEDDED,
    HYBRID,
    MODELS,
    DatasetSettings,
    EmbeddedSettings,
    EngineSettings,
    Group,
    ModelSettings,
    RemoteSettings,
    RenderSettings,
)
from llm_ocr.documents.remote import RemoteOptions, is_remote
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.documents.rows import DatasetOptions, row_address
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.models.choosing import gives_boxes
from llm_ocr.models.profile import Profile
from llm_ocr.results.quality.scoring import Limits, rated
from llm_ocr.results.quality.worker import MODULE, rating_from_wire, rating_to_wire
from llm_ocr.stages.model_choice import mode_of
from llm_ocr.storage import StoreOptions
from llm_ocr.types import Attempt, DocumentPart, Ledger, Page, Quality, page_id

if TYPE_CHECKING:
    from llm_ocr.documents.remote.cache import Fetched, LocalCopy
    from llm_ocr.documents.remote.listing import RemoteDocuments
    from llm_ocr.documents.rows.images import RowImages

#: Longest side of page images for the embedded engine, in pixels. Scans keep more of their own pixels: OCR finds 3,450
#: words on a newspaper of 4,056 pixels at 2560, 3,290 at 2000, and 1,770 at 1540.
EMBEDDED_IMAGE_SIZE, EMBEDDED_SCAN_SIZE = 1540, 2560


def remote_options(settings: RemoteSettings) -> RemoteOptions:
    """Return the options for reading remote documents."""
    return RemoteOptions(
        store=StoreOptions(
            settings.source_profile, settings.source_endpoint, settings.source_region, any_key=True, role="source"
        ),
        cache_bytes=settings.source_cache << 20,
        allow_private_addresses=settings.allow_private_addresses,
    )


def dataset_options(settings: DatasetSettings) -> DatasetOptions | None:
    """Return the selected dataset rows; None without a dataset."""
    if settings.dataset is None:
        return None
    return DatasetOptions(
        name=settings.dataset,
        config=settings.dataset_config,
        split=settings.dataset_split,
        revision=settings.dataset_revision,
        image_column=settings.image_column,
        id_column=settings.id_column,
    )


class Remote:
    """Provides remote documents as local files. Needs `close`. Nothing is opened before the first document."""

    def __init__(self, settings: Group) -> None:
        # Commands without these settings open no remote documents.
        self._options = remote_options(settings) if isinstance(settings, RemoteSettings) else RemoteOptions()
        self._documents: RemoteDocuments | None = None
        self._rows: RowImages | None = None

    def open(self, source: str, version: str = "") -> "AbstractAsyncContextManager[LocalCopy]":
        """Open a document. See `RemoteDocuments.open`."""
        return self._opened().open(source, version)

    async def look(self, source: str) -> "Fetched":
        """Inspect a document. See `RemoteDocuments.look`."""
        return await self._opened().look(source)

    def _opened(self) -> "RemoteDocuments":
        if self._documents is None:
            from llm_ocr.documents.remote.listing import RemoteDocuments

            self._documents = RemoteDocuments(self._options)
        return self._documents

    @contextlib.asynccontextmanager
    async def page(self, source: str, version: str, number: int) -> AsyncIterator[tuple[Path, int | None]]:
        """Open page `number` of a document.

        Each image in a list of a dataset's row is a separate file.

        Yields:
            A local file that contains the page, and the number of the page in that file. None: the file is one page.

        Raises:
            StorageError: The dataset cannot be read. For other documents, see `open`.
        """
        address = row_address(source)
        if address is None:
            async with self.open(source, version) as copy:
                yield copy.path, number
            return
        if self._rows is None:
            from llm_ocr.documents.rows.images import RowImages

            self._rows = RowImages(self._options, self.open)
        async with self._rows.open(address, number) as row:
            yield row

    async def close(self) -> None:
        """Remove the local files."""
        if self._rows is not None:
            await self._rows.close()
        if self._documents is not None:
            await self._documents.close()


def passwords(given: Sequence[SecretStr], file: Path | None) -> tuple[str, ...]:
    """Return the passwords to try; those of the file are last. Raises `UsageError` if the file cannot be read."""
    found = [secret.get_secret_value() for secret in given]
    if file is not None:
        try:
            found += [line for line in file.read_text(encoding="utf-8-sig").splitlines() if line]
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise UsageError(f"`password_file={file}`: {why or error}") from error
    return tuple(found)


def render_options(
    settings: RenderSettings, secrets: tuple[str, ...], profile: Profile | None = None, engine: str = EMBEDDED
) -> RenderOptions:
    """Return the options for rendering pages.

    The profile determines size and format. Without a profile, the embedded engine's values apply, with JPEG by default.
    An `engine` without a model reads the text of PDF pages, and so does the CPU engine before a model.
    """
    chosen: str = settings.image_format
    if chosen == "auto":
        chosen = profile.image.format if profile else "jpeg"
    # Whether most pages need their text layer. Reading it later would open the document again.
    needs_text = profile is None or (isinstance(settings, EngineSettings) and settings.engine == HYBRID)
    if profile is not None and isinstance(settings, ModelSettings):
        mode = mode_of(profile, settings.mode) or profile.mode
        from_page = settings.figures_from == "page"
        from_page = from_page or (settings.figures_from == "auto" and not gives_boxes(profile, mode))
        needs_text = needs_text or from_page or settings.rotate == "probe" or settings.anchor_text > 0
    return RenderOptions(
        image_size=settings.image_size or (profile.image.longest_side if profile else EMBEDDED_IMAGE_SIZE),
        scan_size=0 if profile or settings.image_size else EMBEDDED_SCAN_SIZE,
        image_format=chosen,
        text_layer=needs_text,
        renderer=settings.renderer,
        timeout=settings.render_timeout,
        page_timeout=settings.page_timeout if isinstance(settings, EmbeddedSettings) else math.inf,
        memory=settings.render_memory << 20,
        passwords=secrets,
        workers=settings.render_workers or cores(),
        confined=settings.confinement != "off",
        engine=EMBEDDED if engine in MODELS else engine,
        module=MODULE,
        keep_invisible=isinstance(settings, EmbeddedSettings) and settings.invisible_text == "keep",
    )


class PartRenderer:
    """Renders parts of the plan, and changes images for readers. A file that changed since it was planned fails."""

    def __init__(self, renderer: Renderer, remote: Remote) -> None:
        self._renderer = renderer
        self._remote = remote
        self.crop, self.blank = renderer.crop, renderer.blank
        self.resized, self.turned = renderer.resized, renderer.turned

    async def rated(
        self, page: Page, attempt: Attempt, limits: Limits, *, transcribed: bool = False
    ) -> tuple[Attempt, Quality, Ledger | None]:
        """Return the same as `scoring.rated`, in a renderer process."""
        try:
            reply = await self._renderer.rate(rating_to_wire(page, attempt, limits, transcribed=transcribed))
        except PageFailure:  # an answer that was paid for is not lost with a process
            return await asyncio.to_thread(rated, page, attempt, limits, transcribed=transcribed)
        return rating_from_wire(attempt, reply)

    async def count(self, part: DocumentPart) -> int:
        """Return the number of pages of the document. Raises `PageFailure`."""
        if _is_elsewhere(part.source):
            async with self._remote.page(part.source, part.version, 1) as (path, _):
                return await self._renderer.open(str(path))
        return await self._renderer.open(part.source, "", part.version)

    async def page(self, part: DocumentPart, number: int) -> Page:
        """Render page `number`, counted from 1. Raises `PageFailure`."""
        names = {"page_id": page_id(part.document_id, number), "document_id": part.document_id}
        if _is_elsewhere(part.source):
            async with self._remote.page(part.source, part.version, number) as (path, number_there):
                page = await self._renderer.page(str(path), "", number_there or 1, **names)
                # The plan counts an image in a list, and one whose name says so, as one page.
                if row_address(part.source) and (number_there is None or part.page_total == 1):
                    pages = await self._renderer.open(str(path))
                    if pages > 1:
                        page = replace(page, damage=f"only the first of the {pages} pages of the row's image was read")
            return replace(page, number=number, source=part.source, version=part.version)
        return await self._renderer.page(part.source, "", number, **names, version=part.version)

    async def content(self, page: Page) -> Page:
        """Return the page with its text layer. A page without text layer is returned unchanged."""
        if row_address(page.source) is not None and (
            page.evidence is None or not (page.evidence.lines or page.evidence.pictured)
        ):
            return page  # an image
        if _is_elsewhere(page.source):
            async with self._remote.page(page.source, page.version, page.number) as (path, number):
                return await self._renderer.content(str(path), "", number or 1, page)
        return await self._renderer.content(page.source, "", page.number, page, page.version)


def _is_elsewhere(source: str) -> bool:
    """Return whether a document must be fetched: it is remote, or a row of a dataset."""
    return is_remote(source) or row_address(source) is not None
