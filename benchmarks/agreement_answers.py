"""Made-up pages as the models would write them."""

import html
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

# The ways in which answers go wrong.


#: Pieces of each format without which it cannot be read: what malformed answers lack, or have once more.
_STRUCTURE = re.compile(
    r'<\|/?\w+\|>|</?\w[^<>]*>|[\[\]{}]|"(?:bbox|category|label|text)":|,|^---$|!\[|\]\(', re.MULTILINE
)


def truncated(text: str, chance: random.Random) -> str:
    """Cut anywhere in its second half."""
    return text[: chance.randint(len(text) // 2, max(len(text) - 1, 0))]


def repeated(text: str, chance: random.Random) -> str:
    """Its end over and over, as a model in a loop writes it."""
    unit = text[-chance.randint(12, 120) :]
    return text + unit * chance.randint(12, 40)


def malformed(text: str, chance: random.Random) -> str:
    """One or two pieces of its structure gone, or there twice."""
    for _ in range(chance.randint(1, 2)):
        found = list(_STRUCTURE.finditer(text))
        if found:
            mark = chance.choice(found)
            text = text[: mark.start()] + chance.choice(("", mark.group() * 2)) + text[mark.end() :]
    return text


FAULTS: dict[str, Callable[[str, random.Random], str]] = {
    "sound": lambda text, chance: text,
    "truncated": truncated,
    "repeated": repeated,
    "malformed": malformed,
}


# Made-up pages for `agreement.py`: pieces with a kind, a box in thousandths and content, all from a seed.


_WORDS = [
    "tide",
    "quay",
    "gauge",
    "water",
    "level",
    "north",
    "mean",
    "rose",
    "fell",
    "storm",
    "basin",
    "lock",
    "chart",
    "measured",
    "hourly",
    "the",
    "of",
    "a",
    "in",
    "by",
    "metres",
    "autumn",
    "survey",
    "station",
    "between",
    "harbour",
    "sediment",
    "sample",
    "depth",
    "pressure",
    "wind",
    "during",
    "results",
    "were",
    "stable",
    "and",
    "not",
]
_ODD = (
    "café",
    "naïve",
    "Überlauf",
    "潮位",
    "R&D",
    "snake_case",
    "5 < 6",
    "A > B",
    "50 %",
    "(see 2.1)",
    "[7]",
    "“so”",
    "e.g.",
)
_MATH = ("x^2 + y_1", r"\alpha \le 0.5", "E = mc^2", r"\frac{a}{b}", "n_i", r"\sqrt{2}")
_FORMULAS = (
    r"E = mc^2",
    r"\int_0^1 x^2 \, dx = \frac{1}{3}",
    r"a_n = \sum_{k=0}^{n} b_k",
    r"\begin{aligned} a &= b \\ c &= d \end{aligned}",
)
_CODE = ("for n in range(3):\n    print(n)", "SELECT depth FROM gauges;", "x = 1\ny = x * 2")

#: Kinds of pieces, and how often each is drawn.
KINDS = {
    "title": 1,
    "heading": 3,
    "text": 8,
    "list": 2,
    "table": 3,
    "formula": 2,
    "figure": 3,
    "caption": 2,
    "footnote": 1,
    "code": 1,
    "header": 1,
    "footer": 1,
}


@dataclass(frozen=True, slots=True)
class Run:
    """Words in one style: plain, bold, italic or math."""

    text: str
    style: str = "plain"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table and how many columns and rows it covers."""

    text: str
    columns: int = 1
    rows: int = 1
    header: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """`lines`: paragraphs or items, each a row of runs; `rows`: cells, without those that another one covers."""

    kind: str
    box: tuple[int, int, int, int]
    lines: tuple[tuple[Run, ...], ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    width: int = 0  # columns of the table
    raw: str = ""  # a formula, or code


@dataclass(slots=True)
class Maker:
    """Draws pages."""

    chance: random.Random
    kinds: dict[str, int] = field(default_factory=lambda: dict(KINDS))

    def page(self) -> list[Piece]:
        """Three to nine pieces from top to bottom, some in two columns; no two boxes are the same."""
        count = self.chance.randint(3, 9)
        top, pieces = self.chance.randint(20, 60), []
        for kind in self.chance.choices(list(self.kinds), list(self.kinds.values()), k=count):
            bottom = top + self.chance.randint(20, 90)
            left, right = self.chance.choice(((80, 920), (80, 490), (510, 920)))
            box = (left + self.chance.randint(0, 9), top, right + self.chance.randint(0, 9), bottom)
            pieces.append(self.piece(kind, box))
            top = bottom + self.chance.randint(4, 12)
        return pieces

    def piece(self, kind: str, box: tuple[int, int, int, int]) -> Piece:
        match kind:
            case "table":
                rows, width = self.table()
                return Piece(kind, box, rows=rows, width=width)
            case "formula":
                return Piece(kind, box, raw=self.chance.choice(_FORMULAS))
            case "code":
                return Piece(kind, box, raw=self.chance.choice(_CODE))
            case "text" | "list":
                return Piece(kind, box, tuple(self.line(styled=True) for _ in range(self.chance.randint(1, 3))))
            case _:
                return Piece(kind, box, (self.line(styled=False),))

    def line(self, *, styled: bool) -> tuple[Run, ...]:
        """A sentence. Its first word is never odd, so that it begins no list, heading or quotation."""
        words = [self.chance.choice(_WORDS) for _ in range(self.chance.randint(3, 14))]
        words[0] = words[0].capitalize()
        if self.chance.random() < 0.4:
            words.insert(self.chance.randint(1, len(words)), self.chance.choice(_ODD))
        runs = [Run(" ".join(words))]
        if styled and self.chance.random() < 0.5:
            style = self.chance.choice(("bold", "italic", "math"))
            said = self.chance.choice(_MATH) if style == "math" else self.chance.choice(_WORDS)
            runs += [Run(said, style), Run(self.chance.choice(_WORDS))]
        return tuple(runs)

    def table(self) -> tuple[tuple[tuple[Cell, ...], ...], int]:
        """A rectangle of cells; some cover two columns or two rows."""
        height, width = self.chance.randint(2, 5), self.chance.randint(2, 5)
        covered: set[tuple[int, int]] = set()
        rows = []
        for y in range(height):
            row = []
            for x in range(width):
                if (y, x) in covered:
                    continue
                columns, down = self._span(y, x, height, width, covered)
                covered |= {(y + i, x + j) for i in range(down) for j in range(columns)}
                row.append(Cell(self._cell(), columns, down, header=y == 0))
            rows.append(tuple(row))
        return tuple(rows), width

    def _span(self, y: int, x: int, height: int, width: int, covered: set[tuple[int, int]]) -> tuple[int, int]:
        if self.chance.random() > 0.12:
            return 1, 1
        columns = 2 if x + 1 < width and (y, x + 1) not in covered and self.chance.random() < 0.6 else 1
        rows = 2 if 0 < y < height - 1 and self.chance.random() < 0.5 else 1
        return columns, rows

    def _cell(self) -> str:
        return self.chance.choice(
            ("", f"{self.chance.uniform(0, 99):.1f}", *self.chance.sample(_WORDS, 4), "R&D", "a < b")
        )


# The formats of the model families.


_DOTS = {
    "title": "Title", "heading": "Section-header", "text": "Text", "list": "List-item", "table": "Table",
    "formula": "Formula", "figure": "Picture", "caption": "Caption", "footnote": "Footnote", "code": "Text",
    "header": "Page-header", "footer": "Page-footer",
}  # fmt: skip
_CHANDRA = {
    "title": "Section-Header", "heading": "Section-Header", "text": "Text", "list": "List-Group", "table": "Table",
    "formula": "Equation-Block", "figure": "Image", "caption": "Caption", "footnote": "Footnote", "code": "Code-Block",
    "header": "Page-Header", "footer": "Page-Footer",
}  # fmt: skip
_DEEPSEEK = {
    "title": "title", "heading": "sub_title", "text": "text", "list": "text", "table": "table", "formula": "equation",
    "figure": "image", "caption": "image_caption", "footnote": "text", "code": "text", "header": "header",
    "footer": "footer",
}  # fmt: skip
_MINERU = {
    "title": "title", "heading": "title", "text": "text", "list": "list", "table": "table", "formula": "equation",
    "figure": "image", "caption": "image_caption", "footnote": "page_footnote", "code": "code", "header": "header",
    "footer": "footer",
}  # fmt: skip
_REGIONS = {
    "title": "doc_title", "heading": "paragraph_title", "text": "text", "list": "text", "table": "table",
    "formula": "display_formula", "figure": "image", "caption": "figure_title", "footnote": "vision_footnote",
    "code": "text",
}  # fmt: skip
_DOCTAGS = {
    "title": "title", "heading": "section_header_level_1", "text": "text", "formula": "formula", "caption": "caption",
    "footnote": "footnote", "code": "code", "header": "page_header", "footer": "page_footer", "figure": "picture",
}  # fmt: skip
_TAGS = {"bold": "b", "italic": "i", "math": "math"}
_MARKS = {"bold": "**", "italic": "*", "math": "$", "plain": ""}


def dots(pieces: Sequence[Piece]) -> str:
    """dots.ocr: JSON, boxes in pixels of an image of 1036 by 1036."""
    found = []
    for piece in pieces:
        item: dict[str, object] = {
            "bbox": [round(side * 1.036) for side in piece.box],
            "category": _DOTS[piece.kind],
        }
        if piece.kind != "figure":
            item["text"] = {"table": table_html(piece), "list": "- " + _inline(piece)}.get(piece.kind, _markdown(piece))
        found.append(item)
    return json.dumps(found, ensure_ascii=False)


def deepseek(pieces: Sequence[Piece]) -> str:
    """DeepSeek-OCR: tags, boxes in 0 to 999."""
    return "\n\n".join(
        f"<|ref|>{_DEEPSEEK[piece.kind]}<|/ref|><|det|>[[{', '.join(map(str, piece.box))}]]<|/det|>\n{_body(piece)}"
        for piece in pieces
    )


def unlimited(pieces: Sequence[Piece]) -> str:
    """Unlimited-OCR: tags, boxes in 0 to 1000."""
    return "\n".join(f"<|det|>{_DEEPSEEK[piece.kind]} {list(piece.box)}<|/det|>{_body(piece)}" for piece in pieces)


def chandra(pieces: Sequence[Piece]) -> str:
    """Chandra 2 and Surya: HTML, boxes in 0 to 1000."""
    return "".join(
        f'<div data-bbox="{" ".join(map(str, piece.box))}" data-label="{_CHANDRA[piece.kind]}">{_html(piece)}</div>'
        for piece in pieces
    )


def surya_layout(pieces: Sequence[Piece]) -> str:
    """Surya's layout: JSON without text."""
    return json.dumps(
        [{"label": _CHANDRA[one.kind], "bbox": " ".join(map(str, one.box)), "count": 50} for one in pieces]
    )


def olmocr(pieces: Sequence[Piece]) -> str:
    """olmOCR: front matter and Markdown; figures in pixels of an image of 1000 by 1000."""
    draw = sum(pieces[0].box)  # from the seed too
    turn = 90 * (draw % 7) if draw % 7 < 4 else 0
    flags = {"is_table": any(one.kind == "table" for one in pieces), "is_diagram": draw % 5 == 0}
    language = ("en", "de", "null")[draw % 3]
    head = {"primary_language": language, "is_rotation_valid": not turn, "rotation_correction": turn, **flags}
    lines = "".join(f"{name}: {value}\n" for name, value in head.items())
    return f"---\n{lines}---\n{_whole(pieces)}"


def glm(pieces: Sequence[Piece]) -> str:
    """GLM-OCR: Markdown."""
    return _whole([piece for piece in pieces if piece.kind != "figure"])


def glm_regions(pieces: Sequence[Piece]) -> str:
    """GLM-OCR behind its detector: regions in JSON with what was read of each, numbers of formulas apart."""
    found = []
    for piece in pieces:
        if piece.kind in ("header", "footer"):
            continue  # such regions are not read
        x0, y0, x1, y1 = piece.box
        numbered = piece.kind == "formula" and x0 % 2 == 0
        said = _inline(piece) if piece.kind in ("title", "heading") else _markdown(piece)
        box = [x0, y0, x1 - 60 if numbered else x1, y1]
        found.append({"label": _REGIONS[piece.kind], "bbox_2d": box, "content": "" if piece.kind == "figure" else said})
        if numbered:
            found.append({"label": "formula_number", "bbox_2d": [x1 - 50, y0, x1, y1], "content": f"({y0 % 9})"})
    return json.dumps(found, ensure_ascii=False)


def mineru(pieces: Sequence[Piece]) -> str:
    """MinerU's layout: tags without text."""
    return "\n".join(
        f"<|box_start|>{' '.join(f'{side:03}' for side in piece.box)}<|box_end|><|ref_start|>{_MINERU[piece.kind]}"
        f"<|ref_end|><|rotate_{'right' if piece.box[0] % 7 == 0 else 'up'}|>"
        f"{'txt_contd_tgt' if number and piece.kind == 'text' and piece.box[0] % 3 == 0 else ''}"
        for number, piece in enumerate(pieces)
    )


def otsl(pieces: Sequence[Piece]) -> str:
    """A table in OTSL, as PaddleOCR-VL and MinerU write it; the first one of the page."""
    return next((table_otsl(piece) for piece in pieces if piece.kind == "table"), "")


def doctags(pieces: Sequence[Piece]) -> str:
    """DocTags: boxes in 0 to 500."""
    return f"<doctag>{''.join(map(_doctag, pieces))}</doctag>"


FORMATS: dict[str, Callable[[Sequence[Piece]], str]] = {
    "dots": dots,
    "deepseek": deepseek,
    "unlimited": unlimited,
    "chandra": chandra,
    "surya": chandra,
    "surya-layout": surya_layout,
    "olmocr": olmocr,
    "glm": glm,
    "glm-regions": glm_regions,
    "mineru-layout": mineru,
    "otsl-mineru": otsl,
    "otsl-paddle": otsl,
    "doctags": doctags,
}


def table_html(piece: Piece) -> str:
    rows = ("".join(map(_td, row)) for row in piece.rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def table_otsl(piece: Piece) -> str:
    """The cells by their places: what a cell covers is marked by where it comes from."""
    grid = [[""] * piece.width for _ in piece.rows]
    for y, row in enumerate(piece.rows):
        for cell in row:
            x = grid[y].index("")
            for down in range(cell.rows):
                for across in range(cell.columns):
                    name = ("fcel" if cell.text else "ecel", "lcel", "ucel", "xcel")[2 * bool(down) + bool(across)]
                    grid[y + down][x + across] = f"<{name}>{'' if down or across else cell.text}"
    return "".join(f"{''.join(row)}<nl>" for row in grid)


def _td(cell: Cell) -> str:
    name = "th" if cell.header else "td"
    spans = f' colspan="{cell.columns}"' if cell.columns > 1 else ""
    spans += f' rowspan="{cell.rows}"' if cell.rows > 1 else ""
    return f"<{name}{spans}>{html.escape(cell.text)}</{name}>"


def _runs(runs: Sequence[Run]) -> str:
    return " ".join(f"{_MARKS[run.style]}{run.text}{_MARKS[run.style]}" for run in runs)


def _inline(piece: Piece) -> str:
    return " ".join(map(_runs, piece.lines))


def _markdown(piece: Piece) -> str:
    match piece.kind:
        case "title":
            return f"# {_inline(piece)}"
        case "heading":
            return f"## {_inline(piece)}"
        case "list":
            return "\n".join(f"- {_runs(line)}" for line in piece.lines)
        case "table":
            return table_html(piece)
        case "formula":
            return f"$$\n{piece.raw}\n$$"
        case "code":
            return f"```\n{piece.raw}\n```"
        case _:
            return "\n\n".join(map(_runs, piece.lines))


def _body(piece: Piece) -> str:
    """As DeepSeek-OCR writes it: a figure has no words, a caption stands in the middle."""
    match piece.kind:
        case "figure":
            return ""
        case "caption":
            return f"<center>{_inline(piece)}</center>"
        case "formula":
            return f"\\[\n{piece.raw}\n\\]"
        case _:
            return _markdown(piece)


def _whole(pieces: Sequence[Piece]) -> str:
    parts = []
    for piece in pieces:
        x0, y0, x1, y1 = piece.box
        words = re.sub(r"[\[\]()]", "", _inline(piece))
        figure = f"![{words}](page_{x0}_{y0}_{x1 - x0}_{y1 - y0}.png)"
        parts.append(figure if piece.kind == "figure" else _markdown(piece))
    return "\n\n".join(parts)


def _html_runs(runs: Sequence[Run]) -> str:
    parts = []
    for run in runs:
        said = html.escape(run.text, quote=False)
        parts.append(f"<{_TAGS[run.style]}>{said}</{_TAGS[run.style]}>" if run.style in _TAGS else said)
    return " ".join(parts)


def _html(piece: Piece) -> str:
    said = [_html_runs(line) for line in piece.lines]
    match piece.kind:
        case "title":
            return f"<h1>{said[0]}</h1>"
        case "heading":
            return f"<h2>{said[0]}</h2>"
        case "list":
            return f"<ul>{''.join(f'<li>{line}</li>' for line in said)}</ul>"
        case "table":
            return table_html(piece)
        case "formula":
            return f'<math display="block">{html.escape(piece.raw, quote=False)}</math>'
        case "code":
            return f"<pre><code>{html.escape(piece.raw, quote=False)}</code></pre>"
        case "figure":
            return f'<img alt="{html.escape(_inline(piece))}"/>'
        case _:
            return "".join(f"<p>{line}</p>" for line in said)


def _doctag(piece: Piece) -> str:
    place = "".join(f"<loc_{side // 2}>" for side in piece.box)
    match piece.kind:
        case "table":
            return f"<otsl>{place}{table_otsl(piece)}</otsl>"
        case "list":
            return f"<unordered_list>{''.join(_doctag_items(piece))}</unordered_list>"
        case "figure":
            return f"<picture>{place}</picture>"
        case "formula":
            said = piece.raw
        case "code":
            said = f"<_Python_>{piece.raw}"
        case _:
            said = "\n".join(map(_runs, piece.lines))
    name = _DOCTAGS[piece.kind]
    return f"<{name}>{place}{said}</{name}>"


def _doctag_items(piece: Piece) -> Iterator[str]:
    x0, top, x1, _ = (side // 2 for side in piece.box)
    for y0, line in zip(range(top, 500, 3), piece.lines, strict=False):
        yield f"<list_item><loc_{x0}><loc_{y0}><loc_{x1}><loc_{y0 + 2}>{_runs(line)}</list_item>"
