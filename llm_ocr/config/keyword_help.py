"""Settings of commands as keywords of the Python API, for `help()`."""

import inspect
import re
import textwrap
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from llm_ocr.config.fields import command_models, groups_of, settings_of

CallT = TypeVar("CallT", bound=Callable[..., Any])

_FLAG = re.compile(r"--[a-z][a-z-]*")


def lists_settings(model: type[BaseModel], without: Collection[str] = ()) -> Callable[[CallT], CallT]:
    """Return a decorator that adds the settings of a command to a function's docstring, by group.

    Args:
        model: Settings of the command.
        without: Settings that the function does not accept. Its own parameters are omitted as well.
    """

    def decorate(function: CallT) -> CallT:
        left_out = {*without, *inspect.signature(function).parameters}
        lines = ["Settings:"]
        for title, members in groups_of(model):
            shown = [setting for setting in members if setting.name not in left_out]
            if shown:
                lines.append(f"    {as_keywords(title)}")
            for setting in shown:
                # The choices and the default, unless the description has them.
                values = [f"one of {', '.join(setting.choices)}"] if setting.choices else []
                if setting.default not in (None, ()) and "(default: " not in setting.description:
                    values.append(f"default: {setting.default}")
                lines += textwrap.wrap(
                    f"{setting.name}: {as_keywords(setting.description)}"
                    + (f" ({'; '.join(values)})" if values else ""),
                    100,
                    initial_indent=" " * 8,
                    subsequent_indent=" " * 12,
                    break_on_hyphens=False,
                )
        function.__doc__ = f"{inspect.getdoc(function)}\n\n" + "\n".join(lines) + "\n"
        return function

    return decorate


def as_keywords(text: str) -> str:
    """Return a description in terms of keywords: `--server-url` becomes `server_url`, and a repeatable flag a list."""
    return _FLAG.sub(lambda flag: _names().get(flag[0], flag[0]), text).replace("repeatable", "one or several")


@cache
def _names() -> dict[str, str]:
    """Return the names of the settings of all commands, by flag."""
    return {
        setting.flag: setting.name for model in command_models().values() for setting in settings_of(model).values()
    }
