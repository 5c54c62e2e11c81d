"""The Python API: the commands as functions, their settings as keywords."""

import asyncio
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_settings import BaseSettings

from llm_ocr.api import execute
from llm_ocr.api.run import Run
from llm_ocr.api.wiring import PartRenderer, embedded_reader, render_options
from llm_ocr.documents.rendering import Renderer
from llm_ocr.errors import UsageError
from llm_ocr.settings import models
from llm_ocr.settings.environment import environment
from llm_ocr.settings.fields import settings_of
from llm_ocr.settings.loading import load
from llm_ocr.settings.sources import did_you_mean
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.extract import Extract
from llm_ocr.types import DocumentPart, PageRecord, Unit
from llm_ocr.work.stored import remembered

if TYPE_CHECKING:
    from PIL.Image import Image

Sources = str | Path | Iterable[str | Path]


def run(sources: Sources, *, workspace: str | Path, progress: Progress | None = None, **settings: Any) -> Run:
    """All three stages here. Run it again to go on after an interruption; finished units are not done twice."""
    return _call("run", models.RunSettings, sources, workspace, progress, settings)


def plan(sources: Sources, *, workspace: str | Path, progress: Progress | None = None, **settings: Any) -> Run:
    """List documents, count their pages, cut units of work."""
    return _call("plan", models.PlanSettings, sources, workspace, progress, settings)


def extract(sources: Sources = (), *, workspace: str | Path, progress: Progress | None = None, **settings: Any) -> Run:
    """Stage 1: pages to Markdown, figures and layout. Plans the sources first if they are new."""
    return _call("extract", models.ExtractSettings, sources, workspace, progress, settings)


def describe(*, workspace: str | Path, progress: Progress | None = None, **settings: Any) -> Run:
    """Stage 2: a description for each figure."""
    return _call("describe", models.DescribeSettings, (), workspace, progress, settings)


def assemble(*, workspace: str | Path, progress: Progress | None = None, **settings: Any) -> Run:
    """Stage 3: descriptions into the Markdown; documents and dataset written."""
    return _call("assemble", models.AssembleSettings, (), workspace, progress, settings)


def retry_failed(*, workspace: str | Path, progress: Progress | None = None, **settings: Any) -> Run:
    """Plan the failed pages once more; `extract` then reads them."""
    return _call("retry-failed", models.RetrySettings, (), workspace, progress, settings)


async def read_page(image: "str | Path | bytes | Image", **settings: Any) -> PageRecord:
    """One page image through Extract, without a workspace: a file, its bytes, or a Pillow image.

    Raises nothing for a page that cannot be read: the row's status is `failed` then, with its reason.
    """
    chosen = _load("read_page", models.ExtractSettings, {"workspace": "-", **settings})
    reader = embedded_reader(chosen)
    with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:
        file = await asyncio.to_thread(_as_file, image, Path(folder))
        part = DocumentPart("page", str(file), file.name, "", (1,), 1, 0)
        async with Renderer(render_options(chosen, ())) as renderer:
            stage = Extract(PartRenderer(renderer), reader, _nowhere, Silent(), in_flight=1)
            try:
                return await stage.read(part, 0)
            finally:
                await reader.close()


def _as_file(image: "str | Path | bytes | Image", folder: Path) -> Path:
    if isinstance(image, str | Path):
        return Path(image)
    file = folder / "image"
    if isinstance(image, bytes):
        file.write_bytes(image)
    else:
        image.save(file, "PNG", compress_level=1)
    return file


async def _nowhere(unit: Unit, pages: Sequence[PageRecord]) -> None:
    """A single page is not published."""


def _call(
    command: str,
    model: type[BaseSettings],
    sources: Sources,
    workspace: str | Path,
    progress: Progress | None,
    settings: dict[str, Any],
) -> Run:
    named = [sources] if isinstance(sources, str | Path) else list(sources)
    flags: dict[str, Any] = {"workspace": str(workspace), **settings}
    if named:
        flags["sources"] = tuple(str(source) for source in named)
    return execute(command, _load(command, model, flags, remembered(str(workspace))), progress)


def _load(
    command: str, model: type[BaseSettings], keywords: dict[str, Any], stored: Mapping[str, Any] | None = None
) -> Any:
    """The settings of a call; keywords rank as flags do, and messages name them as they were written."""
    config = keywords.pop("config", None)
    known = settings_of(model)
    for name in keywords:
        if name not in known:
            raise UsageError(f"{command} has no setting {name}{did_you_mean(name, tuple(known))}")
    return load(
        model,
        keywords,
        config=Path(config) if config else None,
        environ=environment(),
        dotenv=Path(".env"),
        stored=stored,
        written={name: name for name in keywords},
    ).settings
