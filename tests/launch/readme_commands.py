"""The commands of a platform's README in a shell, word for word, beside programs that stand in for the platform's."""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: Looks at jobs more often than for real; all else is the command.
_LLM_OCR = """#!{python}
import sys
import llm_ocr.launch.launching as launching
launching.EVERY = 0.5
from llm_ocr.cli import main
sys.exit(main(sys.argv[1:]))
"""
#: A link would not find what is installed beside the interpreter.
_PYTHON = """#!/bin/sh
exec {python} "$@"
"""


def blocks(text: str) -> list[str]:
    """The shell blocks of a README."""
    return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def put_programs(desk: Path, texts: Mapping[str, str], **values: str) -> None:
    """`llm-ocr`, `python` and those of `texts` in `bin`, with `{python}` and `values` filled in."""
    (desk / "bin").mkdir()
    for name, text in {"llm-ocr": _LLM_OCR, "python": _PYTHON, **texts}.items():
        file = desk / "bin" / name
        file.write_text(text.format(python=shlex.quote(sys.executable), **values))
        file.chmod(0o755)


def followed(script: str, desk: Path, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """A shell that ends at the first command which fails, in a folder like the root of the repository."""
    root = str(Path(__file__).resolve().parents[2])
    own = {"PATH": f"{desk / 'bin'}:/usr/bin:/bin", "PYTHONPATH": root, "HOME": str(desk)}
    command = ["bash", "-c", f"set -eu\n{script}"]
    return subprocess.run(command, cwd=desk, env={**environment, **own}, capture_output=True, text=True, timeout=800)
