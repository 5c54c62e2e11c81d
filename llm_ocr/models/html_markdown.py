"""HTML of one block -> Markdown: paragraphs, headings, lists, code, formulas, marks. Tables stay HTML, made plain.

One pass over the tags with a stack of bounded depth: no recursion, time linear in the length.
"""

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from llm_ocr.models.html_tokens import HtmlTag, html_tokens
from llm_ocr.models.markdown_forms import (
    bare_formula,
    code_language,
    code_span,
    fenced,
    indented,
    joined,
    list_item,
    marked,
    table_cell,
    whole_number,
)

_DEEPEST = 40  # open elements that have a form of their own; deeper ones only give their text
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_INLINE = frozenset({"b", "strong", "i", "em", "del", "s", "strike", "sup", "sub", "a", "code"})
_LISTS = frozenset({"ul", "ol"})
_CELLS = frozenset({"td", "th"})
# An empty one has its place in the grid all the same.
_EVEN_EMPTY = _CELLS | {"tr"}
_PARTS = frozenset({"table", "caption", "tr", *_CELLS})
_FRAMES = _INLINE | _LISTS | _PARTS | frozenset({*_HEADINGS, "li", "pre"})
# Elements that begin and end a paragraph, and have no form of their own.
_BREAKS = frozenset(
    {
        *("p", "div", "blockquote", "center", "section", "article", "aside", "main", "nav", "header", "footer"),
        *(
            "figure",
            "figcaption",
            "details",
            "summary",
            "body",
            "form",
            "dl",
            "dt",
            "dd",
            "option",
            "title",
            "textarea",
        ),
    }
)
_DROPPED = frozenset({"script", "style"})
_WHITE = re.compile(r"[\s\xa0]+")
_BLANKS = re.compile(" +")
_BREAK_SPACE = re.compile(" ?\n ?")
_TAG_LIKE = re.compile(r"<(?=[A-Za-z/!?])")
_SAID = re.compile(">[^<]")  # text in any cell
_HEADING_LIKE = re.compile(r"^(#{1,6})(?=\s|$)", re.MULTILINE)


def html_to_markdown(source: str | Iterable[HtmlTag | str]) -> str:
    """The Markdown of some HTML, or of its tags and text. Never raises.

    Cells of tables keep `<br>`, `<sup>` and `<sub>`; every other mark in them goes. Pictures are left as their words.
    """
    writer = _Writer()
    for token in html_tokens(source) if isinstance(source, str) else source:
        writer.take(token)
    return writer.finish()


@dataclass(slots=True)
class _Frame:
    """An open element: finished paragraphs, and the line that is being written."""

    name: str
    tag: HtmlTag
    blocks: list[tuple[str, bool]] = field(default_factory=list)  # text, and whether it is a list
    line: list[str] = field(default_factory=list)
    number: int = 1  # of the next item of an ordered list
    language: str = ""  # of code


class _Writer:
    def __init__(self) -> None:
        self._stack = [_Frame("", HtmlTag(""))]
        self._deeper: dict[str, int] = {}  # elements that are open beyond the deepest
        self._tables = 0
        self._verbatim = 0  # open <pre> and <code>

    def finish(self) -> str:
        while len(self._stack) > 1:
            self._pop()
        self._flush()
        return joined(self._stack[0].blocks)

    def take(self, token: HtmlTag | str) -> None:
        if isinstance(token, str):
            self._text(token)
        elif token.raw is not None:
            self._formula(token)
        elif token.name in _FRAMES:
            self._close(token.name) if token.close else self._open(token)
        elif token.name in _BREAKS and not self._verbatim:
            self._end_marks()
            self._flush()
        elif not token.close:
            self._void(token)

    def _text(self, text: str) -> None:
        if self._tables:
            text = html.escape(text, quote=False)
        elif not self._verbatim:
            text = _TAG_LIKE.sub(r"\\<", text)
        self._stack[-1].line.append(text if self._verbatim else _WHITE.sub(" ", text))

    def _void(self, tag: HtmlTag) -> None:
        match tag.name:
            case "br":
                self._stack[-1].line.append("\n")
            case "hr":
                self._end_marks()
                self._flush()
                self._stack[-1].blocks.append(("---", False))
            case "img":
                words = " ".join(tag.attributes.get("alt", "").split()).replace("*", "")
                if words:
                    self._text(words if self._verbatim or self._tables else f"*{words}*")
            case "input":
                self._input(tag)

    def _input(self, tag: HtmlTag) -> None:
        kind = tag.attributes.get("type", "").lower()
        if kind in ("checkbox", "radio"):
            checked = "checked" in tag.attributes and tag.attributes["checked"].lower() != "false"
            self._text("☑ " if checked else "☐ ")
        elif kind not in ("hidden", "submit", "button"):
            self._text(tag.attributes.get("value", ""))

    def _formula(self, tag: HtmlTag) -> None:
        if tag.name in _DROPPED:
            return
        said = (tag.raw or "").strip()
        if tag.name == "chem":
            text = html.escape(said, quote=False) if self._tables else code_span(said)
            self._stack[-1].line.append(_WHITE.sub(" ", text))
            return
        said = bare_formula(said)
        display = tag.attributes.get("display", "").lower() in ("block", "true", "display")
        if not said:
            return
        if display and not self._tables and not self._verbatim:
            self._end_marks()
            self._flush()
            self._stack[-1].blocks.append((f"$$\n{said}\n$$", False))
            return
        mark = "$$" if display else "$"
        said = _WHITE.sub(" ", said)
        self._stack[-1].line.append(f"{mark}{html.escape(said, quote=False) if self._tables else said}{mark}")

    def _open(self, tag: HtmlTag) -> None:
        name = tag.name
        if name == "code" and self._verbatim:
            self._stack[-1].language = self._stack[-1].language or code_language(tag.attributes)
            return
        if name not in _INLINE:
            self._end_marks()
            self._end_siblings(name)
            self._flush()
        if len(self._stack) > _DEEPEST:
            self._deeper[name] = self._deeper.get(name, 0) + 1
            return
        number = whole_number(tag.attributes.get("start", ""), 1)
        self._stack.append(_Frame(name, tag, number=number, language=code_language(tag.attributes)))
        self._tables += name == "table"
        self._verbatim += name in ("pre", "code")

    def _end_siblings(self, name: str) -> None:
        """End what may not hold an element of this name, and begin what it must stand in."""
        if name == "li":
            self._end_within("li", _LISTS)
        elif name in _CELLS:
            for cell in _CELLS:
                self._end_within(cell, frozenset({"table"}))
            self._stand_in("tr", frozenset({"tr"}))
        elif name == "tr":
            self._end_within("tr", frozenset({"table"}))
            self._stand_in("table", frozenset({"table"}))

    def _end_within(self, name: str, border: frozenset[str]) -> None:
        for depth in range(len(self._stack) - 1, 0, -1):
            if self._stack[depth].name in border:
                return
            if self._stack[depth].name == name:
                self._pop_to(depth)
                return

    def _stand_in(self, name: str, names: frozenset[str]) -> None:
        if self._stack[-1].name not in names and not (name == "table" and self._tables):
            self._open(HtmlTag(name))

    def _close(self, name: str) -> None:
        if name == "code" and self._stack[-1].name == "pre":
            return
        if self._deeper.get(name):
            self._deeper[name] -= 1
            self._flush()
            return
        for depth in range(len(self._stack) - 1, 0, -1):
            if self._stack[depth].name == name:
                self._pop_to(depth)
                return
            if name in _INLINE and self._stack[depth].name not in _INLINE:
                return

    def _end_marks(self) -> None:
        while self._stack[-1].name in _INLINE:
            self._pop()

    def _pop_to(self, depth: int) -> None:
        while len(self._stack) > depth:
            self._pop()

    def _flush(self) -> None:
        """End the paragraph that is being written."""
        frame = self._stack[-1]
        text = "".join(frame.line)
        frame.line.clear()
        if not self._verbatim:
            text = _BREAK_SPACE.sub("\n", _BLANKS.sub(" ", text)).strip()
        if not text.strip():
            return
        if not self._tables and not self._verbatim and frame.name not in _HEADINGS:
            text = _HEADING_LIKE.sub(r"\\\1", text)
        frame.blocks.append((text, False))

    def _pop(self) -> None:
        """End the innermost element and give what it says to the one around it."""
        frame = self._stack[-1]
        text = "".join(frame.line)
        if frame.name in _INLINE and not frame.blocks and not ("\n" in text.strip() and frame.name == "code"):
            self._stack.pop()
            self._verbatim -= frame.name == "code"
            self._stack[-1].line.append(self._marked(frame, text))
            return
        self._flush()
        self._stack.pop()
        self._tables -= frame.name == "table"
        self._verbatim -= frame.name in ("pre", "code")
        above = self._stack[-1]
        if frame.name in _INLINE:
            self._flush()  # what stands before a paragraph within a mark
        if frame.blocks or frame.name in _EVEN_EMPTY:
            above.blocks += self._given(frame, above)

    def _marked(self, frame: _Frame, text: str) -> str:
        heading = any(one.name in _HEADINGS for one in self._stack) and frame.name in ("b", "strong")
        if heading or (self._tables and frame.name not in ("sup", "sub")):
            return text
        return marked(frame.name, text, frame.tag.attributes)

    def _given(self, frame: _Frame, above: _Frame) -> list[tuple[str, bool]]:
        """What an element that ends says, in its form."""
        name, blocks = frame.name, frame.blocks
        if name in _CELLS:
            return [(table_cell(name, blocks, frame.tag.attributes), False)]
        if name == "tr":
            return [(f"<tr>{''.join(_in_cell(text) for text, _ in blocks)}</tr>", False)]
        if name == "table":
            rows = "".join(text for text, _ in blocks if text.startswith("<tr>"))
            others = [one for one in blocks if not one[0].startswith("<tr>")]
            return [*others, (f"<table>{rows}</table>", False)] if _SAID.search(rows) else others
        if name == "li":
            text = "\n".join(text for text, _ in blocks) if self._tables else joined(blocks)
            return [(list_item(text, _marker(frame, above)), False)]
        if self._tables:
            return blocks
        if name in _HEADINGS:
            return [(f"{'#' * _HEADINGS[name]} {' '.join(joined(blocks).split())}", False)]
        if name in _LISTS:
            return [("\n".join(indented(text, 2) if is_list else text for text, is_list in blocks), True)]
        if name in ("pre", "code"):
            return [(fenced("\n".join(text for text, _ in blocks), frame.language), False)]
        return blocks


def _in_cell(text: str) -> str:
    return text if text.startswith(("<td", "<th")) else f"<td>{text}</td>"


def _marker(item: _Frame, above: _Frame) -> str:
    if above.name != "ol":
        return "-"
    number = whole_number(item.tag.attributes.get("value", ""), above.number)
    above.number = number + 1
    return f"{number}."
