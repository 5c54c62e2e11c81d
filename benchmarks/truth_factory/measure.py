"""Generate pages with exact truth, read them with the embedded engine, and score the results.

    python benchmarks/truth_factory/measure.py --pages 60 --scans 12 --output benchmarks/results/truth_factory.json

Documents with even seeds are the half "tuning", the others "held-out". Rules of the engine may be tuned on the first
half only. `--folder` keeps the documents and `truth.json`; its paths and ids stay the same for the same seed.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))

import numpy
import truth_render
import truth_scans
import truth_score
from reporting import keep, tell

import llm_ocr
from llm_ocr.types import Block, BlockKind, PageRecord

HALVES = ("tuning", "held-out")
DOCUMENT = 4  # pages of a document
MEASURES = (
    "text",
    "similarity",
    "order",
    "headings",
    "paragraphs whole",
    "cells",
    "tables",
    "figures",
    "formulas near",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=16, help="digital pages of each half")
    parser.add_argument("--scans", type=int, default=2, help="of these pages, those also read as damaged scans")
    parser.add_argument("--seed", type=int, default=0, help="first documents: 0, or any number for other pages")
    parser.add_argument("--half", choices=HALVES, help="leave out the other half")
    parser.add_argument("--folder", type=Path, help="keep the documents and their truth here")
    parser.add_argument("--only-generate", action="store_true", help="write the documents, and read none")
    parser.add_argument("--by-tag", action="store_true", help="print the main measures of each kind of page, too")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    halves = [arguments.half] if arguments.half else list(HALVES)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch) / "documents"
        begun = time.monotonic()
        pages = {half: make(folder, half, arguments.seed, arguments.pages, arguments.scans) for half in halves}
        (folder / "truth.json").write_text(json.dumps(pages, ensure_ascii=False, indent=1), encoding="utf-8")
        made = time.monotonic() - begun
        count = sum(map(len, pages.values()))
        tell(f"{count} pages generated in {made:.0f} s")
        if arguments.only_generate:
            return 0
        report: dict[str, Any] = {"command": " ".join(sys.argv), "generated_per_second": round(count / made, 2)}
        for half in halves:
            report[half] = judge(pages[half], read(folder, pages[half], Path(scratch) / half))
    keep(report, arguments.output)
    print(table({half: report[half] for half in halves}, arguments.by_tag))
    return 0


def make(folder: Path, half: str, seed: int, pages: int, scans: int) -> list[dict[str, Any]]:
    """Write the documents of a half, and damaged scans of readable pages at equal distances."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    with truth_render.chromium() as tab:
        number = 2 * 1000 * seed + HALVES.index(half)
        while len(found) < pages:
            found += truth_render.generate(tab, number, DOCUMENT, folder)
            number += 2
    found = found[:pages]
    readable = [page for page in found if not truth_scans.UNREADABLE & set(page["tags"])]
    chosen = [readable[i * len(readable) // scans] for i in range(min(scans, len(readable)))]
    return found + [truth_scans.scan(page, folder, place) for place, page in enumerate(chosen)]


def read(folder: Path, pages: Sequence[Mapping[str, Any]], workspace: Path) -> dict[tuple[str, int], PageRecord]:
    """Read the files of the pages with the embedded engine."""
    files = sorted({page["file"] for page in pages})
    begun = time.monotonic()
    run = llm_ocr.extract([str(folder / file) for file in files], workspace=workspace, engine="embedded")
    tell(f"{len(pages)} pages read in {time.monotonic() - begun:.0f} s")
    return {(Path(page.source).name, page.page_number or 0): page for page in run.pages(images=False)}


def judge(pages: Sequence[Mapping[str, Any]], records: Mapping[tuple[str, int], PageRecord]) -> dict[str, Any]:
    """Return the scores of digital pages and scans: all of them, by tag, and page by page."""
    report: dict[str, Any] = {}
    for name, scanned in (("digital", False), ("scans", True)):
        rows = []
        for page in (page for page in pages if page["scanned"] is scanned):
            record = records[page["file"], page["page"]]
            scores = truth_score.score(page, answer(record))
            rows.append((page, record, scores))
        if not rows:
            continue
        tags = sorted({tag for page, _, _ in rows for tag in page["tags"]})
        report[name] = {
            "pages": len(rows),
            "all": truth_score.total(scores for _, _, scores in rows),
            "quality score": quality(rows),
            "by tag": {
                tag: _shares(truth_score.total(one for page, _, one in rows if tag in page["tags"])) for tag in tags
            },
            "quality and similarity": {
                page["id"]: f"{record.quality} {scores['similarity'][0]:.4f}" for page, record, scores in rows
            },
            "misses": {page["id"]: missed for page, _, scores in rows if (missed := _misses(page["tags"], scores))},
        }
    return report


def _shares(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {measure: sums["share"] for measure, sums in found.items()}


def _misses(tags: Sequence[str], scores: truth_score.Score) -> str:
    """Return the tags of a page and its measures that are not perfect, similarity left out; empty without any."""
    missed = [f"{name} {a}/{of}" for name, (a, of) in scores.items() if a < of and name != "similarity"]
    return f"{', '.join(tags)}: {', '.join(missed)}" if missed else ""


def answer(record: PageRecord) -> truth_score.Answer:
    figures, tables = (
        [one for one in record.blocks if one.kind is kind] for kind in (BlockKind.FIGURE, BlockKind.TABLE)
    )
    formulas = [_edges(one) for one in figures if one.label == "formula"]
    pictures = [_edges(one) for one in figures if one.label != "formula"]
    return truth_score.Answer(record.markdown, pictures, list(map(_edges, tables)), formulas)


def _edges(block: Block) -> list[float]:
    return [block.box.x0, block.box.y0, block.box.x1, block.box.y1]


def quality(rows: Sequence[tuple[Mapping[str, Any], PageRecord, truth_score.Score]]) -> dict[str, float]:
    """Compare the quality score with the similarity: rank correlation, and the mean score of good and bad pages."""
    pairs = [(record.quality or 0.0, scores["similarity"][0]) for _, record, scores in rows]
    given, true = (numpy.array(one) for one in zip(*pairs, strict=True))
    found = {}
    if len(set(given)) > 1 and len(set(true)) > 1:
        found["rank correlation"] = round(float(numpy.corrcoef(_ranks(given), _ranks(true))[0, 1]), 3)
    for name, chosen in (("good pages", true >= 0.97), ("bad pages", true < 0.85)):
        found[name] = int(chosen.sum())
        if chosen.any():
            found[f"mean of {name}"] = round(float(given[chosen].mean()), 3)
    return found


def _ranks(values: "numpy.typing.NDArray[numpy.float64]") -> "numpy.typing.NDArray[numpy.float64]":
    """Return ranks; equal values share their mean rank."""
    return numpy.array([(values < one).sum() + ((values == one).sum() - 1) / 2 for one in values])


def table(report: Mapping[str, Any], by_tag: bool) -> str:
    """Return the shares in percent as a Markdown table: all measures, then if wanted the main ones by tag."""
    columns = [(half, name) for half in report for name in report[half]]
    measures = sorted({measure for half, name in columns for measure in report[half][name]["all"]})
    lines = ["| measure | " + " | ".join(f"{half}, {name}" for half, name in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for measure in measures:
        lines.append(
            f"| {measure} | " + " | ".join(_percent(_shares(report[h][n]["all"]), measure) for h, n in columns) + " |"
        )
    for half, name in columns:
        part = report[half][name]
        lines += ["", f"{half}, {name}: {part['pages']} pages; quality score: {part['quality score']}"]
        if not by_tag:
            continue
        lines.append("")
        lines += ["| tag | " + " | ".join(MEASURES) + " |", "|---" * (len(MEASURES) + 1) + "|"]
        for tag, found in part["by tag"].items():
            lines.append(f"| {tag} | " + " | ".join(_percent(found, measure) for measure in MEASURES) + " |")
    return "\n".join(lines)


def _percent(shares: Mapping[str, float], measure: str) -> str:
    return f"{100 * shares[measure]:.1f}" if measure in shares else "-"


if __name__ == "__main__":
    raise SystemExit(main())
