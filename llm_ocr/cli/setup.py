"""llm-ocr init and llm-ocr completion: a configuration file that explains every setting, and a script for a shell."""

import argparse
import json
import os
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llm_ocr.cli.output import write, write_line
from llm_ocr.config.commands import all_commands
from llm_ocr.config.fields import command_models, groups_of, settings_of
from llm_ocr.config.models import CompletionSettings, InitSettings, RunSettings
from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.plugins import PLATFORMS

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


_FILES = ("FILE", "PATH", "SOURCE", "URL", "FOLDER", "IMAGE")
_MODELS = ("model", "describe_model")  # settings whose values are names of profiles


def run_completion(command: str, settings: CompletionSettings) -> int:
    """Print the completion script of a shell to standard output: all commands, and the possible values of each flag."""
    import shtab

    from llm_ocr.cli.start import build_parser
    from llm_ocr.models.registry import all_profiles

    parser = argparse.ArgumentParser("llm-ocr", add_help=False)
    commands = parser.add_subparsers()
    for offered in all_commands():
        model = command_models().get(offered.name)
        if model is None:  # it cannot be imported
            continue
        parent = build_parser(offered, model, for_help=True)
        known = settings_of(model)
        for action in parent._actions:
            setting = known.get(action.dest)
            if setting is None or setting.kind is bool:
                continue
            if setting.positional and not setting.many:
                action.nargs = None
            if setting.choices:
                action.choices = setting.choices
            elif offered.name == "launch" and setting.name == "platform":
                action.choices = list(PLATFORMS.names())
            elif setting.name in _MODELS or (offered.name == "models" and setting.name == "name"):
                action.choices = sorted(profile.name for profile in all_profiles())
            elif setting.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # the attribute that shtab reads
        commands.add_parser(offered.name, parents=[parent], add_help=False, help=offered.summary)
    write(shtab.complete(parser, settings.shell) + "\n")
    return 0
