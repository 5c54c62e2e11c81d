"""How right the embedded engine is, on real pages with truth labelled by hand (benchmarks/truth).

    python benchmarks/accuracy.py ../shared/data/pdfs [--output benchmarks/results/accuracy.json]

Figures by box overlap, tables by cell relations, reading order, sentences present and running text absent; and digital
pages with a true text layer read as images by OCR: character errors against that layer. Per page, misses listed. The
project's own examples do not count here.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import scoring
from reporting import keep

import llm_ocr
from llm_ocr.types import BlockKind, PageRecord

TRUTH = Path(__file__).parent / "truth"
PASSWORD = "1234"  # of the one encrypted file, named in shared/README.md
TOLERANCE = 0.1  # scanned pages: share of characters of a phrase or cell that OCR may get wrong
#: Pages whose text layer is not the truth, or is of a script that the OCR model lacks (truth/README.md).
NO_CER = {
    "normal_4pages.pdf",
    "large_prompt_hint3.pdf",
    "encrypted_password_1234.pdf",
    "right_to_left_01.pdf",
    "skinnypage.pdf",
}

Key = tuple[str, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--no-cer", action="store_true", help="leave out the slow part")
    arguments = parser.parse_args()
    truth = {name: json.loads((TRUTH / f"{name}.json").read_text())["pages"] for name in ("figures", "tables", "order")}
    pages = read(arguments.folder, keys(truth.values()))
    report = {
        "figures": score_figures(truth["figures"], pages),
        "tables": score_tables(truth["tables"], pages),
        "text": score_text(truth["order"], pages),
    }
    if not arguments.no_cer:
        digital = [page for page in truth["order"] + truth["figures"] if not page["scanned"]]
        report["ocr"] = score_ocr(arguments.folder, keys([digital]), pages)
    summary = {name: part["summary"] for name, part in report.items()}
    keep({"command": " ".join(sys.argv), **report}, arguments.output)
    print(json.dumps(summary, indent=1))
    return 0


def keys(groups: Iterable[Sequence[Mapping[str, Any]]]) -> list[Key]:
    return sorted({(page["file"], page["page"]) for group in groups for page in group})


def read(folder: Path, wanted: Sequence[Key], **settings: Any) -> dict[Key, PageRecord]:
    """The wanted pages through Extract, as a user's manifest would ask for them."""
    with tempfile.TemporaryDirectory() as scratch:
        manifest = Path(scratch) / "pages.jsonl"
        files = sorted({file for file, _ in wanted})
        rows = [
            {"id": file, "pdf_path": str((folder / file).resolve()), "pages": [n for f, n in wanted if f == file]}
            for file in files
        ]
        manifest.write_text("\n".join(json.dumps(row) for row in rows))
        run = llm_ocr.extract(
            str(manifest), workspace=f"{scratch}/work", engine="embedded", password=[PASSWORD], **settings
        )
        return {(Path(page.source).name, page.page_number or 0): page for page in run.pages(images=False)}


def score_figures(truth: Sequence[Mapping[str, Any]], pages: Mapping[Key, PageRecord]) -> dict[str, Any]:
    rows, total, found, false = [], 0, 0, 0
    for page in truth:
        record = pages[page["file"], page["page"]]
        boxes = [
            [block.box.x0, block.box.y0, block.box.x1, block.box.y1]
            for block in record.blocks
            if block.kind is BlockKind.FIGURE
        ]
        score = scoring.match_boxes([figure["box"] for figure in page["figures"]], boxes)
        total, found, false = total + score.truth, found + score.found, false + score.false
        rows.append({"file": page["file"], "page": page["page"], **_fields(score)})
    return {
        "summary": {**scoring.share(found, total), "false": false, "pages": len(rows), "iou": 0.5},
        "pages": rows,
    }


def _fields(score: scoring.BoxScore) -> dict[str, int]:
    return {"truth": score.truth, "found": score.found, "false": score.false}


def score_tables(truth: Sequence[Mapping[str, Any]], pages: Mapping[Key, PageRecord]) -> dict[str, Any]:
    rows, total, passed = [], 0, 0
    for page in truth:
        grids = scoring.grids(pages[page["file"], page["page"]].markdown)
        tolerance = TOLERANCE if page["scanned"] else 0.0
        relations = [relation for table in page["tables"] for relation in table["relations"]]
        missed = [r for r in relations if not scoring.related(r, grids, tolerance=tolerance)]
        total, passed = total + len(relations), passed + len(relations) - len(missed)
        rows.append({"file": page["file"], "page": page["page"], "of": len(relations), "missed": missed})
    return {"summary": scoring.share(passed, total), "pages": rows}


def score_text(truth: Sequence[Mapping[str, Any]], pages: Mapping[Key, PageRecord]) -> dict[str, Any]:
    kinds = ("order", "present", "absent")
    total, passed = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0)
    rows = []
    for page in truth:
        markdown = pages[page["file"], page["page"]].markdown
        tolerance = TOLERANCE if page["scanned"] else 0.0
        missed: dict[str, list[Any]] = {kind: [] for kind in kinds}
        for kind in kinds:
            for test in page.get(kind, ()):
                total[kind] += 1
                if _holds(kind, test, markdown, tolerance):
                    passed[kind] += 1
                else:
                    missed[kind].append(test)
        rows.append({"file": page["file"], "page": page["page"], "missed": {k: v for k, v in missed.items() if v}})
    summary = {kind: scoring.share(passed[kind], total[kind]) for kind in kinds}
    return {"summary": summary, "pages": rows}


def _holds(kind: str, test: Any, markdown: str, tolerance: float) -> bool:
    if kind == "absent":
        return scoring.absent(test, markdown, tolerance=0.0)
    text = scoring.body(markdown)
    if kind == "present":
        return scoring.find(test, text, tolerance=tolerance) >= 0
    before = scoring.find(test["before"], text, tolerance=tolerance)
    after = scoring.find(test["after"], text, tolerance=tolerance)
    return 0 <= before < after


def score_ocr(folder: Path, wanted: Sequence[Key], layer: Mapping[Key, PageRecord]) -> dict[str, Any]:
    """The same pages as images: characters wrong or missed, each block of the text layer against its best match."""
    chosen = [key for key in wanted if key[0] not in NO_CER and layer[key].text_source == "text-layer"]
    read_as_images = read(folder, chosen, text_layer="never")
    rows = []
    for key in chosen:
        truth = [scoring.body(block.text) for block in layer[key].blocks if block.kind is not BlockKind.FIGURE]
        truth = [text for text in truth if len(text) > 3]
        got = scoring.body("\n".join(block.text + "\n" + block.inside for block in read_as_images[key].blocks))
        if sum(map(len, truth)) < 200 or not got:
            continue
        errors, places = _errors(truth, got)
        in_order = sum(a <= b for a, b in itertools.pairwise(places))
        rows.append(
            {
                "file": key[0],
                "page": key[1],
                "cer": round(errors / sum(len(text.replace(" ", "")) for text in truth), 4),
                "order": round(in_order / max(1, len(places) - 1), 3),
            }
        )
    rates = [row["cer"] for row in rows]
    order = [row["order"] for row in rows]
    return {
        "summary": {
            "pages": len(rows),
            "cer_median": round(statistics.median(rates), 4),
            "cer_mean": round(statistics.mean(rates), 4),
            "order_mean": round(statistics.mean(order), 3),
        },
        "pages": sorted(rows, key=lambda row: -float(row["cer"])),
    }


def _errors(truth: Sequence[str], got: str) -> tuple[int, list[int]]:
    from rapidfuzz import fuzz
    from rapidfuzz.distance import Levenshtein

    got = got.replace(" ", "")
    errors, places = 0, []
    for text in truth:
        tight = text.replace(" ", "")
        match = fuzz.partial_ratio_alignment(tight, got)
        near = got[match.dest_start : match.dest_end] if match else ""
        errors += min(len(tight), Levenshtein.distance(tight, near))
        places.append(match.dest_start if match else 0)
    return errors, places


if __name__ == "__main__":
    raise SystemExit(main())
