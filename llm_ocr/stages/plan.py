"""Plan: find documents, count their pages, and cut them into units."""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from llm_ocr.config.groups import FilterSettings, HybridSettings
from llm_ocr.config.models import PlanSettings
from llm_ocr.documents.filters import FilterOptions, Filters, Languages
from llm_ocr.documents.manifests import SourceDocument, parse_pages
from llm_ocr.documents.remote import shown
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import Found, find_documents, own_results_text, sampled
from llm_ocr.engines.vlm import reader as model
from llm_ocr.engines.vlm.reader import SOURCE
from llm_ocr.errors import StageMissing, UsageError
from llm_ocr.plugins import ENGINES
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.counting import CountOptions, PageCounter, counted
from llm_ocr.stages.engine_choice import LEAST_PER_LOCAL_UNIT, LEAST_PER_UNIT, choose_engine, pages_per_unit
from llm_ocr.stages.job import Job
from llm_ocr.stages.loop import run_blocking
from llm_ocr.stages.rendering import Remote, dataset_options, passwords, remote_options, render_options
from llm_ocr.stages.servers import Engines
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import filtered_text, generations, read_units
from llm_ocr.workspace.keys import need_same_version
from llm_ocr.workspace.plan import KnownFiltered, Planner, PlanResult
from llm_ocr.workspace.planned import DiskDict
from llm_ocr.workspace.stored import workspace_options

_NAME_SOURCES = "Name files or folders: llm-ocr run SOURCE -w FOLDER"

#: Settings that select from the sources.
_SELECTION = ("pages", "only", "max_pages_per_document", "max_samples", "sample")
#: Filtered documents that a message names.
_NAMED = 3


def result_versions() -> Mapping[str, int]:
    """Return the versions of the page results, by the engine that is stored with Extract's key."""
    return {**{name: ENGINES.get(name).result_version for name in ENGINES.names()}, SOURCE: model.RESULT_VERSION}


async def find(settings: PlanSettings, command: str) -> Found | None:
    """Find the documents of the sources. Writes nothing.

    Args:
        settings: The settings of the command.
        command: The name of the command.

    Returns:
        The documents; None without sources, when the existing plan is used.

    Raises:
        UsageError: There is nothing to do, a page range is wrong, or a language is unknown.
        MissingExtra: A filter needs a package that is not installed.
    """
    if settings.pages:
        try:
            parse_pages(settings.pages)
        except UsageError as error:
            raise UsageError(f"`pages={settings.pages}`: {error.args[0]}", hint=error.hint) from None
    if settings.sources or settings.dataset is not None:
        options = filter_options(settings)
        if options.languages:
            async with Languages(options.languages, confined=settings.confinement != "off") as languages:
                await languages.check()
        return await asyncio.to_thread(_found, settings)
    chosen = [f"`{name}`" for name in _SELECTION if settings.origins.get(name, "").startswith("flag ")]
    if chosen:
        raise UsageError(
            f"{', '.join(chosen)}: no source to select from",
            hint="The existing plan of the workspace is used unchanged. Name the sources, or remove the setting.",
        )
    if command != "extract":
        missing = await asyncio.to_thread(Workspace.missing, settings.workspace, workspace_options(settings))
        if missing:
            raise UsageError(f"no source, and {missing.args[0]}", hint=_NAME_SOURCES) from missing
    return None


def filter_options(settings: FilterSettings) -> FilterOptions:
    """Return the filters that the settings turn on."""
    return FilterOptions(
        languages=tuple(sorted({code.lower() for code in settings.filter_language})),
        forms=settings.filter_forms,
        spam=settings.filter_spam,
        blank=settings.filter_blank,
    )


def _found(settings: PlanSettings) -> Found:
    """Return the files, then the rows of a dataset."""
    rows: Iterable[SourceDocument] = ()
    if (dataset := dataset_options(settings)) is not None:
        from llm_ocr.documents.rows.listing import dataset_rows

        rows = dataset_rows(dataset, only_first=settings.max_samples is not None)
    found = find_documents(
        settings.sources,
        only=settings.only,
        max_samples=settings.max_samples,
        remote=remote_options(settings),
        rows=rows,
    )
    if settings.sample is None:
        return found
    return replace(found, documents=sampled(found.documents, settings.sample, settings.seed))


async def plan(job: Job[PlanSettings], found: Found, renderer: Renderer, *, dry_run: bool = False) -> PlanResult:
    """Count the pages of the documents and add them to the plan. The progress receives what was new.

    Args:
        job: The command, with an open workspace.
        found: The documents.
        renderer: Opens them.
        dry_run: Whether nothing is written.

    Raises:
        WorkspaceMismatch: The pages of the plan were extracted by a version with other results.
    """
    workspace, settings = job.workspace, job.settings
    await asyncio.to_thread(need_same_version, workspace, result_versions())
    ranges = parse_pages(settings.pages) if settings.pages else None
    unit_size = settings.pages_per_unit or pages_per_unit(job.engines.engine)
    least = LEAST_PER_LOCAL_UNIT if isinstance(workspace.store, LocalStore) else LEAST_PER_UNIT
    # A share for the model is of the pages of a unit, so units of few pages would not have it.
    by_share = isinstance(settings, HybridSettings) and settings.model_share is not None
    chosen = filter_options(settings)
    # Filters open every document, so the pages are counted exactly.
    options = CountOptions("exact" if chosen.any else settings.count_pages, unit_size)
    filters = left_out = None
    async with contextlib.AsyncExitStack() as stack:
        totals = stack.enter_context(await asyncio.to_thread(known_totals, workspace))
        if chosen.any:
            before = await asyncio.to_thread(generations, workspace)
            left_out = await asyncio.to_thread(KnownFiltered.of, workspace, before, chosen.identity())
            stack.callback(left_out.close)
            confined = settings.confinement != "off"
            filters = await stack.enter_async_context(Filters(renderer, chosen, confined=confined))
        most = settings.max_pages_per_document
        counter = PageCounter(renderer, job.remote, ranges, most, totals, filters, left_out)
        documents = await stack.enter_async_context(contextlib.aclosing(counted(found.documents, counter, options)))
        least_per_unit = None if settings.pages_per_unit or by_share else least
        planner = stack.enter_context(Planner(workspace, unit_size, least_per_unit, chosen.identity()))
        async for document in documents:
            planner.add(document)
        result = await asyncio.to_thread(planner.finish, found.skipped, dry_run=dry_run)
    if found.own_results:
        job.progress.say(f"Skipped {own_results_text(found.own_results)}")
    _report(result, dict(found.skipped), job.progress)
    filtered = None if dry_run else result.filtered
    if filters is not None and filtered is not None and filtered.counts:
        examples = [f"{one['source']} ({one['reason']}: {one['detail']})" for one in filtered.examples[:_NAMED]]
        more = ", ..." if sum(filtered.counts.values()) > len(examples) else ""
        job.progress.say(f"{filtered_text(filtered.counts)}; {', '.join(examples)}{more}")
    if filters is not None and (message := filters.said()):
        job.progress.say(message)
    return result


def known_totals(workspace: Workspace) -> DiskDict:
    """Return the page counts of the planned documents by version, so that known content is not opened again.

    A count of 0 means that the plan contains only an estimate.
    """
    totals = DiskDict()
    for unit in read_units(workspace) if generations(workspace) else ():
        for part in unit.parts:
            if part.page_total or part.estimate:
                totals[part.version] = part.page_total
    return totals


def _report(result: PlanResult, skipped: dict[str, int], progress: Progress) -> None:
    if skipped:
        kinds = ", ".join(f"{count} {suffix or 'without extension'}" for suffix, count in sorted(skipped.items()))
        progress.say(f"Skipped files of other types: {kinds}")
    if total := sum(result.unopened.values()):
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(result.unopened.items()))
        more = ", ..." if total > len(result.unopened_examples) else ""
        unopened = ((shown(source), detail.partition("\n")[0]) for source, detail in result.unopened_examples)
        named = ", ".join(f"{source} ({detail})" if detail else source for source, detail in unopened) + more
        progress.say(f"{plural(total, 'document')} cannot be read, and will be `failed` ({reasons}): {named}")
    if result.copies:
        progress.say(f"{plural(result.copies, 'duplicate')} of documents: read once, written under each path")
    renamed = "changed and will be read again; the old text gets another file name"
    for count, examples, what in (
        (result.elsewhere, result.elsewhere_examples, "planned by another source, not read again"),
        (result.changed, result.changed_examples, renamed),
        (result.differing, result.examples, "already planned with more pages or other content, not changed"),
    ):
        if count:
            more = ", ..." if count > len(examples) else ""
            progress.say(f"{plural(count, 'document')} {what}: {', '.join(map(shown, examples))}{more}")


async def need_plan(workspace: Workspace, command: str) -> None:
    """Check that the workspace has a plan.

    Raises:
        StageMissing: There is no plan, and the command is `extract`.
        UsageError: There is no plan, and the command accepts sources.
    """
    if await asyncio.to_thread(generations, workspace):
        return
    if command != "extract":
        raise UsageError("no source and no plan", hint=_NAME_SOURCES)
    raise StageMissing(
        f"no plan in {workspace.url}", hint=f"Name the sources: llm-ocr extract SOURCE -w {workspace.url}"
    )


def preview(settings: PlanSettings, progress: Progress | None = None) -> PlanResult:
    """Return the result that `plan` would have. Raises the errors of `find` and `plan`.

    The workspace need not exist.
    """
    engine = choose_engine(settings, command="plan")
    return run_blocking(lambda: _preview(settings, engine, progress or Silent()))


async def _preview(settings: PlanSettings, engine: str, progress: Progress) -> PlanResult:
    found = await find(settings, "plan")
    if found is None:
        raise UsageError("no source to count", hint=_NAME_SOURCES)
    remote = Remote(settings)
    missing = await asyncio.to_thread(Workspace.missing, settings.workspace, workspace_options(settings))
    with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:
        url = str(Path(folder) / "workspace") if missing else str(settings.workspace)
        options = StoreOptions() if missing else workspace_options(settings)
        try:
            with Workspace.open(url, create=missing is not None, options=options) as workspace:
                engines = Engines(engine, settings, Path(folder), progress.say)
                job = Job(workspace, settings, progress, engines, remote)
                secrets = passwords(settings.password, settings.password_file)
                async with Renderer(render_options(settings, secrets)) as renderer:
                    return await plan(job, found, renderer, dry_run=True)
        finally:
            await remote.close()
