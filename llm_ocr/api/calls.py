"""The Python API: the commands as functions, their settings as keywords."""

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from llm_ocr.api import execute
from llm_ocr.api.engines import Engines, choose_engine
from llm_ocr.api.export_job import Exported
from llm_ocr.api.exporting import export as export_results
from llm_ocr.api.following import await_workspace
from llm_ocr.api.job import Job
from llm_ocr.api.reading import page_profile, reading
from llm_ocr.api.remote import Remote
from llm_ocr.api.run import Run
from llm_ocr.api.transforming import transform_pages
from llm_ocr.api.viewing import Viewed
from llm_ocr.api.viewing import view as view_results
from llm_ocr.api.wiring import PartRenderer, render_options
from llm_ocr.documents.rendering import Renderer
from llm_ocr.errors import UsageError
from llm_ocr.settings import models
from llm_ocr.settings.calls import settings_from
from llm_ocr.settings.models import PipelineCommand
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.extract import Extract
from llm_ocr.types import DocumentPart, PageRecord, Unit
from llm_ocr.work.stored import stored_settings

if TYPE_CHECKING:
    from PIL.Image import Image

    from llm_ocr.settings.keywords import (
        AssembleKeywords,
        DescribeKeywords,
        ExportKeywords,
        ExtractKeywords,
        PlanKeywords,
        ReadPageKeywords,
        RetryKeywords,
        RunKeywords,
        TransformKeywords,
        ViewKeywords,
    )

Sources = str | Path | Iterable[str | Path]


def run(
    sources: Sources = (), *, workspace: str | Path, progress: Progress | None = None, **settings: "Unpack[RunKeywords]"
) -> Run:
    """All three stages here. Run it again to go on after an interruption; finished units are not done twice."""
    return _call("run", models.RunSettings, sources, workspace, progress, settings)


def plan(
    sources: Sources = (),
    *,
    workspace: str | Path,
    progress: Progress | None = None,
    **settings: "Unpack[PlanKeywords]",
) -> Run:
    """List documents, count their pages, cut units of work."""
    return _call("plan", models.PlanSettings, sources, workspace, progress, settings)


def extract(
    sources: Sources = (),
    *,
    workspace: str | Path,
    progress: Progress | None = None,
    **settings: "Unpack[ExtractKeywords]",
) -> Run:
    """Stage 1: pages to Markdown, figures and layout. Plans the sources first if they are new."""
    return _call("extract", models.ExtractSettings, sources, workspace, progress, settings)


def describe(*, workspace: str | Path, progress: Progress | None = None, **settings: "Unpack[DescribeKeywords]") -> Run:
    """Stage 2: a description for each figure."""
    return _call("describe", models.DescribeSettings, (), workspace, progress, settings)


def assemble(*, workspace: str | Path, progress: Progress | None = None, **settings: "Unpack[AssembleKeywords]") -> Run:
    """Stage 3: descriptions into the Markdown; documents and dataset written."""
    return _call("assemble", models.AssembleSettings, (), workspace, progress, settings)


def retry_failed(
    *, workspace: str | Path, progress: Progress | None = None, **settings: "Unpack[RetryKeywords]"
) -> Run:
    """Plan the failed pages once more; `extract` then reads them."""
    return _call("retry-failed", models.RetrySettings, (), workspace, progress, settings)


def transform(
    function: Callable[[PageRecord], PageRecord],
    *,
    workspace: str | Path,
    stage: str,
    version: str = "1",
    progress: Progress | None = None,
    **settings: "Unpack[TransformKeywords]",
) -> Run:
    """A stage of your own after Extract: `function` gives each page's new row, called in threads, units at a time.

    The rows stand in the workspace under `stage`; `describe(pages_from=stage)` and `assemble(pages_from=stage)` begin
    from them. Give another `version` when the function has changed. Shards, leases and resume are those of the other
    stages. A page for which the function raises is `failed` there, with nothing of its content.
    """
    chosen = settings_from(models.TransformSettings, "transform", {"workspace": str(workspace), **settings})
    return transform_pages(chosen, function, stage, version, progress or Silent())


def export(
    *, workspace: str | Path, output: str | Path, progress: Progress | None = None, **settings: "Unpack[ExportKeywords]"
) -> Exported:
    """The assembled results in the form of what comes next, at a folder, a bucket or a dataset repository of the Hub.

    Run it again to go on after an interruption. Raises `StageMissing` when the workspace is not assembled.
    """
    flags = {"workspace": str(workspace), "output": str(output), **settings}
    return export_results(settings_from(models.ExportSettings, "export", flags), progress)


def view(
    *, workspace: str | Path, output: str | Path, progress: Progress | None = None, **settings: "Unpack[ViewKeywords]"
) -> Viewed:
    """A static site of the results in the folder `output`; `compare` names another workspace to be shown beside it.

    Open `index` of what is returned. Raises `UsageError` when the folder holds other things.
    """
    flags = {"workspace": str(workspace), "output": str(output), **settings}
    return view_results(settings_from(models.ViewSettings, "view", flags), progress)


async def read_page(image: "str | Path | bytes | Image", **settings: "Unpack[ReadPageKeywords]") -> PageRecord:
    """One page image through Extract, without a workspace: a file, its bytes, or a Pillow image.

    Raises nothing for a page that cannot be read: the row's status is `failed` then, with its reason. Raises
    `UsageError` for limits of a run.
    """
    if limits := {"max_hours", "max_cost"} & settings.keys():
        raise UsageError(f"read_page: {', '.join(sorted(limits))} is for runs with a workspace: this reads one page")
    chosen = settings_from(models.ExtractSettings, "read_page", {"workspace": "-", **settings})
    engine = choose_engine(chosen, command="run")
    with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:
        file = await asyncio.to_thread(_as_file, image, Path(folder))
        part = DocumentPart("page", str(file), file.name, "", (1,), 1, 0)
        engines = Engines(engine, chosen, Path(folder), Silent().say)
        job = Job(None, chosen, Silent(), engines, Remote(chosen))
        try:
            async with Renderer(render_options(chosen, (), page_profile(chosen, engines))) as renderer:
                ready = await reading(job, renderer)
                try:
                    pages = PartRenderer(renderer, job.remote)
                    kept = chosen.headers == "keep"
                    stage = Extract(pages, ready.reader, _nowhere, Silent(), ready.admission, furniture=kept)
                    return await stage.read(part, 0, await ready.admission.enter())
                finally:
                    await ready.reader.close()
        finally:
            await engines.close()


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
    model: type[PipelineCommand],
    sources: Sources,
    workspace: str | Path,
    progress: Progress | None,
    settings: Mapping[str, object],
) -> Run:
    named = [sources] if isinstance(sources, str | Path) else list(sources)
    flags: dict[str, object] = {"workspace": str(workspace), **settings}
    if named:
        flags["sources"] = tuple(str(source) for source in named)
    chosen = settings_from(model, command, flags)
    await_workspace(chosen, (progress or Silent()).say)
    if stored := stored_settings(command, chosen):
        chosen = settings_from(model, command, flags, stored)
    return execute(command, chosen, progress)
