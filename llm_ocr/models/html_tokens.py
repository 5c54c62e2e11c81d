"""HTML as models write it, cut into tags and text. Linear in the length, whatever the text; never raises.

Not the standard library's `html.parser`: releases before July 2025 take quadratic time for comments without an end, and
it takes `a<b` in a formula for a tag.
"""

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: Elements without content.
VOID = frozenset({"br", "hr", "img", "input", "col", "wbr"})
# What is a tag; anything else in angle brackets is text of the page.
_NAMES = VOID | frozenset(
    {
        *(
            "a",
            "abbr",
            "b",
            "big",
            "code",
            "del",
            "em",
            "font",
            "i",
            "ins",
            "kbd",
            "label",
            "mark",
            "s",
            "samp",
            "small",
        ),
        *("span", "strike", "strong", "sub", "sup", "tt", "u", "var", "math", "chem", "script", "style", "svg"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "div", "blockquote", "center", "section", "article", "aside"),
        *("main", "nav", "header", "footer", "figure", "figcaption", "details", "summary", "html", "head", "body"),
        *("ul", "ol", "li", "dl", "dt", "dd", "form", "select", "option", "textarea", "title"),
        *("table", "caption", "colgroup", "thead", "tbody", "tfoot", "tr", "td", "th"),
    }
)
# Elements whose content is no HTML: everything up to their end, or to where another piece of the page begins.
_RAW = frozenset({"math", "chem", "script", "style"})
_RAW_END = re.compile(
    r"</?(?P<name>math|chem|script|style|p|div|table|tr|td|th|li|ul|ol|h[1-6])(?=[\s/>]|\Z)", re.IGNORECASE
)
_OPENING = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][A-Za-z0-9]{0,15}+)(?=[\s/>]|\Z)")
_QUOTED = re.compile(r"""[^<>"']*+(?:"[^"]*+"[^<>"']*+|'[^']*+'[^<>"']*+)*+""")
_BARE = re.compile(r"[^<>]*+")
_ATTRIBUTE = re.compile(
    r"""(?P<name>[A-Za-z][\w:-]{0,40}+)
        (?:\s*+=\s*+(?:"(?P<double>[^"]*+)"?|'(?P<single>[^']*+)'?|(?P<bare>[^\s"'<>]++)))?""",
    re.VERBOSE,
)
# What may stand behind the name of a tag at which an answer was cut; other words are text of the page.
_CUT = re.compile(
    r"""(?:\s++(?:[A-Za-z][\w-]{0,20}+=(?:"[^"]*+"|'[^']*+')|checked(?!\w)))*+
        \s*+/?(?:[A-Za-z][\w-]{0,20}+(?:=(?:"[^"]*+|'[^']*+)?)?)?\Z""",
    re.VERBOSE,
)
_CUT_NAME = re.compile(r"</?[A-Za-z0-9]{0,15}\Z")
_HUGE = re.compile(r"&#(?=[xX]?[0-9a-fA-F]{9})")  # Python refuses numbers of thousands of digits
_PATIENCE = 4  # lengths of the text that may be read for quotes in vain


@dataclass(frozen=True, slots=True)
class HtmlTag:
    """An opening or closing tag, name in lower case. `raw` is the content of formulas and the like, as it stands."""

    name: str
    close: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    raw: str | None = None


def html_tokens(text: str) -> Iterator[HtmlTag | str]:
    """Tags and text in turn, entities read. Comments are left out; a tag that was cut at the end stays a tag."""
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
    """The text with HTML's entities read."""
    return html.unescape(_HUGE.sub("&amp;#", text)) if "&" in text else text


class _Tags:
    def __init__(self, text: str) -> None:
        self._text = text
        self._last = text.rfind("<")
        self._patience = _PATIENCE * len(text)
        self._endless = False  # a comment without an end: no later one has any

    def read(self, at: int) -> tuple[int, HtmlTag | None] | None:
        """Where the tag that begins here ends, and the tag (None: a comment); None where no tag begins."""
        opening = _OPENING.match(self._text, at)
        if opening is None:
            return self._other(at)
        name = opening["name"].lower()
        if name not in _NAMES:
            return self._cut(at)
        cut = at == self._last and _CUT.match(self._text, opening.end())
        # A description with a `>` in it may be what was cut.
        end = -1 if cut and name == "img" else self._end(opening.end())
        if end < 0:
            if not cut:
                return None
            end = len(self._text)
        attributes = self._text[opening.end() : end].rstrip(">")
        if opening["close"]:
            return end, HtmlTag(name, close=True)
        if name in _RAW and not attributes.endswith("/"):
            return self._raw(name, _attributes(attributes), end)
        return end, HtmlTag(name, attributes=_attributes(attributes))

    def _other(self, at: int) -> tuple[int, None] | None:
        text = self._text
        if text.startswith("<!--", at):
            end = -1 if self._endless else text.find("-->", at + 4)
            self._endless = end < 0
            return (end + 3, None) if end >= 0 else None
        if text[at + 1 : at + 2] in ("!", "?") and text[at + 2 : at + 3].isalpha():
            run = _BARE.match(text, at + 1)
            end = run.end() if run else at
            return (end + 1, None) if text[end : end + 1] == ">" else None
        return self._cut(at)

    def _cut(self, at: int) -> tuple[int, None] | None:
        """The first letters of a tag, or none of them, with which the text ends."""
        if at < self._last or not _CUT_NAME.match(self._text, at):
            return None
        begun = self._text[at:].strip("</").lower()
        return (len(self._text), None) if any(name.startswith(begun) for name in _NAMES) else None

    def _end(self, at: int) -> int:
        """Behind the `>` of a tag; -1 where it has none."""
        text = self._text
        if self._patience > 0:
            end = _end_of(_QUOTED, text, at)
            if text[end : end + 1] == ">":
                return end + 1
            # A quote here has no second one: all of the text was read for it.
            self._patience -= (len(text) if text[end : end + 1] in ('"', "'") else end) - at
        end = _end_of(_BARE, text, at)
        return end + 1 if text[end : end + 1] == ">" else -1

    def _raw(self, name: str, attributes: Mapping[str, str], at: int) -> tuple[int, HtmlTag]:
        found = _RAW_END.search(self._text, at)
        end = found.start() if found else len(self._text)
        tag = HtmlTag(name, attributes=attributes, raw=unescape(self._text[at:end]))
        if found is None or found["name"].lower() != name or self._text[end + 1] != "/":
            return end, tag
        close = _end_of(_BARE, self._text, found.end())
        return min(close + (self._text[close : close + 1] == ">"), len(self._text)), tag


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    run = pattern.match(text, at)
    return run.end() if run else at


def _attributes(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in _ATTRIBUTE.finditer(text):
        value = next((one[kind] for kind in ("double", "single", "bare") if one[kind] is not None), "")
        found.setdefault(one["name"].lower(), unescape(value))
    return found
