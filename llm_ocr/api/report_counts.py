"""The sections of a report that come from markers: outcome, failures, quality, documents."""

import shlex
from collections.abc import Iterator, Mapping

from llm_ocr.results.report.charts import Bar, BarChart, Histogram, Section, Tile
from llm_ocr.results.report.texts import plain, plural, share, short
from llm_ocr.types import Counts, Reason
from llm_ocr.work.page_counts import PageCounts
from llm_ocr.work.publish import Example
from llm_ocr.work.quality import WeakPage
from llm_ocr.work.status import RunStatus, StageStatus

#: Reasons that are drawn; the others become one bar.
_MOST_REASONS = 15
_OUTCOMES = ("ok", "degraded", "failed", "not done yet")
_COLOURS = ("ok", "degraded", "failed", "left")
_KNOWN = frozenset(reason.value for reason in Reason)


def outcome_tiles(status: RunStatus) -> Iterator[Tile]:
    """How the pages ended, and what was found on them."""
    pages = status.pages
    of = f"of {'about ' if status.estimated else ''}{plural(pages.expected, 'page')}"
    yield Tile(f"{pages.ok:,}", f"ok, {share(pages.ok, pages.expected)} {of}", "ok")
    yield Tile(f"{pages.degraded:,}", f"degraded, {share(pages.degraded, pages.expected)}", "degraded")
    yield Tile(f"{pages.failed:,}", f"failed, {share(pages.failed, pages.expected)}", "failed")
    if left := _left(pages):
        yield Tile(f"{left:,}", "not done yet", "left")
    yield Tile(f"{status.documents:,}", "documents")
    yield Tile(f"{status.figures.expected:,}", f"figures, {status.figures.ok:,} described")
    if status.tokens_in or status.tokens_out:
        yield Tile(short(status.tokens_out), f"tokens of answers, {short(status.tokens_in)} of prompts")


def outcome_section(status: RunStatus) -> Section:
    """Pages and figures by outcome, and how far each stage is."""
    if not status.generations:
        return Section("Outcome", ["Nothing is planned in this workspace yet: llm-ocr plan or llm-ocr run begins it."])
    names = {"pages": status.pages, "figures": status.figures}
    counted = [_outcome(name, counts) for name, counts in names.items() if counts.expected]
    stages = [_stage(name, stage) for name, stage in status.stages.items()]
    charts = [
        BarChart(
            "How pages and figures ended",
            _words(status),
            "share",
            counted,
            names=_OUTCOMES,
            colours=_COLOURS,
            whole=True,
        )
    ]
    how_far = BarChart(
        "How far each stage is",
        "Done are units of work, for Assemble documents or groups of them.",
        "share of the units",
        stages,
        names=("done", "not done yet"),
        colours=("c0", "left"),
        whole=True,
    )
    return Section("Outcome", list(_sentences(status)), [*(charts if counted else []), how_far])


def _words(status: RunStatus) -> str:
    pages = status.pages
    words = (
        f"Of {plural(pages.expected, 'page')} {pages.ok:,} are ok, {pages.degraded:,} degraded (usable, but other than "
        f"asked for), {pages.failed:,} failed and {_left(pages):,} not done yet."
    )
    figures = status.figures
    if not figures.expected:
        return words
    return f"{words} Of {plural(figures.expected, 'figure')} {figures.ok:,} are described, {figures.failed:,} failed."


def _sentences(status: RunStatus) -> Iterator[str]:
    for name, stage in status.stages.items():
        if not stage.key:
            yield f"{name.capitalize()} has not begun."
        elif not stage.finished:
            yield f"{name.capitalize()} is not finished: {stage.done:,} of {stage.total:,} units are done."
    if filtered := status.filtered:
        causes = ", ".join(f"{count:,} {plain(cause, 60)}" for cause, count in filtered.items())
        yield f"{plural(sum(filtered.values()), 'document')} left out by filters: {causes}."
    if status.estimated:
        yield "Some documents are counted only when they are read: how many pages are expected is an estimate."
    if retries := status.stages["extract"].retries:
        yield f"{plural(retries, 'request')} beyond the first of a page: the models were asked again."


def _outcome(name: str, counts: Counts) -> Bar:
    parts = (counts.ok, counts.degraded, counts.failed, _left(counts))
    about = ", ".join(f"{part:,} {outcome}" for part, outcome in zip(parts, _OUTCOMES, strict=True))
    total = max(1, sum(parts))
    return Bar(f"{name} ({counts.expected:,})", [part / total for part in parts], "", f"{name}: {about}")


def _stage(name: str, stage: StageStatus) -> Bar:
    done = min(1.0, stage.done / stage.total) if stage.total else 0.0
    label = f"{name} ({stage.done:,} of {stage.total:,})" if stage.key else f"{name} (not begun)"
    return Bar(label, [done, 1 - done], "")


def _left(counts: Counts) -> int:
    return max(0, counts.expected - counts.ok - counts.degraded - counts.failed)


def failure_sections(status: RunStatus) -> Iterator[Section]:
    """What is not ok and why, with examples and the command that reads it again; nothing where all is well."""
    charts = [
        _reasons("Pages that are not ok, by reason", "pages", status.reasons),
        _reasons("Figures that are not ok, by reason", "figures", status.figure_reasons),
    ]
    drawn = [chart for chart in charts if chart.bars]
    if not drawn:
        return
    command = ""
    if status.pages.failed:
        place = shlex.quote(status.url)
        command = f"llm-ocr retry-failed -w {place} && llm-ocr run -w {place}"
    sentences = ["The reasons are those of failed and of degraded pages; the examples are pages that failed."]
    if command:
        sentences.append("The command below plans the failed pages once more and reads them.")
    yield Section("What is not ok", sentences, drawn, [_example(one) for one in status.examples], command)


def _reasons(title: str, unit: str, reasons: Mapping[str, int]) -> BarChart:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    shown = ordered[:_MOST_REASONS]
    rest = sum(count for _, count in ordered[_MOST_REASONS:])
    bars = [
        Bar(reason, [count], f"{count:,}", reason if reason in _KNOWN else f"{reason} (of another version)")
        for reason, count in (*shown, *([("others", rest)] if rest else []))
    ]
    words = "; ".join(f"{reason}: {count:,}" for reason, count in shown)
    return BarChart(title, f"{words}." if words else "", unit, bars, colours=("failed",))


def _example(one: Example) -> str:
    where = one.source if one.page is None else f"{one.source}, page {one.page}"
    return f"{one.reason}: {where}" + (f" ({one.detail})" if one.detail else "")


def quality_section(status: RunStatus) -> Section | None:
    """How many pages have which score, and the worst of them; None where no page has one."""
    counts = status.quality
    if not any(counts):
        return None
    total, below = sum(counts), sum(counts[: len(counts) // 2])
    size = len(counts)
    labels = [f"{place / size:g}" if place * 10 % size == 0 else "" for place in range(size + 1)]
    words = f"{plural(total, 'page')} with a score; {below:,} ({share(below, total)}) below 0.5."
    chart = Histogram("Quality of the pages", words, "pages", "score, 0 worst to 1 best", counts, labels, edges=True)
    sentences = ["The score is made without a true text to compare with: it says which pages to look at first."]
    return Section("Quality", sentences, [chart], [_weak(one) for one in status.worst])


def _weak(one: WeakPage) -> str:
    where = one.source if one.page is None else f"{one.source}, page {one.page}"
    return f"{one.score:.2f}: {where}" + (f" ({one.wrong})" if one.wrong else "")


def document_section(found: PageCounts) -> Section | None:
    """How many pages documents have; None for fewer than two documents."""
    if found.documents < 2:
        return None
    bins = _doubling(found.pages)
    most = max(found.pages)
    middle = _median(found.pages, found.documents)
    words = f"Half of the documents have at most {plural(middle, 'page')}; the longest has {most:,}."
    if found.documents < found.planned:
        words += f" From {found.documents:,} of {found.planned:,} documents."
    chart = Histogram(
        "Pages of a document", words, "documents", "pages", [count for _, count in bins], [label for label, _ in bins]
    )
    return Section("Documents", (), [chart])


def _doubling(pages: Mapping[int, int]) -> list[tuple[str, int]]:
    """Bins 1, 2-3, 4-7 and so on, to the longest document's."""
    bins: list[tuple[str, int]] = []
    low = 1
    while low <= max(pages):
        high = 2 * low - 1
        count = sum(number for size, number in pages.items() if low <= size <= high)
        bins.append((f"{short(low)}-{short(high)}" if high > low else str(low), count))
        low = high + 1
    return bins


def _median(pages: Mapping[int, int], documents: int) -> int:
    seen = 0
    for size, count in sorted(pages.items()):
        seen += count
        if 2 * seen >= documents:
            return size
    return 0
