"""Made-up pages: plain text, text behind olmOCR's front matter, or blocks in DeepSeek-OCR's grounding form."""

from enum import Enum, auto
from random import Random

_NOUNS = (
    "survey", "sample", "station", "method", "report", "pressure", "water level", "temperature", "surface", "energy",
    "harbor", "river", "season", "measurement", "region", "material", "current", "model", "light", "growth rate",
)  # fmt: skip
_KINDS = ("first", "second", "new", "annual", "northern", "average", "early", "final", "small", "regional")
_VERBS = ("shows", "confirms", "follows", "limits", "explains", "depends on", "changes with", "differs from")
_PLACES = (
    "in the first season", "under constant light", "between the two regions", "at a lower rate", "near the coast",
    "during the second phase", "over five years", "after the spring", "in most cases", "at every station",
)  # fmt: skip
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
    FIGURE = auto()  # what a figure shows, without a heading


def form_of(prompt: str) -> Form:
    """Return the form by the words with which DeepSeek-OCR's, olmOCR's, and our own prompts ask for it."""
    if "<|grounding|>" in prompt:
        return Form.GROUNDED
    if "front matter section" in prompt:
        return Form.FRONT_MATTER
    return Form.FIGURE if prompt.removeprefix("<image>").lstrip().startswith("Describe ") else Form.PLAIN


def page(rng: Random, token: str, length: int, form: Form = Form.PLAIN) -> str:
    """About `length` characters; `token` stands in the first line of the text."""
    if form is Form.GROUNDED:
        return _grounded(rng, token, length)
    if form is Form.FRONT_MATTER:
        return _FRONT + _plain(rng, token, length - len(_FRONT))
    if form is Form.FIGURE:
        return _paragraphs(rng, f"The figure ({token}) shows the {_thing(rng)} {rng.choice(_PLACES)}.", length)
    return _plain(rng, token, length)


def loop(rng: Random, start: str, length: int) -> str:
    """`start`, then one line over and over up to `length` characters."""
    line = _prose(rng, 60) + "\n"
    return (start + "\n" + line * (max(length - len(start), 0) // len(line) + 1))[:length]


def _prose(rng: Random, length: int) -> str:
    """Return whole sentences: `length` characters, and at most one short sentence more."""
    found = _sentence(rng, length)
    while len(found) < length:
        found += " " + _sentence(rng, length - len(found))
    return found


def _sentence(rng: Random, room: int) -> str:
    """Return a sentence, a short one where `room` characters are too few for a long one."""
    said = f"the {_thing(rng)} {rng.choice(_VERBS)} the {rng.choice(_NOUNS)}"
    if room > 80:
        place = rng.choice(_PLACES)
        said = rng.choice((f"{said} {place}", f"{place}, {said}", f"{said}, and the {_thing(rng)} does not"))
    return f"{said[0].upper()}{said[1:]}."


def _thing(rng: Random) -> str:
    return f"{rng.choice(_KINDS)} {rng.choice(_NOUNS)}"


def _title(rng: Random, token: str) -> str:
    return f"{_thing(rng)} and {rng.choice(_NOUNS)}".capitalize() + f" ({token})"


def _plain(rng: Random, token: str, length: int) -> str:
    return _paragraphs(rng, f"# {_title(rng, token)}", length)


def _paragraphs(rng: Random, first: str, length: int) -> str:
    parts = [first]
    size = len(first)
    while size < length:
        part = _prose(rng, min(_PARAGRAPH, length - size - 2))
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
        return "title", f"# {_title(rng, token)}"
    if left < 400:
        return "text", _prose(rng, left - 62)
    kind = number % 9
    if kind == 2:
        return "sub_title", f"## {number} {_thing(rng).capitalize()}"
    if kind == 4:
        return "image", ""
    if kind == 5:
        return "image_caption", f"<center>Figure {number}: {_prose(rng, 60)}</center>"
    if kind == 7:
        return "table", _table(rng)
    return "text", _prose(rng, min(_PARAGRAPH, left - 62))


def _table(rng: Random) -> str:
    rows = [["Quantity", "First year", "Second year"]] + [
        [name.capitalize(), *map(str, rng.choices(range(1000), k=2))] for name in rng.sample(_NOUNS, k=3)
    ]
    return "<table>" + "".join("<tr><td>" + "</td><td>".join(row) + "</td></tr>" for row in rows) + "</table>"
