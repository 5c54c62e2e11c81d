"""LaTeX of models as MathML Core, sanitized."""

import re
from functools import cache
from typing import TYPE_CHECKING

from llm_ocr.errors import MissingExtra

if TYPE_CHECKING:
    from math_core import LatexToMathML
    from nh3 import Cleaner

# math-core converts in linear time, escapes texts, and knows no commands for links or HTML. It is recursive, and has
# no limit of depth: at about 4,000 levels, the stack of a thread overflows. Its result is sanitized by an allowlist.


#: Most commands and groups of a formula. Each one can be a level, and no formula of a page has so many.
_MOST_LEVELS = 2000
_LEVEL = re.compile(r"\\[A-Za-z]+|\{")
#: Definitions could multiply levels.
_DEFINITION = re.compile(r"\\(?:[gex]?def|let|(?:re|provide)?newcommand|providecommand|newenvironment)(?![A-Za-z])")

#: Environments that the converter would number, which adds numbers that the page does not have, or does not know.
_REWRITTEN = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\label\s*\{[^{}]*\}|\\(?:notag|nonumber)(?![A-Za-z])", ""),
        (r"\\begin\{alignat\*?\}\s*\{\d+\}", r"\\begin{align*}"),
        (r"\\(begin|end)\{(?:align|alignat|flalign)\*?\}", r"\\\1{align*}"),
        (r"\\(begin|end)\{(equation|gather|multline)\}", r"\\\1{\2*}"),
        (r"\\(begin|end)\{split\}", r"\\\1{aligned}"),
        (r"\\begin\{eqnarray\*?\}", r"\\begin{array}{rcl}"),
        (r"\\end\{eqnarray\*?\}", r"\\end{array}"),
    )
)
#: The converter knows `\tag` in these only.
_TAGGED = re.compile(r"\\begin\{(?:equation|align|gather|multline)\*\}")
_TAG = re.compile(r"\\tag\*?\s*\{([^{}]*)\}")

_ELEMENTS = frozenset(
    [
        *("math", "semantics", "annotation", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt"),
        *("mroot", "mstyle", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts"),
        *("mprescripts", "mtable", "mtr", "mtd", "menclose", "mphantom", "mpadded", "merror", "b", "i"),
    ]
)
_ATTRIBUTES = frozenset(
    [
        *("accent", "accentunder", "columnspan", "depth", "display", "displaystyle", "encoding", "fence", "form"),
        *("height", "largeop", "linethickness", "lspace", "mathvariant", "maxsize", "minsize", "movablelimits"),
        *("notation", "rowspan", "rspace", "scriptlevel", "separator", "stretchy", "style", "symmetric", "voffset"),
        *("width", "xmlns"),
    ]
)
#: Lengths, colors, and alignments: no value can name a URL.
_VALUE = re.compile(r"[A-Za-z0-9 .:;%#+/-]*")


def mathml(latex: str, *, display: bool) -> str:
    """Return a formula as MathML with its LaTeX as annotation; "" if it cannot be converted.

    Args:
        latex: The formula without delimiters. It may be any text.
        display: Whether it is on a line of its own.
    """
    from math_core import LatexError

    if sum(1 for _ in _LEVEL.finditer(latex)) > _MOST_LEVELS or _DEFINITION.search(latex):
        return ""
    for pattern, replacement in _REWRITTEN:
        latex = pattern.sub(replacement, latex)
    if not _TAGGED.search(latex):
        latex = _TAG.sub(r"\\qquad\\text{(\1)}", latex)
    try:
        return _cleaner().clean(converter().convert_with_local_state(latex, displaystyle=display))
    except LatexError:
        return ""


@cache
def converter() -> "LatexToMathML":
    """Return the converter of LaTeX; raise `MissingExtra` if it is not installed."""
    try:
        from math_core import LatexToMathML
    except ImportError as error:
        raise MissingExtra("`format=html` needs the library math-core", install="html") from error
    return LatexToMathML(annotation=True, fancy_error=False, allow_unreliable_rendering=True)


@cache
def _cleaner() -> "Cleaner":
    from nh3 import Cleaner

    return Cleaner(
        tags=set(_ELEMENTS),
        attributes={"*": set(_ATTRIBUTES)},
        attribute_filter=lambda _, name, value: value if name == "xmlns" or _VALUE.fullmatch(value) else None,
    )
