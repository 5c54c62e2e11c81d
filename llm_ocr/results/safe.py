"""Markdown that is safe to show: text from documents and models must not run scripts or fetch anything.

Works on the source, for renderers that trust it (notebooks do). HTML is kept for tables and simple formatting and shown
as text otherwise; links keep only harmless targets; images are shown only from data URLs. Code becomes HTML with every
special character as an entity, so that it is safe even where a renderer does not see it as code.
"""

import re

from llm_ocr.results.figure_links import IMAGE, escape, unescape
from llm_ocr.results.lines import map_prose

#: HTML in the text of documents and models that is kept: tables and simple formatting.
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
    """The same text as far as it is harmless, with the rest shown as it is written."""
    return map_prose(text, lambda prose: _SPECIAL.sub(_safe, prose), _code_block)


def _code_block(block: str) -> str:
    lines = block.split("\n")
    body = lines[1:-1] if len(lines) > 1 and lines[-1].strip(" `~\t") == "" else lines[1:]
    return f"<pre><code>{_entities(chr(10).join(body))}</code></pre>\n"


def _entities(text: str) -> str:
    """With nothing left that HTML or Markdown would read."""
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
