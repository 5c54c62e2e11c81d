"""Blocks in reading order -> the Markdown of a page.

`Block.text` is Markdown already; this file puts it in its place: headings by level, lists without gaps, everything else
between blank lines, furniture left out, and a link `![id](figure:id)` where a figure stands.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from llm_ocr.results.figure_links import figure_link
from llm_ocr.results.lines import collapse_blank_lines, map_prose, open_fence
from llm_ocr.results.text import clean
from llm_ocr.types import FURNITURE, Block, BlockKind

_HEADING_MARKS = re.compile(r"^#{1,6}(?=\s)\s*")
_CLOSING_MARKS = re.compile(r"(?<=\s)(#+)$")
_ITEM = re.compile(r"(?P<marker>[-*+]|\d{1,9}[.)])(?:[ \t]+|$|(?=\n))(?P<body>.*)", re.DOTALL)
_TICKS = re.compile(r"`{3,}")
#: Where CommonMark (0.31, 4.6) lets a comment hide all up to its end, or all that follows; in lists and quotes, too.
_COMMENT = re.compile(r"^( {0,3}(?:(?:[-*+>]|\d{1,9}[.)]) +)*)<!--", re.MULTILINE)
_DELIMITED = ("$$", "\\[", "\\begin{", "```")
_DEEPEST_HEADING = 6


def blocks_to_markdown(blocks: Iterable[Block], *, furniture: bool = False) -> str:
    """The page's Markdown, without a newline at the end; "" for a page without text. Never raises.

    A title is `#`, headings of level 1 (and 0, not known) are `##`, of level 2 `###` and so on. Code is fenced; a
    formula is set in `$$` only if its label says LaTeX. Figures without a crop leave the text read inside them. With
    `furniture`, running heads, feet and page numbers stand in it as text.
    """
    shown = [block for block in blocks if furniture or block.kind not in FURNITURE]
    parts: list[str] = []
    for is_list, run in groupby(shown, key=lambda block: block.kind is BlockKind.LIST_ITEM):
        members = list(run)
        parts.extend([_list(members)] if is_list else [_block(block) for block in members])
    return collapse_blank_lines("\n\n".join(_closed(part) for part in parts if part))


def _block(block: Block) -> str:
    text = _tidy(block.text)
    match block.kind:
        case BlockKind.TITLE:
            return _heading(text, 1)
        case BlockKind.HEADING:
            return _heading(text, max(block.level, 1) + 1)
        case BlockKind.CODE:
            return _code(text) if text.strip() else ""
        case BlockKind.FORMULA:
            return _formula(text.strip(), block.label)
        case BlockKind.FIGURE:
            return _figure(block, text)
        case _:
            return text.strip()


def _tidy(text: str) -> str:
    # U+0000 has no place in Markdown: CommonMark 2.3 replaces it so
    return clean(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _closed(text: str) -> str:
    """A code fence or a comment that a cut answer left open would swallow the rest of the document."""
    fence = open_fence(text)
    text = f"{text}\n{fence}" if fence else text
    return map_prose(text, _without_open_comment) if "<!--" in text else text


def _without_open_comment(text: str) -> str:
    """A comment that never ends is text."""
    last = text.rfind("-->")
    return _COMMENT.sub(lambda found: found[0] if found.start() < last else f"{found[1]}\\<!--", text)


def _heading(text: str, level: int) -> str:
    words = _CLOSING_MARKS.sub(r"\\\1", _HEADING_MARKS.sub("", " ".join(text.split())))
    return f"{'#' * min(level, _DEEPEST_HEADING)} {words}" if words else ""


def _code(text: str) -> str:
    text = text.strip("\n")
    if text.startswith("```") and text.rstrip().endswith("```") and not open_fence(text) and "\n" in text:
        return text
    longest = max(map(len, _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _formula(text: str, label: str) -> str:
    if text and "latex" in label.casefold() and not text.startswith(_DELIMITED):
        return f"$$\n{text}\n$$"
    return text


def _figure(block: Block, text: str) -> str:
    inside = "" if block.figure_id else _tidy(block.inside).strip()
    pieces = [figure_link(block.figure_id) if block.figure_id else "", text.strip(), inside]
    return "\n\n".join(piece for piece in pieces if piece)


def _list(items: Iterable[Block]) -> str:
    return "\n".join(_list_lines(items))


def _list_lines(items: Iterable[Block]) -> Iterator[str]:
    """Each item is indented by the markers of those that it stands in, as CommonMark wants it (`1. ` takes three)."""
    columns: list[int] = [0]  # where the text of the open items begins, outermost first
    for item in items:
        text = _tidy(item.text).strip()
        found = _ITEM.fullmatch(text)
        marker, body = (found["marker"], found["body"].strip()) if found else ("-", text)
        if not body:
            continue
        depth = min(max(item.level, 0), len(columns) - 1)
        del columns[depth + 1 :]
        indent = " " * columns[depth]
        columns.append(columns[depth] + len(marker) + 1)
        first, *rest = _closed(body).split("\n")
        yield f"{indent}{marker} {first}".rstrip()
        inner = " " * columns[-1]
        yield from (f"{inner}{line}".rstrip() for line in rest)
