"""Made-up pages: plain text, text behind olmOCR's front matter, or blocks in DeepSeek-OCR's grounding form."""

from enum import Enum, auto
from random import Random

_TEXT = (
    "the of and in to a is for with that by are on as be from this which at an or we it results between method "
    "values shown table data model page first where each energy sample under light during phase rate mean state "
    "field order study system surface measured number increase water pressure function time level region given "
    "total report section analysis"
)
_WORDS = _TEXT.split()
_WIDEST = 999  # coordinates run from 0 to this
_PARAGRAPH = 480  # characters
#: What olmOCR's own client demands of an answer: these five values, and no other.
_FRONT = (
    "---\nprimary_language: en\nis_rotation_valid: True\nrotation_correction: 0\n"
    "is_table: False\nis_diagram: False\n---\n"
)


class Form(Enum):
    """The form that a prompt asks for."""

    PLAIN = auto()
    FRONT_MATTER = auto()
    GROUNDED = auto()


def form_of(prompt: str) -> Form:
    """By the words with which DeepSeek-OCR's and olmOCR's prompts ask for it."""
    if "<|grounding|>" in prompt:
        return Form.GROUNDED
    return Form.FRONT_MATTER if "front matter section" in prompt else Form.PLAIN


def page(rng: Random, token: str, length: int, form: Form = Form.PLAIN) -> str:
    """About `length` characters; `token` stands in the first line of the text."""
    if form is Form.GROUNDED:
        return _grounded(rng, token, length)
    if form is Form.FRONT_MATTER:
        return _FRONT + _plain(rng, token, length - len(_FRONT))
    return _plain(rng, token, length)


def loop(rng: Random, start: str, length: int) -> str:
    """`start`, then one line over and over up to `length` characters."""
    line = _prose(rng, 60) + "\n"
    return (start + "\n" + line * (max(length - len(start), 0) // len(line) + 1))[:length]


def _prose(rng: Random, length: int) -> str:
    """Exactly `length` characters, from words."""
    return " ".join(rng.choices(_WORDS, k=length // 4 + 2))[: max(length - 1, 0)].ljust(max(length - 1, 0), "e") + "."


def _plain(rng: Random, token: str, length: int) -> str:
    parts = [f"# {token} {_prose(rng, 24)}"]
    size = len(parts[0])
    while size < length:
        part = _prose(rng, max(min(_PARAGRAPH, length - size - 2), 1))
        parts.append(part)
        size += len(part) + 2
    return "\n\n".join(parts)


def _grounded(rng: Random, token: str, length: int) -> str:
    """Blocks from top to bottom; each takes the share of the page's height that it has of its text."""
    parts: list[str] = []
    size, number = 0, 0
    while size < length or not parts:
        label, body = _block(rng, token, number, length - size)
        top = min(_WIDEST - 2, 40 + 920 * size // max(length, 1))
        bottom = min(_WIDEST - 1, max(top + 1, 36 + 920 * (size + len(body) + 60) // max(length, 1)))
        left = rng.randrange(60, 120)
        part = f"<|ref|>{label}<|/ref|><|det|>[[{left}, {top}, {_WIDEST - left}, {bottom}]]<|/det|>\n{body}\n"
        parts.append(part + "\n" if body else part)
        size += len(parts[-1])
        number += 1
    return "".join(parts)


def _block(rng: Random, token: str, number: int, left: int) -> tuple[str, str]:
    """Label and text of the next block, when `left` characters are still to be filled."""
    if number == 0:
        return "title", f"# {token} {_prose(rng, 24)}"
    if left < 400:
        return "text", _prose(rng, max(left - 62, 1))
    kind = number % 9
    if kind == 2:
        return "sub_title", f"## {number} {_prose(rng, 20)}"
    if kind == 4:
        return "image", ""
    if kind == 5:
        return "image_caption", f"<center>Figure {number}: {_prose(rng, 60)}</center>"
    if kind == 7:
        return "table", _table(rng)
    return "text", _prose(rng, min(_PARAGRAPH, left - 62))


def _table(rng: Random) -> str:
    rows = [["item", "first", "second"]] + [
        [rng.choice(_WORDS), *map(str, rng.choices(range(1000), k=2))] for _ in "123"
    ]
    return "<table>" + "".join("<tr><td>" + "</td><td>".join(row) + "</td></tr>" for row in rows) + "</table>"
