"""Start a command: from its arguments to its settings, its logging, and its handler."""

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from llm_ocr.cli.flags import parse_flags
from llm_ocr.cli.output import aligned, harmless, json_text, one_line, with_flags, write, write_line
from llm_ocr.config.commands import CORE
from llm_ocr.config.environment import environment
from llm_ocr.config.fields import groups_of
from llm_ocr.config.groups import FollowSettings, LogSettings, WorkspaceSettings
from llm_ocr.config.loading import MASKED, load, shown_values
from llm_ocr.config.models import RunSettings
from llm_ocr.errors import UsageError
from llm_ocr.plugins import Command


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
    if command.remembers and isinstance(settings, WorkspaceSettings):
        if isinstance(settings, FollowSettings) and settings.follow and not flags.show_settings:
            from llm_ocr.stages.sharing import await_workspace

            await_workspace(settings, lambda message: None if settings.quiet else write_line(message, sys.stderr))
        # An estimate does not need a workspace, and `run` may use a temporary one.
        if settings.workspace and not (isinstance(settings, RunSettings) and settings.without_folder):
            from llm_ocr.workspace.stored import stored_settings

            if stored := stored_settings(command.name, settings):
                loaded = look(stored=stored)
    if flags.show_settings:
        values = shown_values(loaded.settings)
        names = [setting.name for _, members in groups_of(model) for setting in members]
        rows = [("setting", "value", "from"), *((name, one_line(values[name]), loaded.origins[name]) for name in names)]
        write("".join(f"{line.rstrip()}\n" for line in aligned(rows)))
        return 0
    settings = loaded.settings
    with logging_to(settings), _terminated_like_interrupted():
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
