"""Writing for the user: everything that the program prints goes through this module.

Names of documents and answers of servers cannot steer the terminal or forge lines. A reader that went away
(`llm-ocr ... | head`) is no error of ours.
"""

import json
import os
import sys
from typing import Any, TextIO

from llm_ocr.config.environment import leave_error

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Marks of direction, zero-width characters, and line separators, all of which change how a line looks.
_UNSEEN = (0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
_HARMLESS = {**_CONTROLS, **{code: f"\\u{code:04x}" for code in _UNSEEN}}
_ONE_LINE = {**_HARMLESS, ord("\n"): "\\n", ord("\t"): "\\t"}
_IN_JSON = {code: f"\\u{code:04x}" for code in (*range(127, 160), *_UNSEEN)}


def write(text: str, stream: TextIO | None = None) -> None:
    """Write to standard output, or to `stream`; what the encoding lacks is written as an escape."""
    out = stream or sys.stdout
    text = harmless(text) if out.isatty() else text
    try:
        out.write(text.encode(out.encoding or "utf-8", "backslashreplace").decode(out.encoding or "utf-8"))
        out.flush()
    except BrokenPipeError:
        _silence(out)


def write_line(text: str, stream: TextIO | None = None) -> None:
    """Write a message and a line end. A message of several lines has names in it only through `one_line`."""
    write(harmless(text) + "\n", stream)


def write_json(value: Any, *, indent: int | None = 2) -> None:
    """Write JSON to standard output, which a terminal shows as it is written."""
    write(json_text(value, indent=indent) + "\n")


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """Return JSON in which characters that steer a terminal are JSON's own escapes."""
    return json.dumps(value, ensure_ascii=False, indent=indent).translate(_IN_JSON)


def harmless(text: str) -> str:
    """Return the text with control characters and unseen ones as escapes; line ends and tabs stay."""
    return text.translate(_HARMLESS)


def one_line(text: str) -> str:
    """Return the text as `harmless` does, with line ends and tabs as escapes, too."""
    return text.translate(_ONE_LINE)


def paragraph(text: str) -> str:
    """Return the text with its lines after the first indented, so that none looks like a message of its own."""
    return text.replace("\n", "\n  ")


def complain(*lines: str) -> None:
    """Write an error, and below it what to do, to standard error and for the platform of a job."""
    write_line("llm-ocr: " + "\n".join(lines), sys.stderr)
    leave_error("\n".join(lines))


def _silence(stream: TextIO) -> None:
    """Send what still comes to nowhere, so that the interpreter's own flush at exit does not complain either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
