"""Writing for the user. A reader that went away (`llm-ocr ... | head`) is no error of ours."""

import os
import sys
from typing import TextIO

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def write(text: str, stream: TextIO | None = None) -> None:
    """Write to standard output, or to `stream`; what the encoding lacks is written as an escape."""
    out = stream or sys.stdout
    try:
        out.write(text.encode(out.encoding or "utf-8", "backslashreplace").decode(out.encoding or "utf-8"))
        out.flush()
    except BrokenPipeError:
        _silence(out)


def write_line(text: str, stream: TextIO | None = None) -> None:
    """A message and a line end; file names in it cannot steer the terminal."""
    write(harmless(text) + "\n", stream)


def harmless(text: str) -> str:
    """The text with control characters, line ends and tabs aside, written as escapes."""
    return text.translate(_CONTROLS)


def complain(*lines: str) -> None:
    """An error, and below it what to do, to standard error."""
    write_line("llm-ocr: " + "\n".join(lines), sys.stderr)


def _silence(stream: TextIO) -> None:
    """Send what still comes to nowhere, so that the interpreter's own flush at exit does not complain either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
