"""Remove active content from Markdown: scripts, event handlers, unsafe links, and remote images."""

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from llm_ocr.results.markdown import IMAGE, escape, map_prose, unescape
from llm_ocr.types import Block, BlockKind, PageRecord

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


# Markdown for renderers that trust their input (notebooks): text from documents and models must not run scripts or
# fetch anything. HTML is kept for tables and simple formatting, and shown as text otherwise. Links keep only harmless
# targets, and images are shown only from data URLs. Code becomes HTML with every special character as an entity. It is
# therefore safe even if a renderer does not recognize it as code.


#: HTML tags that are kept in the text of documents and models: tables and simple formatting.
TAGS = frozenset(
    [
        *("table", "thead", "tbody", "tfoot", "tr", "th", "td", "caption", "colgroup", "col"),
        *("br", "hr", "sub", "sup", "b", "i", "em", "strong", "u", "s", "p", "div", "span", "ul", "ol", "li"),
        *("h1", "h2", "h3", "h4", "h5", "h6"),
    ]
)
_ATTRIBUTES = re.compile(
    r"""\s(?P<name>colspan|rowspan|align)\s*=\s*["']?(?P<value>\d{1,4}|left|center|right)\b""", re.IGNORECASE
)
_SPECIAL = re.compile(
    rf"""
    (?P<escaped>\\.)
    | (?P<ticks>(?<!`)`+(?!`))(?P<code>(?:(?!\n\s*\n).)+?)(?<!`)(?P=ticks)(?!`)
    | (?P<image>(?-x:{IMAGE.pattern}))
    | (?P<picture>!\[)
    | (?P<link>\]\(\s*|\]:\s*)(?=(?P<to>[^\s)<]*)(?P<angle><?))
    | (?P<comment><!--[\w\s:.,]*-->)
    | <(?P<close>/?)(?P<tag>{"|".join(sorted(TAGS, reverse=True))})(?P<rest>(?:\s[^<>]*)?/?)>
    | (?P<open><(?=[A-Za-z/!?]))
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_HARMLESS = re.compile(r"(?:https?://|mailto:|#)|[^:&\\]*$")
_DATA_URL = re.compile(r"data:image/(?:png|jpeg|webp);base64,[A-Za-z0-9+/=]+")


def safe_markdown(text: str) -> str:
    """Return the text with harmless parts unchanged and the rest shown as source."""
    return map_prose(text, lambda prose: _SPECIAL.sub(_safe, prose), _code_block)


def _code_block(block: str) -> str:
    lines = block.split("\n")
    body = lines[1:-1] if len(lines) > 1 and lines[-1].strip(" `~\t") == "" else lines[1:]
    return f"<pre><code>{_entities(chr(10).join(body))}</code></pre>\n"


def _entities(text: str) -> str:
    """Encode all characters that HTML or Markdown would interpret."""
    return re.sub(r"[!-/:-@\[-`{-~]", lambda mark: f"&#{ord(mark[0])};", text)


def _safe(match: re.Match[str]) -> str:
    if match["ticks"]:
        return f"<code>{_entities(match['code'])}</code>"
    if match["image"]:
        return _image(match["alt"], match["target"])
    if match["link"]:
        return _link(match["link"], match["to"], match["angle"])
    if match["tag"]:
        return _tag(match["close"], match["tag"].lower(), match["rest"])
    if match["open"] or match["escaped"] == "\\<":
        return "&lt;"
    return "\\!\\[" if match["picture"] else match[0]


def _image(alt: str, target: str) -> str:
    text = escape(unescape(alt))
    return f"![{text}]({target})" if _DATA_URL.fullmatch(target) else f"\\[image not shown: {text}\\]"


def _link(mark: str, target: str, angle: str) -> str:
    harmless = _HARMLESS.match(target) and not angle
    return mark if harmless else f"\\{mark}"


def _tag(close: str, name: str, rest: str) -> str:
    kept = "" if close else "".join(f' {at["name"].lower()}="{at["value"]}"' for at in _ATTRIBUTES.finditer(rest))
    return f"<{close}{name}{kept}>"


# Markdown of documents and exports. HTML for tables and simple formatting is kept; other tags are shown as text. Unlike
# `safe_markdown` for notebooks, code, formulas, and comparisons such as `a < b` are unchanged. markdown-it finds the
# lines of code, and checks the result: text that is still active is escaped, including code.


#: Length above which texts are not parsed: everything in them that looks like a tag is escaped. Most pages have under
#: 10,000.
LONGEST = 50_000
#: Upper limit of parses: escaping can change which lines are code.
_ROUNDS = 4

_NAMES = "|".join(sorted(TAGS | {"blockquote", "code", "pre", "del", "ins", "mark", "small", "dl", "dt", "dd"}))
_ATTRIBUTE = re.compile(
    r"""\s(colspan|rowspan|align)\s*=\s*["']?(\d{1,4}|left|center|right)(?=["'\s/]|$)""", re.IGNORECASE
)
# Elements that are escaped even in an unclosed tag, which renderers other than CommonMark's may complete.
_ACTIVE = (
    "applet|audio|base|body|button|embed|form|frame|frameset|head|html|iframe|image|img|input|link|math|meta|object|"
    "option|picture|portal|script|select|source|style|svg|template|textarea|title|track|video"
)
_SAME = rf"""
    (?P<image>(?-x:{IMAGE.pattern}))
    | (?P<picture>!\[)
    | (?P<link>\](?=\(\s*(?P<to>[^\s)<]{{0,300}})(?P<angle><?)|:\s*(?P<to2>[^\s<]{{0,300}})(?P<angle2><?)))
    | (?P<comment><!--(?!\s*(?:page|document)\b)[\w\s:.,]*-->)
    | <(?P<close>/?)(?P<tag>{_NAMES})(?P<rest>(?:\s[^<>]*)?)(?P<end>/?)>
    | (?P<address><(?:https?://|mailto:)[^\s<>"'`]*>)
"""
_FLAGS = re.VERBOSE | re.DOTALL | re.IGNORECASE
#: Within HTML: nothing is code, and every tag counts.
_HTML = re.compile(rf"{_SAME} | (?P<open><(?=[A-Za-z/!?]))", _FLAGS)
#: Within text: tags by CommonMark 0.31, 6.6, and addresses with any scheme.
_TEXT = re.compile(
    rf"""(?P<escaped>\\.) | (?P<ticks>`+) | {_SAME}
    | (?P<open><(?=
        [A-Za-z][A-Za-z0-9-]*(?:\s+[A-Za-z_:][\w.:-]*(?:\s*=\s*(?:[^\s"'=<>`]+|'[^']{{0,2000}}'|"[^"]{{0,2000}}"))?)*\s*/?>
        | /[A-Za-z][A-Za-z0-9-]*\s*> | [!?] | /?(?:{_ACTIVE})\b | [A-Za-z][A-Za-z0-9+.-]{{1,31}}:
    ))""",
    _FLAGS,
)
_SUSPECT = re.compile(
    rf"""<(?!/?(?:{_NAMES})\s*/?>)[A-Za-z/!?] | \]: | \]\((?!figure:|https?://|\#)
    | !\[(?!(?:[^\[\]\\]|\\.)*\]\(figure:)""",
    _FLAGS,
)
_LINK = re.compile(r"(?:https?://|mailto:|figure:|#)|[^:&\\]*$", re.IGNORECASE)
_PICTURE = re.compile(r"figure:[^\s<>]*|(?!/)[^:&\\<>]*")
_TICKS = re.compile("`+")


def inert_page(record: PageRecord) -> PageRecord:
    """Return the page with inert Markdown and blocks; blocks of code are unchanged."""
    blocks = tuple(_inert_block(block) for block in record.blocks)
    return replace(record, markdown=inert_markdown(record.markdown), blocks=blocks)


def inert_markdown(text: str) -> str:
    """Return the Markdown with all active content shown as text. Takes linear time and never raises."""
    if not _SUSPECT.search(text):
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) <= LONGEST:
        for _ in range(_ROUNDS):
            tokens = _markdown().parse(text)
            cleaned = _cleaned(text, tokens)
            if cleaned == text and _is_inert(tokens):
                return text
            text = cleaned
    return _HTML.sub(_shown, text)


def _inert_block(block: Block) -> Block:
    if block.kind is BlockKind.CODE or not (_SUSPECT.search(block.text) or _SUSPECT.search(block.inside)):
        return block
    return replace(block, text=inert_markdown(block.text), inside=inert_markdown(block.inside))


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    made.validateLink = _any_link  # type: ignore[method-assign]
    return made


def _any_link(url: str) -> bool:
    """Accept every scheme as a link, so that `_is_inert` can check it."""
    return True


def _cleaned(text: str, tokens: "list[Token]") -> str:
    """Return the text with each run of lines sanitized by its kind."""
    lines = text.split("\n")
    kinds = ["text"] * len(lines)
    starts = {0}
    for token in tokens:
        if token.map is None:
            continue
        first, end = token.map
        if token.type in ("fence", "code_block", "html_block"):
            kinds[first:end] = ["html" if token.type == "html_block" else "code"] * len(kinds[first:end])
            starts |= {first, end}
        elif token.type == "inline":
            starts |= {first, end}
    starts |= {at for at in range(1, len(lines)) if kinds[at] != kinds[at - 1]}
    bounds = [*sorted(at for at in starts if at < len(lines)), len(lines)]
    parts = []
    for first, end in pairwise(bounds):
        part, kind = "\n".join(lines[first:end]), kinds[first]
        parts.append(part if kind == "code" else _HTML.sub(_shown, part) if kind == "html" else _cleaned_text(part))
    return "\n".join(parts)


def _cleaned_text(text: str) -> str:
    """Sanitize text outside of HTML and code blocks; code spans are unchanged."""
    runs: dict[int, list[int]] = defaultdict(list)
    for run in _TICKS.finditer(text):
        runs[len(run[0])].append(run.start())
    parts, at = [], 0
    while found := _TEXT.search(text, at):
        parts.append(text[at : found.start()])
        at = found.end()
        if not found["ticks"]:
            parts.append(_shown(found))
            continue
        same = runs[len(found[0])]
        place = bisect_left(same, at)
        if place < len(same):
            at = same[place] + len(found[0])
        parts.append(text[found.start() : at])
    return "".join([*parts, text[at:]])


def _shown(match: re.Match[str]) -> str:
    """Return the safe form of a match. Entities are valid in Markdown and HTML, and are never syntax."""
    if match["tag"]:
        kept = "" if match["close"] else "".join(f' {name.lower()}="{value}"' for name, value in _attributes(match))
        return f"<{match['close']}{match['tag']}{kept}{match['end']}>"
    if match["open"]:
        return "&lt;"
    if match["picture"]:
        return "!&#91;"
    if match["image"]:
        if _PICTURE.fullmatch(match["target"]) and not re.search("[<`]", match["alt"]):
            return match[0]
        return "!&#91;" + _again(match[0][2:], match.re)
    if match["link"]:
        to, angle = (match["to"], match["angle"]) if match["to"] is not None else (match["to2"], match["angle2"])
        return match[0] if _LINK.match(to) and not angle else "&#93;"
    return match[0]


def _again(text: str, pattern: re.Pattern[str]) -> str:
    return _cleaned_text(text) if pattern is _TEXT else pattern.sub(_shown, text)


def _attributes(match: re.Match[str]) -> list[tuple[str, str]]:
    return _ATTRIBUTE.findall(match["rest"])


def _is_inert(tokens: "list[Token]") -> bool:
    return all(map(_is_inert_token, tokens))


def _is_inert_token(token: "Token") -> bool:
    attributes: dict[str, Any] = token.attrs
    if token.type in ("html_block", "html_inline"):
        return _HTML.sub(_shown, token.content) == token.content
    if token.type == "link_open":
        return bool(_LINK.match(str(attributes.get("href", ""))))
    if token.type == "image":
        return bool(_PICTURE.fullmatch(str(attributes.get("src", ""))))
    return all(map(_is_inert_token, token.children or ()))
