"""Summary of a finished command: outcome, location of results, and exit code; and the commands that show results."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from shlex import quote
from typing import TYPE_CHECKING

from llm_ocr.cli.output import aligned, complain, json_text, one_line, with_flags, write, write_json, write_line
from llm_ocr.cli.progress import about, outcome, shown_progress
from llm_ocr.config.models import EstimateSettings, ExportSettings, StatusSettings
from llm_ocr.storage.names import split_scheme
from llm_ocr.types import Counts, Reason, plural
from llm_ocr.workspace.generations import filtered_text

if TYPE_CHECKING:
    from llm_ocr.config.groups import WorkspaceSettings
    from llm_ocr.costs.report import Spent
    from llm_ocr.workspace.plan import PlanResult
    from llm_ocr.workspace.status import RunStatus
    from llm_ocr.workspace.summaries import WeakPage


#: Score below which most of a page is doubtful; see `results.quality`.
DOUBTFUL = 0.8
#: Maximum characters of a document's name; the end of a longer name is shown.
_LONGEST = 60


def worst_text(pages: Sequence["WeakPage"], wanted: int) -> str:
    """Return a table of score, document, page, and problem, the worst page first."""
    from llm_ocr.results.quality import shown_score

    if not pages:
        return "worst: no degraded page, and no page of low quality, is recorded"
    rows = [("score", "document", "page", "problem")]
    for weak in pages:
        name = weak.source if len(weak.source) <= _LONGEST else f"…{weak.source[1 - _LONGEST :]}"
        rows.append((shown_score(weak.score), one_line(name), str(weak.page or "-"), one_line(weak.wrong)))
    width = max(len(page) for _, _, page, _ in rows)
    lines = aligned([("", score, document, page.rjust(width), wrong) for score, document, page, wrong in rows])
    more = f" (of {wanted} requested; no others are recorded)" if len(pages) < wanted else ""
    return "\n".join([f"worst {len(pages)}{more}", *lines])


#: Number of examples per reason in the last line.
NAMED = 3


def exit_code(counts: Counts, max_failed_rate: float) -> int:
    """Return 3 if more of the expected pages (figures) failed than allowed, otherwise 0."""
    return 3 if counts.expected and counts.failed / counts.expected > max_failed_rate else 0


def ending(
    command: str, status: "RunStatus", max_failed_rate: float, workspace: str | None, reached: str = ""
) -> tuple[str, int]:
    """Return the last line of a command or launched stage, and its exit code; arguments as in `last_line`."""
    if command == "fields":
        return fields_line(status), exit_code(status.fields, max_failed_rate)
    if command == "describe":
        return figures_line(status, workspace), exit_code(status.figures, max_failed_rate)
    return last_line(status, workspace, reached), exit_code(status.pages, max_failed_rate)


def last_line(status: "RunStatus", workspace: str | None, reached: str = "") -> str:
    """Return `412 ok, 3 degraded, 1 failed (encrypted: a.pdf). Retry: … Degraded pages: …`.

    Args:
        status: Counts of pages, and reasons of failures.
        workspace: Workspace to retry in, or None if it was temporary.
        reached: Flags with which the documents were reached.
    """
    pages = status.pages
    text = outcome(pages)
    reasons = failures_text(status)
    text += f" ({reasons})" if reasons else ""
    text += _waiting(pages, estimated=status.estimated)
    if pages.failed and workspace:
        if status.reasons.get(Reason.STAGE_ERROR, 0) == pages.failed:  # Extract has read these pages
            text += ". Correct the function of the stage, and run the stage with another version"
        else:
            key = " --password-file FILE" if Reason.ENCRYPTED in status.reasons else ""
            text += f". Retry: llm-ocr retry-failed -w {quote(workspace)}{reached}{key}"
    if pages.degraded and workspace:
        text += f". Degraded pages: llm-ocr status -w {quote(workspace)} --worst 20"
    return one_line(text)


def figures_line(status: "RunStatus", workspace: str | None) -> str:
    """Return `40 figures: 39 ok, 1 failed (engine error). Retry: …`, or how many are described if some are not."""
    figures = status.figures
    if status.undescribed:
        described = f"{figures.ok - status.undescribed:,} described"
        ended = outcome(figures).partition(" ok")[2]
        hint = "the CPU engine cannot; a model can: llm-ocr describe --server-url URL"
        return f"{plural(figures.expected, 'figure')}: {described}{ended} ({hint}){_waiting(figures)}"
    reasons = ", ".join(status.figure_reasons) if figures.failed else ""
    return (
        f"{plural(figures.expected, 'figure')}: {outcome(figures)}"
        + (f" ({reasons})" if reasons else "")
        + _waiting(figures)
        + (f". Retry: llm-ocr retry-failed -w {quote(workspace)}" if figures.failed and workspace else "")
    )


def fields_line(status: "RunStatus") -> str:
    """Return `12 documents: 10 ok, 1 degraded, 1 failed (field missing 1, truncated 1)`."""
    counts = status.fields
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in status.field_reasons.items())
    text = f"{plural(counts.expected, 'document')}: {outcome(counts)}"
    return text + (f" ({reasons})" if reasons else "") + _waiting(counts)


def plan_line(status: "RunStatus") -> str:
    """Return `12 documents, 412 pages, 26 units`; `about 412 pages` if documents are counted while they are read."""
    units = status.stages["extract"].total
    pages = f"{about(status.pages.expected)} pages" if status.estimated else plural(status.pages.expected, "page")
    text = ", ".join((plural(status.documents, "document"), pages, plural(units, "unit")))
    return f"{text}; {filtered_text(status.filtered)}" if status.filtered else text


def preview_lines(found: "PlanResult") -> list[str]:
    """Return the planned documents, examples of excluded documents, and a note that no work was done."""
    made, filtered = found.generation, found.filtered
    documents, pages, units = (made.documents, made.expected, made.units) if made else (0, 0, 0)
    counted = f"{about(pages)} pages" if made and made.estimated else plural(pages, "page")
    new = "new document" if found.known else "document"
    line = ", ".join((plural(documents, new), counted, plural(units, "unit")))
    excluded_counts = filtered.counts if filtered else {}
    line += f"; {filtered_text(excluded_counts)}" if excluded_counts else ""
    line += f"; {found.known:,} already in the plan" if found.known else ""
    shown = filtered.examples if filtered else ()
    examples = [f"  {excluded['source']}: {excluded['reason']} ({excluded['detail']})" for excluded in shown]
    more = sum(excluded_counts.values()) - len(examples)
    examples += [f"  and {more} more"] if more > 0 and examples else []
    return [*map(one_line, (line, *examples)), "Dry run: nothing was written"]


def failures_text(status: "RunStatus") -> str:
    """Return `render timeout 12: b.pdf page 3, c.pdf page 1, ...; encrypted: a.pdf`; the most frequent reason is first.

    The reasons of a status include those of degraded pages. With degraded pages, only reasons with an example of a
    failed page are named, without counts.
    """
    if not status.pages.failed:
        return ""
    reasons, examples = status.reasons, status.examples
    exact = sum(reasons.values()) == status.pages.failed
    parts = []
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        names: list[str] = []
        for example in examples:
            name = PurePath(example.source).name or example.source
            name = f"{name} page {example.page}" if example.page else name
            if example.reason == reason and name not in names:
                names.append(name)
        if not exact and not names:
            continue
        text = f"{reason} {count}" if exact and count > 1 else reason
        if names:
            more = len(names) > NAMED or (exact and count > len(names))
            text += f": {', '.join(names[:NAMED])}{', ...' if more else ''}"
        parts.append(text)
    return "; ".join(parts)


#: Reasons of degraded pages for which the same model may give a good answer.
_OF_A_SERVER = frozenset({Reason.MODEL_LOST, Reason.REFUSED, Reason.SERVER_ERROR})


def degraded_text(status: "RunStatus") -> str:
    """Return `unread 2, unsupported. Read again: llm-ocr repair …`; counts only where no failed page has the reason."""
    if not status.pages.degraded:
        return ""
    failed = {example.reason for example in status.examples}
    reasons = {reason: count for reason, count in status.reasons.items() if reason not in failed}
    exact = sum(reasons.values()) == status.pages.degraded
    named = ", ".join(f"{reason} {count:,}" if exact else reason for reason, count in reasons.items())
    repair = f"llm-ocr repair -w {quote(status.url)}"
    text = f"Read again with a model: {repair} --server-url URL, or with OCR alone: --text-layer never"
    if status.model:
        text = f"Read again with another model: {repair} --model NAME"
        if reasons and _OF_A_SERVER.issuperset(reasons):
            text = f"Read again when the server answers: {repair} --server-url URL"
    if exact and set(reasons) == {Reason.PLACEHOLDER}:  # no reader sees more
        text = "Save the attached files, the frames, or a print of the form, and read those"
    return f"{named}. {text}" if named else text


def status_text(status: "RunStatus", spent: Sequence["Spent"] = ()) -> str:
    """Return a status for people; `spent` contains the costs of jobs on platforms."""
    generations = f" in {status.generations} generations" if status.generations > 1 else ""
    rows = [("workspace", status.url), ("documents", f"{status.documents}{generations}")]
    for name, counts, estimated in (("pages", status.pages, status.estimated), ("figures", status.figures, False)):
        number = about(counts.expected) if estimated else f"{counts.expected:,}"
        text = f"{number} expected: {outcome(counts)}{_waiting(counts, estimated=estimated)}"
        if name == "figures" and status.undescribed:
            text += f", {status.undescribed:,} without a description"
        rows.append((name, text))
    for name, stage in status.stages.items():
        units = "items" if name == "assemble" else "units"
        done = f"{stage.done} of {stage.total} {units} done (key {stage.key})"
        if name == "fields":
            done = f"{fields_line(status)} (key {stage.key})"
        rows.append((name, done if stage.key else "not started"))
    if status.tokens_in or status.tokens_out:
        rows.append(("tokens", f"{status.tokens_in:,} in, {status.tokens_out:,} out"))
    if (speed := status.pages_per_second) is not None:
        readers = sum(worker.stage == "extract" and worker.items > 0 for worker in status.workers)
        mean = f" (average of {readers} workers)" if readers > 1 else ""
        rows.append(("speed", f"{speed:.{1 if speed >= 1 else 2}f} pages/s{mean}"))
    if status.limit is not None:
        rows.append(("limit", with_flags(status.limit.sentence.removeprefix("limited by ").removeprefix("limit "))))
    if retries := status.stages["extract"].retries:
        rows.append(("retries", plural(retries, "repeated request")))
    if sent := status.stages["extract"].sent:
        pages, better = sent
        rows.append(
            ("hybrid", f"{plural(pages, 'page')} sent to the model: {better:,} better, {pages - better:,} kept")
        )
    if status.cost is not None:
        cost, hours, workers = status.cost, status.hours_cost, plural(len(status.workers), "worker")
        if hours is None:
            rows.append(("cost", f"${cost:.2f} for tokens of {workers}"))
        else:
            rows.append(("cost", f"${cost:.2f} for {workers}: ${hours:.2f} for time, ${cost - hours:.2f} for tokens"))
    if spent:
        from llm_ocr.costs.report import spent_text

        rows += [("spent", text)] if (text := spent_text(spent)) else []
    skipped = ", ".join(f"{count} {name or 'without an extension'}" for name, count in status.skipped.items())
    scored, low = sum(status.quality), sum(status.quality[: round(DOUBTFUL * len(status.quality))])
    for repair in status.repairs:
        ending = "" if repair.is_finished else " (unfinished: the same command continues, and repair --give-up ends it)"
        rows.append(("repair", with_flags(str(repair).removeprefix("repair ")) + ending))
    notes = (
        ("quality", f"{low:,} of {plural(scored, 'page')} below {DOUBTFUL:g}" if scored else ""),
        ("ledger", str(status.ledger)),
        ("degraded", degraded_text(status)),
        ("failed", failures_text(status)),
        ("skipped", skipped),
        ("filtered", filtered_text(status.filtered).partition(" filtered: ")[2]),
        ("advice", advice(status)),
    )
    rows += [(name, text) for name, text in notes if text]
    lines = aligned(rows)
    for example in status.examples:
        page = f", page {example.page}" if example.page else ""
        detail = f" ({example.detail.splitlines()[0]})" if example.detail else ""
        lines.append(f"  {example.source}{page}: {example.reason}{detail}")
    return "\n".join(map(one_line, lines))


def advice(status: "RunStatus") -> str:
    """Return advice if a model loops on many pages; otherwise ""."""
    loops = status.reasons.get(Reason.LOOP.value, 0)
    if not (loops and status.model):
        return ""
    from llm_ocr.models.choosing import loop_advice
    from llm_ocr.models.registry import all_profiles

    return with_flags(loop_advice(loops, status.pages.ended, status.model, all_profiles()))


def is_folder(workspace: str) -> bool:
    """Return whether a workspace is on this machine."""
    return split_scheme(workspace)[0] in ("", "file")


def load_line(settings: "WorkspaceSettings") -> str:
    """Return the line of Python that opens the dataset of a workspace that is not on this machine.

    `datasets` reads repositories of the Hub by itself. Other stores need more packages there than llm-ocr needs.
    """
    url = settings.workspace
    if url.startswith("hf://datasets/"):
        from llm_ocr.storage.hf import parse

        place = parse(url)
        revision = f", revision={json.dumps(place.revision)}" if place.revision else ""
        files = json.dumps(place.path("dataset/*.parquet"))
        return f'load_dataset("{place.id}", data_files={files}, split="train"{revision})'
    given = {
        "profile": settings.workspace_profile,
        "endpoint": settings.workspace_endpoint,
        "region": settings.workspace_region,
    }
    options = "".join(f", {name}={json.dumps(value)}" for name, value in given.items() if value)
    return f"llm_ocr.open({json.dumps(url)}{options}).to_dataset()"


def _waiting(counts: Counts, *, estimated: bool = False) -> str:
    waiting = counts.expected - counts.ended
    number = about(waiting) if estimated else f"{waiting:,}"
    return f", {number} not done yet" if waiting > 0 else ""


#: Seconds between two snapshots with --watch.
EVERY = 5.0


def run_status(command: str, settings: StatusSettings) -> int:
    """Print the status; with --watch, again after each change, until no page is missing. Return 0."""
    from llm_ocr.runs import open as open_workspace

    shown = ""
    while True:
        run = open_workspace(
            settings.workspace,
            profile=settings.workspace_profile,
            endpoint=settings.workspace_endpoint,
            region=settings.workspace_region,
        )
        status = run.status
        if settings.worst:
            # The status already contains weak pages (20 at most), and a second count takes time.
            known = status.worst[: settings.worst]
            status = replace(status, worst=known if len(known) == settings.worst else run.worst(settings.worst))
        text = status_as_text(status, settings, run.spent)
        if text != shown:
            if settings.json_output:
                write(text + "\n")
            else:
                write_line(text)
            shown = text
        # A plan may have no page after filters; estimated pages may exceed the plan.
        pages, counted = status.pages, status.generations > 0 and not status.estimated
        if not settings.watch or (counted and pages.expected == pages.ended):
            return 0
        time.sleep(EVERY)


def status_as_text(status: "RunStatus", settings: StatusSettings, spent: Sequence["Spent"] = ()) -> str:
    """Return JSON for programs (one line while watching), or a table for people."""
    if settings.json_output:
        from llm_ocr.costs.report import spent_to_json

        values = status.to_json() | {"spent": spent_to_json(spent), "advice": advice(status) or None}
        return json_text(values, indent=None if settings.watch else 2)
    text = status_text(status, spent)
    return f"{text}\n{worst_text(status.worst, settings.worst)}" if settings.worst else text


def run_export(command: str, settings: ExportSettings) -> int:
    """Write the results, and print their location and the way to open them; return 0."""
    from llm_ocr.exporting import export

    with shown_progress(settings) as progress:
        done = export(settings, progress)
    rows, files = plural(done.rows, done.unit.removesuffix("s")), plural(done.files, "file")
    write_line(f"{rows} in {files} ({done.size / 1e6:,.1f} MB, {done.written:,} newly written): {done.url}")
    if done.dropped:
        documents = plural(done.dropped, "document")
        write_line(f"{documents} left out because of too many failed pages: {done.url}/dropped-documents.jsonl")
    if done.left_out:
        write_line(f"{plural(done.left_out, 'page')} left out (not balanced)")
    if done.files:
        write_line(f"Open it: {done.load}")
    if done.failed:
        complain(f"{plural(done.failed, 'document')} failed: {done.url}/failed-documents.jsonl has the reasons")
        return 3
    return 0


def run_estimate(command: str, settings: EstimateSettings) -> int:
    """Print the table, or JSON; return 0."""
    from llm_ocr.estimating import compared

    with shown_progress(settings) as progress:
        found = compared(settings, progress)
    if settings.json_output:
        write_json(found.to_json())
        return 0
    cost = found.options[0].cost if len(found.options) == 1 and not found.stage else None
    if cost is None:
        write_line(str(found if settings.all_options else found.best(5)))
        return 0
    from llm_ocr.costs.comparison import money_text

    ins = f"{settings.tokens_in or 0:,} tokens in at ${settings.price_in or 0:g}"
    outs = f"{settings.tokens_out or 0:,} out at ${settings.price_out or 0:g}"
    write_line(f"{money_text(cost.likely)} for {ins} and {outs} per million")
    return 0
