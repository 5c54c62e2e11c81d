"""From settings to the parts that do the work."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

from llm_ocr.api.models import mode_of
from llm_ocr.api.remote import Remote
from llm_ocr.documents.remote.urls import is_remote
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.documents.rows.address import row_address
from llm_ocr.engines.embedded.reader import EmbeddedOptions, EmbeddedReader
from llm_ocr.engines.model.reader import has_places
from llm_ocr.errors import UsageError
from llm_ocr.models.profile import Profile
from llm_ocr.settings.environment import cores
from llm_ocr.settings.groups import EmbeddedSettings, RenderSettings
from llm_ocr.settings.model_groups import ModelSettings
from llm_ocr.types import DocumentPart, EncodedImage, Page, page_id

#: Longest side of page images for the embedded engine, in pixels.
EMBEDDED_IMAGE_SIZE = 1540


def passwords(given: Sequence[SecretStr], file: Path | None) -> tuple[str, ...]:
    """The passwords to try, those of the file last. Raises UsageError when the file cannot be read."""
    found = [secret.get_secret_value() for secret in given]
    if file is not None:
        try:
            found += [line for line in file.read_text(encoding="utf-8").splitlines() if line]
        except OSError as error:
            raise UsageError(f"--password-file {file}: {error.strerror or error}") from error
    return tuple(found)


def render_options(settings: RenderSettings, secrets: tuple[str, ...], profile: Profile | None = None) -> RenderOptions:
    """How pages are rendered: for a model as its profile says, else for the embedded engine, JPEG where left open."""
    chosen: str = settings.image_format
    if chosen == "auto":
        chosen = profile.image.format if profile else "jpeg"
    return RenderOptions(
        image_size=settings.image_size or (profile.image.longest_side if profile else EMBEDDED_IMAGE_SIZE),
        image_format=chosen,
        text_layer=profile is None or (isinstance(settings, ModelSettings) and _leans_on_text(settings, profile)),
        renderer=settings.renderer,
        timeout=settings.render_timeout,
        memory=settings.render_memory << 20,
        passwords=secrets,
        workers=settings.render_workers or cores(),
        confined=settings.confinement != "off",
    )


def _leans_on_text(settings: ModelSettings, profile: Profile) -> bool:
    """Whether most pages' text layers are needed beside the model: later, the document would be opened once more."""
    from_page = settings.figures_from == "page" or (
        settings.figures_from == "auto" and not has_places(profile, mode_of(profile, settings.mode) or profile.mode)
    )
    return from_page or settings.rotate == "probe" or settings.anchor_text > 0


def embedded_reader(
    settings: EmbeddedSettings, *, ocr: bool = True, beside: bool = False, figure_labels: frozenset[str] | None = None
) -> EmbeddedReader:
    """The CPU engine, one process a core unless the settings say otherwise.

    `beside` and `figure_labels`: see `EmbeddedOptions`.
    """
    return EmbeddedReader(
        EmbeddedOptions(
            workers=settings.ocr_workers or cores(),
            memory=settings.ocr_memory << 20,
            timeout=settings.page_timeout,
            text_layer=settings.text_layer == "auto",
            ocr=ocr,
            confined=settings.confinement != "off",
            beside=beside,
            figure_labels=figure_labels,
        )
    )


class PartRenderer:
    """A renderer that is asked by the plan's parts, and reads only what was planned: a changed file fails."""

    def __init__(self, renderer: Renderer, remote: Remote) -> None:
        self._renderer = renderer
        self._remote = remote
        self.crop = renderer.crop

    async def count(self, part: DocumentPart) -> int:
        """How many pages the document has. Raises PageFailure."""
        if is_remote(part.source):
            async with self._remote.open(part.source, part.version) as copy:
                return await self._renderer.open(str(copy.path))
        return await self._renderer.open(part.source, "", part.version)

    async def page(self, part: DocumentPart, number: int) -> Page:
        """Page `number`, from 1. Raises PageFailure."""
        names = {"page_id": page_id(part.document_id, number), "document_id": part.document_id}
        if is_remote(part.source):
            async with self._remote.page(part.source, part.version, number) as (path, number_there):
                page = await self._renderer.page(str(path), "", number_there, **names)
            return replace(page, number=number, source=part.source, version=part.version)
        return await self._renderer.page(part.source, "", number, **names, version=part.version)


class RendererTools:
    """What readers of pages need done with images: in the renderer's processes, never in the event loop."""

    def __init__(self, renderer: Renderer, remote: Remote) -> None:
        self._renderer = renderer
        self._remote = remote

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        """The image with its sides multiplied by `scale`."""
        return await self._renderer.resized(image, scale)

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        """The image turned clockwise by 90, 180 or 270 degrees."""
        return await self._renderer.turned(image, degrees)

    async def blank(self, image: EncodedImage) -> bool:
        """Whether nothing is to be seen on it."""
        return await self._renderer.blank(image)

    async def content(self, page: Page) -> Page:
        """The page with its text layer read; as it is where it has none."""
        if row_address(page.source) is not None:
            return page  # an image
        if is_remote(page.source):
            async with self._remote.open(page.source, page.version) as copy:
                return await self._renderer.content(str(copy.path), "", page.number, page)
        return await self._renderer.content(page.source, "", page.number, page, page.version)
