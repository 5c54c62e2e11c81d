"""Made-up pages for `agreement.py`: pieces with a kind, a box in thousandths and content, all from a seed."""

import random
from dataclasses import dataclass, field

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
