"""The ways in which answers go wrong."""

import random
import re
from collections.abc import Callable

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
