"""The Python API: commands as functions with their settings as keywords."""

import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Never, Unpack

from llm_ocr.config import models
from llm_ocr.config.fields import lists_settings
from llm_ocr.config.loading import Sources, settings_from, sources_keyword
from llm_ocr.config.models import PipelineCommand
from llm_ocr.exporting import Exported
from llm_ocr.exporting import export as export_results
from llm_ocr.plugins import COMMANDS
from llm_ocr.runs import Run
from llm_ocr.session import OF_RUNS, Session, page_settings
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.execute import execute
from llm_ocr.stages.sharing import await_workspace
from llm_ocr.stages.transform import transform_pages
from llm_ocr.types import Counts, PageRecord, Status, Viewed
from llm_ocr.workspace.stored import stored_settings

if TYPE_CHECKING:
    from PIL.Image import Image
    from pydantic import BaseModel
    from tqdm import tqdm

    from llm_ocr.config.keywords import (
        AssembleKeywords,
        DescribeKeywords,
        ExportKeywords,
        ExtractKeywords,
        FieldsKeywords,
        PlanKeywords,
        ReadPageKeywords,
        RepairKeywords,
        RetryKeywords,
        RunKeywords,
        TransformKeywords,
        ViewKeywords,
    )


#: Settings of Extract without effect on one page.
_NOT_OF_A_PAGE = OF_RUNS | {"max_hours", "max_cost"}


class Bars(Silent):
    """Progress as a bar per stage, in notebooks and terminals; elsewhere nothing is shown."""

    def __init__(self) -> None:
        self._bar: tqdm[Never] | None = None

    def __repr__(self) -> str:
        return "BARS"

    def begin(self, stage: str, expected: int, done: Counts, estimated: bool = False) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without ipywidgets has a bar of text, without a warning
            from tqdm.auto import tqdm

        self.end()
        hidden = False if "ipykernel" in sys.modules else None  # None: hidden unless standard error is a terminal
        self._bar = tqdm(desc=stage, total=expected, initial=done.ended, disable=hidden)

    def correct(self, change: int, *, exact: bool) -> None:
        if self._bar is not None and self._bar.total is not None:
            self._bar.total += change

    def count(self, status: Status) -> None:
        if self._bar is not None:
            self._bar.update()

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None


BARS = Bars()


@lists_settings(models.RunSettings)
def run(
    sources: Sources = (),
    *,
    workspace: str | Path,
    progress: Progress | None = BARS,
    **settings: "Unpack[RunKeywords]",
) -> Run:
    """Read documents: run all three stages on this machine.

    After an interruption, the same call continues. It does not repeat finished units.

    Args:
        sources: Files, folders, globs, URLs, lists of paths, or manifests: one or several.
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.RunKeywords`.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        UsageError: A setting is unknown or invalid, or settings contradict each other.
        LlmOcrError: The work cannot be done. A page that fails is a row with a reason, and no error.
    """
    return _call("run", models.RunSettings, sources, workspace, progress, settings)


@lists_settings(models.PlanSettings)
def plan(
    sources: Sources = (),
    *,
    workspace: str | Path,
    progress: Progress | None = BARS,
    **settings: "Unpack[PlanKeywords]",
) -> Run:
    """List documents, count their pages, and divide them into units of work.

    Args:
        sources: Files, folders, globs, URLs, lists of paths, or manifests: one or several.
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.PlanKeywords`.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        UsageError: A setting is unknown or invalid, or settings contradict each other.
        LlmOcrError: The work cannot be done. A page that fails is a row with a reason, and no error.
    """
    return _call("plan", models.PlanSettings, sources, workspace, progress, settings)


@lists_settings(models.ExtractSettings)
def extract(
    sources: Sources = (),
    *,
    workspace: str | Path,
    progress: Progress | None = BARS,
    **settings: "Unpack[ExtractKeywords]",
) -> Run:
    """Read pages: stage 1 writes Markdown, figures, and layout.

    New sources are planned first.

    Args:
        sources: Files, folders, globs, URLs, lists of paths, or manifests: one or several.
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.ExtractKeywords`.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        UsageError: A setting is unknown or invalid, or settings contradict each other.
        LlmOcrError: The work cannot be done. A page that fails is a row with a reason, and no error.
    """
    return _call("extract", models.ExtractSettings, sources, workspace, progress, settings)


@lists_settings(models.DescribeSettings)
def describe(*, workspace: str | Path, progress: Progress | None = BARS, **settings: "Unpack[DescribeKeywords]") -> Run:
    """Describe each figure: stage 2.

    Args:
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.DescribeKeywords`.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        UsageError: A setting is unknown or invalid, or settings contradict each other.
        LlmOcrError: The work cannot be done. A page that fails is a row with a reason, and no error.
        StageMissing: Extract has not finished, and `follow` is not set.
    """
    return _call("describe", models.DescribeSettings, (), workspace, progress, settings)


@lists_settings(models.AssembleSettings)
def assemble(*, workspace: str | Path, progress: Progress | None = BARS, **settings: "Unpack[AssembleKeywords]") -> Run:
    """Write documents and dataset: stage 3 puts the descriptions into the Markdown.

    Args:
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.AssembleKeywords`.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        UsageError: A setting is unknown or invalid, or settings contradict each other.
        LlmOcrError: The work cannot be done. A page that fails is a row with a reason, and no error.
        StageMissing: Extract or Describe has not finished, and `follow` is not set.
    """
    return _call("assemble", models.AssembleSettings, (), workspace, progress, settings)


@lists_settings(models.FieldsSettings, without=("fields_schema",))
def fields(
    *,
    workspace: str | Path,
    schema: "type[BaseModel] | Mapping[str, object] | str | Path",
    progress: Progress | None = BARS,
    **settings: "Unpack[FieldsKeywords]",
) -> Run:
    """Find the values of a schema in each assembled document, with their quotes.

    Args:
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        schema: A pydantic model, a JSON Schema, or a file with one.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.FieldsKeywords`.

    Returns:
        The run. Its `fields()` are the rows of the documents.

    Raises:
        UsageError: A setting is unknown or invalid, the schema is not possible, or no model is set.
        LlmOcrError: The work cannot be done. A document that fails is a row with a reason, and no error.
        StageMissing: Assemble has not finished.
    """
    if isinstance(schema, type):
        schema = schema.model_json_schema()
    given = str(schema) if isinstance(schema, str | Path) else json.dumps(schema)
    return _call("fields", models.FieldsSettings, (), workspace, progress, {**settings, "fields_schema": given})


@lists_settings(models.RetrySettings)
def retry_failed(
    *, workspace: str | Path, progress: Progress | None = BARS, **settings: "Unpack[RetryKeywords]"
) -> Run:
    """Plan the failed pages again, which `extract` then reads, and the failed figures for `describe`.

    Args:
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.RetryKeywords`.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        UsageError: A setting is unknown or invalid, or settings contradict each other.
        LlmOcrError: The work cannot be done. A page that fails is a row with a reason, and no error.
    """
    return _call("retry-failed", models.RetrySettings, (), workspace, progress, settings)


@lists_settings(models.RepairSettings)
def repair(*, workspace: str | Path, progress: Progress | None = BARS, **settings: "Unpack[RepairKeywords]") -> Run:
    """Read bad pages again with other settings. Of each page, the better result counts.

    By default, all failed and degraded pages are read, but none twice with the same settings unless it failed or its
    server did. Describe and Assemble follow if they have run before. After an interruption, the same call continues.

    Args:
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.RepairKeywords`.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        UsageError: A setting is unknown or invalid, settings contradict each other, or `page_list` names an unknown
            page.
        LlmOcrError: The work cannot be done. A page that fails is a row with a reason, and no error.
        StageMissing: No page was extracted yet.
    """
    return _call("repair", models.RepairSettings, (), workspace, progress, settings)


@lists_settings(models.TransformSettings)
def transform(
    function: Callable[[PageRecord], PageRecord],
    *,
    workspace: str | Path,
    stage: str,
    version: str = "1",
    progress: Progress | None = BARS,
    **settings: "Unpack[TransformKeywords]",
) -> Run:
    """Run a stage of your own after Extract.

    The rows are stored in the workspace under `stage`. `describe(pages_from=stage)` and `assemble(pages_from=stage)`
    read them. Shards, leases, and resume work as in the other stages. If `function` raises for the first page, the
    call raises. Later pages for which it raises are `failed` with the reason `stage error`, and nothing of their
    content is stored.

    Args:
        function: Returns the new row of a page. It is called in threads, one unit at a time.
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        stage: The name of the stage.
        version: Changes with the function, so that the pages are processed again.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.TransformKeywords`.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        UsageError: `stage` is not a valid name, or a setting is unknown or invalid.
        StageError: `function` raised for the first page, and its exception is the cause; or it returned no valid row.
        StageMissing: Extract has not finished.
    """
    chosen = settings_from(models.TransformSettings, "transform", {"workspace": workspace, **settings})
    return transform_pages(chosen, function, stage, version, progress or Silent())


@lists_settings(models.ExportSettings)
def export(
    *,
    workspace: str | Path,
    output: str | Path,
    progress: Progress | None = BARS,
    **settings: "Unpack[ExportKeywords]",
) -> Exported:
    """Export the assembled results to a folder, a bucket, or a dataset repository of the Hub.

    After an interruption, the same call continues.

    Args:
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        output: The folder, the s3:// or gs:// prefix, or hf://datasets/NS/NAME.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.ExportKeywords`.

    Returns:
        The location of the export, the numbers of files and rows, and a line that loads it.

    Raises:
        UsageError: A setting is unknown or invalid.
        StageMissing: The workspace is not assembled.
    """
    flags = {"workspace": workspace, "output": output, **settings}
    return export_results(settings_from(models.ExportSettings, "export", flags), progress)


@lists_settings(models.ViewSettings)
def view(
    *, workspace: str | Path, output: str | Path, progress: Progress | None = BARS, **settings: "Unpack[ViewKeywords]"
) -> Viewed:
    """Write a static site of the results.

    Args:
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        output: The folder of the site.
        progress: Receives the progress. By default a bar in notebooks and terminals; None shows nothing.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.ViewKeywords`.

    Returns:
        The site. Open its `index`.

    Raises:
        UsageError: A setting is unknown or invalid, or the folder contains other files.
    """
    flags = {"workspace": workspace, "output": output, **settings}
    chosen = settings_from(models.ViewSettings, "view", flags)
    viewed: Viewed = COMMANDS.get("view").load()(chosen, progress)
    return viewed


@lists_settings(models.ExtractSettings, without=_NOT_OF_A_PAGE)
async def read_page(image: "str | Path | bytes | Image", **settings: "Unpack[ReadPageKeywords]") -> PageRecord:
    """Read one page image without a workspace.

    Args:
        image: A file, its bytes, or a Pillow image.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.ReadPageKeywords`.

    Returns:
        The row of the page. The status of a page that cannot be read is `failed`, with a reason.

    Raises:
        UsageError: A setting is unknown or invalid, or has no effect on a single page, or the image has another type.
    """
    chosen = page_settings("read_page", settings, _NOT_OF_A_PAGE)
    unlimited = chosen.model_copy(update={"max_hours": None, "max_cost": None})  # limits of runs in the environment
    async with Session.from_settings(unlimited, command="run") as session:
        return await session.read_page(image)


def _call(
    command: str,
    model: type[PipelineCommand],
    sources: Sources,
    workspace: str | Path,
    progress: Progress | None,
    settings: Mapping[str, object],
) -> Run:
    flags = {"workspace": workspace, **settings, **sources_keyword(sources)}
    chosen = settings_from(model, command, flags)
    await_workspace(chosen, (progress or Silent()).say)
    if stored := stored_settings(command, chosen):
        chosen = settings_from(model, command, flags, stored)
    return execute(command, chosen, progress)
