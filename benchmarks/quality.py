"""Measure which faults of order and form the quality score finds, at one false alarm in a hundred good pages.

What is invented or missing is measured by `losses.py`.

    python benchmarks/quality.py ../shared/data/pdfs examples --readings FOLDER

Good answers are readings of pages from their text layer, if it is true, scans aside, as their layer is older OCR.
They are damaged in the ways of `DAMAGES`, and judged with the layer, without it (as on a scan), and without
layer and boxes (a scan read by a model that gives no places).
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from reporting import keep

import llm_ocr
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.documents.text_layer import suspicious
from llm_ocr.results.quality import on_scale
from llm_ocr.results.quality.scoring import score
from llm_ocr.types import (
    FURNITURE,
    SCAN,
    Attempt,
    Block,
    BlockKind,
    Box,
    Evidence,
    Line,
    Page,
    PageContent,
    PageRecord,
    Quality,
    Reason,
    Status,
)

# Damage done to good answers, as models do it: what `quality.py` lets the score look for. Everything from a seed.


Blocks = tuple[Block, ...]
#: Characters of what is taken for a line.
LINE = 80
#: Repetitions of a loop in an answer that was not cut.
LOOPS = 15
#: Least share of a page's text in each of two columns.
COLUMN = 0.25


def told(block: Block) -> bool:
    """Whether the block is text of the page's body."""
    return block.kind is not BlockKind.FIGURE and block.kind not in FURNITURE and bool(block.text)


def size(blocks: Sequence[Block]) -> int:
    """Characters of the body."""
    return sum(len(block.text) for block in blocks if told(block))


def lines_of(text: str) -> list[str]:
    """Pieces of about a line; rows of tables stay whole."""
    if "\n" in text:
        return text.split("\n")
    lines, line = [], ""
    for word in text.split(" "):
        line = f"{line} {word}" if line else word
        if len(line) >= LINE:
            lines.append(line)
            line = ""
    return [*lines, line] if line else lines


def loop(blocks: Blocks, rng: random.Random) -> Blocks | None:
    """A line of the page said again and again in the middle of the answer."""
    places = [number for number, block in enumerate(blocks) if told(block) and len(block.text) > 30]
    if not places:
        return None
    number = rng.choice(places)
    line = rng.choice([line for line in lines_of(blocks[number].text) if len(line) > 15] or [blocks[number].text])
    text = f"{blocks[number].text} {' '.join([line] * LOOPS)}"
    return (*blocks[:number], replace(blocks[number], text=text), *blocks[number + 1 :])


def swapped_columns(blocks: Blocks, rng: random.Random) -> Blocks | None:
    """The right column before the left one; None for a page without two."""
    sides = _columns(blocks)
    if sides is None:
        return None
    left, right = sides
    moved = [*right, *left]
    places = sorted(moved)
    changed = list(blocks)
    for place, number in zip(places, moved, strict=True):
        changed[place] = blocks[number]
    return tuple(changed)


def read_across(blocks: Blocks, rng: random.Random) -> Blocks | None:
    """Lines of two columns taken in turns, as one who does not see the gutter reads; None for a page without two."""
    sides = _columns(blocks)
    if sides is None:
        return None
    left, right = ([line for number in side for line in lines_of(blocks[number].text)] for side in sides)
    mixed = [line for pair in zip(left, right, strict=False) for line in pair]
    mixed += left[len(right) :] + right[len(left) :]
    members = sorted((*sides[0], *sides[1]))
    box = blocks[members[0]].box
    for number in members:
        box = box.union(blocks[number].box)
    one = replace(blocks[members[0]], text=" ".join(mixed), box=box, continued=(), kind=BlockKind.TEXT)
    rest = [block for number, block in enumerate(blocks) if number not in set(members)]
    return tuple([*rest[: members[0]], one, *rest[members[0] :]])


def interleaved(blocks: Blocks, rng: random.Random) -> Blocks | None:
    """Blocks of two columns in turns; None for a page without two, or with a column of one block."""
    sides = _columns(blocks)
    if sides is None or min(map(len, sides)) < 2:
        return None
    left, right = sides
    turns = [number for pair in zip(left, right, strict=False) for number in pair]
    turns += left[len(right) :] + right[len(left) :]
    changed = list(blocks)
    for place, number in zip(sorted(turns), turns, strict=True):
        changed[place] = blocks[number]
    return tuple(changed)


def reversed_lines(blocks: Blocks, rng: random.Random) -> Blocks | None:
    """Blocks and their lines from last to first, as upside-down text in the order of its heights."""
    return tuple(
        replace(block, text=_joined(block.text, lines_of(block.text)[::-1])) if told(block) else block
        for block in blocks[::-1]
    )


def one_table(blocks: Blocks, rng: random.Random) -> Blocks | None:
    """Running text as one table: lines of both columns in each row, or lines in three pieces."""
    sides = _columns(blocks)
    groups = sides or ([number for number, block in enumerate(blocks) if told(block)],)
    columns = [
        [line for number in group if blocks[number].kind is BlockKind.TEXT for line in lines_of(blocks[number].text)]
        for group in groups
    ]
    if sides is None:
        words = [line.split() for line in columns[0]]
        columns = [[" ".join(row[len(row) * at // 3 : len(row) * (at + 1) // 3]) for row in words] for at in range(3)]
    rows = [[cell.replace("|", " ") for cell in row] for row in zip_longest(*columns, fillvalue="")]
    if len(rows) < 10:
        return None
    lines = [f"| {' | '.join(row)} |" for row in rows]
    text = "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])
    body = [number for group in groups for number in group if blocks[number].kind is BlockKind.TEXT]
    box = blocks[body[0]].box
    for number in body:
        box = box.union(blocks[number].box)
    rest = [block for number, block in enumerate(blocks) if number not in set(body)]
    return tuple([*rest[: min(body)], Block(BlockKind.TABLE, box, text), *rest[min(body) :]])


def unmapped(blocks: Blocks, rng: random.Random) -> Blocks | None:
    """Characters without meaning in place of each fiftieth one."""
    return tuple(
        replace(block, text="".join("\ufffd" if rng.random() < 0.02 else one for one in block.text))
        if told(block)
        else block
        for block in blocks
    )


DAMAGES: dict[str, Callable[[Blocks, random.Random], Blocks | None]] = {
    "loop": loop,
    "columns swapped": swapped_columns,
    "read across columns": read_across,
    "blocks of columns in turns": interleaved,
    "lines from last to first": reversed_lines,
    "the page as one table": one_table,
    "2 % of the characters without meaning": unmapped,
}


def _joined(text: str, lines: Sequence[str]) -> str:
    return ("\n" if "\n" in text else " ").join(lines)


def _columns(blocks: Blocks) -> tuple[list[int], list[int]] | None:
    left = [number for number, block in enumerate(blocks) if told(block) and block.box.x1 < 0.55]
    right = [number for number, block in enumerate(blocks) if told(block) and block.box.x0 > 0.45]
    least = COLUMN * size(blocks)
    if any(sum(len(blocks[number].text) for number in side) < least for side in (left, right)):
        return None
    return left, right


# The command.


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


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer's quality; `damage` is "" for a good one."""

    document: str
    damage: str
    quality: Quality


def main() -> None:
    """Read, damage, judge, write."""
    args = _arguments()
    readings = asyncio.run(good_answers(args))
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
    parser.add_argument("--readings", type=Path, required=True, help="workspace of the readings, made if missing")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "quality.json")
    return parser.parse_args()


async def good_answers(args: argparse.Namespace) -> list[Reading]:
    """Return readings of the pages whose layer is true."""
    rows = await asyncio.to_thread(_read, args)
    found = []
    async with Renderer(RenderOptions(text_layer=False, image_format="jpeg")) as renderer:
        for row in rows:
            if row.text_source != "text-layer" or not _judgeable(row):
                continue
            page = await renderer.page(
                row.source, "", row.page_number or 1, page_id=row.page_id, document_id=row.document_id
            )
            if page.evidence is not None and is_plain(page.evidence):
                found.append(Reading(page, _attempt(row), row.source))
    return found


def is_plain(evidence: Evidence) -> bool:
    """Whether the page is no scan, and its layer has the usual characters: a damaged layer is read in a wrong order."""
    lines = tuple(Line(text, box, 0.0) for text, box in evidence.lines)
    return bool(lines) and evidence.pictured <= SCAN and not suspicious(PageContent(1.0, 1.0, lines))


def _read(args: argparse.Namespace) -> list[PageRecord]:
    run = llm_ocr.extract(args.sources, workspace=args.readings, engine="embedded", max_failed_rate=1.0)
    return list(run.pages(images=False))


def _judgeable(row: PageRecord) -> bool:
    # The score of an answer decides nothing here: answers of low quality belong to the false alarms.
    fine = row.status is Status.OK or row.reason is Reason.LOW_QUALITY
    return fine and sum(len(block.text) for block in row.blocks if told(block)) >= ENOUGH


def _attempt(row: PageRecord) -> Attempt:
    return Attempt(row.engine, row.text_source, row.status, row.blocks, rotation=row.rotation, probe=row.probe)


def _judged(readings: Sequence[Reading], setting: str) -> Iterator[Judged]:
    for number, one in enumerate(readings):
        rng = random.Random(number)
        yield Judged(one.document, "", _score(one, one.attempt.blocks, setting))
        for name, damage in DAMAGES.items():
            bad = damage(one.attempt.blocks, rng)
            looping = replace(one, attempt=replace(one.attempt, source="model")) if damage is loop else one
            if bad is not None:
                yield Judged(one.document, name, _score(looping, bad, setting))


def _score(one: Reading, blocks: Blocks, setting: str) -> Quality:
    page, attempt = one.page, replace(one.attempt, blocks=blocks)
    evidence = page.evidence or Evidence(None)
    if setting != SETTINGS[0]:
        evidence = replace(evidence, lines=())
    if setting == SETTINGS[2]:
        attempt = replace(attempt, blocks=tuple(replace(block, box=WHOLE_PAGE, continued=()) for block in blocks))
    return score(replace(page, evidence=evidence), attempt)[0]


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
