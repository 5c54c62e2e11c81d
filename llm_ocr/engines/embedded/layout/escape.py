"""Plain text into Markdown that shows the same characters.

Only what would change the meaning is escaped (CommonMark 0.31 and GitHub's strikethrough): the text is read by people
and by language models, and a backslash before every punctuation mark serves neither.
"""

import re

_LEADING = re.compile(
    r"^([ \t]*)(?:"
    r"(?P<mark>\#{1,6}(?=\s|$)|>|[-+*](?=\s|$)|={2,}[ \t]*$|-{2,}[ \t]*$|~{3,}|`{3,}|\[(?=[^\]\n]+\]:)"
    r"|(?:[*_-][ \t]*){3,}$)"
    r"|(?P<number>\d{1,9})(?P<stop>[.)])(?=\s|$))",
    re.MULTILINE,
)
_BACKSLASH = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ENTITY = re.compile(r"&(?=#?\w{1,31};)")
_IMAGE = re.compile(r"!\[")
_LINK = re.compile(r"\[(?=[^\]\n]*\]\()")
_STAR = re.compile(r"\*(?=\S)|(?<=\S)\*")
_UNDERSCORES = re.compile(r"(?<!\w)_+(?=[^\s_][^_\n]*_)")
_PLAIN = re.compile(r"[\\<&!\[*`_~]")


def escape_inline(text: str) -> str:
    """As `escape`, for text that does not begin a line, such as that of a heading."""
    if not _PLAIN.search(text):
        return text
    text = _BACKSLASH.sub(r"\\\\", text)
    text = _TAG.sub(r"\\<", text)
    text = _ENTITY.sub(r"\\&", text)
    text = _IMAGE.sub(r"!\\[", text)
    text = _LINK.sub(lambda match: "[" if text[: match.start()].endswith("\\") else "\\[", text)
    if text.count("*") > 1:
        text = _STAR.sub(r"\\*", text)
    if text.count("`") > 1:
        text = text.replace("`", "\\`")
    if text.count("~~") > 1:
        text = text.replace("~~", "\\~~")
    return _UNDERSCORES.sub(lambda match: "\\_" * len(match[0]), text)


def _lead(match: re.Match[str]) -> str:
    if match["mark"]:
        return f"{match[1]}\\{match['mark']}"
    return f"{match[1]}{match['number']}\\{match['stop']}"


def escape(text: str) -> str:
    """Markdown that reads as `text`, which may hold several lines.

    Escaped are: marks at the start of a line that would open a heading, quote, list, rule, fence or link definition;
    pairs of `*`, `` ` `` and `~~`; underscores around words (never inside them); `<` before a tag name; entities; links
    and images; a backslash before punctuation. Not for code.
    """
    inline = escape_inline(text)
    # A star at the start of a line is already escaped as one of a pair: a second backslash would undo the first.
    return _LEADING.sub(_lead, inline)


def unescape(text: str) -> str:
    """The characters that Markdown written by `escape` shows."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)
