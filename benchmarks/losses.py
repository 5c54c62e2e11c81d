"""Measure which inventions and omissions the ledger of a page finds, and how often it blames good answers.

    python benchmarks/truth_factory/measure.py --half held-out --seed 8 --pages 80 --scans 40 --folder T --only-generate
    python benchmarks/losses.py T --readings FOLDER --documents PDFS --output benchmarks/results/losses.json

The pages are generated, so that their text is known exactly: digital pages with a text layer, and damaged scans of them
without one, which are judged by their ink and by OCR. Good answers are the exact text as models write it (`STYLES`),
and what the embedded engine read, if it is right (`SIMILAR`, `WORDS`). `DAMAGES` puts one fault into each answer.
All of it is repeatable. Of real documents, the exact text is not known: good answers are what the embedded engine read.

An answer is found if its page becomes `degraded` for unread ink, unsupported text, or its order at the default limits.
It is marked if a place that the ledger names is that of the fault. Faults in good answers that are already blamed do
not count. Pages that an evidence cannot verify, such as scans in a script that OCR does not read, are counted apart.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent / "truth_factory"))

import measure
import numpy
import truth_score
from PIL import Image
from reporting import keep, tell
from truth_words import LANGUAGES

import llm_ocr
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.engines import EngineOptions
from llm_ocr.models.parsers.markers import parse_grounding
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.plugins import ENGINES
from llm_ocr.results.ledger import Verify
from llm_ocr.results.quality.scoring import Limits, rated
from llm_ocr.results.quality.text_layer import FORMULA, plain, texts_of
from llm_ocr.types import FURNITURE, Attempt, Block, BlockKind, Box, Ledger, Page, PageRecord, Reason, Status

Blocks = tuple[Block, ...]

#: Characters of a line, and of a line of a narrow column.
LINE, SHORT_LINE = 80, 40
#: Least share of a page's text in each of two columns.
COLUMN = 0.25
#: Letters and digits of a short row of a table: at least, and fewer than.
LETTERS = (10, 30)
#: Share of the page that a cut edge takes away.
EDGE = 0.15
#: Height of a line of the page.
HEIGHT = 0.0165
#: Similarity to the truth, and share of its words, from which the embedded engine's answer is a good one.
SIMILAR, WORDS = 0.97, 0.9
#: Characters of an answer that can be damaged.
ENOUGH = 400
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<t[dh].*?</t[dh]>", re.DOTALL)
_SPANS = re.compile(r'span="?[2-9]')
_SPANS_ROWS = re.compile(r'rowspan="?[2-9]')
#: Pages of each real document.
DOCUMENT_PAGES = "1-6"


# Damage. Each function returns the damaged blocks with what was invented or the places of what was lost; None for a
# page that cannot have this damage.


@dataclass(frozen=True, slots=True)
class Damaged:
    """Answer with one fault: `added` is invented text, `lost` are the relative boxes of what is omitted."""

    blocks: Blocks
    added: str = ""
    lost: tuple[Box, ...] = ()


def sentence(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Put a sentence of another document behind a sentence of the page."""
    told = " ".join(_text_of(other).split())  # tags of formulas have left spaces, which are no text
    strange = re.findall(r"\b\w[^.!?]{40,200}[.!?](?=\s)", told)
    places = [(number, end) for number, block in enumerate(blocks) if _runs(block) for end in _ends(block.text)]
    if not places or not strange:
        return None
    (number, end), added = rng.choice(places), rng.choice(strange)
    text = blocks[number].text
    return Damaged(_with(blocks, number, f"{text[:end]} {added}{text[end:]}"), added)


def changed_number(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Change one digit of a number with at least two digits."""
    found = _words(blocks, r"(?<![\w.,])\d(?:[\d.,]*\d)(?!\w)")
    if not found:
        return None
    number, start, end = rng.choice(found)
    text = blocks[number].text
    at = rng.choice([at for at in range(start, end) if text[at].isdecimal()])
    digit = rng.choice([digit for digit in "0123456789" if digit != text[at]])
    changed = f"{text[:at]}{digit}{text[at + 1 :]}"
    return Damaged(_with(blocks, number, changed), changed[start:end])


def swapped_name(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Put a name of another document in place of one of the page: words with a capital letter."""
    name = r"(?<![^\W_])[^\W\d_][^\W\d_]{4,}"
    here = [place for place in _words(blocks, name) if blocks[place[0]].text[place[1]].isupper()]
    known = _text_of(blocks).lower()
    there = [word for word in re.findall(name, _text_of(other)) if word[0].isupper() and word.lower() not in known]
    if not here or not there:
        return None
    number, start, end = rng.choice(here)
    text, added = blocks[number].text, rng.choice(there)
    return Damaged(_with(blocks, number, f"{text[:start]}{added}{text[end:]}"), added)


def repeated_paragraph(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Write a paragraph twice."""
    places = [number for number, block in enumerate(blocks) if _runs(block) and len(block.text) >= 2 * LINE]
    if not places:
        return None
    number = rng.choice(places)
    return Damaged((*blocks[: number + 1], *blocks[number:]), blocks[number].text)


def omitted_line(length: int) -> Callable[[Blocks, random.Random, Blocks], Damaged | None]:
    """Return the damage that leaves out so many characters of a paragraph with three or more lines; its box stays."""

    def damage(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
        pieces = {number: _lines_of(block.text, length) for number, block in enumerate(blocks) if _runs(block)}
        long = [number for number, lines in pieces.items() if len(lines) > 3]
        if not long:
            return None
        number = rng.choice(long)
        lines = pieces[number]
        row = rng.randrange(len(lines) - 1)  # the last one may be short
        text = " ".join([*lines[:row], *lines[row + 1 :]])
        return Damaged(_with(blocks, number, text), lost=_places(blocks[number]))

    return damage


def omitted_paragraph(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Leave out a paragraph of two or more lines with its box."""
    return _without(
        blocks, [[n] for n, block in enumerate(blocks) if _runs(block) and len(block.text) >= 2 * LINE], rng
    )


def omitted_column(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Leave out one of two columns."""
    sides = _columns(blocks)
    return None if sides is None else _without(blocks, sides, rng)


def omitted_table(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Leave out a table."""
    return _without(blocks, [[n] for n, block in enumerate(blocks) if block.kind is BlockKind.TABLE], rng)


def omitted_row(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Leave out a row within a table that has fewer letters than a passage of the ledger."""
    found = [
        (number, row.span())
        for number, block in enumerate(blocks)
        if block.kind is BlockKind.TABLE and not _SPANS_ROWS.search(block.text)
        for row in list(_ROW.finditer(block.text))[1:-1]
        if LETTERS[0] <= sum(map(str.isalnum, plain(row[0]))) < LETTERS[1]
    ]
    if not found:
        return None
    number, (start, end) = rng.choice(found)
    text = blocks[number].text
    return Damaged(_with(blocks, number, text[:start] + text[end:]), lost=_places(blocks[number]))


def cut_edge(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Leave out all text near one edge of the page, as an image that was cut would."""
    kept: list[Block] = []
    lost: list[Box] = []
    gone = 0
    edge = rng.choice(("top", "bottom", "left", "right"))
    for block in blocks:
        box = block.box
        start, end = (box.x0, box.x1) if edge in ("left", "right") else (box.y0, box.y1)
        if edge in ("left", "top"):
            share = (EDGE - start) / max(1e-6, end - start)
            x0, y0 = (max(box.x0, EDGE), box.y0) if edge == "left" else (box.x0, max(box.y0, EDGE))
            rest = Box(x0, y0, max(x0, box.x1), max(y0, box.y1))
        else:
            share = (end - (1 - EDGE)) / max(1e-6, end - start)
            x1, y1 = (min(box.x1, 1 - EDGE), box.y1) if edge == "right" else (box.x1, min(box.y1, 1 - EDGE))
            rest = Box(min(x1, box.x0), min(y1, box.y0), x1, y1)
        if share <= 0 or block.kind in (BlockKind.FIGURE, BlockKind.TABLE, BlockKind.FORMULA) or block.continued:
            kept.append(block)
            continue
        lost.append(box)
        lines = [block.text] if edge in ("top", "bottom") else _lines_of(block.text, LINE)
        cuts = [(line, round(len(line) * min(1.0, share))) for line in lines]
        gone += sum(cut for _, cut in cuts) * (block.kind not in FURNITURE)
        parts = [line[cut:] if edge in ("left", "top") else line[: len(line) - cut] for line, cut in cuts]
        if share < 1 and any(parts):
            kept.append(replace(block, text=" ".join(filter(None, parts)), box=rest))
    return Damaged(tuple(kept), lost=tuple(lost)) if gone >= LINE else None


def swapped_paragraphs(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Write a paragraph of two or more lines before the one above it."""
    long = [_runs(block) and len(block.text) >= 2 * LINE for block in blocks]
    places = [number for number, both in enumerate(pairwise(long)) if all(both)]
    if not places:
        return None
    at = rng.choice(places)
    upper, lower = blocks[at : at + 2]
    return Damaged((*blocks[:at], lower, upper, *blocks[at + 2 :]), f"{upper.text} {lower.text}")


def swapped_lines(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Write two lines of a paragraph in the wrong order."""
    places = [number for number, block in enumerate(blocks) if _runs(block) and len(_drawn_lines(block)) > 3]
    if not places:
        return None
    number = rng.choice(places)
    lines = _drawn_lines(blocks[number])
    at = rng.randrange(len(lines) - 1)
    lines[at : at + 2] = lines[at + 1], lines[at]
    return Damaged(_with(blocks, number, " ".join(lines)), blocks[number].text)


def read_across(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Write the lines of two columns in turns as one paragraph."""
    sides = _columns(blocks)
    if sides is None:
        return None
    columns = [[line for number in side for line in _drawn_lines(blocks[number])] for side in sides]
    text = " ".join(line for row in zip_longest(*columns, fillvalue="") for line in row if line)
    first, *more = sorted(number for side in sides for number in side)
    box = blocks[first].box
    for number in more:
        box = box.union(blocks[number].box)
    one = replace(blocks[first], kind=BlockKind.TEXT, text=text, box=box)
    changed = [one if number == first else block for number, block in enumerate(blocks) if number not in more]
    return Damaged(tuple(changed), text)


def columns_in_turns(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Write the blocks of two columns in turns."""
    sides = _columns(blocks)
    if sides is None or min(map(len, sides)) < 2:
        return None
    turns = [number for pair in zip_longest(*sides) for number in pair if number is not None]
    changed = list(blocks)
    for place, number in zip(sorted(turns), turns, strict=True):
        changed[place] = blocks[number]
    return Damaged(tuple(changed), " ".join(blocks[number].text for number in turns))


def swapped_cells(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Write two columns of a table in the wrong order below its first row."""

    def swapped(rows: list[list[str]]) -> None:
        at = rng.randrange(1, len(rows[0]) - 1)
        for row in rows[1:]:
            row[at : at + 2] = row[at + 1], row[at]

    return _with_rows(blocks, rng, 3, swapped)


def lowered_cells(blocks: Blocks, rng: random.Random, other: Blocks) -> Damaged | None:
    """Write the cells of a column one row lower, from some row on; the last one gets a row of its own."""

    def lowered(rows: list[list[str]]) -> None:
        column, first = rng.randrange(1, len(rows[0])), rng.randrange(1, len(rows) - 1)
        rows.append(["<td></td>"] * len(rows[0]))
        for upper, lower in reversed([*pairwise(rows[first:])]):
            lower[column] = upper[column]
        rows[first][column] = "<td></td>"

    return _with_rows(blocks, rng, 2, lowered)


Damage = Callable[[Blocks, random.Random, Blocks], Damaged | None]
DAMAGES: dict[str, Damage] = {
    "sentence invented": sentence,
    "number changed": changed_number,
    "name swapped": swapped_name,
    "paragraph repeated": repeated_paragraph,
    f"line omitted, {LINE} characters": omitted_line(LINE),
    f"line omitted, {SHORT_LINE} characters": omitted_line(SHORT_LINE),
    "paragraph omitted": omitted_paragraph,
    "column omitted": omitted_column,
    "table omitted": omitted_table,
    f"table row omitted, {LETTERS[0]} to {LETTERS[1] - 1} letters": omitted_row,
    "page edge omitted": cut_edge,
    "two lines swapped": swapped_lines,
    "two paragraphs swapped": swapped_paragraphs,
    "read across columns": read_across,
    "blocks of two columns in turns": columns_in_turns,
    "columns of a table swapped": swapped_cells,
    "cells of a table one row lower": lowered_cells,
}
BLANK = "page invented on a blank leaf"


def _told(block: Block) -> bool:
    return block.kind is not BlockKind.FIGURE and block.kind not in FURNITURE and bool(block.text)


def _runs(block: Block) -> bool:
    return block.kind in (BlockKind.TEXT, BlockKind.LIST_ITEM, BlockKind.FOOTNOTE) and bool(block.text)


def _text_of(blocks: Blocks) -> str:
    return "\n".join(plain(block.text) for block in blocks if _told(block))


def _words_of(blocks: Blocks) -> Counter[str]:
    """Return the words, with their accents."""
    return Counter(re.findall(r"\w+", unicodedata.normalize("NFC", _text_of(blocks)).casefold()))


def _places(block: Block) -> tuple[Box, ...]:
    return block.box, *block.continued


def _columns(blocks: Blocks) -> list[list[int]] | None:
    """Return the blocks of the left and the right column; None for a page without two."""
    told = [(number, block) for number, block in enumerate(blocks) if _told(block)]
    sides = [[n for n, block in told if block.box.x1 < 0.55], [n for n, block in told if block.box.x0 > 0.45]]
    least = COLUMN * len(_text_of(blocks))
    return None if any(sum(len(blocks[n].text) for n in side) < least for side in sides) else sides


def _drawn_lines(block: Block) -> list[str]:
    """Return the text of a block in pieces of about a line on the page."""
    return _lines_of(block.text, round(len(block.text) * HEIGHT / max(HEIGHT, block.box.height)))


def _ends(text: str) -> list[int]:
    return [found.end() for found in re.finditer(r"[.!?](?=\s|$)", text)]


def _with(blocks: Blocks, number: int, text: str) -> Blocks:
    return (*blocks[:number], replace(blocks[number], text=text), *blocks[number + 1 :])


def _with_rows(
    blocks: Blocks, rng: random.Random, width: int, change: Callable[[list[list[str]]], None]
) -> Damaged | None:
    """Change the cells of a table without spans that has four or more rows, and `width` or more columns."""
    tables = {}
    for number, block in enumerate(blocks):
        rows = [_CELL.findall(row) for row in _ROW.findall(block.text)]
        if len(rows) > 3 and len(set(map(len, rows))) == 1 and len(rows[0]) >= width and not _SPANS.search(block.text):
            tables[number] = rows
    if not tables:
        return None
    number = rng.choice(list(tables))
    rows = tables[number]
    change(rows)
    text = "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows) + "</table>"
    return Damaged(_with(blocks, number, text), text)


def _without(blocks: Blocks, groups: Sequence[Sequence[int]], rng: random.Random) -> Damaged | None:
    if not groups:
        return None
    gone = set(rng.choice(groups))
    lost = tuple(box for number in sorted(gone) for box in _places(blocks[number]))
    return Damaged(tuple(block for number, block in enumerate(blocks) if number not in gone), lost=lost)


def _words(blocks: Blocks, pattern: str) -> list[tuple[int, int, int]]:
    """Return the block, start, and end of what a pattern finds in the text of the body, without tags and formulas."""
    return [
        (number, *found.span())
        for number, block in enumerate(blocks)
        if _told(block) and block.kind is not BlockKind.FORMULA
        for found in re.finditer(pattern, FORMULA.sub(lambda formula: " " * len(formula[0]), plain(block.text)))
    ]


def _lines_of(text: str, length: int) -> list[str]:
    """Return pieces of at least `length` characters; the last one may be shorter."""
    lines, line = [], ""
    for word in text.split():
        line = f"{line} {word}" if line else word
        if len(line) >= length:
            lines.append(line)
            line = ""
    return [*lines, line] if line else lines


# Styles of models' answers. Each writes blocks as text, and reads it with the model's parser.

Style = Callable[[Blocks, random.Random], Blocks]
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


def grounded(blocks: Blocks, rng: random.Random) -> Blocks:
    """As DeepSeek-OCR: labels and boxes; figures without text."""
    parts = []
    for block in blocks:
        boxes = [[round(999 * min(1.0, max(0.0, side))) for side in _sides(box)] for box in _places(block)]
        text = "" if block.kind is BlockKind.FIGURE else _markdown(block)
        parts.append(f"<|ref|>{_DEEPSEEK.get(block.kind, 'text')}<|/ref|><|det|>{boxes}<|/det|>\n{text}")
    return parse_grounding("\n\n".join(parts)).blocks


def markdown(blocks: Blocks, rng: random.Random) -> Blocks:
    """Without boxes and running heads; figures are links."""
    return parse_plain("\n\n".join(_markdown(block) for block in blocks if block.kind not in FURNITURE)).blocks


def without_figures(blocks: Blocks, rng: random.Random) -> Blocks:
    """Markdown without figures; their captions stay."""
    return markdown(tuple(block for block in blocks if block.kind is not BlockKind.FIGURE), rng)


def floats_last(blocks: Blocks, rng: random.Random) -> Blocks:
    """Boxes, with figures, tables, captions, and footnotes after the text."""
    return grounded(tuple(sorted(blocks, key=lambda block: block.kind in _FLOATS)), rng)


def hyphenated(blocks: Blocks, rng: random.Random) -> Blocks:
    """Markdown with the line ends of the page: one word in ten is divided by a hyphen."""

    def divided(text: str) -> str:
        words = text.split(" ")
        return " ".join(f"{one[:3]}-\n{one[3:]}" if len(one) > 6 and rng.random() < 0.1 else one for one in words)

    return markdown(_changed(blocks, divided), rng)


def normalized(blocks: Blocks, rng: random.Random) -> Blocks:
    """Markdown with plain quotes, dashes, and ligatures."""
    return markdown(_changed(blocks, lambda text: unicodedata.normalize("NFKC", text).translate(_PLAINER)), rng)


def in_latex(blocks: Blocks, rng: random.Random) -> Blocks:
    """Markdown with numbers as formulas."""

    def written(text: str) -> str:
        return _NUMBER.sub(lambda found: "$" + found.group().replace("%", "\\%") + "$", text)

    return markdown(_changed(blocks, written), rng)


def misread(blocks: Blocks, rng: random.Random) -> Blocks:
    """Boxes, and each hundredth letter is another one."""

    def wrong(text: str) -> str:
        return "".join(rng.choice(_LETTERS) if one.isalpha() and rng.random() < 0.01 else one for one in text)

    return grounded(_changed(blocks, wrong), rng)


def free_text(blocks: Blocks, rng: random.Random) -> Blocks:
    """One text without markup, figures, and running heads."""
    parts = [re.sub(r"<[^>]+>|\|(?: --- \|)*", " ", block.text) for block in blocks if _told(block)]
    return parse_plain("\n\n".join(parts)).blocks


STYLES: dict[str, Style] = {
    "boxes": grounded,
    "boxes, floats last": floats_last,
    "boxes, 1 % of the letters wrong": misread,
    "Markdown": markdown,
    "Markdown without figures": without_figures,
    "Markdown, divided words": hyphenated,
    "Markdown, plain quotes and ligatures": normalized,
    "Markdown, numbers in LaTeX": in_latex,
    "text without markup": free_text,
}
#: Styles of damaged answers, and the name of the answers of the embedded engine.
DAMAGED, OWN = ("boxes", "Markdown"), "embedded engine"
#: Evidence of each kind of page, and the styles of the answers that are compared with it. OCR cannot verify itself.
KINDS: dict[str, dict[Verify, tuple[str, ...]]] = {
    "digital": {"ink": (*STYLES, OWN), "layer": (*STYLES, OWN)},
    "scans": {"ink": (*STYLES, OWN), "ocr": tuple(STYLES)},
    "documents": {"layer": ("boxes", OWN)},  # without boxes, the text of drawings has no place where it may be left out
}


def _sides(box: Box) -> tuple[float, float, float, float]:
    return box.x0, box.y0, box.x1, box.y1


def _changed(blocks: Blocks, change: Callable[[str], str]) -> Blocks:
    """Return the blocks with changed running text; tables and formulas stay."""
    fixed = (BlockKind.TABLE, BlockKind.FORMULA, BlockKind.FIGURE)
    return tuple(block if block.kind in fixed else replace(block, text=change(block.text)) for block in blocks)


def _markdown(block: Block) -> str:
    match block.kind:
        case BlockKind.TITLE | BlockKind.HEADING:
            return f"{'#' * max(1, block.level)} {block.text}"
        case BlockKind.LIST_ITEM:
            return f"- {block.text}"
        case BlockKind.FIGURE:
            return "![](page_figure.png)"
    return block.text


# Pages.


@dataclass(frozen=True, slots=True)
class Sample:
    """Page with its exact text; `own` is the embedded engine's answer, if it is good. `kind`: a key of `KINDS`."""

    page: Page
    language: str
    kind: str
    truth: Blocks
    own: Attempt | None


async def samples(folder: Path, half: str, readings: Path) -> list[Sample]:
    """Render the generated pages of a half, and read them with the embedded engine."""
    pages: list[dict[str, Any]] = json.loads((folder / "truth.json").read_text("utf-8"))[half]
    rows = await asyncio.to_thread(measure.read, folder, pages, readings)
    found = []
    reader = ENGINES.get("embedded").page_reader(EngineOptions(workers=1))
    async with Renderer(RenderOptions(text_layer=False, image_format="jpeg")) as renderer:
        for entry in pages:
            path = folder / entry["file"]
            page = await renderer.page(str(path), "", entry["page"], page_id=entry["id"], document_id=path.stem)
            if entry["scanned"] and page.evidence is not None:
                page = replace(page, evidence=replace(page.evidence, ocr=await reader.ocr_text(page)))
            row = rows[entry["file"], entry["page"]]
            similarity, _ = truth_score.score(entry, measure.answer(row))["similarity"]
            truth = tuple(_block_of(block) for block in entry["blocks"])
            demanded, read = _words_of(truth), _words_of(row.blocks)
            is_good = similarity >= SIMILAR and (demanded & read).total() >= WORDS * demanded.total()
            own = _attempt(row) if is_good else None
            if len(_text_of(truth)) >= ENOUGH:
                language = next((tag for tag in entry["tags"] if tag in LANGUAGES), "English")
                found.append(Sample(page, language, "scans" if entry["scanned"] else "digital", truth, own))
    await reader.close()
    return found


async def documents(files: Sequence[Path], readings: Path) -> list[Sample]:
    """Render the first pages of real PDFs, and read them with the embedded engine. Pages read by OCR are left out."""
    options: dict[str, Any] = {"engine": "embedded", "pages": DOCUMENT_PAGES, "max_failed_rate": 1.0}
    run = await asyncio.to_thread(llm_ocr.extract, list(map(str, files)), workspace=readings, **options)
    found = []
    async with Renderer(RenderOptions(text_layer=False, image_format="jpeg")) as renderer:
        for row in run.pages(images=False):
            if row.text_source != "text-layer" or len(_text_of(row.blocks)) < ENOUGH or row.page_number is None:
                continue
            about = {"page_id": row.page_id, "document_id": row.document_id}
            page = await renderer.page(row.source, "", row.page_number, **about)
            found.append(Sample(page, row.document_id, "documents", row.blocks, _attempt(row)))
    return found


def _block_of(block: Mapping[str, Any]) -> Block:
    """Return a block of the truth as one of an answer; tables as HTML."""
    text = block["text"]
    if block.get("cells"):
        rows: dict[int, list[str]] = defaultdict(list)
        for cell in block["cells"]:
            tag = f'<td rowspan="{cell["rowspan"]}" colspan="{cell["colspan"]}">{escape(cell["text"])}</td>'
            rows[cell["row"]].append(tag)
        text = "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for _, row in sorted(rows.items())) + "</table>"
    elif block.get("latex"):
        text = f"$$\n{block['latex']}\n$$"
    first, *more = (Box(*box) for box in block["boxes"])
    return Block(BlockKind(block["kind"]), first, text, level=block.get("level", 0), continued=tuple(more))


def _attempt(row: PageRecord) -> Attempt:
    confidence = row.quality_parts.get("confident")
    return Attempt(
        row.engine,
        row.text_source,
        Status.OK,
        row.blocks,
        rotation=row.rotation,
        probe=row.probe,
        confidence=confidence,
    )


async def blank_leaves(folder: Path) -> list[Page]:
    """Return images of leaves without text: white, toned, noisy, shaded, with the dark border of a scan."""
    across, down = 1240, 1754
    noise = numpy.random.default_rng(0)
    y, x = numpy.mgrid[0 : 1 : down * 1j, 0 : 1 : across * 1j]
    light = 1 - 0.4 * numpy.hypot(x, y - 0.3) / 1.5
    framed = numpy.full((down, across), 245.0)
    framed[:, :60], framed[-40:] = 20.0, 20.0
    leaves = {
        "white": numpy.full((down, across), 255.0),
        "toned": numpy.full((down, across), 205.0),
        "noisy": 235 + noise.normal(0, 16, (down, across)),
        "shaded": 240 * light,
        "shaded, noisy": 240 * light + noise.normal(0, 12, (down, across)),
        "border": framed,
        "specks": numpy.where(noise.random((down, across)) < 0.0004, 0.0, 245.0),
    }
    found = []
    async with Renderer(RenderOptions(text_layer=False, image_format="jpeg")) as renderer:
        for name, pixels in leaves.items():
            path = folder / f"{name}.png"
            Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(path, dpi=(150, 150))
            found.append(await renderer.page(str(path), "", 1, page_id=name, document_id=name))
    return found


# Judgment.


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdict on one answer; `damage` is "" for a good one. `marked`: the ledger names the place of the fault.

    `verified`: whether the ledger compared the text with the evidence.
    """

    kind: str
    evidence: str
    style: str
    damage: str
    found: bool
    marked: bool
    page: str
    detail: str
    verified: bool = True


def judged(given: Sequence[Sample], leaves: Sequence[Page]) -> Iterator[Judged]:
    """Yield the verdicts on all good and damaged answers, by all evidence that the page has."""
    for sample in given:
        # What is invented is of the language of the page, if another page has it; of another one for real documents.
        others = [other for other in given if other.kind == "documents" or sample.kind != "documents"]
        others = [other for other in others if other.truth != sample.truth]
        is_real = sample.kind == "documents"
        same = [other.truth for other in others if (other.language == sample.language) is not is_real]
        texts = same or [other.truth for other in others]
        for evidence, styles in KINDS[sample.kind].items():
            for style in styles:
                if style != OWN or sample.own:
                    yield from _faults(sample, style, evidence, texts)
    for leaf in leaves:
        for number, sample in enumerate(sample for sample in given if sample.kind != "documents"):
            for style in DAMAGED:
                answer = STYLES[style](sample.truth, random.Random(number))
                found, _, detail = _verdict(leaf, Attempt("model", "model", Status.OK, answer), "ink")
                yield Judged("blank leaves", "ink", style, BLANK, found, found, leaf.id, detail)


def _faults(sample: Sample, style: str, evidence: Verify, others: Sequence[Blocks]) -> Iterator[Judged]:
    """Yield the verdict on the good answer in one style, and on its damage if it was verified and not blamed."""
    page, kind = sample.page, sample.kind
    own = sample.own if style == OWN else None

    def verdict(blocks: Blocks) -> tuple[bool, Ledger | None, str, Blocks]:
        rng = random.Random(f"{page.id} {style}")
        answer = blocks if own else STYLES[style](blocks, rng)
        attempt = replace(own, blocks=answer) if own else Attempt("model", "model", Status.OK, answer)
        return *_verdict(page, attempt, evidence), answer

    good = own.blocks if own else sample.truth
    blamed, ledger, detail, right = verdict(good)
    verified = ledger is not None and ledger.verified_by == evidence
    yield Judged(kind, evidence, style, "", blamed, False, page.id, detail, verified)
    if blamed or not verified or style not in (*DAMAGED, OWN):
        return
    for name, damage in DAMAGES.items():
        rng = random.Random(f"{page.id} {name}")
        bad = damage(good, rng, rng.choice(others))
        if bad is None:
            continue
        found, ledger, detail, answer = verdict(bad.blocks)
        if answer == right:  # the parser left out the copy
            continue
        yield Judged(kind, evidence, style, name, found, _is_marked(ledger, bad, answer), page.id, detail)


def _verdict(page: Page, attempt: Attempt, evidence: Verify) -> tuple[bool, Ledger | None, str]:
    """Return whether the ledger degrades a page with an answer, the ledger, and the details."""
    result, _, ledger = rated(page, attempt, Limits(verify=evidence), transcribed=True)
    return result.reason in (Reason.UNREAD, Reason.UNSUPPORTED, Reason.LOW_QUALITY), ledger, result.detail


def _is_marked(ledger: Ledger | None, bad: Damaged, answer: Blocks) -> bool:
    """Return whether a span is, contains, or is part of the invented text, or an unread box is that of lost text."""
    if ledger is None:
        return False
    if bad.lost:
        return any(box.covered_by(lost.grown(0.01)) > 0.5 for box in ledger.unread for lost in bad.lost)
    texts = texts_of(answer)
    spans = [" ".join(texts[span.block].text[span.start : span.end].split()) for span in ledger.unsupported]
    added = " ".join(plain(bad.added).split())
    return any(added in span or (len(span) > 1 and span in added) for span in spans)


# Report.

#: Columns of the table: kind of page, evidence, and styles.
COLUMNS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "scan, OCR": ("scans", "ocr", DAMAGED),
    "scan, ink, boxes": ("scans", "ink", ("boxes", OWN)),
    "scan, ink, no boxes": ("scans", "ink", ("Markdown",)),
    "digital, ink, boxes": ("digital", "ink", ("boxes", OWN)),
    "digital, ink, no boxes": ("digital", "ink", ("Markdown",)),
    "digital, layer": ("digital", "layer", (*DAMAGED, OWN)),
    "documents, layer": ("documents", "layer", ("boxes", OWN)),
}


def report(results: Sequence[Judged]) -> dict[str, Any]:
    """Return the share of faults found and marked in each column, and of good answers blamed by kind and style."""
    columns: dict[str, Any] = {}
    for title, (kind, evidence, styles) in COLUMNS.items():
        rows = [one for one in results if (one.kind, one.evidence) == (kind, evidence)]
        if not rows:
            continue  # no folder of documents
        good = [one for one in rows if not one.damage and one.verified]
        columns[title] = {
            "pages": len({one.page for one in good}),
            "pages not verifiable": len({one.page for one in rows} - {one.page for one in good}),
            "good answers": len([one for one in good if one.style in styles]),
            "false alarms": _share(one.found for one in good if one.style in styles),
            "false alarms by style": {
                style: _share(one.found for one in good if one.style == style) for style in (*STYLES, OWN)
            },
            "faults": {
                name: {
                    "answers": len(chosen),
                    "found": _share(one.found for one in chosen),
                    "marked": _share(one.marked for one in chosen),
                }
                for name in DAMAGES
                if (chosen := [one for one in rows if one.damage == name and one.style in styles])
            },
        }
    blank = [one for one in results if one.damage == BLANK]
    leaves = {"answers": len(blank), "found": _share(one.found for one in blank)}
    return {"columns": columns, BLANK: leaves}


def _share(flags: Iterator[bool]) -> float | None:
    values = list(flags)
    return round(sum(values) / len(values), 4) if values else None


def table(found: Mapping[str, Any]) -> str:
    """Return the shares as a Markdown table: found, and marked in brackets."""
    columns = found["columns"]
    lines = [f"| fault | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in DAMAGES:
        cells = [column["faults"].get(name) for column in columns.values()]
        shown = [f"{100 * cell['found']:.0f} % ({100 * cell['marked']:.0f} %)" if cell else "-" for cell in cells]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    blank = f"{100 * found[BLANK]['found']:.0f} %"
    lines.append(f"| {BLANK} | {' | '.join([blank] * len(columns))} |")
    alarms = [f"{100 * column['false alarms']:.1f} %" for column in columns.values()]
    return "\n".join([*lines, f"| false alarms | {' | '.join(alarms)} |"])


def main() -> None:
    """Damage, judge, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("truth", type=Path, help="folder of the truth factory")
    parser.add_argument("--readings", type=Path, required=True, help="workspace of the embedded engine's answers")
    parser.add_argument("--half", choices=measure.HALVES, default="held-out")
    parser.add_argument("--documents", type=Path, help="folder of real PDFs; left out if it does not exist")
    parser.add_argument("--list", action="store_true", help="print each good answer that is blamed, and each miss")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    given = asyncio.run(samples(args.truth, args.half, args.readings))
    blank = args.truth / "blank"
    blank.mkdir(exist_ok=True)
    leaves = asyncio.run(blank_leaves(blank))
    if args.documents and args.documents.is_dir():
        files = sorted(args.documents.glob("*.pdf"))
        given += asyncio.run(documents(files, args.readings.with_name(f"{args.readings.name}-documents")))
    elif args.documents:
        tell(f"no real documents: there is no folder {args.documents}")
    pages = Counter(sample.kind for sample in given)
    tell(", ".join(f"{count} {kind}" for kind, count in pages.items()))
    results = list(judged(given, leaves))
    found = {
        "command": f"python benchmarks/losses.py TRUTH --readings FOLDER --half {args.half} --documents PDFS",
        "llm_ocr": llm_ocr.__version__,
        "pages": dict(pages),
        "blank leaves": len(leaves),
        **report(results),
    }
    keep(found, args.output)
    if args.list:
        for one in results:
            if one.found == (not one.damage):
                print(f"{one.kind}, {one.evidence}, {one.style}, {one.page}: {one.damage or 'good'}: {one.detail}")
    print(table(found))


if __name__ == "__main__":
    main()
