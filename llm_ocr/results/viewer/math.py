r"""LaTeX between `\(...\)` and `\[...\]` and in environments, for markdown-it: linear whatever is left open.

Formulas between dollars have a plugin (mdit-py-plugins); the one for environments takes quadratic time.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

INLINE, DISPLAY, BLOCK = "bracket_inline", "bracket_display", "bracket_block"
_CLOSES = {"\\(": "\\)", "\\[": "\\]"}
_OPENS = re.compile(
    r"(?P<bracket>\\\[)|\\begin\{(?P<name>(?:equation|multline|gather|align|alignat|flalign|eqnarray"
    r"|matrix|pmatrix|bmatrix|Bmatrix|vmatrix|Vmatrix|cases|split|aligned|gathered)\*?)\}"
)


def bracket_math(markdown: "MarkdownIt") -> None:
    """The rules; tokens `bracket_inline`, `bracket_display` and `bracket_block` hold the LaTeX as `content`."""
    markdown.inline.ruler.before("escape", INLINE, _inline)
    markdown.block.ruler.before("fence", BLOCK, _block, {"alt": ["paragraph", "blockquote", "list"]})


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
    """The text up to the line that ends with `close`, and the line behind it; "" where a blank line comes before."""
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
    """What is known to stay open, so that nothing is looked for twice."""
    memory: dict[Any, Any] = env.setdefault(name, {})
    return memory
