"""Logging of the console program: only this module attaches handlers to the library's logger."""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from pydantic import SecretStr

from llm_ocr.cli.output import harmless, json_text, one_line, with_flags, write_line
from llm_ocr.config.groups import LogSettings
from llm_ocr.config.loading import MASKED
from llm_ocr.errors import UsageError


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
    handler.setFormatter(_JsonLine(secrets) if settings.log_format == "json" else _TextLine(secrets))
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


class _Masked(logging.Formatter):
    """Formatter that masks every secret of the settings in messages and tracebacks."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.secrets = secrets

    def masked(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, MASKED)
        return text


class _TextLine(_Masked):
    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(with_flags(super().formatMessage(record)))

    def format(self, record: logging.LogRecord) -> str:
        return harmless(self.masked(super().format(record)))


class _JsonLine(_Masked):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.masked(with_flags(record.getMessage())),
        }
        if record.exc_info:
            line["exception"] = self.masked(self.formatException(record.exc_info))
        return json_text(line, indent=None)
