"""Start a command: from its arguments to its settings, its logging, and its handler.

The command line is built from the fields of the command's settings model.
"""

import argparse
import logging
import re
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, SecretStr

from llm_ocr.cli.output import (
    aligned,
    as_flags,
    harmless,
    json_text,
    one_line,
    repeat_flags,
    with_flags,
    write,
    write_line,
)
from llm_ocr.config.commands import CORE
from llm_ocr.config.environment import environment
from llm_ocr.config.fields import Setting, command_models, groups_of, settings_of
from llm_ocr.config.groups import FollowSettings, LogSettings, WorkspaceSettings
from llm_ocr.config.loading import MASKED, did_you_mean, load, shown_values
from llm_ocr.config.models import RunSettings
from llm_ocr.errors import UsageError
from llm_ocr.plugins import Command


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does (exit code 4), unless another handler is installed."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises KeyboardInterrupt
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@_terminated_like_interrupted()
def start(command: Command, arguments: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    model = command.settings()
    flags = parse_flags(command, model, arguments)
    look = partial(
        load,
        model,
        flags.values,
        config=flags.config,
        environ=environment(),
        dotenv=Path(".env"),
        written=flags.written,
        lenient=flags.show_settings,
    )
    loaded = look()
    settings = loaded.settings
    if isinstance(settings, WorkspaceSettings):
        reached = as_flags(settings, ("workspace_profile", "workspace_endpoint", "workspace_region"))
        repeat_flags(settings.workspace, reached)
    if command.remembers and isinstance(settings, WorkspaceSettings):
        if isinstance(settings, FollowSettings) and settings.follow and not flags.show_settings:
            from llm_ocr.stages.sharing import await_workspace

            await_workspace(settings, lambda message: None if settings.quiet else write_line(message, sys.stderr))
        # An estimate does not need a workspace, and `run` may use a temporary one.
        if settings.workspace and not (isinstance(settings, RunSettings) and settings.without_folder):
            from llm_ocr.workspace.stored import stored_settings

            if stored := stored_settings(command.name, settings):
                loaded = look(stored=stored)
    settings = loaded.settings
    if flags.show_settings:
        values, origins = shown_values(settings), settings.origins
        names = [setting.name for _, members in groups_of(model) for setting in members]
        rows = [("setting", "value", "from"), *((name, one_line(values[name]), origins[name]) for name in names)]
        write("".join(f"{line.rstrip()}\n" for line in aligned(rows)))
        return 0
    with logging_to(settings):
        for line in () if settings.quiet else loaded.warnings:
            write_line(f"llm-ocr: warning: {line}", sys.stderr)
        function = command.load()
        if command in CORE:
            code: int = function(command.name, settings)
            return code
        from llm_ocr.cli.progress import shown_progress

        with shown_progress(settings) as progress:
            result = function(settings, progress)  # the function of a package returns its result
        write_line(str(result))
        return 0


@dataclass(frozen=True, slots=True)
class Flags:
    """Parsed command line: values of settings as text (or bool), and flags that are not settings."""

    values: dict[str, Any]
    written: dict[str, str]  # spelling of each flag
    config: Path | None = None
    show_settings: bool = False


def parse_flags(command: Command, model: type[BaseModel], arguments: Sequence[str]) -> Flags:
    """Parse the arguments after the command's name.

    On `--help`, the help is printed and SystemExit(0) is raised. Positional arguments can be anywhere. All arguments
    after `--` are positional, even those that begin with a dash.

    Raises:
        UsageError: A flag or argument is unknown, or a flag lacks its value.
    """
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    namespace, rest = build_parser(command, model).parse_known_args(words[:end])
    values = dict(vars(namespace))
    written: dict[str, str] = values.pop(_WRITTEN, {})
    for token in rest:
        if token.startswith("-") and token != "-":
            flag = token.split("=", 1)[0]
            if own := settings_of(model).get(flag.removeprefix("--").replace("-", "_")):  # its name in files and Python
                raise UsageError(f"unknown flag {flag}", hint=f"The flag of this setting is {own.flag}.")
            models = command_models().items()
            others = [name for name, other in models if any(one.flag == flag for one in settings_of(other).values())]
            if others:
                raise UsageError(f"unknown flag {flag}", hint=f"These commands have this flag: {', '.join(others)}")
            known = {setting.flag for setting in settings_of(model).values()}
            if near := did_you_mean(flag, known | {"--config", "--show-settings", "--help", "--help-all"}):
                raise UsageError(f"unknown flag {flag}{near}")
            raise UsageError(
                f"unknown flag {flag}",
                hint="A file name that begins with a dash goes after --, for example: llm-ocr run -- -name.pdf",
            )
    positional = [*rest, *words[end + 1 :]]
    if positional:
        # Single arguments take their words in the order of definition; the list, if any, takes the rest.
        takers = [setting for setting in settings_of(model).values() if setting.positional]
        if not takers:
            hint = f"run, plan, and extract accept documents: llm-ocr run {positional[0]}"
            raise UsageError(f"unexpected argument {positional[0]!r}", hint=hint)
        single = [setting for setting in takers if not setting.many]
        for setting, word in zip(single, positional, strict=False):
            values[setting.name] = word
        if further := positional[len(single) :]:
            many = next((setting for setting in takers if setting.many), None)
            if many is None:
                taken = " and one ".join(setting.metavar for setting in single)
                raise UsageError(f"unexpected argument {further[0]!r}: only one {taken} is allowed")
            values[many.name] = further
    config = values.pop("config", None)
    return Flags(values, written, config and Path(config), values.pop("show_settings", False))


def build_parser(
    command: Command, model: type[BaseModel], *, for_help: bool = False, shown: Collection[str] = ()
) -> argparse.ArgumentParser:
    """Return the parser of a command: one group of flags per group of settings, with defaults and choices in the help.

    Args:
        command: Source of the usage line and the examples.
        model: Settings of the command.
        for_help: Include the positional arguments. argparse does not accept them mixed with flags, but `parse_flags`
            does.
        shown: Settings in the help. Empty means all of them, in groups.

    Returns:
        The parser.
    """
    examples = "\n".join(f"  {line}" for line in aligned(command.examples))
    note = "Each flag has an environment variable: --log-level is LLM_OCR_LOG_LEVEL. Lists have one item per line."
    if shown:
        note = f"All {len(settings_of(model))} settings: llm-ocr {command.name} --help-all"
    parser = _Parser(
        prog="llm-ocr",
        usage=f"llm-ocr {command.usage}",
        description=f"{command.summary}.",
        epilog=f"Examples:\n{examples}\n\n{note}",
        formatter_class=_Format,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        add_help=False,
    )
    groups = list(groups_of(model))
    if shown:
        everything = {setting.name: setting for _, members in groups for setting in members}
        groups = [("Most used settings", [everything[name] for name in shown])]
    for title, members in groups:
        section = parser.add_argument_group(title)
        for setting in members:
            if not setting.positional:
                _add(section, setting)
            elif for_help:
                section.add_argument(setting.name, metavar=setting.metavar, nargs="*", help=_help(setting))
            if setting.name == "workspace" and "output" not in model.model_fields:
                # Other programs name the folder of the results so.
                section.add_argument("-o", "--output", dest="workspace", action=_Record, help=argparse.SUPPRESS)
    more = parser.add_argument_group("Global options")
    print_all = "Print the help of all settings" if command.common else argparse.SUPPRESS
    more.add_argument("-h", "--help", action=_Help, command=command, model=model, nargs=0, help="Print this help")
    more.add_argument("--help-all", action=_Help, command=command, model=model, nargs=0, help=print_all)
    more.add_argument("--config", metavar="FILE", help="TOML or YAML file of settings (llm-ocr init writes one)")
    more.add_argument("--show-settings", action="store_true", help="Print each setting and its origin, and exit")
    return parser


_WRITTEN = "flags as written"  # no field can have this name


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        match = re.match(r"argument (?:-\w/)?(-[^:]+): (.*)", message)
        if match and match[2] == "expected one argument":
            flag = match[1]
            raise UsageError(f"{flag} needs a value", hint=f"Write a value that begins with a dash as {flag}=-value")
        raise UsageError(f"{match[1]}: {match[2]}" if match else message)


class _Format(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


class _Help(argparse.Action):
    """Print the help and exit, as argparse's own action does."""

    def __init__(self, command: Command, model: type[BaseModel], **options: Any) -> None:
        super().__init__(**options)
        self.command, self.model = command, model

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, *rest: Any) -> None:
        shown = () if rest[0] == "--help-all" else self.command.common
        build_parser(self.command, self.model, for_help=True, shown=shown).print_help()
        parser.exit()


class _Record(argparse.Action):
    """Store the value as text, or the constant of a switch, and the spelling of the flag."""

    def __init__(self, many: bool = False, switch: bool | None = None, **options: Any) -> None:
        super().__init__(nargs=None if switch is None else 0, **options)
        self.many, self.switch = many, switch

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *rest: Any) -> None:
        held = vars(namespace)
        value = values if self.switch is None else self.switch
        held[self.dest] = [*held.get(self.dest, []), value] if self.many else value
        held.setdefault(_WRITTEN, {})[self.dest] = rest[0]


def _add(section: argparse._ArgumentGroup, setting: Setting) -> None:
    """Add the flag of a setting, or both flags of a switch; the help shows the one that is not the default."""
    short = [f"-{setting.short}"] if setting.short else []
    if setting.kind is not bool:
        section.add_argument(
            *short,
            setting.flag,
            dest=setting.name,
            action=_Record,
            many=setting.many,
            metavar=setting.metavar,
            help=_help(setting),
        )
        return
    for value, name in ((True, setting.flag), (False, setting.negated)):
        text = _help(setting) if value is not setting.default else argparse.SUPPRESS
        if value is False and text is not argparse.SUPPRESS:
            text = f"Do not {text[0].lower()}{text[1:]}"
        section.add_argument(name, dest=setting.name, action=_Record, switch=value, help=text)


def _help(setting: Setting) -> str:
    unprinted = setting.default in (None, ()) or setting.kind is bool or "(default: " in setting.description
    number = f"{setting.default:g}" if isinstance(setting.default, float) else setting.default
    default = "" if unprinted else f" (default: {number})"
    missing = " (required)" if setting.required else ""
    return (setting.description + default + missing).replace("%", "%%")


@contextmanager
def logging_to(settings: LogSettings) -> Iterator[None]:
    """Log as configured while the block runs: to a file, otherwise to standard error (errors only if quiet).

    An exception that leaves the block is logged with its traceback at level debug.

    Raises:
        UsageError: The log file cannot be written.
    """
    logger = logging.getLogger("llm_ocr")
    handler: logging.Handler
    if settings.log_file is None:
        handler = _ToStandardError()
        if settings.quiet and settings.log_level != "debug":
            handler.setLevel(logging.ERROR)
    else:
        try:
            handler = logging.FileHandler(settings.log_file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"--log-file {settings.log_file} cannot be written: {error.strerror}") from error
    values = [item for _, value in settings for item in (value if isinstance(value, tuple) else (value,))]
    secrets = tuple(value.get_secret_value() for value in values if isinstance(value, SecretStr) and value)
    handler.setFormatter(_Line(secrets, as_json=settings.log_format == "json"))
    before = logger.level, logger.propagate
    logger.setLevel(settings.log_level.upper())
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    except Exception:
        logger.debug("the command ended with an error", exc_info=True)
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(before[0])
        logger.propagate = before[1]


class _ToStandardError(logging.Handler):
    """Handler that looks up `sys.stderr` for each line: the progress display replaces the stream while it draws."""

    def emit(self, record: logging.LogRecord) -> None:
        write_line(self.format(record), sys.stderr)


class _Line(logging.Formatter):
    """One line per record, as text or as JSON, with every secret of the settings masked in messages and tracebacks."""

    def __init__(self, secrets: Sequence[str], *, as_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
        self._secrets = secrets
        self._as_json = as_json

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(with_flags(super().formatMessage(record)))

    def format(self, record: logging.LogRecord) -> str:
        if not self._as_json:
            return harmless(self._masked(super().format(record)))
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._masked(with_flags(record.getMessage())),
        }
        if record.exc_info:
            line["exception"] = self._masked(self.formatException(record.exc_info))
        return json_text(line, indent=None)

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASKED)
        return text
