"""HTML answers: tokens, blocks, and Markdown."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from llm_ocr.types import HTML_ELEMENTS, IS_TAG

# Tokenizer of HTML as written by models. Linear in the length for any text; never raises. The standard library's
# `html.parser` is unsuitable: releases before July 2025 take quadratic time for comments without an end, and it reads
# `a<b` in a formula as a tag.


#: Elements without content.
VOID = frozenset({"br", "hr", "img", "input", "col", "wbr"})
# Elements whose content is not HTML: everything up to their end, or to the next piece of the page.
_RAW = frozenset({"math", "chem", "script", "style"})
_RAW_END = re.compile(
    r"</?(?P<name>math|chem|script|style|p|div|table|tr|td|th|li|ul|ol|h[1-6])(?=[\s/>]|\Z)", re.IGNORECASE
)
_OPENING = re.compile(rf"<(?P<close>/?){IS_TAG}(?P<name>[A-Za-z][A-Za-z0-9]{{0,15}}+)(?=[\s/>]|\Z)")
_QUOTED = re.compile(r"""[^<>"']*+(?:"[^"]*+"[^<>"']*+|'[^']*+'[^<>"']*+)*+""")
_BARE = re.compile(r"[^<>]*+")
_ATTRIBUTE = re.compile(
    r"""(?P<name>[A-Za-z][\w:-]{0,40}+)
        (?:\s*+=\s*+(?:"(?P<double>[^"]*+)"?|'(?P<single>[^']*+)'?|(?P<bare>[^\s"'<>]++)))?""",
    re.VERBOSE,
)
# Possible text after the name of a tag at which an answer was cut. Other words are text of the page.
_CUT = re.compile(
    r"""(?:\s++(?:[A-Za-z][\w-]{0,20}+=(?:"[^"]*+"|'[^']*+')|checked(?!\w)))*+
        \s*+/?(?:[A-Za-z][\w-]{0,20}+(?:=(?:"[^"]*+|'[^']*+)?)?)?\Z""",
    re.VERBOSE,
)
_CUT_NAME = re.compile(r"</?[A-Za-z0-9]{0,15}\Z")
_HUGE = re.compile(r"&#(?=[xX]?[0-9a-fA-F]{9})")  # Python refuses numbers with thousands of digits
_BUDGET = 4  # limit of unsuccessful searches for quotes, in lengths of the text


@dataclass(frozen=True, slots=True)
class HtmlTag:
    """Opening or closing tag, name in lower case. `raw` is the unchanged content of formulas and similar elements."""

    name: str
    close: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    raw: str | None = None


def html_tokens(text: str) -> Iterator[HtmlTag | str]:
    """Yield tags and text in turn, with entities decoded. Comments are omitted; a tag cut at the end stays a tag."""
    tags = _Tags(text)
    at = done = 0
    while (at := text.find("<", at)) >= 0:
        found = tags.read(at)
        if found is None:
            at += 1
            continue
        end, tag = found
        if done < at:
            yield unescape(text[done:at])
        if tag is not None:
            yield tag
        at = done = end
    if done < len(text):
        yield unescape(text[done:])


def unescape(text: str) -> str:
    """Return the text with HTML entities decoded."""
    return html.unescape(_HUGE.sub("&amp;#", text)) if "&" in text else text


class _Tags:
    def __init__(self, text: str) -> None:
        self._text = text
        self._last = text.rfind("<")
        self._budget = _BUDGET * len(text)
        self._endless = False  # a comment without an end: later comments have none either

    def read(self, at: int) -> tuple[int, HtmlTag | None] | None:
        """Return the end of the tag that begins here, and the tag (None for a comment); None without a tag."""
        text = self._text
        opening = _OPENING.match(text, at)
        if opening is None and text.startswith("<!--", at):
            end = -1 if self._endless else text.find("-->", at + 4)
            self._endless = end < 0
            return (end + 3, None) if end >= 0 else None
        if opening is None and text[at + 1 : at + 2] in ("!", "?") and text[at + 2 : at + 3].isalpha():
            end = _end_of(_BARE, text, at + 1)
            return (end + 1, None) if text[end : end + 1] == ">" else None
        name = opening["name"].lower() if opening else ""
        if opening is None or name not in HTML_ELEMENTS:
            return self._cut(at)
        cut = at == self._last and _CUT.match(text, opening.end())
        # The cut text may be a description that contains a `>`.
        end = -1 if cut and name == "img" else self._end(opening.end())
        if end < 0:
            if not cut:
                return None
            end = len(text)
        written = text[opening.end() : end].rstrip(">")
        if opening["close"]:
            return end, HtmlTag(name, close=True)
        attributes: dict[str, str] = {}
        for found in _ATTRIBUTE.finditer(written):
            value = next((found[kind] for kind in ("double", "single", "bare") if found[kind] is not None), "")
            attributes.setdefault(found["name"].lower(), unescape(value))
        if name not in _RAW or written.endswith("/"):
            return end, HtmlTag(name, attributes=attributes)
        closing = _RAW_END.search(text, end)
        raw_end = closing.start() if closing else len(text)
        tag = HtmlTag(name, attributes=attributes, raw=unescape(text[end:raw_end]))
        if closing is None or closing["name"].lower() != name or text[raw_end + 1] != "/":
            return raw_end, tag
        end = _end_of(_BARE, text, closing.end())
        return min(end + (text[end : end + 1] == ">"), len(text)), tag

    def _cut(self, at: int) -> tuple[int, None] | None:
        """Return the end of an incomplete tag at the end of the text, or None."""
        if at < self._last or not _CUT_NAME.match(self._text, at):
            return None
        begun = self._text[at:].strip("</").lower()
        return (len(self._text), None) if any(name.startswith(begun) for name in HTML_ELEMENTS) else None

    def _end(self, at: int) -> int:
        """Return the position after the `>` of a tag, or -1."""
        text = self._text
        if self._budget > 0:
            end = _end_of(_QUOTED, text, at)
            if text[end : end + 1] == ">":
                return end + 1
            # This quote has no second one: the rest of the text was read for its end.
            self._budget -= (len(text) if text[end : end + 1] in ('"', "'") else end) - at
        end = _end_of(_BARE, text, at)
        return end + 1 if text[end : end + 1] == ">" else -1


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    run = pattern.match(text, at)
    return run.end() if run else at


_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "del": "~~", "s": "~~", "strike": "~~"}
_TICKS = re.compile("`+")
_BULLET = re.compile(r"[-*•‣▪◦·●○–][ \t]+(?=\S)")
_NUMBER = re.compile(r"(\d{1,9}[.)])[ \t]+(?=\S)")
_LANGUAGE = re.compile(r"(?:language-|lang-)?([\w+#-]{1,20})")
_HARMLESS = re.compile(r"(?:https?://|mailto:)[^\s<>]{1,2000}\Z", re.IGNORECASE)
_COUNT = re.compile(r"[0-9]{1,8}\Z")
_SPAN = re.compile(r"0*([1-9]\d{0,3})\Z")
_MATH_WRAPS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))
_ESCAPED_LINK = str.maketrans({"(": "%28", ")": "%29"})


def _ticks(text: str, least: int) -> str:
    """Return at least `least` backticks: more than any run of them in the text."""
    return "`" * max(least, max(map(len, _TICKS.findall(text)), default=0) + 1)


def _code_span(text: str) -> str:
    mark = _ticks(text, 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{mark}{space}{text}{space}{mark}" if text else ""


def fenced(text: str, language: str) -> str:
    """Return a code block."""
    mark, body = _ticks(text, 3), text.strip("\n")
    return f"{mark}{language}\n{body}\n{mark}"


def list_item(text: str, marker: str) -> str:
    """Return a list item with its continuation lines indented; a marker in the text itself is used."""
    if number := _NUMBER.match(text):
        marker, text = number[1], text[number.end() :]
    elif bullet := _BULLET.match(text):
        text = text[bullet.end() :]
    return f"{marker} {_indented(text, len(marker) + 1).lstrip(' ')}"


def _indented(text: str, columns: int) -> str:
    space = " " * columns
    return "\n".join(f"{space}{line}" if line else line for line in text.split("\n"))


def _joined(blocks: Sequence[tuple[str, bool]]) -> str:
    """Return paragraphs joined by blank lines; a list (True) directly follows a paragraph."""
    parts: list[str] = []
    after_list = True
    for text, is_list in blocks:
        if parts:
            parts.append("\n" if is_list and not after_list else "\n\n")
        parts.append(text)
        after_list = is_list
    return "".join(parts)


def cell_html(name: str, text: str, rows: int | str, columns: int | str) -> str:
    """Return a cell of an HTML table (`td` or `th`) that spans rows and columns."""
    spans = (f' {span}="{count}"' for span, count in (("rowspan", rows), ("colspan", columns)) if str(count) != "1")
    return f"<{name}{''.join(spans)}>{text}</{name}>"


def bare_formula(text: str) -> str:
    """Return a formula without its outer delimiters."""
    text = text.strip()
    for begin, end in _MATH_WRAPS:
        inner = text[len(begin) : -len(end)]
        if len(text) > len(begin) + len(end) and text.startswith(begin) and text.endswith(end) and begin not in inner:
            return inner.strip()
    return text


# HTML of one block to Markdown: paragraphs, headings, lists, code, formulas, marks. Tables stay HTML in a plain form.
# One pass over the tags with a stack of bounded depth: no recursion, time linear in the length.


_DEEPEST = 40  # maximum open elements with a form of their own; deeper ones only give their text
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_INLINE = frozenset({"b", "strong", "i", "em", "del", "s", "strike", "sup", "sub", "a", "code"})
_LISTS = frozenset({"ul", "ol"})
_CELLS = frozenset({"td", "th"})
_TABLE = frozenset({"table"})
# Elements whose place in the grid counts even without content.
_EVEN_EMPTY = _CELLS | {"tr"}
_PARTS = frozenset({"table", "caption", "tr", *_CELLS})
_FRAMES = _INLINE | _LISTS | _PARTS | frozenset({*_HEADINGS, "li", "pre"})
# Elements that begin and end a paragraph, without a form of their own.
_BREAKS = frozenset(
    {
        *("p", "div", "blockquote", "center", "section", "article", "aside", "main", "nav", "header", "footer"),
        *("figure", "figcaption", "details", "summary", "body", "form", "dl", "dt", "dd", "option", "title"),
        "textarea",
    }
)
_DROPPED = frozenset({"script", "style"})
_WHITE = re.compile(r"[\s\xa0]+")
_BLANKS = re.compile(" +")
_BREAK_SPACE = re.compile(" ?\n ?")
_TAG_LIKE = re.compile(r"<(?=[A-Za-z/!?])")
_CELL_TEXT = re.compile(">[^<]")  # text in any cell
_HEADING_LIKE = re.compile(r"^(#{1,6})(?=\s|$)", re.MULTILINE)


def html_to_markdown(source: str | Iterable[HtmlTag | str]) -> str:
    """Return the Markdown for HTML text, or for its tags and text. Never raises.

    Cells of tables keep `<br>`, `<sup>`, and `<sub>`, and lose other marks. Pictures become their words.
    """
    writer = _Writer()
    for token in html_tokens(source) if isinstance(source, str) else source:
        writer.take(token)
    return writer.finish()


@dataclass(slots=True)
class _Frame:
    """Open element: finished paragraphs, and the current line."""

    name: str
    tag: HtmlTag
    blocks: list[tuple[str, bool]] = field(default_factory=list)  # text, and whether it is a list
    line: list[str] = field(default_factory=list)
    number: int = 1  # number of the next item in an ordered list
    language: str = ""  # language of code


class _Writer:
    """Writer that takes tags and text in order, with a stack of the open elements."""

    def __init__(self) -> None:
        self._stack = [_Frame("", HtmlTag(""))]
        self._deeper: dict[str, int] = {}  # open elements beyond the maximum depth
        self._tables = 0
        self._verbatim = 0  # open <pre> and <code> elements

    def finish(self) -> str:
        self._pop_to(1)
        self._flush()
        return _joined(self._stack[0].blocks)

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
                kind = tag.attributes.get("type", "").lower()
                if kind in ("checkbox", "radio"):
                    checked = "checked" in tag.attributes and tag.attributes["checked"].lower() != "false"
                    self._text("☑ " if checked else "☐ ")
                elif kind not in ("hidden", "submit", "button"):
                    self._text(tag.attributes.get("value", ""))

    def _formula(self, tag: HtmlTag) -> None:
        if tag.name in _DROPPED:
            return
        formula = (tag.raw or "").strip()
        if tag.name == "chem":
            text = html.escape(formula, quote=False) if self._tables else _code_span(formula)
            self._stack[-1].line.append(_WHITE.sub(" ", text))
            return
        formula = bare_formula(formula)
        display = tag.attributes.get("display", "").lower() in ("block", "true", "display")
        if not formula:
            return
        if display and not self._tables and not self._verbatim:
            self._end_marks()
            self._flush()
            self._stack[-1].blocks.append((f"$$\n{formula}\n$$", False))
            return
        mark = "$$" if display else "$"
        formula = _WHITE.sub(" ", formula)
        self._stack[-1].line.append(f"{mark}{html.escape(formula, quote=False) if self._tables else formula}{mark}")

    def _open(self, tag: HtmlTag) -> None:
        name = tag.name
        language = found[1] if (found := _LANGUAGE.match(tag.attributes.get("class", ""))) else ""
        if name == "code" and self._verbatim:
            self._stack[-1].language = self._stack[-1].language or language
            return
        if name not in _INLINE:
            self._end_marks()
            # End the elements that cannot contain this one, and begin those that it requires.
            if name == "li":
                self._end_within("li", _LISTS)
            elif name in _CELLS:
                for cell in _CELLS:
                    self._end_within(cell, _TABLE)
                if self._stack[-1].name != "tr":
                    self._open(HtmlTag("tr"))
            elif name == "tr":
                self._end_within("tr", _TABLE)
                if not self._tables:
                    self._open(HtmlTag("table"))
            self._flush()
        if len(self._stack) > _DEEPEST:
            self._deeper[name] = self._deeper.get(name, 0) + 1
            return
        number = _whole_number(tag.attributes.get("start", ""), 1)
        self._stack.append(_Frame(name, tag, number=number, language=language))
        self._tables += name == "table"
        self._verbatim += name in ("pre", "code")

    def _end_within(self, name: str, border: frozenset[str]) -> None:
        """End the innermost element of this name, unless it is outside of a `border` element."""
        for depth in range(len(self._stack) - 1, 0, -1):
            if self._stack[depth].name in border:
                return
            if self._stack[depth].name == name:
                self._pop_to(depth)
                return

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
        """End the current paragraph."""
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
        """End the innermost element, and pass its content to the enclosing one."""
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
            self._flush()  # text before a paragraph within a mark
        if frame.blocks or frame.name in _EVEN_EMPTY:
            above.blocks += self._given(frame, above)

    def _marked(self, frame: _Frame, text: str) -> str:
        """Return the text of an inline element with its marks; outer white space stays outside of them."""
        name, inner = frame.name, text.strip()
        heading = name in ("b", "strong") and any(open_frame.name in _HEADINGS for open_frame in self._stack)
        if not inner or heading or (self._tables and name not in ("sup", "sub")):
            return text
        match name:
            case "sup" | "sub":
                made = f"<{name}>{inner}</{name}>"
            case "code":
                made = _code_span(inner)
            case "a":
                target = frame.tag.attributes.get("href", "").strip()
                made = f"[{inner}]({target.translate(_ESCAPED_LINK)})" if _HARMLESS.match(target) else inner
            case _:
                made = f"{_MARKS[name]}{inner}{_MARKS[name]}"
        start = text.index(inner)
        return f"{text[:start]}{made}{text[start + len(inner) :]}"

    def _given(self, frame: _Frame, above: _Frame) -> list[tuple[str, bool]]:
        """Return the content of a closing element, in its Markdown form."""
        name, blocks, attributes = frame.name, frame.blocks, frame.tag.attributes
        if name in _CELLS:
            spans = (_SPAN.match(attributes.get(span, "").strip()) for span in ("rowspan", "colspan"))
            rows, columns = (span[1] if span else 1 for span in spans)
            text = "<br>".join(text for text, _ in blocks).replace("\n", "<br>")
            return [(cell_html(name, text, rows, columns), False)]
        if name == "tr":
            cells = (text if text.startswith(("<td", "<th")) else f"<td>{text}</td>" for text, _ in blocks)
            return [(f"<tr>{''.join(cells)}</tr>", False)]
        if name == "table":
            table = "".join(text for text, _ in blocks if text.startswith("<tr>"))
            others = [block for block in blocks if not block[0].startswith("<tr>")]
            return [*others, (f"<table>{table}</table>", False)] if _CELL_TEXT.search(table) else others
        if name == "li":
            text = "\n".join(text for text, _ in blocks) if self._tables else _joined(blocks)
            marker = "-"
            if above.name == "ol":
                number = _whole_number(attributes.get("value", ""), above.number)
                above.number, marker = number + 1, f"{number}."
            return [(list_item(text, marker), False)]
        if self._tables:
            return blocks
        if name in _HEADINGS:
            return [(f"{'#' * _HEADINGS[name]} {' '.join(_joined(blocks).split())}", False)]
        if name in _LISTS:
            return [("\n".join(_indented(text, 2) if is_list else text for text, is_list in blocks), True)]
        if name in ("pre", "code"):
            return [(fenced("\n".join(text for text, _ in blocks), frame.language), False)]
        return blocks


def _whole_number(text: str, otherwise: int) -> int:
    return int(text) if _COUNT.match(text) else otherwise
