"""Answers in plain Markdown, without places: every block has the whole page as its box."""

from collections.abc import Sequence

from llm_ocr.models.coordinates import WHOLE_PAGE
from llm_ocr.models.pieces import pieces
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.models.tokens import without_special
from llm_ocr.types import Block

_WRAPPERS = ("```markdown", "```md")


def parse_plain(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Blocks of a Markdown answer. Never raises; linear in the length.

    A fence around the whole answer, as chat models like to give, is taken off.
    """
    found = pieces(plain_body(text))
    return Parsed(tuple(Block(piece.kind, WHOLE_PAGE, piece.text, level=piece.level) for piece in found))


def plain_body(text: str) -> str:
    """The Markdown of an answer: without special tokens, and without a fence around the whole."""
    return _unwrapped(without_special(text).replace("\r\n", "\n").strip())


def _unwrapped(text: str) -> str:
    first, _, rest = text.partition("\n")
    if first.strip().casefold() not in _WRAPPERS:
        return text
    lines = rest.split("\n")
    end = _closing(lines)
    if end is None:
        return rest  # the end of the answer was cut off
    return "\n".join(lines[:end]) if end == len(lines) - 1 else text


def _closing(lines: Sequence[str]) -> int | None:
    """The line that closes a fence opened before the first one; fences with a language stand inside."""
    inside = False
    for number, line in enumerate(lines):
        bare = line.strip()
        if bare == "```":
            if not inside:
                return number
            inside = False
        elif bare.startswith("```") and not inside:
            inside = True
    return None
