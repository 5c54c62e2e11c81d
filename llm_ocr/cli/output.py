"""Writing for the user. A reader that went away (`llm-ocr ... | head`) is no error of ours."""

import os
import sys
from typing import TextIO


def write(text: str, stream: TextIO | None = None) -> None:
    """Write to standard output, or to `stream`; what the encoding lacks is written as an escape."""
    out = stream or sys.stdout
    try:
        out.write(text.encode(out.encoding or "utf-8", "backslashreplace").decode(out.encoding or "utf-8"))
        out.flush()
    except BrokenPipeError:
        _silence(out)


def write_line(text: str, stream: TextIO | None = None) -> None:
    """`write`, and a line end."""
    write(text + "\n", stream)


def complain(*lines: str) -> None:
    """An error, and below it what to do, to standard error."""
    write_line("llm-ocr: " + "\n".join(lines), sys.stderr)


def _silence(stream: TextIO) -> None:
    """Send what still comes to nowhere, so that the interpreter's own flush at exit does not complain either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
