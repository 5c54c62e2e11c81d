"""Links to figures in Markdown: `![alt](figure:ID)`, the form of the predecessor's datasets.

Ids may hold any text (a manifest's document ids do), so the target is percent-encoded where CommonMark would end it.
"""

import re
from urllib.parse import unquote

from llm_ocr.results.text import clean

SCHEME = "figure:"

#: An image: its alt text, which may hold escapes and one pair of brackets, and its target, of which a title is a part.
IMAGE = re.compile(r"!\[(?P<alt>(?:[^\\\[\]]|\\.|\[(?:[^\\\[\]]|\\.)*\])*)\]\((?P<target>[^()\n]+)\)", re.DOTALL)

_UNSAFE_IN_TARGET = re.compile(r"[\x00-\x20\x7f\s\"#%&'()/:<>?@\[\\\]`|]")
# an underscore between letters or digits is no emphasis (CommonMark 6.2) and stays readable
_UNSAFE_IN_TEXT = re.compile(r"[$*\[\\\]`|~]|(?<![^\W_])_+|_+(?![^\W_])")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def escape(text: str) -> str:
    """The text, made `one_line`, as Markdown that shows it as it is.

    `<`, `>` and `&` become entities, which hold in Markdown and in HTML alike; everything else is escaped with `\\`.
    """
    line = re.sub("[&<>]", lambda match: _ENTITIES[match[0]], one_line(text))
    return _UNSAFE_IN_TEXT.sub(lambda match: "".join(f"\\{mark}" for mark in match[0]), line)


def one_line(text: str) -> str:
    """The text with white space collapsed, control characters dropped and lone surrogates replaced."""
    return " ".join(_CONTROL.sub("", " ".join(clean(text).split())).split())


def unescape(text: str) -> str:
    """What `escape` was given, white space and control characters aside."""
    plain = _ESCAPE.sub(r"\1", text)
    for character, entity in reversed(_ENTITIES.items()):
        plain = plain.replace(entity, character)
    return plain


def figure_target(figure_id: str) -> str:
    """`figure:ID`, percent-encoded where it must be."""
    return SCHEME + encode_target(figure_id)


def encode_target(text: str) -> str:
    """A part of a link target that CommonMark and URL parsers take whole; letters of any script stay as they are."""
    return _UNSAFE_IN_TARGET.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), clean(text))


def figure_link(figure_id: str) -> str:
    """`![ID](figure:ID)`."""
    return f"![{escape(figure_id)}]({figure_target(figure_id)})"


def target_id(target: str) -> str | None:
    """The figure that a link target names, None for other targets."""
    return unquote(target.removeprefix(SCHEME)) if target.startswith(SCHEME) else None
