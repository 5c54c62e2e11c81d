"""Descriptions of settings fields for flags, variables, files, keywords, help, and error messages."""

import inspect
import re
import textwrap
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from llm_ocr.config.commands import all_commands
from llm_ocr.config.groups import ALL, Group, LogSettings
from llm_ocr.errors import LlmOcrError
from llm_ocr.plugins import Command, ExtensionPoint

#: Prefix of every environment variable of llm_ocr.
PREFIX = "LLM_OCR_"

CallT = TypeVar("CallT", bound=Callable[..., Any])
_FLAG = re.compile(r"--[a-z][a-z-]*")


@dataclass(frozen=True, slots=True)
class Setting:
    """Field of a settings model, as the user sees the field."""

    name: str
    group: type[Group]  # class that defines the field
    description: str
    default: Any  # None also for a required field
    required: bool
    kind: type  # bool, int, float, str, or Path; for a list, the type of its items
    many: bool  # a list
    secret: bool
    choices: tuple[str, ...]
    low: float | None  # smallest allowed value
    above: float | None  # every value must be larger
    high: float | None  # largest allowed value
    positional: bool
    short: str  # "w" for -w, or empty
    flag: str  # with dashes
    metavar: str
    bare: bool  # also read from the predecessor's variables
    engines: tuple[str, ...]  # without effect with other engines

    @property
    def variable(self) -> str:
        """Return the name of the environment variable."""
        return PREFIX + self.name.upper()

    @property
    def negated(self) -> str:
        """Return the flag that turns a switch off."""
        return "--no-" + self.flag.removeprefix("--")

    @property
    def allowed(self) -> str:
        """Return the allowed values, as words after "must be"."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind in (int, float):
            number = "a whole number" if self.kind is int else "a number"
            if self.low is not None and self.high is not None:
                return f"{number} from {self.low:g} to {self.high:g}"
            if self.low is not None:
                return f"{number}, {self.low:g} or more"
            if self.above is not None:
                return f"{number} above {self.above:g}"
            return f"{number}, at most {self.high:g}" if self.high is not None else number
        return "a path" if self.kind is Path else "text"


@cache
def settings_of(model: type[BaseModel]) -> Mapping[str, Setting]:
    """Return the settings of a command by name, in the order of definition."""
    return {name: _setting(model, name, field) for name, field in model.model_fields.items()}


def command_models() -> Mapping[str, type[BaseModel]]:
    """Return the settings models of all commands by name, without those that cannot be imported."""
    return _models_of(all_commands())


@cache
def _models_of(commands: tuple[Command, ...]) -> Mapping[str, type[BaseModel]]:
    models: dict[str, type[BaseModel]] = {}
    for command in commands:
        with suppress(LlmOcrError):
            models[command.name] = command.settings()
    return models


def every_setting() -> Mapping[str, Setting]:
    """Return the settings of all commands by name. A flag has precedence over a positional argument of its name."""
    return _settings_of(all_commands())


@cache
def _settings_of(commands: tuple[Command, ...]) -> Mapping[str, Setting]:
    found = [setting for model in _models_of(commands).values() for setting in settings_of(model).values()]
    return {setting.name: setting for setting in sorted(found, key=lambda setting: not setting.positional)}


def groups_of(model: type[BaseModel]) -> Iterator[tuple[str, list[Setting]]]:
    """Yield titles and settings in the order of help: positional arguments, the workspace, others, logging."""
    members: dict[type[BaseModel], list[Setting]] = {}
    for setting in settings_of(model).values():
        members.setdefault(setting.group, []).append(setting)

    def rank(group: type[BaseModel]) -> tuple[bool, bool, bool]:
        positional = any(setting.positional for setting in members[group])
        workspace = any(setting.name == "workspace" for setting in members[group])
        return group is LogSettings, not positional, not (workspace or group is model)

    for group in sorted(members, key=rank):
        title = "Options" if group is model else (group.__doc__ or "").splitlines()[0].rstrip(".")
        yield title, members[group]


def _setting(model: type[BaseModel], name: str, field: FieldInfo) -> Setting:
    extra: Mapping[str, Any] = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    plain, bounds = _plain(field.annotation, list(field.metadata))
    many = get_origin(plain) is tuple
    if many:
        plain, _ = _plain(get_args(plain)[0], [])
    choices = tuple(get_args(plain)) if get_origin(plain) is Literal else ()
    if "group" in extra:  # names of entry points, besides those that the annotation names
        choices = tuple(dict.fromkeys((*choices, *ExtensionPoint(extra["group"], name).names())))
    secret = plain is SecretStr
    kind: type = str if choices or secret else plain
    group = [owner for owner in model.__mro__ if issubclass(owner, Group) and name in inspect.get_annotations(owner)][
        -1
    ]
    engines = extra.get("engines", vars(group).get("ENGINES", ALL))
    metavar = "{" + ",".join(choices) + "}" if choices else {int: "N", float: "X", Path: "FILE"}.get(kind, "TEXT")
    return Setting(
        name=name,
        group=group,
        description=field.description or "",
        default=None if field.default is PydanticUndefined else field.default,
        required=field.is_required(),
        kind=kind,
        many=many,
        secret=secret,
        choices=choices,
        low=next((float(str(bound.ge)) for bound in bounds if isinstance(bound, Ge)), None),
        above=next((float(str(bound.gt)) for bound in bounds if isinstance(bound, Gt)), None),
        high=next((float(str(bound.le)) for bound in bounds if isinstance(bound, Le)), None),
        positional=bool(extra.get("positional")),
        short=str(extra.get("short", "")),
        flag="--" + str(extra.get("flag", name)).replace("_", "-"),
        metavar=str(extra.get("metavar") or metavar),
        bare=bool(extra.get("bare", True)),
        engines=tuple(map(str, engines)) if isinstance(engines, list | tuple) else ALL,
    )


def _plain(annotation: Any, bounds: list[Any]) -> tuple[Any, list[Any]]:
    """Return the bare type inside `Annotated` and `| None`, and the bounds found in the annotation."""
    while True:
        if hasattr(annotation, "__metadata__"):
            for item in annotation.__metadata__:
                bounds.extend(item.metadata if isinstance(item, FieldInfo) else [item])
            annotation = annotation.__origin__
        elif get_origin(annotation) in (Union, types.UnionType):
            annotation = next(part for part in get_args(annotation) if part is not types.NoneType)
        else:
            return annotation, bounds


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

    def keyword(flag: re.Match[str]) -> str:
        return next((name for name, setting in every_setting().items() if setting.flag == flag[0]), flag[0])

    return _FLAG.sub(keyword, text).replace("repeatable", "one or several")
