"""Summary of a finished command: outcome, location of results, and exit code."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from llm_ocr.cli.flags import with_flags
from llm_ocr.cli.output import one_line
from llm_ocr.cli.progress import about, outcome
from llm_ocr.storage.names import split_scheme
from llm_ocr.types import Counts, Reason, plural
from llm_ocr.workspace.generations import filtered_text

if TYPE_CHECKING:
    from llm_ocr.config.models import AssembleSettings, RunSettings
    from llm_ocr.costs.report import Spent
    from llm_ocr.stages.plan import Preview
    from llm_ocr.workspace.publish import Example
    from llm_ocr.workspace.status import RunStatus, StageStatus
    from llm_ocr.workspace.superseding import WeakPage


# Pages with the lowest quality.


#: Score below which most of a page is doubtful; see `results.quality`.
DOUBTFUL = 0.8
#: Maximum characters of a document's name; the end of a longer name is shown.
_LONGEST = 60


def quality_text(status: "RunStatus") -> str:
    """Return `12 of 412 pages below 0.8`, or "" if no page has a score."""
    total = sum(status.quality)
    low = sum(status.quality[: round(DOUBTFUL * len(status.quality))])
    return f"{low:,} of {plural(total, 'page')} below {DOUBTFUL:g}" if total else ""


def worst_text(pages: Sequence["WeakPage"], wanted: int) -> str:
    """Return a table of score, document, page, and problem, the worst page first."""
    from llm_ocr.results.quality import shown_score

    if not pages:
        return "worst: no problems found on any page"
    rows = [
        (shown_score(one.score), one_line(_shortened(one.source)), str(one.page or "-"), one_line(one.wrong))
        for one in pages
    ]
    head = ("score", "document", "page", "problem")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(3)]
    lines = [
        f"  {score:<{widths[0]}}  {document:<{widths[1]}}  {page:>{widths[2]}}  {wrong}"
        for score, document, page, wrong in (head, *rows)
    ]
    more = f" (of {wanted} requested; no others are recorded)" if len(pages) < wanted else ""
    return "\n".join([f"worst {len(pages)}{more}", *lines])


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"


# Closing lines of a command: outcome, location of the result, exit code.


#: Number of examples per reason in the last line.
NAMED = 3


def exit_code(counts: Counts, max_failed_rate: float) -> int:
    """Return 3 if more of the expected pages (figures) failed than allowed, otherwise 0."""
    return 3 if counts.expected and counts.failed / counts.expected > max_failed_rate else 0


def last_line(status: "RunStatus", workspace: str | None) -> str:
    """Return `412 ok, 3 degraded, 1 failed (encrypted: a.pdf). Retry: llm-ocr retry-failed -w out`.

    Args:
        status: Counts of pages, and reasons of failures.
        workspace: Workspace to retry in, or None if it was temporary.
    """
    pages = status.pages
    text = outcome(pages)
    reasons = failures_text(status)
    text += f" ({reasons})" if reasons else ""
    text += _waiting(pages, estimated=status.estimated)
    if pages.failed and workspace:
        text += f". {retry_text(status, workspace)}"
    return one_line(text)


def own_line(counts: Counts, noun: str, workspace: str) -> str:
    """Return `This worker: 412 pages, 411 ok, 1 failed. All workers: llm-ocr status -w out`."""
    named = f"{plural(counts.expected, noun)}, {outcome(counts)}"
    return f"This worker: {named}. All workers: llm-ocr status -w {quoted(workspace)}"


def retry_text(status: "RunStatus", workspace: str) -> str:
    """Return what to do about the failed pages of a workspace: the command that plans them again, if it can help."""
    if status.reasons.get(Reason.STAGE_ERROR, 0) == status.pages.failed:  # Extract has read these pages
        return "Correct the function of the stage, and run the stage with another version"
    key = " --password-file FILE" if Reason.ENCRYPTED in status.reasons else ""
    return f"Retry: llm-ocr retry-failed -w {quoted(workspace)}{key}"


def figures_line(status: "RunStatus") -> str:
    """Return `40 figures: 39 ok, 1 failed (engine error)`, or how many are described if some are not."""
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
    )


def plan_line(status: "RunStatus") -> str:
    """Return `12 documents, 412 pages, 26 units`; `about 412 pages` if documents are counted while they are read."""
    units = status.stages["extract"].total
    pages = f"{about(status.pages.expected)} pages" if status.estimated else plural(status.pages.expected, "page")
    text = ", ".join((plural(status.documents, "document"), pages, plural(units, "unit")))
    return f"{text}; {filtered_text(status.filtered)}" if status.filtered else text


def preview_lines(found: "Preview") -> list[str]:
    """Return the planned documents, some of the excluded documents, and a note that no work was done."""
    pages = f"{about(found.pages)} pages" if found.estimated else plural(found.pages, "page")
    new = "new document" if found.known else "document"
    line = ", ".join((plural(found.documents, new), pages, plural(found.units, "unit")))
    line += f"; {filtered_text(found.filtered)}" if found.filtered else ""
    line += f"; {found.known:,} already in the plan" if found.known else ""
    examples = [f"  {one['source']}: {one['reason']} ({one['detail']})" for one in found.examples]
    more = sum(found.filtered.values()) - len(examples)
    examples += [f"  and {more} more"] if more > 0 and examples else []
    return [*map(one_line, (line, *examples)), "Dry run: nothing was written"]


def retry_line(status: "RunStatus") -> str:
    """Return `2 units to read again`."""
    extract = status.stages["extract"]
    return f"{plural(extract.total - extract.done, 'unit')} to read again"


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
        names = list(dict.fromkeys(_name(one) for one in examples if one.reason == reason))
        if exact or names:
            parts.append(_reason_text(reason, count if exact else None, names))
    return "; ".join(parts)


def _speed(status: "RunStatus") -> str:
    speed = status.pages_per_second
    if speed is None:
        return ""
    readers = sum(one.stage == "extract" and one.items > 0 for one in status.workers)
    mean = f" (average of {readers} workers)" if readers > 1 else ""
    return f"{speed:.{1 if speed >= 1 else 2}f} pages/s{mean}"


def _cost(cost: float, hours: float | None, workers: str) -> str:
    if hours is None:
        return f"${cost:.2f} for tokens of {workers}"
    return f"${cost:.2f} for {workers}: ${hours:.2f} for time, ${cost - hours:.2f} for tokens"


def status_text(status: "RunStatus", spent: Sequence["Spent"] = ()) -> str:
    """Return a status for people; `spent` contains the costs of jobs on platforms."""
    rows = [
        ("workspace", status.url),
        ("documents", _documents(status)),
        ("pages", _counts_text(status.pages, estimated=status.estimated)),
        (
            "figures",
            _counts_text(status.figures)
            + (f", {status.undescribed:,} without a description" if status.undescribed else ""),
        ),
        *((name, _stage_text(name, stage)) for name, stage in status.stages.items()),
    ]
    if status.tokens_in or status.tokens_out:
        rows.append(("tokens", f"{status.tokens_in:,} in, {status.tokens_out:,} out"))
    if speed := _speed(status):
        rows.append(("speed", speed))
    if status.limit is not None:
        rows.append(("limit", with_flags(status.limit.sentence.removeprefix("limited by ").removeprefix("limit "))))
    if retries := status.stages["extract"].retries:
        rows.append(("retries", plural(retries, "repeated request")))
    if status.cost is not None:
        rows.append(("cost", _cost(status.cost, status.hours_cost, plural(len(status.workers), "worker"))))
    if spent:
        from llm_ocr.costs.report import spent_text

        rows += [("spent", text)] if (text := spent_text(spent)) else []
    notes = (
        ("quality", quality_text(status)),
        ("failed", failures_text(status)),
        ("skipped", _tally(status.skipped)),
        ("filtered", filtered_text(status.filtered).partition(" filtered: ")[2]),
        ("advice", advice(status)),
    )
    rows += [(name, text) for name, text in notes if text]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {text}" for name, text in rows]
    examples = (f"  {_example_text(one)}" for one in status.examples)
    return "\n".join(map(one_line, (*lines, *examples)))


def advice(status: "RunStatus") -> str:
    """Return advice if a model loops on many pages; otherwise ""."""
    loops = status.reasons.get(Reason.LOOP.value, 0)
    pages = status.pages.ok + status.pages.degraded + status.pages.failed
    if not (loops and status.model):
        return ""
    from llm_ocr.models.choosing import loop_advice
    from llm_ocr.models.registry import all_profiles

    return with_flags(loop_advice(loops, pages, status.model, all_profiles()))


def is_folder(workspace: str) -> bool:
    """Return whether a workspace is on this machine."""
    return split_scheme(workspace)[0] in ("", "file")


def load_line(settings: "RunSettings | AssembleSettings") -> str:
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


def quoted(text: str) -> str:
    """Return a name quoted for a shell."""
    return shlex.quote(text)


def _reason_text(reason: str, count: int | None, names: Sequence[str]) -> str:
    number = f" {count}" if count is not None and count > 1 else ""
    shown = names[:NAMED]
    more = ", ..." if len(names) > NAMED or (count or 0) > len(names) else ""
    return f"{reason}{number}: {', '.join(shown)}{more}" if shown else f"{reason}{number}"


def _name(example: "Example") -> str:
    name = PurePath(example.source).name or example.source
    return f"{name} page {example.page}" if example.page else name


def _example_text(example: "Example") -> str:
    page = f", page {example.page}" if example.page else ""
    detail = f" ({example.detail.splitlines()[0]})" if example.detail else ""
    return f"{example.source}{page}: {example.reason}{detail}"


def _documents(status: "RunStatus") -> str:
    more = f" in {status.generations} generations" if status.generations > 1 else ""
    return f"{status.documents}{more}"


def _counts_text(counts: Counts, *, estimated: bool = False) -> str:
    number = about(counts.expected) if estimated else f"{counts.expected:,}"
    return f"{number} expected: {outcome(counts)}{_waiting(counts, estimated=estimated)}"


def _waiting(counts: Counts, *, estimated: bool = False) -> str:
    waiting = counts.expected - counts.ok - counts.degraded - counts.failed
    number = about(waiting) if estimated else f"{waiting:,}"
    return f", {number} not done yet" if waiting > 0 else ""


def _stage_text(name: str, stage: "StageStatus") -> str:
    if not stage.key:
        return "not started"
    return f"{stage.done} of {stage.total} {'items' if name == 'assemble' else 'units'} done (key {stage.key})"


def _tally(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name or 'without an extension'}" for name, count in counts.items())
