"""llm-ocr completion: a script that completes commands, flags, and values in bash, zsh, or fish."""

import argparse

import shtab

from llm_ocr.cli.flags import build_parser
from llm_ocr.cli.output import write
from llm_ocr.config.commands import all_commands
from llm_ocr.config.fields import command_models, settings_of
from llm_ocr.config.models import CompletionSettings
from llm_ocr.models.registry import all_profiles
from llm_ocr.plugins import PLATFORMS

_FILES = ("FILE", "PATH", "SOURCE", "URL", "FOLDER", "IMAGE")
_MODELS = ("model", "describe_model")  # settings whose values are names of profiles


def run_completion(command: str, settings: CompletionSettings) -> int:
    """Print the completion script of a shell to standard output."""
    write(shtab.complete(_complete_parser(), settings.shell) + "\n")
    return 0


def _complete_parser() -> argparse.ArgumentParser:
    """Return one parser of all commands, with the possible values of each flag."""
    parser = argparse.ArgumentParser("llm-ocr", add_help=False)
    commands = parser.add_subparsers()
    for command in all_commands():
        model = command_models().get(command.name)
        if model is None:  # it cannot be imported
            continue
        parent = build_parser(command, model, for_help=True)
        settings = settings_of(model)
        for action in parent._actions:
            setting = settings.get(action.dest)
            if setting is None or setting.kind is bool:
                continue
            if setting.positional and not setting.many:
                action.nargs = None
            if setting.choices:
                action.choices = setting.choices
            elif command.name == "launch" and setting.name == "platform":
                action.choices = list(PLATFORMS.names())
            elif setting.name in _MODELS or (command.name == "models" and setting.name == "name"):
                action.choices = sorted(profile.name for profile in all_profiles())
            elif setting.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # the attribute that shtab reads
        commands.add_parser(command.name, parents=[parent], add_help=False, help=command.summary)
    return parser
