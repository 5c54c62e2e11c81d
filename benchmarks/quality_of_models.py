"""Good and damaged answers as models write them: false alarms and damage found below scores, with a true text layer.

    python benchmarks/truth_factory/measure.py --pages 64 --scans 0 --half tuning --folder TRUTH --only-generate
    python benchmarks/quality_of_models.py ../shared/data/pdfs examples --readings FOLDER --truth TRUTH

The text of the good answers is that of the text layer, as the embedded engine reads it, and the exact truth of
generated pages. No model is run: each style of `STYLES` writes the text as models do, and the models' parsers read it.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from quality import DAMAGES, ENOUGH, Blocks, Reading, good_answers, is_plain, text_of, told
from reporting import keep

import llm_ocr
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.models.parsers.grounding import parse_grounding
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.results.quality import ORDER, READ, SUPPORTED, on_scale
from llm_ocr.results.quality.scoring import score
from llm_ocr.types import FURNITURE, Attempt, Block, BlockKind, Box, Status

LEVELS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
_FLOATS = frozenset({BlockKind.FIGURE, BlockKind.TABLE, BlockKind.CAPTION, BlockKind.FOOTNOTE})
_DEEPSEEK = {
    BlockKind.TITLE: "title",
    BlockKind.HEADING: "sub_title",
    BlockKind.TABLE: "table",
    BlockKind.FORMULA: "equation",
    BlockKind.FIGURE: "image",
    BlockKind.CAPTION: "image_caption",
}
_PLAINER = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--"})
_NUMBER = re.compile(r"(?<![\w$])\d[\d.,]*\d(?: ?%)?(?![\w$])")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Style = Callable[[Blocks, random.Random], Blocks]


# Styles.


def grounded(blocks: Blocks, rng: random.Random) -> Blocks:
    """As DeepSeek-OCR: labels and boxes; figures without text, their captions as blocks."""
    parts = []
    for block in _with_captions(blocks):
        boxes = [[_bin(edge) for edge in (box.x0, box.y0, box.x1, box.y1)] for box in (block.box, *block.continued)]
        label = _DEEPSEEK.get(block.kind, "text")
        text = "" if block.kind is BlockKind.FIGURE else _markdown(block)
        parts.append(f"<|ref|>{label}<|/ref|><|det|>{boxes}<|/det|>\n{text}")
    return parse_grounding("\n\n".join(parts)).blocks


def markdown(blocks: Blocks, rng: random.Random) -> Blocks:
    """Without boxes and running heads; figures are links."""
    return _plain(_with_captions(blocks))


def unmentioned(blocks: Blocks, rng: random.Random) -> Blocks:
    """Markdown without figures; their captions stay."""
    return _plain([block for block in _with_captions(blocks) if block.kind is not BlockKind.FIGURE])


def uncaptioned(blocks: Blocks, rng: random.Random) -> Blocks:
    """Markdown without the captions of figures."""
    found = _with_captions(blocks)
    near = [block.box for block in found if block.kind is BlockKind.FIGURE]
    return _plain([one for one in found if one.kind is not BlockKind.CAPTION or not near])


def floats_last(blocks: Blocks, rng: random.Random) -> Blocks:
    """Boxes, with figures, tables, captions, and footnotes after the text."""
    found = _with_captions(blocks)
    return grounded(tuple(sorted(found, key=lambda block: block.kind in _FLOATS)), rng)


def hyphenated(blocks: Blocks, rng: random.Random) -> Blocks:
    """Markdown with the line ends of the page: one word in ten is divided by a hyphen."""

    def divided(text: str) -> str:
        words = text.split(" ")
        return " ".join(f"{one[:3]}-\n{one[3:]}" if len(one) > 6 and rng.random() < 0.1 else one for one in words)

    return _plain(_changed(_with_captions(blocks), divided))


def normalized(blocks: Blocks, rng: random.Random) -> Blocks:
    """Markdown with plain quotes, dashes, and ligatures."""
    return _plain(
        _changed(_with_captions(blocks), lambda text: unicodedata.normalize("NFKC", text).translate(_PLAINER))
    )


def in_latex(blocks: Blocks, rng: random.Random) -> Blocks:
    """Markdown with numbers as formulas."""

    def written(text: str) -> str:
        return _NUMBER.sub(lambda found: "$" + found.group().replace("%", "\\%") + "$", text)

    return _plain(_changed(_with_captions(blocks), written))


def misread(blocks: Blocks, rng: random.Random) -> Blocks:
    """Boxes, and each hundredth letter is another one."""

    def wrong(text: str) -> str:
        return "".join(rng.choice(_LETTERS) if one.isalpha() and rng.random() < 0.01 else one for one in text)

    return grounded(tuple(_changed(_with_captions(blocks), wrong)), rng)


def free_text(blocks: Blocks, rng: random.Random) -> Blocks:
    """One text without markup, figures, and running heads."""
    parts = [
        re.sub(r"<[^>]+>|\|(?: --- \|)*", " ", block.text)
        for block in _with_captions(blocks)
        if block.kind not in FURNITURE and block.kind is not BlockKind.FIGURE
    ]
    return parse_plain("\n\n".join(parts)).blocks


STYLES: dict[str, Style] = {
    "boxes": grounded,
    "boxes, floats last": floats_last,
    "boxes, 1 % of the letters wrong": misread,
    "Markdown": markdown,
    "Markdown without figures": unmentioned,
    "Markdown without captions": uncaptioned,
    "Markdown, divided words": hyphenated,
    "Markdown, plain quotes and ligatures": normalized,
    "Markdown, numbers in LaTeX": in_latex,
    "text without markup": free_text,
}
#: Styles in which damaged answers are written.
DAMAGED = ("boxes", "Markdown")


def _bin(edge: float) -> int:
    return round(999 * min(1.0, max(0.0, edge)))


def _with_captions(blocks: Sequence[Block]) -> list[Block]:
    found = []
    for block in blocks:
        found.append(replace(block, inside="", caption="", described=""))
        if block.caption:
            found.append(Block(BlockKind.CAPTION, block.box, block.caption))
    return found


def _changed(blocks: Sequence[Block], change: Callable[[str], str]) -> list[Block]:
    """Return the blocks with changed running text; tables and formulas stay."""
    fixed = (BlockKind.TABLE, BlockKind.FORMULA, BlockKind.FIGURE)
    return [block if block.kind in fixed else replace(block, text=change(block.text)) for block in blocks]


def _plain(blocks: Sequence[Block]) -> Blocks:
    return parse_plain("\n\n".join(_markdown(one) for one in blocks if one.kind not in FURNITURE)).blocks


def _markdown(block: Block) -> str:
    match block.kind:
        case BlockKind.TITLE | BlockKind.HEADING:
            return f"{'#' * max(1, block.level)} {block.text}"
        case BlockKind.LIST_ITEM:
            return f"- {block.text}"
        case BlockKind.FIGURE:
            return "![](page_figure.png)"
    return block.text


# Good answers.


async def truths(folder: Path) -> list[Reading]:
    """Return the exact texts of the generated pages."""
    pages: list[Mapping[str, Any]] = json.loads((folder / "truth.json").read_text("utf-8"))["tuning"]
    found = []
    async with Renderer(RenderOptions(text_layer=False, image_format="jpeg")) as renderer:
        for one in pages:
            path = folder / one["file"]
            page = await renderer.page(str(path), "", one["page"], page_id=one["id"], document_id=path.stem)
            blocks = tuple(_of_truth(block) for block in one["blocks"])
            long = sum(len(block.text) for block in blocks if told(block)) >= ENOUGH
            if not one["scanned"] and long and page.evidence is not None and is_plain(page.evidence):
                found.append(Reading(page, Attempt("truth", "model", Status.OK, blocks), one["file"], "truth"))
    return found


def _of_truth(block: Mapping[str, Any]) -> Block:
    boxes = [Box(*box) for box in block["boxes"]]
    box = boxes[0]
    for other in boxes[1:]:
        box = box.union(other)
    text = block["text"]
    if block.get("cells"):
        rows: dict[int, list[str]] = {}
        for cell in block["cells"]:
            tag = f'<td rowspan="{cell["rowspan"]}" colspan="{cell["colspan"]}">{escape(cell["text"])}</td>'
            rows.setdefault(cell["row"], []).append(tag)
        text = "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for _, row in sorted(rows.items())) + "</table>"
    elif block.get("latex"):
        text = f"$$\n{block['latex']}\n$$"
    return Block(BlockKind(block["kind"]), box, text, level=block.get("level", 0))


# Scores.


@dataclass(frozen=True, slots=True)
class Scored:
    """Score of an answer with a true layer; `low` is that of the worst part that compares it with the layer."""

    document: str
    page: str
    style: str
    damage: str
    score: float
    low: float
    parts: Mapping[str, float]


def judged(readings: Sequence[Reading]) -> list[Scored]:
    """Score all styles, and the damage in some of them."""
    texts = {one.document: text_of(one.attempt.blocks) for one in readings}
    found = []
    for number, one in enumerate(readings):
        others = [text for document, text in sorted(texts.items()) if document != one.document]
        rng = random.Random(number)
        answers = [(style, "", write(one.attempt.blocks, rng)) for style, write in STYLES.items()]
        for name, damage in DAMAGES.items():
            bad = damage(one.attempt.blocks, rng, rng.choice(others))
            if bad is not None:
                answers += [(style, name, STYLES[style](bad, rng)) for style in DAMAGED]
        strange = random.Random(number).choice(others)
        answers += [(style, "another document", parse_plain(strange[:3000]).blocks) for style in DAMAGED]
        for style, name, blocks in answers:
            result, ledger = score(one.page, Attempt("model", "model", Status.OK, blocks))
            if ledger is not None and ledger.verified_by == "layer":
                parts = result.parts
                low = min(on_scale(name, parts[name]) for name in (READ, SUPPORTED, ORDER) if name in parts)
                found.append(Scored(one.document, one.page.id, style, name, result.score, low, result.parts))
    return found


def main() -> None:
    """Write the answers, score them, and print the shares below each level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", help="documents and folders of your own")
    parser.add_argument("--readings", type=Path, required=True, help="folder of the readings; made where it is missing")
    parser.add_argument("--truth", type=Path, help="folder of the truth factory, of the half `tuning`")
    parser.add_argument("--worst", type=int, default=0, help="print so many good answers of the lowest scores")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    readings = asyncio.run(good_answers(args, ocr=False))
    corpus = len(readings)
    readings += asyncio.run(truths(args.truth)) if args.truth else []
    print(f"{corpus} pages of documents, {len(readings) - corpus} generated pages", file=sys.stderr)
    scored = judged(readings)
    good = [one for one in scored if not one.damage]
    rows = {style: [one for one in good if one.style == style] for style in STYLES} | {"all good answers": good}
    bad = {name: [one for one in scored if one.damage == name] for name in (*DAMAGES, "another document")}
    report: dict[str, Any] = {
        "command": "python benchmarks/quality_of_models.py DOCUMENTS --readings FOLDER --truth TRUTH",
        "llm_ocr": llm_ocr.__version__,
        "pages": corpus,
        "generated_pages": len(readings) - corpus,
        "good_answers": len(good),
        "below": {name: below(answers) for name, answers in (rows | bad).items()},
    }
    if args.output:
        keep(report, args.output)
    print(f"{'share of answers below':38}" + "".join(f"{level:>8}" for level in LEVELS))
    for name, shares in report["below"].items():
        print(f"{name:38}" + "".join(f"{100 * share:>6.1f} %" for share in shares.values()))
    for one in sorted(good, key=lambda one: one.low)[: args.worst]:
        print(f"{one.low:.3f} {one.score:.3f} {one.style:30} {Path(one.document).name} {one.page} {dict(one.parts)}")


def below(scored: Sequence[Scored]) -> dict[str, float]:
    """Return the share of the answers below each level."""
    return {str(level): round(sum(one.low < level for one in scored) / max(1, len(scored)), 4) for level in LEVELS}


if __name__ == "__main__":
    main()
