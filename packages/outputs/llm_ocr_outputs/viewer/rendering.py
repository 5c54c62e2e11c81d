"""Render Markdown from models and documents as inert HTML."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from llm_ocr.results.markdown import map_prose, target_id
from llm_ocr.results.sanitizing import DEEPEST, TAGS
from llm_ocr.types import IS_TAG
from llm_ocr_outputs.places import MARK, Unsupported, joined_ranges, with_marks
from llm_ocr_outputs.viewer.index import PIECES

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from nh3 import Cleaner


# LaTeX between `\(...\)` and `\[...\]` and in environments, for markdown-it: linear time, also for unclosed formulas.
# Tokens `bracket_inline`, `bracket_display` and `bracket_block` have the LaTeX as `content`.
# Formulas between dollars have a plugin (mdit-py-plugins); its counterpart for environments takes quadratic time.


INLINE, DISPLAY, BLOCK = "bracket_inline", "bracket_display", "bracket_block"
_CLOSES = {"\\(": "\\)", "\\[": "\\]"}
_OPENS = re.compile(
    r"(?P<bracket>\\\[)|\\begin\{(?P<name>(?:equation|multline|gather|align|alignat|flalign|eqnarray"
    r"|matrix|pmatrix|bmatrix|Bmatrix|vmatrix|Vmatrix|cases|split|aligned|gathered)\*?)\}"
)


def _inline(state: "StateInline", silent: bool) -> bool:
    opens = state.src[state.pos : state.pos + 2]
    close = _CLOSES.get(opens)
    if close is None:
        return False
    left_open = _memory(state.env, "math in text")
    end = -1 if (state.src, close) in left_open else state.src.find(close, state.pos + 2, state.posMax)
    if end < 0:
        left_open[state.src, close] = True
        return False
    content = state.src[state.pos + 2 : end].strip()
    if not content:
        return False
    if not silent:
        token = state.push(INLINE if opens == "\\(" else DISPLAY, "math", 0)
        token.content = content
    state.pos = end + 2
    return True


def _block(state: "StateBlock", start: int, end: int, silent: bool) -> bool:
    found = _OPENS.match(_line(state, start))
    if not found or state.is_code_block(start):
        return False
    close = "\\]" if found["bracket"] else f"\\end{{{found['name']}}}"
    content, after = _until(state, start, end, close)
    if found["bracket"]:
        content = content.removeprefix("\\[").removesuffix("\\]").strip()
    if not content or content.count(close) > (not found["bracket"]):
        return False
    if not silent:
        token = state.push(BLOCK, "math", 0)
        token.block, token.content, token.map = True, content, [start, after]
    state.line = after
    return True


def _until(state: "StateBlock", start: int, end: int, close: str) -> tuple[str, int]:
    """Return the text up to the line that ends with `close`, and the next line; "" if a blank line comes first."""
    left_open = _memory(state.env, "math blocks")
    lines: list[str] = []
    if start < left_open.get(close, 0):
        return "", start
    for number in range(start, end):
        lines.append(_line(state, number).rstrip())
        if lines[-1].endswith(close):
            return "\n".join(lines), number + 1
        if not lines[-1]:
            break
    left_open[close] = start + len(lines)
    return "", start


def _line(state: "StateBlock", number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _memory(env: Any, name: str) -> dict[Any, Any]:
    """Return the record of unclosed formulas, so that no search is repeated."""
    memory: dict[Any, Any] = env.setdefault(name, {})
    return memory


# Markdown of models and documents as inert HTML: CommonMark with tables, formulas, and HTML tables, sanitized by nh3
# with an allowlist. The HTML has no URLs except `http:`, `https:` and `mailto:` links. A figure is `<span
# class="figure" data-f="0">` with its index in the page's list of figures, and the viewer's script creates the image.
# Formulas stay LaTeX in `<span class="math">` or `<div class="math">`. `data-b` is the index of an element's block.


#: Length up to which a page is rendered as Markdown; a longer text, which no page has, is shown verbatim.
LONGEST = 200_000

_OURS = TAGS | {"a", "blockquote", "pre", "code", "del"}
_FOREIGN = re.compile(rf"<(?!/?{IS_TAG}(?:{'|'.join(sorted(TAGS))})(?=[\s/>]))", re.IGNORECASE)
_OWN = re.compile(r"<(span|div)(?=[\s/>])[^>]*(?:>|\Z)", re.IGNORECASE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_BLANK = re.compile(r"\n(?=[ \t]*\n)")
_ALIGN = re.compile(r"text-align:(left|center|right)")
_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_MATH_BLOCKS = ("math_block", "math_block_label", BLOCK)
_MATH_IN_TEXT = {"math_inline": "span", INLINE: "span", "math_inline_double": "display", DISPLAY: "display"}


@dataclass(frozen=True, slots=True)
class Places:
    """Positions in a page's Markdown.

    `lines` has the index of the block that each line was made of; `figures` the indices of the page's figures by id.
    """

    lines: Mapping[int, int]
    figures: Mapping[str, int]


def render(markdown: str, places: Places) -> str:
    """Return the HTML of a page's Markdown. Never raises for any text."""
    if len(markdown) > LONGEST:
        return f"<pre>{escape(markdown)}</pre>"
    env: dict[str, Any] = {"places": places}
    tokens = _markdown().parse(map_prose(markdown, _whole_tables), env)
    _mark(tokens, places)
    html = _markdown().renderer.render(tokens, _markdown().options, env)
    return _cleaner().clean(html)


# Unsupported text is underlined. The page is rendered again with marks in its Markdown. A mark at the beginning of a
# line can change the HTML, for example of a list item; then the whole block is underlined.


#: Most texts that are tried one by one if all marks together change the HTML.
_TRIED = 20
#: Title of unsupported text.
UNSUPPORTED = "nothing on the page supports this text"
_OPENS_MATH = re.compile(r'<(span|div) class="(math[^"]*)"')
_BLOCK_TAG = re.compile(r'<\w+(?: class="(?P<class>[^"]*)")? data-b="(?P<block>\d+)"(?: class="(?P<other>[^"]*)")?')


def render_unsupported(markdown: str, places: Places, texts: Sequence[Unsupported]) -> str:
    """Return the HTML of a page's Markdown, as `render`, with these texts in elements of the class `unsupported`."""
    html = render(markdown, places)
    ranges = {(text.start, text.end): text.block for text in texts if text.start is not None and text.end is not None}

    def marked(some: Iterable[tuple[int, int]]) -> str | None:
        """Return the HTML with marks; None if they change it."""
        found = render(with_marks(markdown, joined_ranges(some)), places)
        return found if MARK.sub("", found) == html else None

    whole: set[str] = set()
    result = marked(ranges)
    if result is None:
        exact = [place for place in ranges if marked([place]) is not None] if len(ranges) <= _TRIED else []
        result = marked(exact) or html
        whole = {str(block) for place, block in ranges.items() if place not in exact or result is html}

    def underline(tag: re.Match[str]) -> str:
        if tag["block"] not in whole:
            return tag[0]
        name = tag["class"] or tag["other"]
        plain = tag[0].replace(f' class="{name}"', "") if name else tag[0]
        return f'{plain} class="{f"{name} " if name else ""}unsupported" title="{UNSUPPORTED}"'

    return _BLOCK_TAG.sub(underline, _underlined(result))


def _underlined(html: str) -> str:
    """Replace pairs of marks by elements, one for each text between tags, or the whole formula."""
    parts: list[str] = []
    inside, formula = False, -1
    for piece in PIECES.findall(html):
        if piece[0] == "<":
            formula = len(parts) if _OPENS_MATH.match(piece) else -1
            parts.append(piece)
            continue
        texts = MARK.split(piece)
        if formula >= 0:
            if inside or len(texts) > 1:
                named = rf'<\1 class="\2 unsupported" title="{UNSUPPORTED}"'
                parts[formula] = _OPENS_MATH.sub(named, parts[formula])
            parts += texts
        else:
            for at, text in enumerate(texts):
                is_marked = bool(text.strip()) and inside != at % 2
                parts.append(f'<u class="unsupported" title="{UNSUPPORTED}">{text}</u>' if is_marked else text)
        inside = inside != (len(texts) - 1) % 2
    return "".join(parts)


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    made = MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable(["table", "strikethrough"])
    made.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True, allow_blank_lines=False)
    made.inline.ruler.before("escape", INLINE, _inline)
    made.block.ruler.before("fence", BLOCK, _block, {"alt": ["paragraph", "blockquote", "list"]})
    rules: dict[str, Callable[..., str]] = {name: _math_block for name in _MATH_BLOCKS} | {
        name: _math_in_text for name in _MATH_IN_TEXT
    }
    rules |= {"html_block": _html_block, "html_inline": _html_inline, "image": _image}
    for name, rule in rules.items():
        made.add_render_rule(name, rule)
    return made


@cache
def _cleaner() -> "Cleaner":
    from nh3 import Cleaner

    return Cleaner(
        tags=_OURS,
        attributes={
            "*": {"data-b"},
            "a": {"href"},
            "ol": {"start"},
            "td": {"colspan", "rowspan", "align"},
            "th": {"colspan", "rowspan", "align"},
            "span": {"data-f"},
        },
        allowed_classes={
            "span": {"math", "display", "figure", "unshown"},
            "div": {"math"},
        },
        attribute_filter=_plain_values,
        set_tag_attribute_values={"a": {"target": "_blank"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )


def _plain_values(_: str, name: str, value: str) -> str | None:
    """Keep external links, and values of digits and letters; classes have a separate list."""
    if name == "href":
        return value if _LINK.match(value) else None
    return value if name in ("class", "rel", "target") or value.isalnum() else None


def _whole_tables(prose: str) -> str:
    """Replace blank lines in tables, at which CommonMark ends HTML, by comments. Line numbers are unchanged."""
    parts: list[str] = []
    lower, at = prose.lower(), 0
    if len(lower) != len(prose):
        return prose
    while (start := lower.find("<table", at)) >= 0 and (end := lower.find("</table>", start)) >= 0:
        parts += [prose[at:start], _BLANK.sub("\n<!-- -->", prose[start:end])]
        at = end
    return "".join([*parts, prose[at:]])


def _mark(tokens: "Sequence[Token]", places: Places) -> None:
    """Add blocks to elements, remove links that are not external, and replace `style` alignment."""
    inside: list[int | None] = [None]
    for token in tokens:
        block = places.lines.get(token.map[0]) if token.map and token.type != "inline" else None
        listing = token.type in ("bullet_list_open", "ordered_list_open")
        if block is not None and not listing and block != inside[-1]:
            token.attrSet("data-b", str(block))
        if token.nesting == 1:
            inside.append(inside[-1] if listing or block is None else block)
        elif token.nesting == -1:
            inside.pop()
        if style := _ALIGN.search(str(token.attrs.pop("style", ""))):
            token.attrSet("align", style[1])
        for child in token.children or ():
            if child.type == "link_open" and not _LINK.match(str(child.attrs.get("href", ""))):
                child.attrs.pop("href", None)


def _attributes(token: "Token") -> str:
    block = token.attrs.get("data-b")
    return "" if block is None else f' data-b="{int(block)}"'


def _math_block(_: object, tokens: "Sequence[Token]", at: int, *__: object) -> str:
    return f'<div class="math"{_attributes(tokens[at])}>{escape(tokens[at].content.strip())}</div>\n'


def _math_in_text(_: object, tokens: "Sequence[Token]", at: int, *__: object) -> str:
    display = " display" if _MATH_IN_TEXT[tokens[at].type] == "display" else ""
    return f'<span class="math{display}">{escape(tokens[at].content)}</span>'


def _html_block(_: object, tokens: "Sequence[Token]", at: int, *__: object) -> str:
    return f"<div{_attributes(tokens[at])}>{_tables_only(tokens[at].content)}</div>\n"


def _html_inline(_: object, tokens: "Sequence[Token]", at: int, *__: object) -> str:
    return _tables_only(tokens[at].content)


def _tables_only(html: str) -> str:
    """Show tags other than tables and simple formatting as text, to keep their content.

    Text of a page makes no elements of ours: `span` and `div` lose their attributes, which name figures and formulas.
    An unclosed comment, which would hide the rest of the page, is shown too. It is excluded from the pattern, which
    would search for its end once per comment.
    """
    closed, end, rest = html.rpartition("-->")
    return _OWN.sub(r"<\1>", _FOREIGN.sub("&lt;", _COMMENT.sub("", closed + end) + rest))


def _image(_: object, tokens: "Sequence[Token]", at: int, __: object, env: Mapping[str, Any]) -> str:
    token = tokens[at]
    place = env["places"].figures.get(target_id(str(token.attrs.get("src", ""))) or "")
    if place is None:
        return f'<span class="unshown">{escape(token.content) or "image"}</span>'
    return f'<span class="figure" data-f="{place}"></span>'
