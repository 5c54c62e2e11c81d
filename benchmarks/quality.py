"""How much of what is wrong with answers the quality score finds, at one false alarm in a hundred good pages.

    python benchmarks/quality.py ../shared/data/pdfs examples --readings FOLDER

Good answers are two readings of each page whose text layer is true, scans aside, as their layer is older OCR: from that
layer, and by OCR of the page's image.
They are damaged in the ways of `quality_damage.py`, and judged with the layer, without it (as on a scan), and without
layer and boxes (a scan read by a model that gives no places).
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from quality_damage import DAMAGES, Blocks, told
from reporting import keep

import llm_ocr
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.engines.embedded.page import SCAN
from llm_ocr.results.quality import on_scale
from llm_ocr.results.quality.scoring import score
from llm_ocr.types import Attempt, Box, Evidence, Page, PageRecord, Quality, Status

FALSE_ALARMS = 0.01
#: Characters of an answer below which damage to it is no damage worth the name.
ENOUGH = 400
SETTINGS = ("with the layer", "without the layer", "without layer and boxes")
WHOLE_PAGE = Box(0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """A good answer, and the page it is for."""

    page: Page
    attempt: Attempt
    document: str
    how: str  # text-layer or ocr


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer's quality; `damage` is "" for a good one."""

    document: str
    how: str
    damage: str
    quality: Quality


def main() -> None:
    """Read, damage, judge, write."""
    args = _arguments()
    readings = asyncio.run(_readings(args))
    print(f"{len(readings)} good answers for {len({one.page.id for one in readings})} pages", file=sys.stderr)
    report: dict[str, Any] = {
        "command": f"python benchmarks/quality.py {' '.join(args.sources)} --readings FOLDER",
        "llm_ocr": llm_ocr.__version__,
        "pages": len({one.page.id for one in readings}),
        "documents": len({one.document for one in readings}),
        "false_alarms_allowed": FALSE_ALARMS,
        "processor_milliseconds_of_a_score": _times(readings),
        "settings": {setting: _found([*_judged(readings, setting)]) for setting in SETTINGS},
    }
    keep(report, args.output)
    print(_table(report))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", help="documents and folders of your own")
    parser.add_argument("--readings", type=Path, required=True, help="folder of the readings; made where it is missing")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "quality.json")
    return parser.parse_args()


async def _readings(args: argparse.Namespace) -> list[Reading]:
    by_layer = await asyncio.to_thread(_read, args, "layer", "auto")
    by_ocr = await asyncio.to_thread(_read, args, "ocr", "never")
    true = [row for row in by_layer.values() if row.text_source == "text-layer" and _judgeable(row)]
    found = []
    async with Renderer(RenderOptions(text_layer=False, image_format="jpeg")) as renderer:
        for row in true:
            page = await renderer.page(
                row.source, "", row.page_number or 1, page_id=row.page_id, document_id=row.document_id
            )
            if page.evidence is None or not page.evidence.lines or page.evidence.pictured > SCAN:
                continue
            other = by_ocr.get(row.page_id)
            for reading in (row, other):
                if reading is not None and _judgeable(reading):
                    # Whether the layer is true was found when it was read; the answer of another does not change that.
                    found.append(Reading(page, _attempt(reading, row.probe), row.source, reading.text_source))
    return found


def _read(args: argparse.Namespace, name: str, text_layer: str) -> dict[str, PageRecord]:
    workspace = args.readings / name
    if not workspace.exists():
        llm_ocr.extract(
            args.sources, workspace=workspace, engine="embedded", text_layer=text_layer, max_failed_rate=1.0
        )
    return {row.page_id: row for row in llm_ocr.open(str(workspace)).pages(images=False)}


def _judgeable(row: PageRecord) -> bool:
    return row.status is Status.OK and sum(len(block.text) for block in row.blocks if told(block)) >= ENOUGH


def _attempt(row: PageRecord, probe: float | None) -> Attempt:
    confidence = row.quality_parts.get("confident")
    return Attempt(
        row.engine, row.text_source, row.status, row.blocks, rotation=row.rotation, probe=probe, confidence=confidence
    )


def _judged(readings: Sequence[Reading], setting: str) -> Iterator[Judged]:
    texts = {one.document: _text(one.attempt.blocks) for one in readings}
    for number, one in enumerate(readings):
        rng = random.Random(number)
        others = [text for document, text in sorted(texts.items()) if document != one.document]
        yield Judged(one.document, one.how, "", _score(one, one.attempt.blocks, setting))
        for name, damage in DAMAGES.items():
            bad = damage(one.attempt.blocks, rng, rng.choice(others))
            if bad is not None:
                yield Judged(one.document, one.how, name, _score(one, bad, setting))


def _text(blocks: Blocks) -> str:
    return " ".join(block.text for block in blocks if told(block))


def _score(one: Reading, blocks: Blocks, setting: str) -> Quality:
    page, attempt = one.page, replace(one.attempt, blocks=blocks)
    evidence = page.evidence or Evidence(None)
    if setting != SETTINGS[0]:
        evidence = replace(evidence, lines=())
    if setting == SETTINGS[2]:
        attempt = replace(attempt, blocks=tuple(replace(block, box=WHOLE_PAGE, continued=()) for block in blocks))
    return score(replace(page, evidence=evidence), attempt)


def _found(judged: Sequence[Judged]) -> dict[str, Any]:
    """Thresholds on one half of the documents, what they find on the other; all parts together and each alone."""
    documents = sorted({one.document for one in judged})
    halves = [frozenset(documents[0::2]), frozenset(documents[1::2])]
    parts = sorted({part for one in judged for part in one.quality.parts})
    good = [one for one in judged if not one.damage]
    level = _threshold([one.quality.score for one in good])
    return {
        "good_answers": len(good),
        "threshold": round(level, 4),
        "good_score_percentiles": {
            str(share): _percentile([one.quality.score for one in good], share) for share in (1, 5, 25, 50)
        },
        "found": _shares(judged, lambda one: one.quality.score < level),
        "damaged_answers": {name: sum(one.damage == name for one in judged) for name in DAMAGES},
        "other_half_of_the_documents": _crossed(judged, halves),
        "by_part_alone": {part: _alone(judged, part) for part in parts},
    }


def _threshold(scores: Sequence[float]) -> float:
    """Below it lie as many good answers as may be false alarms."""
    ordered = sorted(scores)
    return ordered[int(FALSE_ALARMS * len(ordered))]


def _percentile(scores: Sequence[float], share: int) -> float:
    return round(sorted(scores)[min(len(scores) - 1, share * len(scores) // 100)], 4)


def _shares(judged: Sequence[Judged], bad: Any) -> dict[str, float]:
    found = {}
    for name in DAMAGES:
        members = [one for one in judged if one.damage == name]
        if members:
            found[name] = round(sum(map(bad, members)) / len(members), 3)
    return found


def _crossed(judged: Sequence[Judged], halves: Sequence[frozenset[str]]) -> dict[str, Any]:
    """Each document judged by the threshold of the others' half."""
    levels = {
        side: _threshold([one.quality.score for one in judged if not one.damage and one.document not in side])
        for side in halves
    }

    def bad(one: Judged) -> bool:
        return one.quality.score < next(level for side, level in levels.items() if one.document in side)

    good = [one for one in judged if not one.damage]
    return {
        "thresholds": [round(level, 4) for level in levels.values()],
        "false_alarms": round(sum(map(bad, good)) / len(good), 4),
        "found": _shares(judged, bad),
    }


def _alone(judged: Sequence[Judged], part: str) -> dict[str, float]:
    def value(one: Judged) -> float:
        return on_scale(part, one.quality.parts.get(part, 1.0))

    level = _threshold([value(one) for one in judged if not one.damage])
    return {name: share for name, share in _shares(judged, lambda one: value(one) < level).items() if share >= 0.02}


def _times(readings: Sequence[Reading]) -> dict[str, float]:
    spent = []
    for one in readings:
        began = time.thread_time()
        score(one.page, one.attempt)
        spent.append(1000 * (time.thread_time() - began))
    return {"median": round(statistics.median(spent), 2), "p95": round(sorted(spent)[int(0.95 * len(spent))], 2)}


def _table(report: dict[str, Any]) -> str:
    lines = [f"{'':38}" + "".join(f"{setting:>26}" for setting in SETTINGS)]
    for name in DAMAGES:
        shares = [report["settings"][setting]["found"].get(name) for setting in SETTINGS]
        lines.append(
            f"{name:38}" + "".join(f"{'-' if share is None else f'{100 * share:.0f} %':>26}" for share in shares)
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
