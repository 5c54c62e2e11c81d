"""Start a command: from its arguments to its settings, its logging, and its handler."""

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from llm_ocr.cli.flags import parse_flags
from llm_ocr.cli.logs import logging_to
from llm_ocr.cli.output import one_line, write, write_line
from llm_ocr.config.commands import CORE
from llm_ocr.config.environment import environment
from llm_ocr.config.fields import groups_of
from llm_ocr.config.groups import FollowSettings, WorkspaceSettings
from llm_ocr.config.loading import Loaded, load, shown_values
from llm_ocr.config.models import RunSettings
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
        write(settings_table(loaded))
        return 0
    settings = loaded.settings
    with logging_to(settings), _terminated_like_interrupted():
        for line in () if settings.quiet else loaded.warnings:
            write_line(f"llm-ocr: warning: {line}", sys.stderr)
        function = command.load()
        if command in CORE:
            code: int = function(command.name, settings)
            return code
        from llm_ocr.cli.progress import progress_for

        progress = progress_for(settings)  # the function of a package returns its result
        try:
            result = function(settings, progress)
        finally:
            progress.close()
        write_line(str(result))
        return 0


def settings_table(loaded: Loaded[Any]) -> str:
    """Return each setting, its value, and its origin, with secrets masked."""
    values = shown_values(loaded.settings)
    names = [setting.name for _, members in groups_of(type(loaded.settings)) for setting in members]
    rows = [("setting", "value", "from"), *((name, one_line(values[name]), loaded.origins[name]) for name in names)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin}".rstrip() for name, value, origin in rows]
    return "\n".join(lines) + "\n"


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does (exit code 4), unless another handler is installed."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
