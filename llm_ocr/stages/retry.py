"""Read pages again: `retry-failed` plans them with the settings of the workspace, `repair` with settings of its own.

Both also plan the figures that failed, for the model that described the others.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llm_ocr.config.groups import HYBRID, MODELS, SERVER, VLLM, OutcomeSettings, OwnWorkspaceSettings
from llm_ocr.config.models import AssembleSettings, DescribeSettings, RepairSettings, RetrySettings
from llm_ocr.documents.manifests import SourceDocument
from llm_ocr.documents.rendering import Renderer
from llm_ocr.errors import PageFailure, StageMissing, UsageError
from llm_ocr.results.schema import Images, pages_to_parquet
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages import Silent
from llm_ocr.stages.assemble import assemble
from llm_ocr.stages.counting import PageCounter
from llm_ocr.stages.describe import describe, describe_claim, publish_units_without_figures
from llm_ocr.stages.engine_choice import LEAST_PER_LOCAL_UNIT, LEAST_PER_UNIT, pages_per_unit
from llm_ocr.stages.extract import failed_page, opened_reading
from llm_ocr.stages.job import Job, log_folder, without_servers, worker_name
from llm_ocr.stages.model_choice import page_model
from llm_ocr.stages.plan import result_versions
from llm_ocr.stages.rendering import passwords, render_options
from llm_ocr.stages.servers import Engines
from llm_ocr.stages.sharing import described_with, need_finished
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import DocumentPart, PageRecord, Reason, Status, page_id, plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import Generation, Kind, Repair, generations, units_of
from llm_ocr.workspace.keys import (
    ASSEMBLE,
    DESCRIBE,
    EXTRACT,
    assembled_key,
    extract_origin,
    key_of,
    key_settings,
    need_same_version,
    newest_key,
    required_key,
)
from llm_ocr.workspace.planned import PlannedDocument, wanted_pages
from llm_ocr.workspace.publish import iter_markers, publish, standing_marker
from llm_ocr.workspace.published import published_pages
from llm_ocr.workspace.retry import NamedPages, Selection, copy_rows, failed_figures, plan_retry
from llm_ocr.workspace.stored import OF_MODELS, REMEMBERED, may_choose, to_remember
from llm_ocr.workspace.summaries import pages_summary

#: Further settings that change results. A workspace does not store them, so they are named if the user gives them.
_NOT_STORED = ("headers", "ocr_language", "min_quality", "rotate", "anchor_text", "guided", "layout_first")
#: Settings of Describe and Assemble after a repair: all units, because the shares of a repair are those of its pages.
WHOLE = {"shard_index": 0, "shard_count": 1}
#: Stored settings that change no result.
_WITHOUT_EFFECT = ("pages_per_unit", "batch_id")


async def retry_failed(job: Job[RetrySettings]) -> None:
    """Plan the failed pages, or pages of low quality, again in a new generation, and the failed figures in another.

    Args:
        job: The command, with an open workspace.

    Raises:
        WorkspaceMismatch: The pages were extracted by a version with other results.
    """
    workspace, settings = job.workspace, job.settings
    key = await asyncio.to_thread(required_key, workspace, EXTRACT)
    await asyncio.to_thread(need_same_version, workspace, result_versions())
    generation = await _planned(job, settings.engine, key, Selection(below=settings.below_quality))
    figures = await _figures_planned(job, key)
    if generation is None and not figures:
        low = "" if settings.below_quality is None else f", none has a quality below {settings.below_quality:g}"
        given = settings.password or settings.password_file
        hint = "" if given else " Encrypted documents need their passwords: `password_file=FILE`."
        what = f"no page or figure is failed{low}, or its document still cannot be opened."
        job.progress.say(f"Nothing to retry: {what}{hint}")
    elif generation is not None:
        job.progress.say(f"Generation {generation.number}: {plural(generation.expected, 'page')} to be read again")


async def _figures_planned(job: Job[RetrySettings], key: str, most: int | None = None) -> bool:
    """Plan the pages of failed figures in a new generation with copies of their rows; return whether there are any.

    Args:
        job: The command.
        key: The key of Extract.
        most: Upper limit of pages.
    """
    workspace = job.workspace
    described = await asyncio.to_thread(newest_key, workspace, DESCRIBE)
    failed = await asyncio.to_thread(failed_figures, workspace, key, described) if described else {}
    if not failed:
        return False
    pages = NamedPages(Path(), {page: page for page in failed})
    generation = await _planned(job, job.settings.engine, key, Selection(frozenset(), named=pages, most=most))
    if generation is None:
        return False
    again = {
        row.page_id for unit in await asyncio.to_thread(list, units_of(workspace, generation)) for row in unit.repeats
    }
    figures = plural(sum(failed[page] for page in again), "figure")
    job.progress.say(f"Generation {generation.number}: {figures} to be described again")
    await asyncio.to_thread(copy_rows, workspace, key, generation)
    await asyncio.to_thread(workspace.flush)  # workers of a cluster describe them
    return True


async def plan_repair(job: Job[RepairSettings]) -> bool:
    """Plan the chosen pages in a new generation that is read with the settings of this command.

    Args:
        job: The command, with an open workspace.

    Returns:
        Whether the plan has unread units for these settings: new ones, or those of a repair that was stopped.

    Raises:
        UsageError: Two selections are given, or the list names an unknown page.
        ServerError: No server of the model can be used; nothing was planned.
        StageMissing: Extract has not started.
    """
    workspace, settings, progress = job.workspace, job.settings, job.progress
    selection = await asyncio.to_thread(_selection, settings)
    key = await asyncio.to_thread(required_key, workspace, EXTRACT)
    async with opened_reading(job) as (_, _, made):
        own = key_of(made)
    options = await asyncio.to_thread(_other_options, workspace, settings, job.engines.engine)
    launch = (settings.launch or "").partition("@")[0]
    repair = Repair(own, made, options if own != key else {}, launch)

    async def servers_are_usable() -> None:  # an unread plan would keep Describe and Assemble waiting
        if job.engines.uses_models:
            model = await page_model(settings, job.engines, workspace)
            await job.engines.need(model.profile, model=model.name, revision=model.revision)

    generation = await _planned(job, job.engines.engine, key, selection, repair, servers_are_usable)
    used = f"with {repair.text or ('the settings of the workspace' if own == key else 'other settings')}"
    if generation is not None:
        pages = plural(generation.expected, "page")
        progress.say(f"Generation {generation.number}: {pages} to be read again {used}")
        return True

    every = await asyncio.to_thread(generations, workspace)
    retries = PlannedUnits(workspace, [one for one in every if one.kind is Kind.RETRY and one.key(key) == own])
    waiting = await asyncio.to_thread(retries.without_marker, EXTRACT, key)
    if waiting:
        progress.say(f"{plural(len(waiting), 'unit')} of an earlier command to be read {used}")
    else:
        hint = "Other settings may read them better: another `text_layer`, or a model (`server_url`, `model`)."
        progress.say(f"No page to repair: none is chosen, or all were already read {used}. {hint}")
    return bool(waiting)


async def give_up(job: Job[RepairSettings]) -> None:
    """Publish rows for the unread pages of unfinished repairs and retries that keep the pages' earlier results.

    A worker that still reads a unit publishes either before or after; the first rows count, as always.

    Args:
        job: The command, with an open workspace.

    Raises:
        UsageError: A setting has no effect, because no page is read.
        StageMissing: Extract has not started.
    """
    workspace, settings = job.workspace, job.settings
    used = {"give_up", *OwnWorkspaceSettings.model_fields, *OutcomeSettings.model_fields}
    idle = [name for name, origin in settings.origins.items() if origin.startswith("flag") and name not in used]
    if idle:
        verb = "has" if len(idle) == 1 else "have"
        names = ", ".join(f"`{name}`" for name in idle)
        raise UsageError(
            f"{names} {verb} no effect with `give_up=True`, which reads no page", hint="Remove the others."
        )
    key = await asyncio.to_thread(required_key, workspace, EXTRACT)
    pages = await asyncio.to_thread(give_up_unread, workspace, key)
    if pages:
        job.progress.say(f"{plural(pages, 'page')} given up: the earlier results count")
    else:
        job.progress.say("Nothing to give up: all repairs and retries are finished")


def give_up_unread(workspace: Workspace, key: str) -> int:
    """Publish the units of retries that have no marker, and return the number of their pages.

    A failed page is failed again, for the same reason. For all others, the new row is failed, so that the earlier row
    is the better one.
    """
    failures = {marker.unit: marker.counts.failed for marker in iter_markers(workspace, EXTRACT, key)}
    unread, failing = [], []
    for generation in generations(workspace):
        for unit in units_of(workspace, generation):
            if failures.get(unit.id):
                failing.append(unit)
            elif unit.id not in failures and generation.kind is Kind.RETRY:
                unread.append(unit)
    pages = 0
    for unit in unread:
        documents = {part.document_id for part in unit.parts}
        failed: dict[str, PageRecord] = {}
        for earlier in failing:
            if not documents.isdisjoint(part.document_id for part in earlier.parts):
                marker = standing_marker(workspace, EXTRACT, key, earlier.id)
                found = published_pages(workspace, marker, Images.ALL, earlier)
                failed |= {row.page_id: row for row in found if row.status is Status.FAILED}
        rows, better = [], {row.page_id for row in unit.repeats}
        for part in unit.parts:
            for position, number in enumerate(part.pages):
                page, document = page_id(part.document_id, number), page_id(part.document_id, None)
                before = None if page in better else failed.get(page, failed.get(document))
                if before is not None and before.reason is not None:
                    failure = PageFailure(before.reason, before.detail)
                    rows.append(failed_page(part, position, failure, engine=before.engine, image=before.image))
                else:
                    failure = PageFailure(Reason.GIVEN_UP, "the repair ended before it read the page")
                    rows.append(failed_page(part, position, failure, engine=""))
        summary = pages_summary(unit, rows)
        summary = replace(summary, extra=summary.extra.model_copy(update={"given_up": True}))
        marker = publish(workspace, EXTRACT, key, unit.id, pages_to_parquet(rows), summary)
        pages += len(rows) if marker.summary.extra.given_up else 0
    return pages


def _named(settings: RepairSettings) -> list[str]:
    """Return the settings that choose pages, if any: then neither failed pages nor failed figures are chosen."""
    given = {
        "unbalanced": settings.unbalanced or None,
        "below_quality": settings.below_quality,
        "page_list": settings.page_list,
    }
    return [name for name, value in given.items() if value is not None]


def _selection(settings: RepairSettings) -> Selection:
    named = _named(settings)
    if len(named) > 1:
        raise UsageError(
            f"{' and '.join(f'`{name}`' for name in named)} choose different pages", hint="Use one of them."
        )
    statuses = frozenset[Status]() if named else frozenset({Status.FAILED, Status.DEGRADED})
    pages = NamedPages.read(settings.page_list) if settings.page_list is not None else None
    return Selection(statuses, settings.unbalanced, settings.below_quality, pages, settings.max_pages)


def _other_options(workspace: Workspace, settings: RepairSettings, engine: str) -> Mapping[str, Any]:
    """Return the settings of the command that differ from those stored in the workspace."""
    stored, own = extract_origin(workspace)[0].remembered, to_remember(settings, engine=engine)
    values, known = {**dict(settings), **own}, RepairSettings.model_fields
    changed = {}
    for name in REMEMBERED + OF_MODELS if engine in MODELS else REMEMBERED:
        # The workspace of the CPU engine stores no settings of models, so their defaults are no difference.
        if name in _WITHOUT_EFFECT or name not in known or own.get(name) == stored.get(name):
            continue
        if name in stored or name == "model" or values[name] != known[name].default:
            changed[name] = values[name]
    given = {name: values[name] for name in _NOT_STORED if settings.origins.get(name, "").startswith("flag")}
    return changed | given


async def _planned(
    job: Job[RetrySettings],
    engine: str,
    key: str,
    selection: Selection,
    repair: Repair | None = None,
    check: Callable[[], Awaitable[None]] | None = None,
) -> Generation | None:
    settings = job.settings
    secrets = passwords(settings.password, settings.password_file)
    async with Renderer(render_options(settings, secrets)) as renderer:
        counter = PageCounter(renderer, job.remote)

        async def reopen(part: DocumentPart) -> PlannedDocument:
            document = await counter.one(SourceDocument(part.source, part.relative, "", "", None, None))
            return replace(document, pages=wanted_pages(part.wanted, document.page_total))

        least = LEAST_PER_LOCAL_UNIT if isinstance(job.workspace.store, LocalStore) else LEAST_PER_UNIT
        return await plan_retry(
            job.workspace,
            key,
            reopen=reopen,
            pages_per_unit=pages_per_unit(engine),
            least_per_unit=least if repair is not None else None,
            selection=selection,
            repair=repair,
            check=check,
            say=job.progress.say,
        )


async def finish_repair(job: Job[RepairSettings]) -> None:
    """Describe and assemble the repaired pages as before, if Describe and Assemble have run; also failed figures again.

    Both use the settings of their last run, not those of the repair: other settings would process all pages again.
    Of several workers, the one that reads the last page does this for all pages.

    Args:
        job: The command, with an open workspace.
    """
    workspace, say = job.workspace, job.progress.say
    described = await asyncio.to_thread(newest_key, workspace, DESCRIBE)
    if described is None:
        return
    key = await asyncio.to_thread(required_key, workspace, EXTRACT)
    if not await _finished(job, EXTRACT, key):
        return
    about = await asyncio.to_thread(key_settings, workspace, DESCRIBE, described)
    if about.get("extract") != key:
        say("The repaired pages are left to Describe and Assemble, which ran with the pages of another stage.")
        return
    made = await asyncio.to_thread(lambda: key_settings(workspace, ASSEMBLE, assembled_key(workspace) or ""))
    kept = {name: made[name] for name in ("page_markers", "dataset_images") if made}
    if command := await _describe_repaired(job, key, described, about):
        then = f"llm-ocr assemble -w {shlex.quote(workspace.url)} {Repair('', {}, kept).text}".rstrip()
        say(f"{command}, then: {then}")
        return
    if not await _finished(job, DESCRIBE, described) or not made:
        return
    if made["describe"] != described or "pages_from" in made:
        say("The repaired pages are left to Assemble, which ran with other pages or descriptions.")
    else:
        base: Job[Any] = job
        known = {name: value for name, value in job.settings if name in AssembleSettings.model_fields}
        await assemble(replace(base, settings=AssembleSettings(**{**known, **kept, **WHOLE}), command=ASSEMBLE))


async def _describe_repaired(job: Job[RepairSettings], key: str, described: str, about: Mapping[str, Any]) -> str:
    """Publish the units of repaired pages under the newest key of Describe.

    Args:
        job: The command.
        key: The key of Extract.
        described: The newest key of Describe.
        about: The settings of that key.

    Returns:
        How many figures need a model or settings that the repair does not have, with the command that describes them;
        empty if there are none.
    """
    workspace = job.workspace
    asks = about.get("reader", {}).get("engine") == "model"
    stored = (await asyncio.to_thread(extract_origin, workspace))[0].remembered
    own = HYBRID if job.settings.engine == HYBRID else job.engines.engine
    engine = str(stored.get("engine", own))
    by_model = engine in (*MODELS, HYBRID)
    same = engine == own and (not by_model or stored.get("model") == job.settings.model)
    other = by_model and not same  # its servers are not those of the repair
    names, given = DescribeSettings.model_fields, job.settings.model_fields_set
    values = {name: value for name, value in job.settings if name in names and name in given}
    untrusted = {name: value for name, value in stored.items() if name in names and not may_choose(name, value)}
    if other:  # the user has chosen neither its model nor its files
        values = {name: value for name, value in values.items() if name not in OF_MODELS}
        stored = {name: value for name, value in stored.items() if name not in untrusted}
    values |= {name: value for name, value in stored.items() if name in names} | {"engine": engine, **WHOLE}
    settings = DescribeSettings(**values)
    logs = log_folder(workspace, worker_name())
    serving = SERVER if engine == HYBRID else engine
    engines = job.engines if same else Engines(serving, settings, logs, job.progress.say, elsewhere=other)
    base: Job[Any] = job
    describing = replace(base, settings=settings, engines=engines, command=DESCRIBE)
    try:
        claim = await describe_claim(replace(without_servers(describing), progress=Silent()))
        if claim.key == described and not (other and asks):
            if not any(_named(job.settings)):
                await _figures_planned(job, key, job.settings.max_pages)
            await (describe(describing) if other else job.run(describe, describing))
            return ""
    finally:
        if not same:
            await engines.close()
    mode = str(about.get("reader", {}).get("mode"))
    left = await asyncio.to_thread(publish_units_without_figures, workspace, EXTRACT, key, described, mode)
    told = untrusted or ({} if claim.key == described else described_with(about))
    if asks and engine != VLLM:
        told = {**told, "server_url": "URL"}
    command = f"llm-ocr describe -w {shlex.quote(workspace.url)} {Repair('', {}, told).text}".rstrip()
    return f"{plural(left, 'figure')} left to Describe. Run: {command}" if left else ""


async def _finished(job: Job[RepairSettings], stage: str, key: str) -> bool:
    """Return whether all units of a stage have a marker; name what remains if not."""
    await asyncio.to_thread(job.workspace.flush)  # other workers that end now see the units of this one
    try:
        await asyncio.to_thread(need_finished, job.workspace, stage, key)
    except StageMissing as missing:  # other workers still read, or pages are no part of the repair
        others = "the last of several workers does both, or a later command. " if job.worked.shared else ""
        job.progress.say(f"{missing.args[0]}: Describe and Assemble wait; {others}{missing.hint}")
        return False
    return True
