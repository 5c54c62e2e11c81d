"""Compose documents from a seed: HTML for Chromium, and the truth about each page.

The truth of a page is a list of blocks in reading order, as JSON values: `kind` (names of `BlockKind`), `text` as
visible, `level` of headings, `cells` of tables, `latex` of formulas, `inline` (LaTeX of formulas in the text), and
`marks` (raised or lowered characters with the word before them).
"""

import base64
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from PIL import Image
from truth_words import NOUNS, RIGHT_TO_LEFT, sentence, title

SIZES = {"A4": (794, 1123), "Letter": (816, 1056), "A5": (560, 794), "Legal": (816, 1344), "landscape": (1123, 794)}
FONTS = ("Liberation Serif", "Liberation Sans", "DejaVu Serif", "DejaVu Sans", "Liberation Sans Narrow")
#: What a page shows apart from paragraphs, in turns, so that every run covers all of it.
SUBJECTS = ("prose", "lists", "ruled table", "booktabs table", "plain table", "formulas", "footnotes", "figures")
COLUMNS = (1, 2, 1, 2, 3)
SCRIPTS = ("Polish", "Hebrew", "Greek", "Cyrillic", "French", "Arabic", "German", "Czech", "Turkish")
#: Of each seven documents of a half, those in the next two languages.
OTHER_LANGUAGE = (3, 6)

STYLE = """
@page { size: %(width)dpx %(height)dpx; margin: 0 } * { box-sizing: border-box }
html, body { margin: 0; padding: 0 }
section { width: %(width)dpx; height: %(height)dpx; overflow: hidden; break-after: page; break-inside: avoid;
  display: flex; flex-direction: column; padding: %(top)dpx %(side)dpx; font: %(size)spx/%(leading)s '%(font)s' }
.head, .foot { display: flex; justify-content: space-between; font-size: %(small)spx; flex: none; min-height: 20px }
.head.rule { border-bottom: 1px solid #444 } .foot { align-items: flex-end }
.body { flex: 1; min-height: 0; margin: %(inner)dpx 0; columns: %(columns)d; column-gap: %(gap)dpx; column-fill: auto;
  text-align: %(align)s; column-rule: %(line)s }
.span { column-span: all } p { margin: 0 0 %(space)dpx; text-indent: %(indent)dpx; widows: 1; orphans: 1 }
h1, h2, h3 { font-family: '%(display)s'; text-align: start; break-after: avoid; line-height: 1.2; margin: 12px 0 8px }
h1 { font-size: 1.8em } h2 { font-size: 1.35em } h3 { font-size: 1.1em }
ul, ol { margin: 0 0 %(space)dpx; padding-inline-start: 26px }
ul { list-style-type: %(bullet)s } li { break-inside: avoid }
.unit { break-inside: avoid; margin: 10px 0; text-align: start } sup, sub { line-height: 0 }
table { border-collapse: collapse; font-size: %(cells)spx; line-height: 1.25; margin: 4px auto; width: %(wide)s }
td, th { padding: 3px 8px; vertical-align: top } .n { text-align: right } .g { text-align: center }
.ruled td, .ruled th { border: 1px solid #333 } .ruled th { background: %(shade)s }
.booktabs { border-top: 2px solid #000; border-bottom: 2px solid #000 }
.booktabs tr.last th { border-bottom: 1px solid #000 } .booktabs .g { border-bottom: 1px solid #000 }
.plain tr:nth-child(even) td { background: %(stripe)s }
.booktabs th, .plain th { font-weight: %(weight)s }
.caption { font-size: %(small)spx; margin: 4px 0; text-indent: 0 } .figure { display: block; margin: 4px auto }
.formula { display: flex; justify-content: center; margin: 8px 0; position: relative }
.formula math { font-size: 1.1em } .number { position: absolute; right: 0 }
.frac { display: inline-flex; flex-direction: column; vertical-align: middle; text-align: center; line-height: 1.15 }
.frac span:first-child { border-bottom: 1px solid #000 }
.notes { flex: none; font-size: %(small)spx; line-height: 1.2 } .notes p { margin: 2px 0; text-indent: 0 }
.notes::before { content: ''; display: block; width: 30%%; border-top: 1px solid #000; margin-bottom: 4px }
"""


@dataclass
class Document:
    """HTML with one `section` per page, sizes in CSS pixels, and the truth of each page by the number in `data-b`."""

    html: str
    width: int
    height: int
    pages: list[dict[str, Any]]


@dataclass
class Text:
    """Text as HTML and as visible, with its marks and inline formulas."""

    html: str = ""
    text: str = ""
    marks: list[dict[str, str]] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.html += escape(text)
        self.text += text

    def mark(self, kind: str, text: str) -> None:
        """Append raised (`sup`) or lowered (`sub`) text."""
        self.marks.append({"kind": kind, "base": self.text.split()[-1], "text": text})
        self.html += f"<{kind}>{text}</{kind}>"
        self.text += text


@dataclass
class Formula:
    """Formula in three notations; `html` needs no MathML."""

    mathml: str
    html: str
    latex: str


def compose(seed: int, pages: int) -> Document:
    """Compose the document of this seed."""
    return _Composer(seed).document(pages)


class _Composer:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"document {seed}")
        turn = seed // 2  # both halves take the same turns
        self.turn = turn
        self.columns = COLUMNS[turn % len(COLUMNS)]
        self.language = "English"
        if turn % 7 in OTHER_LANGUAGE:
            self.language = SCRIPTS[(2 * (turn // 7) + OTHER_LANGUAGE.index(turn % 7)) % len(SCRIPTS)]
        name = rng.choice(["A4", "Letter", *(["A5"] if self.columns == 1 else ["landscape"]), "Legal"])
        self.width, self.height = SIZES[name]
        self.font = rng.choice(FONTS)
        if self.language in RIGHT_TO_LEFT:
            self.font = "DejaVu Sans"
        wide = self.font.startswith("DejaVu")
        self.size = rng.choice([13, 14.5, 16] if self.columns == 1 else [11, 12, 13]) - (1.5 if wide else 0)
        self.size -= 1 if self.columns == 3 else 0
        self.hyphens = self.columns > 1 and rng.random() < 0.6
        self.header = rng.choice(["", title(rng), title(rng).upper(), f"Journal of {title(rng)}, {rng.randint(2, 40)}"])
        self.footer = rng.choice(["", "", f"© {rng.randint(1990, 2024)} {title(rng)}"])
        self.first = rng.randint(1, 300)
        self.numbers = rng.choice(["{0}", "Page {0} of {1}", "– {0} –", "{0}", ""])
        self.numbered = rng.random() < 0.5
        self.mathml = rng.random() < 0.6
        self.section = [rng.randint(1, 8), 0]
        self.counts = dict.fromkeys(("Figure", "Table", "formula", "note"), 0)
        self.blocks: list[dict[str, Any]] = []

    def document(self, pages: int) -> Document:
        offset = self.turn * pages  # subjects continue from document to document
        made, html = [], []
        for number in range(pages):
            subject = SUBJECTS[(offset + number) % len(SUBJECTS)] if self.language == "English" else "prose"
            self.blocks = []
            html.append(self._page(subject, number, pages))
            columns = f"{self.columns} column" + ("s" if self.columns > 1 else "")
            made.append({"tags": [columns, subject, self.language], "blocks": self.blocks})
        direction = "rtl" if self.language in RIGHT_TO_LEFT else "ltr"
        head = f'<!DOCTYPE html><html dir="{direction}"><meta charset="utf-8"><style>{self._style()}</style>'
        return Document(f"{head}<body>{''.join(html)}</body></html>", self.width, self.height, made)

    def _style(self) -> str:
        rng = self.rng
        return STYLE % {
            **{"width": self.width, "height": self.height, "columns": self.columns, "font": self.font},
            **{"top": rng.randint(30, 60), "side": rng.randint(45, 90), "inner": rng.randint(8, 22)},
            **{"size": self.size, "small": round(self.size * 0.85, 1), "cells": round(self.size * 0.92, 1)},
            "leading": rng.choice([1.2, 1.35, 1.5]),
            "gap": self.gap,
            "line": rng.choice(["none", "none", "1px solid #888"]),
            "align": rng.choice(["start", "justify"]),
            **dict(zip(("space", "indent"), rng.choice([(10, 0), (2, 18), (6, 12)]), strict=True)),
            "display": rng.choice([self.font, "Liberation Sans"]) if self.language == "English" else self.font,
            "wide": rng.choice(["auto", "100%"]),
            "bullet": rng.choice(["disc", "'•  '", "'–  '"]),  # Chromium draws a disc as a shape, not as a character
            "shade": rng.choice(["none", "#ddd"]),
            "stripe": rng.choice(["none", "none", "#eee"]),
            "weight": rng.choice(["bold", "normal"]),
        }

    @property
    def gap(self) -> int:
        return 18 if self.columns == 3 else 26

    def _block(self, kind: str, text: str, **more: Any) -> str:
        """Append a block to the truth and return the attribute that names it in the HTML."""
        self.blocks.append({"kind": kind, "text": text, **more})
        return f'data-b="{len(self.blocks) - 1}"'

    # Pages.

    def _page(self, subject: str, number: int, pages: int) -> str:
        parts = []
        if number == 0:
            span = ' class="span"' if self.rng.random() < 0.6 else ""
            text = title(self.rng, self.language)
            parts.append(f"<h1{span} {self._block('title', text, level=1)}>{escape(text)}</h1>")
        parts += [self._heading(), self._paragraph()]
        notes = []
        if subject == "footnotes":
            notes = [self._noted(parts) for _ in range(self.rng.randint(1, 3))]
        makers = {"lists": self._list, "formulas": self._formula, "figures": self._figure}
        for _ in range(9 * self.columns):
            if subject.endswith("table"):
                parts.append(self._table(subject.split()[0]))
            elif subject in makers:
                parts.append(makers[subject]())
            parts += [self._paragraph() for _ in range(self.rng.randint(1, 3))]
            if self.rng.random() < 0.5:
                parts.append(self._heading())
        foot = "".join(f"<p {self._block('footnote', f'{mark} {text}')}>{lead}</p>" for mark, text, lead in notes)
        parts = f"<template>{''.join(parts)}</template>"
        body = f'<div class="body" data-columns="{self.columns}" data-gap="{self.gap}">{parts}</div>'
        notes_area = f'<div class="notes">{foot}</div>' if foot else ""
        return f"<section>{self._head(number)}{body}{notes_area}{self._foot(number, pages)}</section>"

    def _head(self, number: int) -> str:
        text = self.header if number or self.turn % 2 else ""
        rule = " rule" if text and self.turn % 3 == 0 else ""
        inner = f"<span {self._block('header', text)}>{escape(text)}</span>" if text else ""
        return f'<div class="head{rule}">{inner}</div>'

    def _foot(self, number: int, pages: int) -> str:
        inner = f"<span {self._block('footer', self.footer)}>{escape(self.footer)}</span>" if self.footer else ""
        text = self.numbers.format(self.first + number, self.first + pages + 9)
        if text:
            inner += f"<span {self._block('page_number', text)}>{text}</span>"
        return f'<div class="foot">{inner}</div>'

    def _heading(self) -> str:
        level = self.rng.choice([2, 2, 3])
        text = title(self.rng, self.language)
        if self.numbered and self.language not in RIGHT_TO_LEFT:
            self.section = [self.section[0] + 1, 0] if level == 2 else [self.section[0], self.section[1] + 1]
            text = ".".join(map(str, self.section[: level - 1])) + f" {text}"
        return f"<h{level} {self._block('heading', text, level=level)}>{escape(text)}</h{level}>"

    def _paragraph(self) -> str:
        text = Text()
        for place in range(self.rng.randint(2, 6)):
            text.add((" " if place else "") + sentence(self.rng, self.language))
            if self.language == "English" and self.rng.random() < 0.08:
                self._inline(text)
        return self._paragraph_of(text)

    def _paragraph_of(self, text: Text) -> str:
        html = _styled(self.rng, text.html)
        if self.hyphens:
            html = _hyphenated(html)
        return f"<p {self._block('text', text.text, marks=text.marks, inline=text.inline)}>{html}</p>"

    def _inline(self, text: Text) -> None:
        """Append a clause with a unit, a chemical formula, or a small formula."""
        kind = self.rng.choice(["unit", "chemical", "formula", "formula"])
        if kind == "unit":
            text.add(f" The {self.rng.choice(NOUNS)} covers {self.rng.randint(2, 900)} km")
            text.mark("sup", self.rng.choice("23"))
            text.add(" in all.")
        elif kind == "chemical":
            text.add(f" The {self.rng.choice(NOUNS)} contains ")
            base, low, rest = self.rng.choice([("CO", "2", ""), ("H", "2", "O"), ("SO", "4", ""), ("Fe", "3", "O")])
            text.add(base)
            text.mark("sub", low)
            text.add(f"{rest} too.")
        else:
            formula = _relation(self.rng, small=True)
            text.add(" It follows that ")
            text.html += f"<math>{formula.mathml}</math>" if self.mathml else f"<span>{formula.html}</span>"
            text.text += f"${formula.latex}$"
            text.inline.append(formula.latex)
            text.add(" holds.")

    def _noted(self, parts: list[str]) -> tuple[str, str, str]:
        """Append a paragraph with a mark; return the footnote's mark, text, and HTML."""
        self.counts["note"] += 1
        mark, text = str(self.counts["note"]), Text()
        text.add(sentence(self.rng))
        text.mark("sup", mark)
        text.add(" " + sentence(self.rng))
        parts.append(self._paragraph_of(text))
        note = sentence(self.rng)
        return mark, note, f"<sup>{mark}</sup> {escape(note)}"

    def _list(self) -> str:
        tag, items = self.rng.choice(["ul", "ol"]), []
        for _ in range(self.rng.randint(3, 6)):
            text = " ".join(sentence(self.rng) for _ in range(self.rng.choice([1, 1, 2])))
            items.append(f"<li {self._block('list_item', text)}>{escape(text)}</li>")
        return f"<{tag}>{''.join(items)}</{tag}>"

    def _formula(self) -> str:
        formula = _relation(self.rng, small=False)
        attribute = self._block("formula", "", latex=formula.latex)
        drawn = f'<math display="block">{formula.mathml}</math>' if self.mathml else f"<span>{formula.html}</span>"
        number = ""
        if self.numbered:
            self.counts["formula"] += 1
            number = f'<span class="number">({self.counts["formula"]})</span>'
        return f'<div class="formula"><span {attribute}>{drawn}</span>{number}</div>'

    # Figures and tables.

    def _caption(self, name: str) -> str:
        self.counts[name] += 1
        text = f"{name} {self.counts[name]}{self.rng.choice('.:')} {sentence(self.rng)}"
        return f'<p class="caption" {self._block("caption", text)}>{escape(text)}</p>'

    def _figure(self) -> str:
        span = " span" if self.columns > 1 and self.rng.random() < 0.3 else ""
        width = self.rng.randint(200, 420) if self.columns == 1 or span else 420 // self.columns
        height = round(width * self.rng.uniform(0.5, 0.8))
        attribute = self._block("figure", "")
        if self.rng.random() < 0.3:
            source = base64.b64encode(_photograph(self.rng, width, height)).decode()
            drawn = (
                f'<img class="figure" width={width} height={height} {attribute} src="data:image/png;base64,{source}">'
            )
        else:
            drawn = _chart(self.rng, width, height, attribute)
        return f'<div class="unit{span}">{drawn}{self._caption("Figure")}</div>'

    def _table(self, style: str) -> str:
        """Draw a table; in columns every second one spans the page, and the others are narrow."""
        span = " span" if self.columns > 1 and self.rng.random() < 0.5 else ""
        narrow = self.columns > 1 and not span
        cells = _cells(self.rng, narrow)
        caption = self._caption("Table") if self.rng.random() < 0.7 else ""
        text = " ".join(cell["text"] for cell in cells)
        attribute = self._block("table", text, cells=cells)
        rows = ""
        heads = max(cell["row"] + cell["rowspan"] for cell in cells if cell["header"])
        for row in range(1 + max(cell["row"] for cell in cells)):
            rows += f'<tr class="{"last" if row == heads - 1 else ""}">'
            for cell in (cell for cell in cells if cell["row"] == row):
                tag = "th" if cell["header"] else "td"
                kind = "g" if cell["colspan"] > 1 else "n" if cell["numeric"] else ""
                spans = f'rowspan="{cell["rowspan"]}" colspan="{cell["colspan"]}"'
                rows += f'<{tag} class="{kind}" {spans}>{escape(cell["text"])}</{tag}>'
            rows += "</tr>"
        return f'<div class="unit{span}">{caption}<table class="{style}" {attribute}>{rows}</table></div>'


def _styled(rng: random.Random, html: str) -> str:
    """Set a word of some paragraphs in bold or italics."""
    words = html.split(" ")
    if rng.random() < 0.3 and "<" not in html:
        place, tag = rng.randrange(len(words)), rng.choice(["b", "i"])
        words[place] = f"<{tag}>{words[place]}</{tag}>"
    return " ".join(words)


def _hyphenated(html: str) -> str:
    """Allow a hyphen within long words: before a consonant that a vowel follows, two letters from either end."""
    vowels = "aeiouy"
    words = html.split(" ")
    for number, word in enumerate(words):
        if len(word) > 7 and word.isalpha():
            fits = [i for i in range(3, len(word) - 3) if word[i] not in vowels and word[i + 1] in vowels]
            if fits:
                words[number] = word[: fits[0]] + "&shy;" + word[fits[0] :]
    return " ".join(words)


def _cell(row: int, column: int, text: str, **more: Any) -> dict[str, Any]:
    place = {"row": row, "column": column, "rowspan": 1, "colspan": 1}
    return {**place, "text": text, "header": False, "numeric": False, **more}


def _headers(rng: random.Random, numeric: Sequence[bool]) -> list[dict[str, Any]]:
    """Return one row of headers, or for five columns and more two rows, the upper one with headers over two columns."""
    names = [one.capitalize() for one in rng.sample(NOUNS, len(numeric))]
    if len(names) < 5 or rng.random() < 0.5:
        return [_cell(0, i, name, header=True, numeric=numeric[i]) for i, name in enumerate(names)]
    cells = [_cell(0, 0, names[0], rowspan=2, header=True)]
    for left in range(1, len(names), 2):
        if left + 1 == len(names):
            cells.append(_cell(0, left, names[left], rowspan=2, header=True, numeric=numeric[left]))
            continue
        cells.append(_cell(0, left, title(rng), colspan=2, header=True))
        cells += [_cell(1, i, names[i], header=True, numeric=numeric[i]) for i in (left, left + 1)]
    return cells


def _cells(rng: random.Random, narrow: bool) -> list[dict[str, Any]]:
    """Return the cells of a table: names in the first column, then numbers, words, or sentences."""
    columns = rng.randint(2, 3) if narrow else rng.randint(3, 6)
    numeric = [False, *(rng.random() < 0.7 for _ in range(columns - 1))]
    style = rng.choice(["{:.1f}", "{:.2f}", "{:.0f} %", "{:,.0f}", "{:.3f}"])
    scale = 10_000 if "," in style else 100
    long = columns - 1 if rng.random() < 0.4 else 0  # the column of sentences
    cells = _headers(rng, numeric)
    first = max(cell["row"] + cell["rowspan"] for cell in cells)
    for row in range(first, first + rng.randint(3, 7 if narrow else 10)):
        cells.append(_cell(row, 0, title(rng)))
        for column in range(1, columns):
            if numeric[column]:
                text = "" if rng.random() < 0.04 else style.format(rng.uniform(-0.1, 1) * scale).replace("-", "−")
            else:
                text = sentence(rng) if column == long else rng.choice(NOUNS)
            cells.append(_cell(row, column, text, numeric=numeric[column]))
    return sorted(cells, key=lambda cell: (cell["row"], cell["column"]))


def _chart(rng: random.Random, width: int, height: int, attribute: str) -> str:
    """Return bars, a curve, or points, with axes and labels."""
    kind, marks = rng.choice(["bars", "curve", "points"]), ""
    color = rng.choice(["#1f77b4", "#d62728", "#2ca02c", "#444"])
    count = rng.randint(5, 12)
    step = (width - 60) / count
    values = [rng.uniform(0.1, 0.95) * (height - 50) for _ in range(count)]
    places = [(45 + step * i, height - 30 - value) for i, value in enumerate(values)]
    if kind == "bars":
        bars = zip(places, values, strict=True)
        marks = "".join(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.7:.1f}" height="{v:.1f}"/>' for (x, y), v in bars
        )
    elif kind == "points":
        marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)
    else:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        marks = f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
    labels = "".join(f'<text x="{x:.1f}" y="{height - 16}" font-size="9">{i}</text>' for i, (x, _) in enumerate(places))
    axes = f'<path d="M40 8V{height - 30}H{width - 8}" fill="none" stroke="#000"/>'
    name = f'<text x="{width // 2}" y="{height - 4}" font-size="10" text-anchor="middle">{rng.choice(NOUNS)}</text>'
    return (
        f'<svg class="figure" width="{width}" height="{height}" fill="{color}" {attribute}>{axes}{marks}'
        f'<g fill="#000">{labels}{name}</g></svg>'
    )


def _photograph(rng: random.Random, width: int, height: int) -> bytes:
    """Return a PNG of soft colored shapes."""
    few = Image.new("RGB", (6, 5))
    few.putdata([(rng.randrange(30, 220), rng.randrange(30, 200), rng.randrange(30, 180)) for _ in range(30)])
    out = io.BytesIO()
    few.resize((width, height), Image.Resampling.BICUBIC).save(out, "PNG")
    return out.getvalue()


# Formulas.

GREEK = {"alpha": "α", "beta": "β", "lambda": "λ", "sigma": "σ", "mu": "μ", "theta": "θ"}
OPERATORS = {"+": "+", "−": "-", "·": r"\cdot "}
RELATIONS = {"=": "=", "=  ": "=", "≤": r"\le ", "≈": r"\approx "}


def _relation(rng: random.Random, small: bool) -> Formula:
    left = _variable(rng)
    right = _term(rng, small)
    for _ in range(0 if small else rng.randint(1, 2)):
        sign = rng.choice(list(OPERATORS))
        right = _joined([right, _operator(sign, OPERATORS[sign]), _term(rng, small)])
    sign = rng.choice(list(RELATIONS))
    return _joined([left, _operator(sign.strip(), RELATIONS[sign]), right])


def _joined(parts: list[Formula]) -> Formula:
    mathml = "".join(part.mathml for part in parts)
    return Formula(mathml, "".join(part.html for part in parts), "".join(part.latex for part in parts))


def _operator(sign: str, latex: str) -> Formula:
    return Formula(f"<mo>{sign}</mo>", f" {sign} ", latex)


def _variable(rng: random.Random) -> Formula:
    if rng.random() < 0.3:
        name = rng.choice(list(GREEK))
        return Formula(f"<mi>{GREEK[name]}</mi>", f"<i>{GREEK[name]}</i>", f"\\{name} ")
    name = rng.choice("abcdfghkmnpqrtuvwxyzABCDEFKLMNPQRSTVXYZ")
    return Formula(f"<mi>{name}</mi>", f"<i>{name}</i>", name)


def _term(rng: random.Random, small: bool) -> Formula:
    base = _variable(rng)
    kind = rng.choice(["power", "index", "power"] if small else ["power", "index", "fraction", "root", "sum", "factor"])
    digit = str(rng.randint(2, 9))
    if kind == "power":
        return Formula(
            f"<msup>{base.mathml}<mn>{digit}</mn></msup>",
            f"{base.html}<sup>{digit}</sup>",
            f"{base.latex.strip()}^{{{digit}}}",
        )
    if kind == "index":
        low = rng.choice("ijk0123")
        tag = "mn" if low.isdigit() else "mi"
        return Formula(
            f"<msub>{base.mathml}<{tag}>{low}</{tag}></msub>",
            f"{base.html}<sub>{low}</sub>",
            f"{base.latex.strip()}_{{{low}}}",
        )
    if kind == "fraction":
        over = _joined([base, _operator("+", "+"), Formula(f"<mn>{digit}</mn>", digit, digit)])
        under = _variable(rng)
        return Formula(
            f"<mfrac><mrow>{over.mathml}</mrow>{under.mathml}</mfrac>",
            f'<span class="frac"><span>{over.html}</span><span>{under.html}</span></span>',
            f"\\frac{{{over.latex}}}{{{under.latex}}}",
        )
    if kind == "root":
        inner = _joined([base, _operator("+", "+"), _variable(rng)])
        html = f'√<span style="border-top: 1px solid">{inner.html}</span>'
        return Formula(f"<msqrt>{inner.mathml}</msqrt>", html, f"\\sqrt{{{inner.latex}}}")
    if kind == "sum":
        limits = "<mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi>"
        mathml = f"<munderover><mo>∑</mo>{limits}</munderover><msub>{base.mathml}<mi>i</mi></msub>"
        html = f"∑<sub>i=1</sub><sup>n</sup> {base.html}<sub>i</sub>"
        return Formula(mathml, html, f"\\sum_{{i=1}}^{{n}}{base.latex.strip()}_{{i}}")
    return Formula(f"<mn>{digit}</mn>{base.mathml}", f"{digit}{base.html}", f"{digit}{base.latex}")
