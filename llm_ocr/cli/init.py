"""llm-ocr init: a configuration file that explains every setting."""

import json
import os
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llm_ocr.cli.output import write_line
from llm_ocr.config.fields import groups_of
from llm_ocr.config.models import InitSettings, RunSettings
from llm_ocr.errors import LlmOcrError, UsageError

_HEAD = """\
# Settings for all llm-ocr commands. Use: llm-ocr run SOURCE... --config {name}
# Each line shows a default. Remove the leading # to change it. "" means: not set.
# Flags and LLM_OCR_* variables override this file. Paths are relative to the working directory of llm-ocr.
"""


def run_init(command: str, settings: InitSettings) -> int:
    """Write the file.

    Raises:
        UsageError: The file exists and `force` is not set.
    """
    path = settings.path
    if path.suffix not in (".toml", ""):
        raise UsageError(f"{path}: the file name must end in .toml", hint="Example: llm-ocr init llm-ocr.toml")
    if path.is_dir():
        path = path / "llm-ocr.toml"
    elif not path.suffix:
        path = path.with_suffix(".toml")
    try:
        with path.open("w" if settings.force else "x", encoding="utf-8") as file:
            file.write(config_text(path.name))
    except FileExistsError as error:
        raise UsageError(f"{path} already exists", hint="Replace it with --force.") from error
    except OSError as error:
        raise LlmOcrError(f"{path} cannot be written: {error.strerror or error}") from error
    if not settings.quiet:
        write_line(f"Wrote {path}. Use it: llm-ocr run SOURCE... --config {os.fspath(path)}")
    return 0


def config_text(name: str = "llm-ocr.toml") -> str:
    """Return the file: every setting of `run`, its meaning, and its default, commented out."""
    parts = [_HEAD.format(name=name)]
    for title, settings in groups_of(RunSettings):
        parts.append(f"\n# --- {title} ---\n")
        for setting in settings:
            limited = bool(setting.choices) or setting.kind in (int, float, bool)
            note = f"{setting.description} [{setting.allowed}]" if limited else setting.description
            comment = "\n".join(textwrap.wrap(note, 110, initial_indent="## ", subsequent_indent="## "))
            parts.append(f"\n{comment}\n# {setting.name} = {_toml(setting.default)}\n")
    return "".join(parts)


def _toml(value: Any) -> str:
    if value is None:
        return '""'
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "[" + ", ".join(json.dumps(str(item)) for item in value) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
