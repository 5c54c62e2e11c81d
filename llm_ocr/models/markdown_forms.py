"""Forms of Markdown, and of the plain tables in it, written from what HTML says."""

import re
from collections.abc import Mapping, Sequence

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


def marked(name: str, text: str, attributes: Mapping[str, str]) -> str:
    """Text of an inline element with its marks; white space at its ends stays outside of them."""
    inner = text.strip()
    if not inner:
        return text
    match name:
        case "sup" | "sub":
            made = f"<{name}>{inner}</{name}>"
        case "code":
            made = code_span(inner)
        case "a":
            target = attributes.get("href", "").strip()
            made = f"[{inner}]({target.translate(_ESCAPED_LINK)})" if _HARMLESS.match(target) else inner
        case _:
            mark = _MARKS.get(name, "")
            made = f"{mark}{inner}{mark}"
    start = text.index(inner)
    return f"{text[:start]}{made}{text[start + len(inner) :]}"


def code_span(text: str) -> str:
    """Text between as many backticks as it needs."""
    if not text:
        return ""
    mark = "`" * (longest_ticks(text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{mark}{space}{text}{space}{mark}"


def fenced(text: str, language: str) -> str:
    """A block of code."""
    mark = "`" * max(3, longest_ticks(text) + 1)
    body = text.strip("\n")
    return f"{mark}{language}\n{body}\n{mark}"


def code_language(attributes: Mapping[str, str]) -> str:
    """The language that the class of a piece of code names; "" for none."""
    found = _LANGUAGE.match(attributes.get("class", ""))
    return found[1] if found else ""


def longest_ticks(text: str) -> int:
    """The length of the longest run of backticks."""
    return max(map(len, _TICKS.findall(text)), default=0)


def list_item(text: str, marker: str) -> str:
    """An item of a list, what follows its first line indented; a marker that stands in the text itself is taken."""
    if number := _NUMBER.match(text):
        marker, text = number[1], text[number.end() :]
    elif bullet := _BULLET.match(text):
        text = text[bullet.end() :]
    return f"{marker} {indented(text, len(marker) + 1).lstrip(' ')}"


def indented(text: str, columns: int) -> str:
    """The lines, each moved to the right."""
    space = " " * columns
    return "\n".join(f"{space}{line}" if line else line for line in text.split("\n"))


def joined(blocks: Sequence[tuple[str, bool]]) -> str:
    """Paragraphs with blank lines between them; a list (True) follows a paragraph at once."""
    parts: list[str] = []
    after_list = True
    for text, is_list in blocks:
        if parts:
            parts.append("\n" if is_list and not after_list else "\n\n")
        parts.append(text)
        after_list = is_list
    return "".join(parts)


def table_cell(name: str, blocks: Sequence[tuple[str, bool]], attributes: Mapping[str, str]) -> str:
    """A cell of a plain HTML table: its paragraphs, and how many columns and rows it covers."""
    spans = ""
    for span in ("rowspan", "colspan"):
        count = _SPAN.match(attributes.get(span, "").strip())
        spans += f' {span}="{count[1]}"' if count and count[1] != "1" else ""
    text = "<br>".join(text for text, _ in blocks).replace("\n", "<br>")
    return f"<{name}{spans}>{text}</{name}>"


def whole_number(text: str, otherwise: int) -> int:
    """A number of at most eight digits; `otherwise` for what is none."""
    return int(text) if _COUNT.match(text) else otherwise


def bare_formula(text: str) -> str:
    """A formula without the delimiters around the whole of it."""
    text = text.strip()
    for begin, end in _MATH_WRAPS:
        inner = text[len(begin) : -len(end)]
        if len(text) > len(begin) + len(end) and text.startswith(begin) and text.endswith(end) and begin not in inner:
            return inner.strip()
    return text
