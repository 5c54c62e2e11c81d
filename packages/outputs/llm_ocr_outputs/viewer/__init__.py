"""`view`: a static site of pages with their results, or of two workspaces side by side."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from llm_ocr.config.models import ViewSettings
from llm_ocr.errors import StageMissing
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.schema import Images
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.loop import run_blocking
from llm_ocr.storage.local import translated
from llm_ocr.types import Counts, Viewed
from llm_ocr.workspace import Workspace, library_version
from llm_ocr.workspace.items import Item, items
from llm_ocr.workspace.keys import EXTRACT, FIELDS, assembled_key, newest_key, required_key
from llm_ocr.workspace.published import earlier_readings, extracted_pages, published_fields
from llm_ocr.workspace.status import pages_used
from llm_ocr.workspace.stored import workspace_options
from llm_ocr_outputs.source import AssembledRows, assembled, page_totals
from llm_ocr_outputs.viewer.pages import PageView, page_view
from llm_ocr_outputs.viewer.site import SiteFolder, SiteWriter, begin_site

#: Yields the rows of an item, with the images of pages and figures.
Rows = Callable[[Item], Iterator[DatasetRow]]


def view(settings: ViewSettings, progress: Progress | None) -> Viewed:
    """Write the site; an existing site is replaced when the new one is complete.

    A workspace that is not assembled is shown as far as its pages have been read, without descriptions of figures.

    Raises:
        UsageError: the output folder has other content.
        StageMissing: no pages of the workspace have been read.
        StorageError: the workspace cannot be read, or the folder cannot be written.
    """
    return run_blocking(lambda: _view(settings, progress or Silent()))


async def _view(settings: ViewSettings, progress: Progress) -> Viewed:
    options = workspace_options(settings)
    names = [settings.workspace, *([settings.compare] if settings.compare else [])]
    with ExitStack() as stack:
        opened = [stack.enter_context(await asyncio.to_thread(Workspace.open, name, options=options)) for name in names]
        with _writing(settings.output):
            folder = begin_site(settings.output)
        spool = opened[0].spool / "view.sqlite"
        stack.callback(spool.unlink, missing_ok=True)
        try:
            writer = SiteWriter(folder.site, spool, compares=len(opened) > 1)
            stack.callback(writer.close)
            for workspace, add in zip(opened, (writer.add, writer.add_other), strict=False):
                await _add_all(workspace, add, folder, progress)

            def finish() -> int:
                made = {
                    "title": " and ".join(one.url.rstrip("/").rpartition("/")[2] or one.url for one in opened),
                    "workspaces": [one.url for one in opened],
                    "version": library_version(),
                }
                with _writing(folder.output):
                    facts = writer.finish()
                    folder.publish({**facts, **made})
                return int(facts["counts"][0])

            return Viewed(folder.index, await asyncio.to_thread(finish))
        except BaseException:
            folder.discard()
            raise


async def _add_all(
    workspace: Workspace, add: Callable[[PageView], None], folder: SiteFolder, progress: Progress
) -> None:
    """Add all pages of a workspace, item by item, so that an interruption can take effect between items."""
    rows = await asyncio.to_thread(_rows_of, workspace, progress)
    stage, key = await asyncio.to_thread(lambda: pages_used(workspace, assembled_key(workspace)))
    used = stage, key or ""
    fields_key = await asyncio.to_thread(newest_key, workspace, FIELDS)
    expected = await asyncio.to_thread(lambda: sum(part.expected for item in items(workspace) for part in item.parts))
    progress.begin("view", expected, Counts())

    def add_item(item: Item) -> int:
        documents = {part.document_id: part for part in item.parts}
        totals = page_totals(item)
        first: dict[str, int] = {}  # page of each document that shows the fields without a page
        count = 0
        readings = earlier_readings(workspace, *used, item) if item.newer else {}
        asked = {one.document_id: one for one in published_fields(workspace, fields_key, item)} if fields_key else {}
        for row in rows(item):
            document = row.record.document_id
            again = readings.get(row.record.page_id, [])
            shown = page_view(
                row,
                documents[document].relative,
                totals[document],
                again,
                asked.get(document),
                first.setdefault(document, row.record.page_number or 1),
            )
            with _writing(folder.output):
                add(shown)
            progress.count(row.record.status)
            count += 1
        return count

    every = items(workspace)
    count = 0
    while (item := await asyncio.to_thread(next, every, None)) is not None:
        count += await asyncio.to_thread(add_item, item)
    progress.end()
    if not count:
        raise StageMissing(f"{workspace.url} has no read pages", hint=f"Run first: llm-ocr extract -w {workspace.url}")


def _rows_of(workspace: Workspace, progress: Progress) -> Rows:
    """Return the rows as Assemble processed them or, if it is incomplete, as Extract published them."""
    try:
        ready = AssembledRows(workspace, assembled(workspace).key)
    except StageMissing as missing:
        key = required_key(workspace, EXTRACT)
        progress.say(f"{missing.args[0]}: the site shows the extracted pages without descriptions of figures")
        rows = partial(extracted_pages, workspace, key, images=Images.ALL)
        return lambda item: (DatasetRow(record, record.markdown) for record in rows(item))
    return lambda item: ready.rows(item, Images.ALL)


def _writing(output: Path) -> AbstractContextManager[None]:
    """Translate errors of the disk into errors that name the output folder."""
    return translated("write the site to", str(output))
