"""The commands of a platform's README in a shell, word for word, beside programs that stand in for the platform's."""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
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


def repository_copy(desk: Path, names: Sequence[str], programs: Mapping[str, str]) -> Path:
    """A folder like the root of the repository, with `names` of it and a token of the Hub.

    `programs` are in its `bin`, as texts with `{python}` to be filled in, and so are `llm-ocr` and `python`.
    """
    for name in names:
        (desk / name).symlink_to(REPOSITORY / name)
    (desk / "hf-token.txt").write_text("hf_geheimnis\n")
    (desk / "bin").mkdir()
    for name, text in {"llm-ocr": _LLM_OCR, "python": _PYTHON, **programs}.items():
        file = desk / "bin" / name
        file.write_text(text.replace("{python}", shlex.quote(sys.executable)))
        file.chmod(0o755)
    return desk


def stand_in(file: Path) -> str:
    """The text of a program that runs this file of Python."""
    return f'#!/bin/sh\nexec {{python}} {shlex.quote(str(file))} "$@"\n'


def followed(script: str, desk: Path, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """A shell that ends at the first command which fails, in a folder like the root of the repository."""
    own = {"PATH": f"{desk / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "HOME": str(desk)}
    command = ["bash", "-c", f"set -eu\n{script}"]
    return subprocess.run(command, cwd=desk, env={**environment, **own}, capture_output=True, text=True, timeout=800)
