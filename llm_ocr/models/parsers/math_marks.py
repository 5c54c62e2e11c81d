r"""Delimiters of formulas: `\( \)`, `\[ \]`, and spaced dollars become `$` and `$$`. Linear; never raises.

Models use different delimiters, and many Markdown renderers know only dollars.
"""

import re
from dataclasses import replace

from llm_ocr.models.parsers.plain import by_fences
from llm_ocr.types import Block, BlockKind

_CODE = r"(?P<code>(?P<ticks>`+)[^`]*+(?P=ticks))"
_ROUND = re.compile(rf"{_CODE}|(?<!\\)\\\((?P<inner>(?:(?!\\[()])[^$`\n]|\n(?!\s*\n)){{1,2000}}+)\\\)")
_SQUARE = re.compile(
    rf"{_CODE}|^(?P<indent>[ \t]*)\\\[(?P<inner>(?:(?!\\[\[\]]|\n[ \t]*\n)[^`]){{1,6000}}+)\\\](?=[ \t]*[.,;]?[ \t]*$)",
    re.MULTILINE,
)
_DOLLAR = re.compile(r"(?<![\\$])\$(?!\$)")
_SIGN = re.compile(r"[\\^_={}<>+*/|]")
_NUMBER = re.compile(r"[ \t]*\d")
_WORD = re.compile(r"[^\W\d_]{4}")
_REFERENCE = re.compile(r"[\d\s,;–-]+\Z")


def with_dollar_math(block: Block) -> Block:
    """Return the block with its formulas between dollars; code stays as written."""
    if block.kind is BlockKind.CODE or not any(mark in block.text for mark in ("\\(", "\\[", "$ ")):
        return block
    parts: list[str] = []
    for prose, text in by_fences(block.text):
        if prose and "\\(" in text:
            text = _ROUND.sub(_inline, text)
        if prose and "\\[" in text:
            text = _SQUARE.sub(_display, text)
        parts.append(_tight(text) if prose and "$ " in text else text)
    return replace(block, text="".join(parts))


def _inline(found: re.Match[str]) -> str:
    inner = (found["inner"] or "").strip()
    # `\(see below\)` is an escaped parenthesis of Markdown.
    words = not _SIGN.search(inner) and _WORD.search(inner)
    return found[0] if found["code"] or not inner or words else f"${inner}$"


def _display(found: re.Match[str]) -> str:
    inner = (found["inner"] or "").strip()
    if found["code"] or not inner or _REFERENCE.match(inner):
        return found[0]
    return f"{found['indent']}$$\n{inner}\n$$"


def _tight(text: str) -> str:
    """Return the text with `$ x $` as `$x$`, which renderers require; sums of money stay."""
    marks = [mark.start() for mark in _DOLLAR.finditer(text)]
    parts: list[str] = []
    done = at = 0
    while at + 1 < len(marks):
        start, end = marks[at], marks[at + 1]
        inner = text[start + 1 : end]
        bare = inner.strip(" \t")
        spaced = inner != bare
        symbol = len(bare) <= 3 and bare.isalpha()
        money = _NUMBER.match(text, start + 1) and _NUMBER.match(text, end + 1)
        if spaced and bare and "\n" not in inner and not money and (_SIGN.search(bare) or symbol):
            parts += [text[done:start], f"${bare}$"]
            done = end + 1
            at += 1
        elif not spaced:
            at += 1
        at += 1
    return "".join([*parts, text[done:]])
