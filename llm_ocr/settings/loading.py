"""Finding the settings of a command: flags, environment, .env, configuration file, workspace, defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings

from llm_ocr.errors import UsageError
from llm_ocr.settings.fields import PREFIX, Setting, settings_of
from llm_ocr.settings.groups import Group
from llm_ocr.settings.sources import (
    MASKED,
    FileSource,
    FlagSource,
    Given,
    StoredSource,
    TextSource,
    as_text,
    did_you_mean,
    predecessor_warnings,
    read_dotenv,
)

M = TypeVar("M", bound=BaseSettings)

#: Stands in for a required value that nobody gave, in `load(..., lenient=True)` only.
NOT_GIVEN = "(not given)"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[M]):
    """Settings, where each of them came from, and what the user should be told."""

    settings: M
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


def load(
    model: type[M],
    flags: Mapping[str, Any],
    *,
    config: Path | None,
    environ: Mapping[str, str],
    dotenv: Path,
    stored: Mapping[str, Any] | None = None,
    written: Mapping[str, str] | None = None,
    lenient: bool = False,
) -> Loaded[M]:
    """The settings of a command.

    Precedence: `flags` > `environ` > the file `dotenv` > the file `config` > `stored` (what the workspace holds) >
    default. In variables `LLM_OCR_*` wins over a bare name of the predecessor, an empty value counts as unset, and
    lists stand one item a line or as JSON. `written` says how each flag was spelled, for messages. `lenient` fills a
    missing required value with `NOT_GIVEN`, to show settings.

    Raises:
        UsageError: a bad or missing value or an unknown key; names the flag, variable or key as written, its value
            unless it is a secret, and what is allowed.
    """
    in_environment = TextSource(model, environ, "environment", flags)
    in_dotenv = TextSource(model, read_dotenv(dotenv), dotenv.name, {**flags, **in_environment.given})
    config = config or (Path(environ[PREFIX + "CONFIG"]) if environ.get(PREFIX + "CONFIG") else None)
    sources = (
        FlagSource(model, flags, written or {}),
        in_environment,
        in_dotenv,
        FileSource(model, config),
        StoredSource(model, stored or {}),
    )
    given: dict[str, Given] = {}
    for source in reversed(sources):
        given.update(source.given)
    warnings = [line for source in sources for line in source.warnings]
    warnings += predecessor_warnings((in_environment, in_dotenv))
    missing = [name for name, setting in settings_of(model).items() if setting.required and name not in given]
    filled = {name: NOT_GIVEN for name in missing} if lenient else {}
    settings = _checked(model, given, filled)
    origins = {name: given[name].origin if name in given else DEFAULT for name in settings_of(model)}
    origins |= dict.fromkeys(missing, "missing")
    if isinstance(settings, Group):
        settings.keep_origins(origins)
    return Loaded(settings, origins, tuple(warnings))


def shown_values(settings: BaseSettings) -> dict[str, str]:
    """Every setting as text, secrets masked."""
    known = settings_of(type(settings))
    return {name: _shown(known[name], value) for name, value in settings}


def _shown(setting: Setting, value: Any) -> str:
    if value is None or value == ():
        return "-"
    return MASKED if setting.secret else as_text(value)


def _checked(model: type[M], given: Mapping[str, Given], filled: Mapping[str, str]) -> M:
    values: dict[str, Any] = {**{name: one.value for name, one in given.items()}, **filled}
    try:
        return model(**values)
    except ValidationError as error:
        lines = [_complaint(settings_of(model), given, detail) for detail in error.errors(include_url=False)]
        first, *others = dict.fromkeys(lines)
        raise UsageError(first, hint="\n".join(others)) from None


def _complaint(settings: Mapping[str, Setting], given: Mapping[str, Given], detail: ErrorDetails) -> str:
    setting = settings[str(detail["loc"][0])]
    if detail["type"] == "missing":
        if setting.positional:
            return f"no {setting.name} given: write {setting.metavar} after the command, or set {setting.variable}"
        short = f"-{setting.short}/" if setting.short else ""
        return f"no {setting.name} given: use {short}{setting.flag} {setting.metavar} or {setting.variable}"
    value, shown = setting.default, setting.metavar if setting.positional else setting.flag
    if setting.name in given:
        value = given[setting.name].value
        index = next((part for part in detail["loc"][1:] if isinstance(part, int)), None)
        if index is not None and isinstance(value, list | tuple):
            value = value[index]
        shown = given[setting.name].shown(MASKED if setting.secret else as_text(value))
    return f"{shown}: {_demand(setting, detail)}{_nearest(setting, value)}"


def _demand(setting: Setting, detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    kind = detail["type"]
    if setting.many and kind in ("tuple_type", "list_type"):
        return "must be a list of texts"
    return f"must be {setting.allowed}"


def _nearest(setting: Setting, value: Any) -> str:
    return did_you_mean(str(value).lower(), setting.choices) if setting.choices else ""
