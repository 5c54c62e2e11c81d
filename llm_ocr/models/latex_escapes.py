r"""Strings of JSON in which a model wrote LaTeX with single backslashes.

`\(` and `\alpha` are no escapes of JSON and keep their backslash. `\frac` and `\times` are, by accident: they come out
as a form feed and a tab before the rest of a command, which no page holds.
"""

import re

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|u[0-9a-fA-F]{0,3}\Z|(.)|\Z)", re.DOTALL)
_PLAIN = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BACK = {character: f"\\{letter}" for letter, character in _PLAIN.items() if letter.isalpha()}
# The rests of commands behind a control character that are no words of any language.
_SURE = re.compile(
    r"[\b\f\r](?=[A-Za-z])"
    r"|\t(?=(?:imes|heta|ext|extbf|extit|extrm|exttt|ilde|riangle\w*|herefore|frac)(?![A-Za-z]))"
    r"|\n(?=(?:abla|onumber|otin)(?![A-Za-z]))"
)
# Those that may be words, where the string holds a command beyond doubt; behind a line's end no other word may follow.
_LIKELY = re.compile(
    r"\t(?=(?:o|op|an|anh|au|ag)(?![A-Za-z]))"
    r"|\n(?=(?:u|e|eq|eg|ot|mid|leq|geq|olimits|rightarrow)\s{0,4}(?:[^A-Za-z\s]|\Z))"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def unescaped(raw: str) -> str:
    """What stands between the quotes of a JSON string, decoded; an escape that was cut at the end is left out."""
    if "\\" not in raw:
        return raw
    sure = False

    def plain(escape: re.Match[str]) -> str:
        nonlocal sure
        if escape[1]:
            return chr(int(escape[1], 16))
        letter = escape[2] or ""
        if letter and letter not in _PLAIN:
            sure = True
            return escape[0]
        return _PLAIN.get(letter, "")

    text = _ESCAPE.sub(plain, raw)
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return with_latex(text, sure=sure)


def with_latex(text: str, *, sure: bool = False) -> str:
    r"""The text with LaTeX commands that were decoded as escapes put right (`\frac`, `\beta`, `\times`, `\nu` ...).

    `sure` says that the string was written with single backslashes.
    """
    mended = _SURE.sub(lambda found: _BACK[found[0]], text)
    if sure or mended != text:
        mended = _LIKELY.sub(lambda found: _BACK[found[0]], mended)
    return mended
