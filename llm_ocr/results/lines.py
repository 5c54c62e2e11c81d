"""Lines of Markdown, as far as text may be changed: what stands inside a code fence must not be."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

# CommonMark 0.31, 4.5: three or more backticks or tildes; no backtick in a backtick fence's info string. Any
# indentation and list markers may stand before it, for code in list items.
_OPENING = re.compile(r"(?P<before> *(?:(?:[-*+]|\d{1,9}[.)]) +)*)(?P<marks>`{3,}(?=[^`]*$)|~{3,})")


@dataclass(frozen=True, slots=True)
class MarkdownLine:
    """One line without its newline. `fence` is the fence that it opens, stands in or closes: "" outside of code."""

    text: str
    fence: str

    @property
    def blank(self) -> bool:
        """Outside of code, nothing but white space."""
        return not self.fence and not self.text.strip()


def markdown_lines(text: str) -> Iterator[MarkdownLine]:
    """Every line of the text, told whether it belongs to fenced code."""
    fence, column = "", 0
    for line in text.split("\n"):
        if fence:
            yield MarkdownLine(line, fence)
            if _closes(line, fence, column):
                fence = ""
        else:
            opening = _OPENING.match(line)
            if opening:
                fence, column = opening["marks"], len(opening["before"])
            yield MarkdownLine(line, fence)


def _closes(line: str, fence: str, column: int) -> bool:
    marks = line.strip(" \t")
    indent = len(line) - len(line.lstrip(" "))
    return indent <= column + 3 and len(marks) >= len(fence) and set(marks) == {fence[0]}


def open_fence(text: str) -> str:
    """The line that would close code which the text leaves open; "" where none is open."""
    fence, column = "", 0
    for line in text.split("\n"):
        if fence:
            fence = "" if _closes(line, fence, column) else fence
        elif opening := _OPENING.match(line):
            fence, column = opening["marks"], len(opening["before"])
    return " " * column + fence if fence else ""


def map_prose(text: str, change: Callable[[str], str], code: Callable[[str], str] = str) -> str:
    """Apply `change` to each run of lines outside of fenced code, and `code` to each fenced block."""
    runs = groupby(markdown_lines(text), key=lambda line: bool(line.fence))
    parts = [(fenced, "\n".join(line.text for line in lines)) for fenced, lines in runs]
    return "\n".join(code(part) if fenced else change(part) for fenced, part in parts)


def collapse_blank_lines(text: str) -> str:
    """At most one blank line in a row outside of code, none at the ends."""
    return "\n".join(_collapsed(markdown_lines(text))).strip("\n")


def _collapsed(lines: Iterable[MarkdownLine]) -> Iterator[str]:
    blank = False
    for line in lines:
        if not (line.blank and blank):
            yield "" if line.blank else line.text
        blank = line.blank
