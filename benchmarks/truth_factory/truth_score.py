"""Score one page's answer against its exact truth.

A score maps a measure to `(right, of)`. Sums over pages and the share of both are the figures of the report. A measure
that a page cannot show is missing.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import scoring
from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein

Score = dict[str, tuple[float, float]]

FURNITURE = {"header", "footer", "page_number"}
NEAR = 0.8  # similarity of a formula's LaTeX from which it counts as near
TOLERANCE = 0.1  # scans: share of the characters of a cell, heading, or running text that OCR may get wrong
LOST = 0.5  # share of a block's characters from which it counts as lost

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹ⁿⁱ", "0123456789ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉ᵢⱼₖ", "0123456789ijk")
_SYMBOLS = {
    **{"alpha": "α", "beta": "β", "lambda": "λ", "sigma": "σ", "mu": "μ", "theta": "θ", "sum": "∑", "sqrt": "√"},
    **{"cdot": "·", "le": "≤", "leq": "≤", "approx": "≈", "times": "×", "frac": ""},
}
#: Commands that change the look of a formula and not its content.
_LOOKS = re.compile(
    r"\\(?:left|right|displaystyle|limits|mathrm|mathit|text|operatorname|quad|qquad|big|Big|[,;:! ])(?![a-zA-Z])"
)
_ITEM = re.compile(r"^[ \t]*(?:[-*+•–]|\d+[.)])[ \t]+", re.MULTILINE)
_PIECES = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """Parts of a page's result that are scored; boxes are relative."""

    markdown: str
    figures: Sequence[Sequence[float]] = ()
    tables: Sequence[Sequence[float]] = ()
    formulas: Sequence[Sequence[float]] = ()  # cropped, without LaTeX


def perfect(page: Mapping[str, Any]) -> Answer:
    """Return the truth as the answer of an ideal engine."""
    parts = []
    for block in page["blocks"]:
        match block["kind"]:
            case "title" | "heading":
                parts.append(f"{'#' * block['level']} {block['text']}")
            case "list_item":
                parts.append(f"- {block['text']}")
            case "formula":
                parts.append(f"$${block['latex']}$$")
            case "table":
                parts.append(_html(block["cells"]))
            case "text":
                parts.append(_with_marks(block["text"], block["marks"]))
            case "caption" | "footnote":
                parts.append(block["text"])
    figures, tables = (
        [around(block["boxes"]) for block in page["blocks"] if block["kind"] == kind] for kind in ("figure", "table")
    )
    return Answer("\n\n".join(parts), figures, tables)


def _html(cells: Sequence[Mapping[str, Any]]) -> str:
    rows: dict[int, str] = {}
    for cell in cells:
        spans = f'rowspan="{cell["rowspan"]}" colspan="{cell["colspan"]}"'
        rows[cell["row"]] = rows.get(cell["row"], "") + f"<td {spans}>{cell['text']}</td>"
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows.values()) + "</table>"


def _with_marks(text: str, marks: Sequence[Mapping[str, str]]) -> str:
    done = ""
    for mark in marks:
        before, text = text.split(mark["base"] + mark["text"], 1)
        done += f"{before}{mark['base']}<{mark['kind']}>{mark['text']}</{mark['kind']}>"
    return done + text


def score(truth: Mapping[str, Any], answer: Answer) -> Score:
    """Return all measures of a page."""
    tolerance = TOLERANCE if truth["scanned"] else 0.0
    blocks = [block for block in truth["blocks"] if block["kind"] not in FURNITURE]
    found = {
        **_text(blocks, answer.markdown),
        **_structure(blocks, answer.markdown, tolerance),
        **_tables(blocks, answer, tolerance),
        **_boxes("figures", [block for block in blocks if block["kind"] == "figure"], answer.figures),
        **_formulas(blocks, answer.markdown),
    }
    drawn = _boxes("formulas cropped", [block for block in blocks if block["kind"] == "formula"], answer.formulas)
    found["formulas cropped true"] = drawn["formulas cropped true"]
    furniture = [block["text"] for block in truth["blocks"] if block["kind"] in FURNITURE]
    gone = sum(scoring.absent(text, answer.markdown, tolerance=tolerance) for text in furniture)
    found["furniture absent"] = (gone, len(furniture))
    return {name: pair for name, pair in found.items() if pair[1]}


def total(scores: Iterable[Score]) -> dict[str, dict[str, float]]:
    """Return the sums of all pages by measure."""
    sums: dict[str, list[float]] = {}
    for one in scores:
        for name, (right, of) in one.items():
            place = sums.setdefault(name, [0, 0])
            place[0] += right
            place[1] += of
    return {name: {"right": round(a, 3), "of": b, "share": round(a / b, 4)} for name, (a, b) in sorted(sums.items())}


def canonical(latex: str) -> str:
    """Return LaTeX without spaces and looks, symbols as Unicode, and braces around each exponent and index."""
    latex = (
        _LOOKS.sub("", unicodedata.normalize("NFC", latex)).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    )
    latex = re.sub(r"\\([a-zA-Z]+)", lambda one: _SYMBOLS.get(one[1], "") or one[0], latex)
    latex = latex.translate(str.maketrans({"−": "-", "–": "-", "⋅": "·"}))
    latex = "".join(unicodedata.normalize("NFKC", one) if one > "\U0001d3ff" else one for one in latex)
    return re.sub(r"([\^_])([^{\\\s])", r"\1{\2}", re.sub(r"\s+", "", latex))


def marked(markdown: str) -> str:
    """Return Markdown in canonical LaTeX, whatever the notation of its raised and lowered characters."""
    text = re.sub(r"<(su[bp])>(.*?)</\1>", lambda one: ("^" if one[1] == "sup" else "_") + f"{{{one[2]}}}", markdown)
    text = re.sub(r"\[\^([^\]]+)\]", r"^{\1}", text)
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿⁱ]+", lambda one: f"^{{{one[0].translate(_SUPERSCRIPTS)}}}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉ᵢⱼₖ]+", lambda one: f"_{{{one[0].translate(_SUBSCRIPTS)}}}", text)
    return canonical(re.sub(r"\\([_*\[\]#~.()+-])|[$*`]", lambda one: one[1] or "", text))


def visible(text: str) -> str:
    """Return the characters that a reader sees, without spaces: no markers of lists, no notation of formulas."""
    text = re.sub(r"\[\^([^\]]+)\]:?", r"\1", _ITEM.sub("", text))
    text = re.sub(r"\\([a-zA-Z]+) ?", lambda one: _SYMBOLS.get(one[1], ""), text)
    return re.sub(r"[$^{}_\s]", "", scoring.body(text))


def _text(blocks: Sequence[Mapping[str, Any]], markdown: str) -> Score:
    """Characters right in each block, similarity of the page as a whole, and consecutive blocks in order."""
    got = visible(markdown)
    texts = [(block["kind"], visible(block["text"] or f"${block.get('latex', '')}$")) for block in blocks]
    page = "".join(text for _, text in texts)
    errors = characters = 0
    places = []
    for text in (text for kind, text in texts if kind not in ("formula", "table") and len(text) > 3):
        match = fuzz.partial_ratio_alignment(text, got) if got else None
        near = got[match.dest_start : match.dest_end] if match else ""
        wrong = min(len(text), Levenshtein.distance(text, near))
        errors, characters = errors + wrong, characters + len(text)
        # Of equal texts, the first one after the previous block is this block.
        after = got.find(text, places[-1] + 1) if places and not wrong else -1
        places.append(after if after >= 0 else match.dest_start if match and wrong < LOST * len(text) else -1)
    order = [0 <= before < after for before, after in itertools.pairwise(places)]
    return {
        "text": (characters - errors, characters),
        "similarity": (fuzz.ratio(page, got) / 100, 1),
        "order": (sum(order), len(order)),
    }


def _structure(blocks: Sequence[Mapping[str, Any]], markdown: str, tolerance: float) -> Score:
    """Headings, list items, and paragraphs: each on its line and in its form."""
    lines = markdown.splitlines()
    headings = [visible(line) for line in lines if re.match(r"#+ ", line)]
    items = [visible(line) for line in lines if re.match(r"\s*(?:[-*+]|\d+[.)]) ", line)]
    whole = [visible(line) for line in lines]
    wanted = {
        "headings": ({"title", "heading"}, headings),
        "list items": ({"list_item"}, items),
        "paragraphs whole": ({"text"}, whole),
    }
    found: Score = {}
    for name, (kinds, candidates) in wanted.items():
        texts = [visible(block["text"]) for block in blocks if block["kind"] in kinds]
        # A mark may have any notation, so that two characters of a hundred are free on digital pages, too.
        right = sum(any(fuzz.ratio(text, one) >= 100 * (0.98 - tolerance) for one in candidates) for text in texts)
        found[name] = (right, len(texts))
    true = [visible(block["text"]) for block in blocks if block["kind"] in ("title", "heading")]
    good = sum(any(fuzz.ratio(text, one) >= 100 * (0.98 - tolerance) for text in true) for one in headings)
    found["headings true"] = (good, len(headings))
    return found


def relations(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the neighbors to the right and below of each cell, and the headers that span columns."""
    grid = {}
    for cell in cells:
        for down in range(cell["rowspan"]):
            for right in range(cell["colspan"]):
                grid[cell["row"] + down, cell["column"] + right] = cell["text"]
    found = []
    for cell in cells:
        text, row, column = cell["text"], cell["row"], cell["column"]
        if cell["colspan"] > 1:
            under = [grid[row + 1, column + more] for more in range(cell["colspan"])]
            found += [{"cell": one, "top_heading": text} for one in under]
        else:
            found.append({"cell": text, "below": grid.get((row + cell["rowspan"], column), "")})
        found.append({"cell": text, "right": grid.get((row, column + cell["colspan"]), "")})
    # The scores take equal neighbors for one cell that spans both.
    return [one for one in found if all(one.values()) and len(set(one.values())) == 2]


def _tables(blocks: Sequence[Mapping[str, Any]], answer: Answer, tolerance: float) -> Score:
    tables = [block for block in blocks if block["kind"] == "table"]
    grids = scoring.grids(answer.markdown)
    wanted = [relation for table in tables for relation in relations(table["cells"])]
    right = sum(scoring.related(relation, grids, tolerance=tolerance) for relation in wanted)
    return {"cells": (right, len(wanted)), **_boxes("tables", tables, answer.tables)}


def _boxes(name: str, blocks: Sequence[Mapping[str, Any]], found: Sequence[Sequence[float]]) -> Score:
    """Boxes found, of those of the truth; and true ones, of those of the answer."""
    match = scoring.match_boxes([around(block["boxes"]) for block in blocks], found)
    return {name: (match.found, match.truth), f"{name} true": (match.found, match.found + match.false)}


def around(boxes: Sequence[Sequence[float]]) -> list[float]:
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return [min(x0), min(y0), max(x1), max(y1)]


def _formulas(blocks: Sequence[Mapping[str, Any]], markdown: str) -> Score:
    """Display formulas, inline formulas, and marks; a piece of LaTeX or a line of text may be near."""
    page = marked(markdown)
    pieces = {canonical(next(filter(None, one))) for one in _PIECES.findall(markdown)}
    pieces = {re.sub(r"\\tag\{.*?\}", "", one) for one in pieces}
    lines = pieces | {marked(line) for line in markdown.splitlines() if len(line) < 200}
    display = [canonical(block["latex"]) for block in blocks if block["kind"] == "formula"]
    near = sum(any(fuzz.ratio(one, line) >= 100 * NEAR for line in lines) for one in display)
    inline = [canonical(one) for block in blocks for one in block.get("inline", ())]
    marks = [mark for block in blocks for mark in block.get("marks", ())]
    sign = {"sup": "^", "sub": "_"}
    kept = sum(marked(mark["base"]) + f"{sign[mark['kind']]}{{{mark['text']}}}" in page for mark in marks)
    return {
        "formulas exact": (sum(one in pieces for one in display), len(display)),
        "formulas near": (near, len(display)),
        "inline formulas": (sum(one in page for one in inline), len(inline)),
        "marks kept": (kept, len(marks)),
    }
