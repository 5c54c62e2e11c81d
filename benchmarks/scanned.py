"""Where the time of scanned pages goes, and what changing it would cost in accuracy.

    python benchmarks/scanned.py ../shared/data/pdfs [--output benchmarks/results/scanned.json]

Scanned pages of the corpus, and labelled digital pages as images with their text layer as truth. Every page is read by
every variant in turn, in one process and thread; processor time, as a ratio to the engine as it is on the same page.
Nothing is asserted. See README.md.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import embedded
import proctree
import scanned_int8
import scanned_pages
import scanned_threads
from reporting import keep, tell
from scanned_pages import PICTURE, SCAN, Given
from scanned_variants import BASE, Measured, Variant, measure, variants

#: Parts of a page's processor time, in the order of the work; the rest of "ocr" is boxes and ways up.
PARTS = ("decode", "detector", "recogniser", "cut and measure", "levelled", "rest of ocr", "layout")


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-benchmark-", dir=arguments.scratch) as scratch:
        report = run(arguments, Path(scratch))
    print(table(report))
    keep(report, arguments.output)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("folder", type=Path)
    add("--pages-max", type=int, default=14, metavar="N", help="at most N pages of each kind (default 14)")
    add("--groups", metavar="NAMES", help="only these groups of variants, by commas (default all)")
    add("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="pages read at a time")
    add("--no-threads", action="store_true", help="leave out processes against threads, which need a quiet machine")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


def run(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    machine = proctree.machine()
    tell("looking for the pages")
    pages = scanned_pages.find(arguments.folder, arguments.pages_max)
    tell("making int8 models")
    static, dynamic, why_not = scanned_int8.make(scratch, pages)
    compared = [v for v in variants(static, dynamic) if _wanted(v, arguments.groups)]
    tell(f"{len(pages)} pages, {len(compared)} ways each")
    results = read_all(pages, compared, arguments.processes)
    report: dict[str, Any] = {
        "command": "python benchmarks/scanned.py " + " ".join(sys.argv[1:]),
        "machine": machine,
        "versions": embedded.versions(),
        "measured": "processor seconds a page, one thread; ratio: median over pages of the ratio to "
        f"'{BASE}' on the same page; wrong: characters wrong or missed against the text layer",
        "not_run": why_not,
        "where": {
            kind: where([r[0] for p, r in zip(pages, results, strict=True) if p.kind == kind])
            for kind in (SCAN, PICTURE)
        },
        "variants": [
            {"group": v.group, "name": v.name, **summary(pages, [r[0] for r in results], [r[i] for r in results])}
            for i, v in enumerate(compared)
        ],
        "pages": [
            {
                "file": p.file,
                "page": p.page,
                "kind": p.kind,
                "variants": {
                    f"{v.group}: {v.name}".lstrip(": "): _rounded(asdict(m)) for v, m in zip(compared, r, strict=True)
                },
            }
            for p, r in zip(pages, results, strict=True)
        ],
    }
    if not arguments.no_threads:
        tell("processes against threads")
        report["threads"] = scanned_threads.measure(pages[-8:], scratch)
    return report


def _wanted(variant: Variant, groups: str | None) -> bool:
    return groups is None or not variant.group or variant.group in groups.split(",")


def read_all(pages: Sequence[Given], compared: Sequence[Variant], processes: int) -> list[list[Measured]]:
    """For every page every variant, the first of which is the engine as it is."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(read_page, page, tuple(compared), index) for index, page in enumerate(pages)]
        found = []
        for page, job in zip(pages, jobs, strict=True):
            found.append(job.result())
            tell(f"{len(found)} of {len(pages)}: {page.file} {page.page}")
    return found


def read_page(page: Given, compared: Sequence[Variant], turn: int) -> list[Measured]:
    """In one process, one after the other; which of them begins changes from page to page."""
    measure(page, compared[0])  # loads what has to be loaded
    start = turn % len(compared)
    order = [*range(start, len(compared)), *range(start)]
    done = {index: measure(page, compared[index]) for index in order}
    return [done[index] for index in range(len(compared))]


def where(measured: Sequence[Measured]) -> dict[str, float]:
    """Mean processor seconds of a page by part."""
    return {part: round(statistics.mean(_part(m, part) for m in measured), 4) for part in PARTS} if measured else {}


def _part(measured: Measured, part: str) -> float:
    seconds = measured.seconds
    if part != "rest of ocr":
        return seconds.get(part, 0.0)
    return seconds["ocr"] - sum(seconds.get(name, 0.0) for name in ("detector", "recogniser", *PARTS[3:5]))


def total(measured: Measured) -> float:
    return sum(_part(measured, part) for part in PARTS)


def summary(pages: Sequence[Given], base: Sequence[Measured], measured: Sequence[Measured]) -> dict[str, Any]:
    """Ratios by kind of page, errors over the pages that have a truth, boxes and characters against the engine's."""
    ratios = {
        kind: _median([total(m) / total(b) for p, b, m in zip(pages, base, measured, strict=True) if p.kind == kind])
        for kind in (SCAN, PICTURE)
    }
    rates = [m.wrong / m.truth for m in measured if m.truth]
    scans = [(b, m) for p, b, m in zip(pages, base, measured, strict=True) if p.kind == SCAN]
    return {
        "ratio": ratios,
        "cpu_s_per_page": round(statistics.mean(map(total, measured)), 3),
        "wrong_median": _median(rates),
        "wrong_mean": round(statistics.mean(rates), 4) if rates else None,
        "worse_pages": sum(m.wrong > 1.1 * b.wrong + 3 for b, m in zip(base, measured, strict=True)),
        "better_pages": sum(b.wrong > 1.1 * m.wrong + 3 for b, m in zip(base, measured, strict=True)),
        "boxes": round(sum(m.boxes for m in measured) / max(1, sum(b.boxes for b in base)), 3),
        "scan_characters": round(sum(m.characters for _, m in scans) / max(1, sum(b.characters for b, _ in scans)), 3),
    }


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 4) if values else None


def _rounded(measured: dict[str, Any]) -> dict[str, Any]:
    return {**measured, "seconds": {part: round(value, 4) for part, value in measured["seconds"].items()}}


def table(report: Mapping[str, Any]) -> str:
    """As Markdown."""
    lines = ["| part | " + " | ".join(report["where"]) + " |", "|---|---|---|"]
    lines += [
        f"| {part} | " + " | ".join(_seconds(found, part) for found in report["where"].values()) + " |"
        for part in PARTS
    ]
    lines += ["", "| variant | CPU, scans | CPU, digital as images | wrong, median | mean | worse | better | boxes |"]
    lines.append("|---" * 8 + "|")
    for row in report["variants"]:
        name = f"{row['group']}: {row['name']}".lstrip(": ")
        ratios = " | ".join(_share(row["ratio"][kind]) for kind in (SCAN, PICTURE))
        errors = " | ".join(_percent(row[key]) for key in ("wrong_median", "wrong_mean"))
        lines.append(
            f"| {name} | {ratios} | {errors} | {row['worse_pages']} | {row['better_pages']} | {row['boxes']:.3f} |"
        )
    for row in report.get("threads", []):
        lines.append(
            f"{row['processes']} processes of {row['threads']} threads: {row['pages_per_s']:.2f} pages/s, "
            f"{row['cpu_s_per_page']:.2f} CPU s/page"
        )
    lines += [f"not run: {what}: {why}" for what, why in report["not_run"].items()]
    return "\n".join(lines)


def _seconds(found: Mapping[str, float], part: str) -> str:
    return f"{found[part]:.3f} s ({found[part] / sum(found.values()):.0%})" if found else "-"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


if __name__ == "__main__":
    raise SystemExit(main())
