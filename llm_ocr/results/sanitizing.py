"""Remove active content from Markdown: scripts, event handlers, unsafe links, and remote images."""

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from llm_ocr.results.markdown import IMAGE, escape, map_prose, unescape
from llm_ocr.types import IS_TAG, BlockKind, PageRecord

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
#: Levels of nested lists and quotes that are parsed; a list takes two. Text of deeper ones is left out. The time for
#: unclosed brackets grows with it: 3 s for 40,000, and 1.3 s with the 20 of CommonMark presets.
DEEPEST = 50
_ATTRIBUTE = re.compile(
    r"""\s(colspan|rowspan|align)\s*=\s*["']?(\d{1,4}|left|center|right)(?=["'\s/]|$)""", re.IGNORECASE
)
_SPECIAL = re.compile(
    rf"""
    (?P<escaped>\\.)
    | (?P<ticks>(?<!`)`+(?!`))(?P<code>(?:(?!\n\s*\n).)+?)(?<!`)(?P=ticks)(?!`)
    | (?P<image>(?-x:{IMAGE.pattern}))
    | (?P<picture>!\[)
    | (?P<link>\]\(\s*|\]:\s*)(?=(?P<to>[^\s)<]*)(?P<angle><?))
    | (?P<comment><!--[\w\s:.,]*-->)
    | <(?P<close>/?){IS_TAG}(?P<tag>{"|".join(sorted(TAGS, reverse=True))})(?P<rest>(?:\s[^<>]*)?/?)>
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


def _kept_attributes(match: re.Match[str]) -> str:
    """Return the harmless attributes of a tag."""
    attributes = () if match["close"] else _ATTRIBUTE.findall(match["rest"])
    return "".join(f' {name.lower()}="{value}"' for name, value in attributes)


def _entities(text: str) -> str:
    """Encode all characters that HTML or Markdown would interpret."""
    return re.sub(r"[!-/:-@\[-`{-~]", _entity, text)


def _entity(mark: re.Match[str]) -> str:
    return f"&#{ord(mark[0])};"


def _safe(match: re.Match[str]) -> str:
    if match["ticks"]:
        return f"<code>{_entities(match['code'])}</code>"
    if match["image"]:
        text = escape(unescape(match["alt"]))
        target = match["target"]
        return f"![{text}]({target})" if _DATA_URL.fullmatch(target) else f"\\[image not shown: {text}\\]"
    if match["link"]:
        is_harmless = _HARMLESS.match(match["to"]) and not match["angle"]
        return match["link"] if is_harmless else f"\\{match['link']}"
    if match["tag"]:
        return f"<{match['close']}{match['tag'].lower()}{_kept_attributes(match)}>"
    if match["open"] or match["escaped"] == "\\<":
        return "&lt;"
    return "\\!\\[" if match["picture"] else match[0]


# Markdown of documents and exports. HTML for tables and simple formatting is kept; other tags are shown as text. Unlike
# `safe_markdown` for notebooks, code, formulas, and comparisons such as `a < b` are unchanged. markdown-it finds the
# lines of code, and checks the result: text that is still active is escaped, including code.
#
# Other renderers find other tags and other code than CommonMark's. Therefore:
# - Handlers are no attributes in any tag, however it is completed: the `=` after `onclick` becomes an entity.
# - Fences have the simplest form, which all renderers with fences read alike, and are always closed.
# - Code with tags is kept only where all renderers see code. Elsewhere it becomes HTML or contains entities.


#: Length above which texts are not parsed: everything in them that looks like a tag is escaped. Most pages have under
#: 10,000.
LONGEST = 50_000
#: Upper limit of parses: escaping can change which lines are code.
_ROUNDS = 4

_NAMES = "|".join(sorted(TAGS | {"blockquote", "code", "pre", "del", "ins", "mark", "small", "dl", "dt", "dd"}))
# Elements that are escaped even in an unclosed tag, which renderers other than CommonMark's may complete.
_ACTIVE = (
    "applet|audio|base|body|button|embed|form|frame|frameset|head|html|iframe|image|img|input|link|listing|marquee|math|"
    "meta|noembed|noframes|noscript|object|option|picture|plaintext|portal|script|select|source|style|svg|template|"
    "textarea|title|track|video|xmp"
)
# Attributes that run code or fetch something, in tags and in attribute lists such as `{onclick=x}`.
_HANDLER = r"""(?<![^\s/"'{:])(?P<handler>(?:on(?!set\b)[a-z]{3,}|style|(?:xlink:)?href|background)\s*)="""
_SAME = rf"""
    (?P<image>(?-x:{IMAGE.pattern}))
    | (?P<picture>!\[)
    | (?P<link>\](?=
        \(\s*(?P<to>[^()<"']{{0,300}})(?P<angle><?)(?P<cut>\s*\Z)?
        | :\s*(?P<to2>[^\s<]{{0,300}})(?P<angle2><?)(?P<cut2>\s*\Z)?
        | (?P<apart>[ \t]+\([ \t]*<?(?:(?:java|vb)script:|data:|[^\s)]{{0,300}}&)) ))
    | (?P<comment><!--(?!\s*(?:page|document)\b)[\w\s:.,]*-->)
    | <(?P<close>/?){IS_TAG}(?P<tag>{_NAMES})(?P<rest>(?:\s[^<>]*)?)(?P<end>/?)>
    | (?P<address><(?:https?://|mailto:)[^\s<>"'`=]*>)
    | {_HANDLER}
"""
_FLAGS = re.VERBOSE | re.DOTALL | re.IGNORECASE
#: Within HTML: nothing is code, and every tag counts.
_HTML = re.compile(rf"{_SAME} | (?P<open><(?=[A-Za-z/!?&<]))", _FLAGS)
#: Within text: tags by CommonMark 0.31, 6.6, and with `/` between attributes as in HTML; addresses with any scheme.
_TEXT = re.compile(
    rf"""(?P<escaped>\\.) | (?P<ticks>`+) | {_SAME}
    | (?P<open><(?=
        [A-Za-z][A-Za-z0-9-]*
        (?:[\s/]+[A-Za-z_:][\w.:-]*(?:\s*=\s*(?:[^\s"'=<>`]++|'[^']{{0,2000}}'|"[^"]{{0,2000}}"))?)*[\s/]*>
        | /[A-Za-z][^<>]*> | (?:{_NAMES})\s[^<>]*> | [!?&] | <[A-Za-z/!?<] | /?(?:{_ACTIVE})\b
        | [A-Za-z][A-Za-z0-9+.-]{{1,31}}:
    )) | (?P<loose><(?=[A-Za-z/])|\{{)""",
    _FLAGS,
)
_SUSPECT = re.compile(
    rf"""<(?!/?(?:{_NAMES})\s*/?>)[A-Za-z/!?&] | \]: | \](?:\((?!figure:|https?://|\#) | [ \t]+\() | {_HANDLER}
    | !\[(?!(?:[^\[\]\\]|\\.)*\]\(figure:) | ``` | ~~~""",
    _FLAGS,
)
_LINK = re.compile(r"(?:https?://|mailto:|figure:|#)|[^:&\\]*$", re.IGNORECASE)
#: Images of the document: no path that leaves its folder.
_PICTURE = re.compile(r"figure:[^\s<>]*|(?!/)(?!(?:.*/)?(?:\.|%2e){2}(?:/|$))[^:&\\<>]*", re.IGNORECASE)
_TICKS = re.compile("`+")
_HANDLED = re.compile(_HANDLER, re.IGNORECASE)
_TAG = re.compile("<(?=[A-Za-z/!?])")
_FENCE = re.compile(r" {0,3}(?:```|~~~)")
#: Heads of tables that begin a fence in renderers without tables.
_FENCE_HEAD = re.compile(r" {0,3}(?:`{3,}[^`]*$|~~~)")
#: Lines that begin with an element, which makes HTML of the lines that follow: up to its closing tag in
#: Python-Markdown, up to an empty line in others, for some also in tables and lists.
_ELEMENT = re.compile(r"[\s>*+.)\d-]*<[A-Za-z/!?]")
_ADDRESS = re.compile(r"://|www\.", re.IGNORECASE)


def inert_page(record: PageRecord) -> PageRecord:
    """Return the page with inert Markdown and blocks; blocks of code are unchanged."""
    blocks = tuple(
        replace(block, text=inert_markdown(block.text), inside=inert_markdown(block.inside))
        if block.kind is not BlockKind.CODE and (_SUSPECT.search(block.text) or _SUSPECT.search(block.inside))
        else block
        for block in record.blocks
    )
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
            if cleaned == text and all(map(_is_inert, tokens)):
                return text
            text = cleaned
    return _HTML.sub(_shown, text)


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable(["table", "strikethrough"])
    # Every scheme makes a link, so that `_is_inert` can check it.
    made.validateLink = lambda url: True  # type: ignore[method-assign]
    return made


def _cleaned(text: str, tokens: "list[Token]") -> str:
    """Return the text with each run of lines sanitized by its kind."""
    lines = text.split("\n")
    kinds = ["text"] * len(lines)
    starts = {0}
    codes: dict[int, Token] = {}
    fenced: set[int] = set()
    heads: set[int] = set()  # of tables
    for token in tokens:
        if token.map is None:
            continue
        first, end = token.map
        if token.type in ("fence", "code_block", "html_block"):
            kinds[first:end] = ["html" if token.type == "html_block" else "code"] * len(kinds[first:end])
            starts |= {first, end}
            codes[first] = token
            if token.type == "fence" and not token.level:
                fenced.update(range(first, end))
        elif token.type in ("table_open", "inline"):
            starts |= {first, end}
            if token.type == "table_open":
                heads.add(first)
    starts |= {at for at in range(1, len(lines)) if kinds[at] != kinds[at - 1]}
    bounds = [*sorted(at for at in starts if at < len(lines)), len(lines)]
    # Whether other renderers may see other code on this page: fences in lists, and unpaired backticks.
    nested = any(
        token.level and token.map and any(map(_FENCE.match, lines[slice(*token.map)])) for token in codes.values()
    )
    # Code in lists and indented code can be text in other renderers, which pair its backticks with those of the text.
    paired = all(_is_paired(line) for at, line in enumerate(lines) if at not in fenced)
    texts = ["\n".join(lines[first:end]) for first, end in pairwise(bounds) if kinds[first] == "text"]
    # Whether a renderer may see an attribute: of a tag that only it completes, or of a list in braces.
    wary = bool(_HANDLED.search(text)) and any(found["loose"] for part in texts for found in _TEXT.finditer(part))
    parts = []
    for first, end in pairwise(bounds):
        part, kind = lines[first:end], kinds[first]
        if kind == "code":
            if first and lines[first - 1].strip() and not codes[first].level and _SUSPECT.search(codes[first].content):
                parts.append("")  # ends what some renderer may see as HTML
            parts += _cleaned_code(part, codes[first], nested=nested)
        elif kind == "html":
            shown = _HTML.sub(_shown, "\n".join(part)).split("\n")
            parts += [re.sub("[`~]", _entity, line, count=1) if _FENCE.match(line) else line for line in shown]
        else:
            if first in heads and _FENCE_HEAD.match(part[0]):
                part[0] = re.sub("[`~]", _entity, part[0], count=1)
            parts.append(_cleaned_text("\n".join(part), paired=paired, wary=wary))
    return "\n".join(parts)


def _is_paired(line: str) -> bool:
    """Return whether every renderer sees the same code spans: each begins and ends on this line, without `|`."""
    before = (re.split(r"[\s<]", part)[-1] for part in line.split("`")[:-1])
    if _ELEMENT.match(line) or any(map(_ADDRESS.search, before)):  # GFM's addresses contain backticks
        return False
    runs, at = list(_TICKS.finditer(line)), 0
    while at < len(runs):
        begin = runs[at]
        same = next((place for place in range(at + 1, len(runs)) if len(runs[place][0]) == len(begin[0])), None)
        escaped = line[max(0, begin.start() - 1) : begin.start()] == "\\"
        if same is None or escaped or "|" in line[begin.end() : runs[same].start()]:
            return False
        at = same + 1
    return True


def _cleaned_code(lines: list[str], token: "Token", *, nested: bool) -> list[str]:
    """Return the lines of a code block in a form that all renderers read as code, or without tags."""
    suspect = _SUSPECT.search(token.content)
    if token.level:
        return [_HTML.sub(_shown, "\n".join(lines))]
    body = token.content.rstrip("\n").split("\n")
    if not suspect and token.type == "code_block":
        return lines
    if suspect and nested:
        return [f"<pre><code>{_entities(token.content.rstrip())}</code></pre>", ""]
    if token.type == "code_block":
        marks, language = "```", ""
    else:
        marks, language = token.markup, token.info.strip()
        plain = [f"{marks}{language}", *body, marks]
        inner = any(line.lstrip(" ").startswith(marks) for line in body)
        if re.fullmatch(r"[\w+#.-]*", language) and not inner and token.content.strip() and lines == plain:
            return lines
    if not token.content.strip():
        return []
    longest = max((len(run) for run in re.findall("`{3,}", token.content)), default=2)
    name = re.match(r"[\w+#.-]*", language)
    return ["`" * (longest + 1) + (name[0] if name else ""), *body, "`" * (longest + 1)]


def _cleaned_text(text: str, *, paired: bool, wary: bool) -> str:
    """Sanitize text outside of HTML and code blocks.

    Args:
        text: The text.
        paired: Whether code spans with tags are kept. Otherwise they become HTML.
        wary: Whether the `=` of handlers is encoded.
    """
    runs: dict[int, list[int]] = defaultdict(list)
    for run in _TICKS.finditer(text):
        runs[len(run[0])].append(run.start())
    parts, at = [], 0
    while found := _TEXT.search(text, at):
        parts.append(text[at : found.start()])
        at = found.end()
        if not found["ticks"]:
            parts.append(_shown(found) if wary or not found["handler"] else found[0])
            continue
        same = runs[len(found[0])]
        place = bisect_left(same, at)
        if place < len(same):
            code = text[at : same[place]]
            at = same[place] + len(found[0])
            if not paired and _SUSPECT.search(code):
                parts.append(f"<code>{_entities(code)}</code>")
                continue
        parts.append(text[found.start() : at])
    return "".join([*parts, text[at:]])


def _shown(match: re.Match[str]) -> str:
    """Return the safe form of a match. Entities are valid in Markdown and HTML, and are never syntax."""
    if match["tag"]:
        return f"<{match['close']}{match['tag']}{_kept_attributes(match)}{match['end']}>"
    if match["open"] or match[0] == "\\<":
        return "&lt;"
    if match["handler"]:
        return f"{match['handler']}&#61;"
    if match["picture"]:
        return "&#33;&#91;" if match.string.startswith("[", match.end()) else "!&#91;"
    if match["image"]:
        if _PICTURE.fullmatch(match["target"]) and not re.search(r"[<`]|\]\(", match["alt"]):
            return match[0]
        rest = match[0][2:]
        # Python-Markdown moves entities after a closing tag: `!` must not meet the next bracket.
        mark = "&#33;&#91;" if rest.startswith("[") else "!&#91;"
        return mark + (
            _cleaned_text(rest, paired=False, wary=True) if match.re is _TEXT else match.re.sub(_shown, rest)
        )
    if match["link"]:
        if match["apart"] or match["angle"] or match["angle2"] or match["cut"] is not None:
            return "&#93;"
        to = match["to"] if match["to"] is not None else match["to2"]
        whole = match["cut2"] is None or bool(to)
        return match[0] if whole and _LINK.match(to) else "&#93;"
    return match[0]


def _is_inert(token: "Token") -> bool:
    attributes: dict[str, Any] = token.attrs
    if token.type in ("html_block", "html_inline"):
        return _HTML.sub(_shown, token.content) == token.content
    if token.type == "link_open":
        return bool(_LINK.match(str(attributes.get("href", ""))))
    if token.type == "image":
        return bool(_PICTURE.fullmatch(str(attributes.get("src", ""))))
    return all(map(_is_inert, token.children or ()))
