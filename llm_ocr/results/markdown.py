"""Convert blocks in reading order to the Markdown of a page."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import unquote

from llm_ocr.types import FURNITURE, Block, BlockKind

# Text for storage: UTF-8 cannot encode lone surrogates, which occur in broken PDFs and file names.


_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# Lines of Markdown outside and inside of code fences: text inside a fence must not be changed.


# CommonMark 0.31, 4.5: three or more backticks or tildes; no backtick in a backtick fence's info string. Any
# indentation and list markers may precede it, for code in list items.
_OPENING = re.compile(r"(?P<before> *(?:(?:[-*+]|\d{1,9}[.)]) +)*)(?P<marks>`{3,}(?=[^`]*$)|~{3,})")


@dataclass(frozen=True, slots=True)
class MarkdownLine:
    """Line without its newline. `fence` is the fence that the line opens, closes, or is within; "" outside of code."""

    text: str
    fence: str
    column: int = 0  # of the fence

    @property
    def blank(self) -> bool:
        """Whether the line is outside of code and has only white space."""
        return not self.fence and not self.text.strip()


def markdown_lines(text: str) -> Iterator[MarkdownLine]:
    """Yield every line of the text with its fence."""
    fence, column = "", 0
    for line in text.split("\n"):
        if fence:
            yield MarkdownLine(line, fence, column)
            marks, indent = line.strip(" \t"), len(line) - len(line.lstrip(" "))
            if indent <= column + 3 and len(marks) >= len(fence) and set(marks) == {fence[0]}:
                fence = ""
        else:
            if opening := _OPENING.match(line):
                fence, column = opening["marks"], len(opening["before"])
            yield MarkdownLine(line, fence, column)


def open_fence(text: str) -> str:
    """Return the line that closes unclosed code in the text; "" if there is none."""
    *_, behind = markdown_lines(f"{text}\n")
    return " " * behind.column + behind.fence if behind.fence else ""


def map_prose(text: str, change: Callable[[str], str], code: Callable[[str], str] = str) -> str:
    """Apply `change` to each run of lines outside of fenced code, and `code` to each fenced block."""
    runs = groupby(markdown_lines(text), key=lambda line: bool(line.fence))
    parts = [(fenced, "\n".join(line.text for line in lines)) for fenced, lines in runs]
    return "\n".join(code(part) if fenced else change(part) for fenced, part in parts)


def collapse_blank_lines(text: str) -> str:
    """Reduce blank lines outside of code to one in a row, and remove them at the ends."""
    kept: list[str] = []
    blank = False
    for line in markdown_lines(text):
        if not (line.blank and blank):
            kept.append("" if line.blank else line.text)
        blank = line.blank
    return "\n".join(kept).strip("\n")


# Links to figures in Markdown: `![alt](figure:ID)`, the form of the predecessor's datasets. Ids may contain any text
# (as a manifest's document ids do), so the target is percent-encoded where CommonMark would end it.


SCHEME = "figure:"

#: Image: its alt text, which may contain escapes and a pair of brackets, and its target, including a title.
IMAGE = re.compile(r"!\[(?P<alt>(?:[^\\\[\]]|\\.|\[(?:[^\\\[\]]|\\.)*\])*)\]\((?P<target>[^()\n]+)\)", re.DOTALL)

#: Beginning of the paragraph below an image. The block quote separates a model's words from the page's own text, in
#: rendered Markdown and in training data. The label makes the paragraph recognizable without an id. An italic
#: paragraph, which older versions wrote, is also the usual form of a caption.
DESCRIPTION = "> **Figure description:** "
_PRINTED = "> **Figure description**: "  # the same words, printed on a page
_LINKED = re.compile(rf"\]\((?=\s*<?{SCHEME})")

_WEB_LINK = re.compile(r"(?<![!\\])\[((?:\\.|[^\\\[\]\n])+)\]\((?:https?://|mailto:)[^()\s]*\)", re.IGNORECASE)
_UNSAFE_IN_TARGET = re.compile(r"[\x00-\x20\x7f\s\"#%&'()/:<>?@\[\\\]`|]")
# An underscore between letters or digits is no emphasis (CommonMark 6.2) and stays readable.
_UNSAFE_IN_TEXT = re.compile(r"[$*\[\\\]`|~]|(?<![^\W_])_+|_+(?![^\W_])")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def escape(text: str) -> str:
    r"""Return the text, after `one_line`, as Markdown that displays it verbatim.

    `<`, `>` and `&` become entities, which are valid in Markdown and in HTML; other characters are escaped with `\`.
    """
    line = re.sub("[&<>]", lambda match: _ENTITIES[match[0]], one_line(text))
    return _UNSAFE_IN_TEXT.sub(lambda match: "".join(f"\\{mark}" for mark in match[0]), line)


def one_line(text: str) -> str:
    """Collapse white space, remove control characters, and replace lone surrogates."""
    return " ".join(_CONTROL.sub("", " ".join(clean(text).split())).split())


def unescape(text: str) -> str:
    """Reverse `escape`, except for white space and control characters."""
    plain = _ESCAPE.sub(r"\1", text)
    for character, entity in reversed(_ENTITIES.items()):
        plain = plain.replace(entity, character)
    return plain


def encode_target(text: str) -> str:
    """Encode a part of a link target for CommonMark and URL parsers. Letters of any script are unchanged."""
    return _UNSAFE_IN_TARGET.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), clean(text))


def figure_link(figure_id: str) -> str:
    """Return `![ID](figure:ID)`, percent-encoded where necessary."""
    return f"![{escape(figure_id)}]({SCHEME}{encode_target(figure_id)})"


def without_web_links(markdown: str) -> str:
    """Replace links to the web by their texts. Code is unchanged."""
    return map_prose(markdown, lambda text: _WEB_LINK.sub(r"\1", text)) if "](" in markdown else markdown


def target_id(target: str) -> str | None:
    """Return the figure that a link target names; None for other targets."""
    return unquote(target.removeprefix(SCHEME)) if target.startswith(SCHEME) else None


# Pages as Markdown. `Block.text` is already Markdown; this section arranges it: headings by level, lists without gaps,
# blank lines between all other blocks, no furniture, and a link `![id](figure:id)` for a figure.


_HEADING_MARKS = re.compile(r"^#{1,6}(?=\s)\s*")
_CLOSING_MARKS = re.compile(r"(?<=\s)(#+)$")
_ITEM = re.compile(r"(?P<marker>[-*+]|\d{1,9}[.)])(?:[ \t]+|$|(?=\n))(?P<body>.*)", re.DOTALL)
_TICKS = re.compile(r"`{3,}")
#: Places where CommonMark (0.31, 4.6) lets a comment hide everything up to its end, or all following text; also in
#: lists and quotes.
_COMMENT = re.compile(r"^( {0,3}(?:(?:[-*+>]|\d{1,9}[.)]) +)*)<!--", re.MULTILINE)
_DELIMITED = ("$$", "\\[", "\\begin{", "```")
_DEEPEST_HEADING = 6


def blocks_to_markdown(blocks: Iterable[Block], *, furniture: bool = False) -> str:
    """Return the page's Markdown, without a newline at the end; "" for a page without text. Never raises.

    A title is `#`, headings of level 1 (and 0, unknown) are `##`, of level 2 `###` and so on. Code is fenced. A formula
    is set in `$$` only if its label says LaTeX. Figures without a crop leave the text read inside them. With
    `furniture`, running heads, feet, and page numbers are included as text.
    """
    shown = [block for block in blocks if furniture or block.kind not in FURNITURE]
    parts: list[str] = []
    for is_list, run in groupby(shown, key=lambda block: block.kind is BlockKind.LIST_ITEM):
        members = list(run)
        parts.extend(["\n".join(_list_lines(members))] if is_list else [_block(block) for block in members])
    return collapse_blank_lines("\n\n".join(_closed(part) for part in parts if part))


def _block(block: Block) -> str:
    text = _tidy(block.text) if block.kind is BlockKind.CODE else _prose(block.text)
    match block.kind:
        case BlockKind.TITLE:
            return _heading(text, 1)
        case BlockKind.HEADING:
            return _heading(text, max(block.level, 1) + 1)
        case BlockKind.CODE:
            if not text.strip():
                return ""
            text = text.strip("\n")
            if text.startswith("```") and text.rstrip().endswith("```") and not open_fence(text) and "\n" in text:
                return text
            fence = "`" * (max(map(len, _TICKS.findall(text)), default=2) + 1)
            return f"{fence}\n{text}\n{fence}"
        case BlockKind.FORMULA:
            text = text.strip()
            is_bare = bool(text) and "latex" in block.label.casefold() and not text.startswith(_DELIMITED)
            return f"$$\n{text}\n$$" if is_bare else text
        case BlockKind.FIGURE:
            inside = "" if block.figure_id else _prose(block.inside).strip()
            link = figure_link(block.figure_id) if block.figure_id else ""
            return "\n\n".join(filter(None, (link, text.strip(), inside)))
        case _:
            return text.strip()


def _tidy(text: str) -> str:
    # U+0000 is not valid in Markdown: CommonMark 2.3 replaces it in this way.
    return clean(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _prose(text: str) -> str:
    """Return text in which nothing is read as our link to a figure, or as our description of one."""
    text = _tidy(text)
    if SCHEME in text or DESCRIPTION in text:
        return map_prose(text, lambda part: _LINKED.sub(r"]\(", part).replace(DESCRIPTION, _PRINTED))
    return text


def _closed(text: str) -> str:
    """Close a code fence or comment that a cut answer left open, and that would hide the rest of the document."""
    fence = open_fence(text)
    text = f"{text}\n{fence}" if fence else text
    if "<!--" not in text:
        return text

    def escape_open_comment(prose: str) -> str:
        last = prose.rfind("-->")
        return _COMMENT.sub(lambda found: found[0] if found.start() < last else f"{found[1]}\\<!--", prose)

    return map_prose(text, escape_open_comment)


def _heading(text: str, level: int) -> str:
    words = _CLOSING_MARKS.sub(r"\\\1", _HEADING_MARKS.sub("", " ".join(text.split())))
    return f"{'#' * min(level, _DEEPEST_HEADING)} {words}" if words else ""


def _list_lines(items: Iterable[Block]) -> Iterator[str]:
    """Indent each item by the markers of its parent items, as CommonMark requires (`1. ` takes three)."""
    columns: list[int] = [0]  # text columns of the open items, outermost first
    for item in items:
        text = _prose(item.text).strip()
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
