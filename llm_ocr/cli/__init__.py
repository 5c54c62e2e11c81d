"""Console program `llm-ocr`: parsing, wiring, printing, exit code. Commands import heavy modules only when needed."""

import errno
import os
import sys
from collections.abc import Sequence

from llm_ocr.cli.output import aligned, complain, one_line, write
from llm_ocr.config.commands import all_commands, broken_commands, find_command
from llm_ocr.config.environment import OwnProcess, environment
from llm_ocr.errors import LlmOcrError, PageFailure, StorageError, UsageError, WorkspaceError
from llm_ocr.plugins import found_packages

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code.

    0 success, 1 error, 2 wrong usage or settings, 3 more pages failed than allowed, 4 interrupted, 5 stopped by
    --max-cost or --max-hours.

    Args:
        argv: The command and its options. None means the arguments of this process. If these name no command, the stage
            in PIPELINE_STAGE is prepended.

    Returns:
        The exit code. Without `argv` the code is always 0.

    Raises:
        SystemExit: Without `argv`, the command failed. A program that calls `main()` and drops the value then fails as
            well.
    """
    OwnProcess.begun |= argv is None
    if argv is None:
        _open_streams()
    try:
        code = _dispatch(_with_stage(sys.argv[1:]) if argv is None else list(argv))
    except SystemExit as exit_:  # from argparse, after the help
        code = int(exit_.code or 0)
    except KeyboardInterrupt:
        complain("interrupted. Run the same command again to continue.")
        code = 4
    except LlmOcrError as error:
        lines = [str(error)]
        # Texts of servers and platforms in other errors may have several lines.
        if isinstance(error, UsageError | WorkspaceError | StorageError | PageFailure):
            lines = [one_line(str(error.args[0]) if error.args else "")]
            lines += [error.hint] if error.hint else []
        complain(*lines)
        code = error.exit_code
    except Exception as error:  # noqa: BLE001 - last resort: users see a sentence, not a traceback
        sentence = (str(error).strip() or "no message").splitlines()[0]
        hint = "Run with --log-level debug for the traceback."
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            hint = "Raise the limit of the shell and run the same command again, for example: ulimit -n 65536"
        complain(f"{type(error).__name__}: {sentence}", hint)
        code = 1
    if code and argv is None:
        raise SystemExit(code)
    return code


def _open_streams() -> None:
    """Open the null device for closed standard streams, as daemons start programs.

    Otherwise the next file, such as one of the workspace, would get the number of the stream, and what workers write.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # open() takes the lowest free number
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _with_stage(arguments: list[str]) -> list[str]:
    """Prepend the stage of PIPELINE_STAGE if no command is named: the predecessor's jobs call `main()` so."""
    stage = environment().get("PIPELINE_STAGE", "").strip()
    named = arguments and (not arguments[0].startswith("-") or arguments[0] in ("-h", "--help", "-V", "--version"))
    if named or not stage:
        return arguments
    if stage.lower() not in ("extract", "describe", "assemble"):
        raise UsageError(f"PIPELINE_STAGE={stage}: must be one of extract, describe, assemble")
    return [stage.lower(), *arguments]


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        write(general_help(), sys.stderr)
        return 2
    first, rest = arguments[0], arguments[1:]
    if first in ("-h", "--help"):
        write(general_help())
        return 0
    if first in ("-V", "--version"):
        from llm_ocr import __version__

        added = (f"{additions} ({package})\n" for package, additions in found_packages())
        write(f"llm-ocr {__version__}\n" + "".join(added))
        return 0
    if first == "help":
        return _dispatch([rest[0], "--help"] if rest else ["--help"])
    if first.startswith("-"):
        raise UsageError(f"{first} precedes the command", hint="Put the command first: llm-ocr run report.pdf")
    command = find_command(first)

    from llm_ocr.cli.start import start

    return start(command, rest)


def general_help() -> str:
    """Return the text of `llm-ocr --help`."""
    summaries = {command.name: command.summary for command in all_commands()} | broken_commands()
    commands = "\n".join(f"  {line}" for line in aligned([*summaries.items()]))
    return f"""Usage: llm-ocr COMMAND [options]

Convert PDFs and images to Markdown, with cropped and described figures, in three resumable stages.

Commands:
{commands}

Global options:
  -h, --help       Print the most used settings of a command, with defaults and examples
  --help-all       Print all settings of a command
  --config FILE    TOML or YAML file of settings
  --show-settings  Print each setting and its origin, and exit
  --version        Print the version (without a command)

Precedence of settings: flags, environment (LLM_OCR_PAGES=1-5 is --pages 1-5), .env, --config, workspace, default.
Exit codes: 0 success, 1 error, 2 wrong usage, 3 more pages failed than --max-failed-rate allows, 4 interrupted,
5 stopped by --max-cost or --max-hours.

Examples:
  llm-ocr demo                   Try it on the included example documents
  llm-ocr run report.pdf         Read one document into ./llm-ocr-out
  llm-ocr doctor                 Check what works on this machine
"""
