"""Output for the user: everything that the program prints passes through this module.

Document names and server texts cannot control the terminal or forge lines. A closed reader (`llm-ocr ... | head`) is
not an error.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from llm_ocr.config.environment import leave_error

if TYPE_CHECKING:
    from pydantic import BaseModel

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Direction marks, zero-width characters, and line separators. All of them change the appearance of a line.
_UNSEEN = (0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
_HARMLESS = {**_CONTROLS, **{code: f"\\u{code:04x}" for code in _UNSEEN}}
_ONE_LINE = {**_HARMLESS, ord("\n"): "\\n", ord("\t"): "\\t"}
_IN_JSON = {code: f"\\u{code:04x}" for code in (*range(127, 160), *_UNSEEN)}


def write(text: str, stream: TextIO | None = None) -> None:
    """Write to standard output, or to `stream`; characters that the encoding lacks are escaped."""
    out = stream or sys.stdout
    text = harmless(text) if out.isatty() else text
    try:
        out.write(text.encode(out.encoding or "utf-8", "backslashreplace").decode(out.encoding or "utf-8"))
        out.flush()
    except BrokenPipeError:
        # The null device takes further output, so that the interpreter's flush at exit does not fail either.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, out.fileno())
        os.close(nowhere)


def write_line(text: str, stream: TextIO | None = None) -> None:
    """Write a message and a line end, with its settings as flags.

    Names in a message of several lines must have passed through `one_line`.
    """
    write(harmless(with_flags(text)) + "\n", stream)


#: Setting in a message of the library, as a keyword in backticks: `workers=4`. Users of the program type flags.
_NAMED = re.compile(r"(?<!`)`([a-z][a-z0-9_]*)(?:=([^`\n]*))?`(?!`)")


#: Workspace of this process's command as written in messages, and the flags that its store needs beside the URL.
_workspace = ("", "")


def repeat_flags(workspace: str, flags: str) -> None:
    """Let the commands in messages repeat `flags` after `-w` and this workspace; empty for none."""
    global _workspace
    _workspace = (workspace, flags)


def with_flags(text: str) -> str:
    """Return a message with its settings as flags: `` `layout_first=never` `` becomes `--layout-first never`.

    A switch that is off (`` `page_markers=False` ``) becomes `--no-page-markers`. Other texts in backticks stay.
    Printed commands for the workspace of this command get the flags that it was reached with (`repeat_flags`).
    """

    def typed(match: re.Match[str]) -> str:
        from llm_ocr.config.fields import every_setting  # heavy, and not needed for the help

        setting = every_setting().get(match[1])
        value = match[2]
        if setting is None:
            return match[0]
        if setting.positional:
            return setting.metavar if value is None else value
        if setting.kind is bool:
            return setting.negated if value == "False" else setting.flag
        if value is None:
            return setting.flag
        return f"{setting.flag}{'=' if value.startswith('-') else ' '}{value}"

    text = _NAMED.sub(typed, text)
    workspace, flags = _workspace
    if flags:
        named = rf"( -w ['\"]?{re.escape(workspace.rstrip('/'))}/?['\"]?)(?=[\s.,;:)`]|$)(?!{re.escape(flags)})"
        text = re.sub(named, lambda match: match[1] + flags, text)
    return text


def as_flags(settings: "BaseModel", names: Iterable[str]) -> str:
    """Return the named settings that have a value, as flags with a space before each; lists repeat their flag."""
    from llm_ocr.config.fields import settings_of

    text, values, known = "", dict(settings), settings_of(type(settings))
    for setting in (known[name] for name in names):
        value = values[setting.name]
        for item in value if setting.many else [value] if value else []:
            text += f" {setting.flag}" + ("" if setting.kind is bool else f" {shlex.quote(str(item))}")
    return text


def write_json(value: Any) -> None:
    """Write JSON to standard output; a terminal shows the text unchanged."""
    write(json_text(value) + "\n")


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """Return JSON in which characters that control a terminal are JSON escapes."""
    return json.dumps(value, ensure_ascii=False, indent=indent).translate(_IN_JSON)


def harmless(text: str) -> str:
    """Return the text with control characters and invisible characters escaped; line ends and tabs stay."""
    return text.translate(_HARMLESS)


def one_line(text: str) -> str:
    """Return the text as `harmless` does, with line ends and tabs escaped, too."""
    return text.translate(_ONE_LINE)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines: columns are left-aligned, two spaces apart, and the last one is as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return ["  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]


def paragraph(text: str) -> str:
    """Return the text with all lines after the first indented, so that none looks like a separate message."""
    return text.replace("\n", "\n  ")


def complain(*lines: str) -> None:
    """Write an error and its remedy to standard error and to the error file of a job's platform."""
    text = with_flags("\n".join(lines))
    write_line(f"llm-ocr: {text}", sys.stderr)
    leave_error(text)
