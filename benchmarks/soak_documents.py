"""Documents for the soak: templates, good ones and bad ones, and copies that are documents of their own."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: Pages of the examples; a bad document is one expected page.
_REAL = {"paper.pdf": 3, "scan.pdf": 3, "invoice.png": 1, "fax.tiff": 2}
_WORDS = (
    "river",
    "gauge",
    "level",
    "paper",
    "table",
    "result",
    "method",
    "season",
    "water",
    "reading",
    "signal",
    "rain",
)
_LONG = 40  # pages: more than two units
_LONGEST_LETTER = 6


@dataclass(frozen=True, slots=True)
class Template:
    """A document whose copies show the same pages. `reason`: why it cannot be opened, "" for a good one."""

    name: str
    suffix: str
    pages: int
    data: bytes
    reason: str = ""


def templates(pages: int, seed: int) -> list[Template]:
    """Good ones of at least so many pages together, a long one among them, then bad ones."""
    made = [_real(name, count) for name, count in _REAL.items()]
    made.append(_letter("long", _LONG, seed))
    chance = random.Random(seed)
    for number in itertools.count():
        if sum(one.pages for one in made) >= pages:
            break
        made.append(_letter(f"letter{number:03d}", chance.randint(1, _LONGEST_LETTER), seed))
    return [*made, *_bad(chance)]


def _real(name: str, pages: int) -> Template:
    path = _EXAMPLES / name
    return Template(path.stem, path.suffix, pages, path.read_bytes())


def _letter(name: str, pages: int, seed: int, password: str = "") -> Template:
    """A PDF with a text layer."""
    from io import BytesIO

    from reportlab.pdfgen.canvas import Canvas

    buffer, chance = BytesIO(), random.Random(f"{seed} {name}")
    canvas = Canvas(buffer, pagesize=(420, 595), encrypt=password or None, invariant=1)
    for page in range(1, pages + 1):
        canvas.drawString(50, 550, f"Letter {name}, page {page}")
        for line in range(18):
            canvas.drawString(50, 520 - 22 * line, " ".join(chance.choices(_WORDS, k=9)))
        canvas.rect(60, 40, 300 * chance.random() + 20, 60)
        canvas.showPage()
    canvas.save()
    return Template(name, ".pdf", pages, buffer.getvalue())


def _bad(chance: random.Random) -> Iterator[Template]:
    yield Template("locked", ".pdf", 1, _letter("locked", 2, 0, "a secret").data, "encrypted")
    yield Template("damaged", ".pdf", 1, b"%PDF-1.4\n" + chance.randbytes(4000), "unreadable")
    yield Template("prose", ".pdf", 1, b"This is no PDF at all.\n" * 40, "unreadable")
    yield Template("noimage", ".png", 1, b"\x89PNG\r\n\x1a\n" + chance.randbytes(2000), "unreadable")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files of one round. `expected`: the template of each file's stem."""

    folder: Path
    pages: int
    documents: dict[str, Template]


def copies(made: list[Template], pages: int, folder: Path) -> Corpus:
    """All templates in turn until there are so many pages; each copy has content of its own, so none is an alias."""
    folder.mkdir(parents=True)
    documents: dict[str, Template] = {}
    total = 0
    for number, template in enumerate(itertools.cycle(made)):
        if total >= pages and number >= len(made):
            return Corpus(folder, total, documents)
        stem = f"{number:05d}-{template.name}"
        # After the end of the file, where neither readers of PDFs nor of images look.
        (folder / f"{stem}{template.suffix}").write_bytes(template.data + f"\n% copy {number}\n".encode())
        documents[stem] = template
        total += template.pages
    raise AssertionError("unreachable")
