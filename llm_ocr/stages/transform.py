"""User-defined stage after Extract: a function from row to row."""

import asyncio
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from llm_ocr.config.groups import EMBEDDED
from llm_ocr.config.models import TransformSettings
from llm_ocr.errors import PageFailure, StageError, UsageError, error_place
from llm_ocr.results.schema import Images, pages_from_parquet, pages_to_parquet
from llm_ocr.runs import Run
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages import Progress
from llm_ocr.stages.job import Job
from llm_ocr.stages.loop import run_blocking, stepwise
from llm_ocr.stages.recording import Tally
from llm_ocr.stages.rendering import Remote
from llm_ocr.stages.servers import Engines
from llm_ocr.stages.sharing import key_before, sharing, split_of
from llm_ocr.types import Counts, PageRecord, Reason, Status, Unit
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, FIELDS, STAGES, Claim, stage_keys
from llm_ocr.workspace.publish import done_units, read_data, standing_marker
from llm_ocr.workspace.status import Worked
from llm_ocr.workspace.stored import workspace_options
from llm_ocr.workspace.summaries import pages_summary

PageFunction = Callable[[PageRecord], PageRecord]

_NAME = re.compile(r"[a-z][a-z0-9-]{1,30}")
#: Folders of a workspace that are not available as stage names.
_TAKEN = frozenset({*STAGES, FIELDS, "plan", "dataset", "documents", "logs", "metrics"})


def transform_pages(
    settings: TransformSettings, function: PageFunction, stage: str, version: str, progress: Progress
) -> Run:
    """Run a user-defined stage. See `llm_ocr.transform`."""
    if stage in _TAKEN or not _NAME.fullmatch(stage):
        raise UsageError(
            f"{stage!r} is not a valid name of a custom stage", hint="Choose another name in lowercase, such as redact."
        )
    return run_blocking(lambda: _transform(settings, function, stage, version, progress))


async def _transform(
    settings: TransformSettings, function: PageFunction, stage: str, version: str, progress: Progress
) -> Run:
    workspace = await asyncio.to_thread(Workspace.open, str(settings.workspace), options=workspace_options(settings))
    engines = Engines(EMBEDDED, settings, Path(), progress.say)  # not used
    worked = Worked()
    progress = Tally(progress, worked)
    job = Job(workspace, settings, progress, engines, Remote(settings), worked=worked)
    source = await key_before(job, EXTRACT)
    about = {"extract": source, "version": version}
    older = Claim(workspace, stage, about)  # which named no stage, so that two stages had the same key
    is_older = older.key in [one.key for one in await asyncio.to_thread(stage_keys, workspace, stage)]
    claim = older if is_older else Claim(workspace, stage, {**about, "stage": stage})
    key = await asyncio.to_thread(claim.take)
    proven = False  # whether the function has returned a page

    def changed(page: PageRecord) -> PageRecord:
        """Return the new row. If the function raises, nothing of the page is kept, because it may be confidential."""
        nonlocal proven
        try:
            made = function(page)
        except PageFailure as failure:  # raised on purpose
            return _without_content(page, failure.reason, failure.detail)
        except Exception as error:
            detail = f"{stage}: {error_place(error)}"
            # For its first page, here or elsewhere: the function would probably raise for every page.
            proven = proven or bool(done_units(workspace, stage, key))
            if not proven:
                raise StageError(
                    f"{detail}, for its first page ({page.source}, page {page.page_number}): {error}",
                    hint="Nothing of this unit was stored. Correct the function and run the stage again. To record a "
                    "page as failed on purpose, raise llm_ocr.errors.PageFailure(reason, detail).",
                ) from error
            return _without_content(page, Reason.STAGE_ERROR, detail)
        if wrong := _wrong(page, made):  # which the stages behind could not read
            raise StageError(
                f"{stage}: the function returned {wrong} ({page.source}, page {page.page_number})",
                hint="Nothing of this unit was stored. Return the row with changes: dataclasses.replace(page, ...).",
            )
        proven = True
        return made

    progress.begin(stage, 0, Counts())
    async with sharing(job, await split_of(job, stage), claim) as share:

        def transformed(unit: Unit) -> Sequence[Status]:
            marker = standing_marker(workspace, EXTRACT, source, unit.id)
            rows = pages_from_parquet(io.BytesIO(read_data(workspace, marker)), images=Images.ALL)
            pages = [changed(page) for page in rows]
            share.publish(unit.id, pages_to_parquet(pages), pages_summary(unit, pages))
            return [page.status for page in pages]

        planned = await asyncio.to_thread(PlannedUnits, workspace)
        async for unit in stepwise(share.take(planned)):
            progress.correct(unit.planned, exact=True)
            for status in await asyncio.to_thread(transformed, unit):
                progress.count(status)
        await asyncio.to_thread(share.finish, planned)
    progress.end()
    await asyncio.to_thread(workspace.flush)
    return Run(workspace, worked)


def _wrong(page: PageRecord, made: object) -> str:
    """Return what is wrong with the new row of a page; empty if it can be stored."""
    if not isinstance(made, PageRecord):
        return f"an object of type {type(made).__name__}, and no row"
    before, after = ((one.page_id, one.document_id, one.dataset_index, one.page_number) for one in (page, made))
    if after != before:
        return "the row of another page: page_id, document_id, dataset_index, or page_number differs"
    if not isinstance(made.markdown, str):
        return f"a row with markdown of type {type(made.markdown).__name__}, and no text"
    if not isinstance(made.status, Status):
        return f"a row with status={made.status!r}, and no llm_ocr.Status"
    if not isinstance(made.reason, Reason if made.status is Status.FAILED else Reason | None):
        return f"a row with status={made.status.value} and reason={made.reason!r}, and no llm_ocr.types.Reason"
    return ""


def _without_content(page: PageRecord, reason: Reason, detail: str) -> PageRecord:
    return replace(
        page,
        status=Status.FAILED,
        reason=reason,
        detail=detail,
        image=None,
        markdown="",
        blocks=(),
        figures=(),
        attempts=(),
        quality=None,
        quality_parts={},
        ledger=None,
    )
