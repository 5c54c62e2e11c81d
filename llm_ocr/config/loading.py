"""Load the settings of a command from flags, environment, .env, configuration file, and workspace."""

import json
import os
import tomllib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from io import IOBase
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from llm_ocr.config.environment import environment
from llm_ocr.config.fields import PREFIX, Setting, every_setting, settings_of
from llm_ocr.config.groups import (
    ALL,
    EMBEDDED,
    HYBRID,
    MODELS,
    NOT_HYBRID,
    SERVER,
    VLLM,
    EngineSettings,
    Group,
    LedgerSettings,
    split_list,
    without_credentials,
)
from llm_ocr.config.legacy import NAMES, bare_for, chosen, notices
from llm_ocr.errors import UsageError

_ABOUT = {
    EMBEDDED: "the CPU engine",
    VLLM: "vLLM on this machine",
    SERVER: "running servers",
    HYBRID: "the CPU engine and a model",
}


def about(engine: str) -> str:
    """Return the name of an engine in messages."""
    return _ABOUT.get(engine, f"the engine {engine}")


def check_effect(settings: EngineSettings, engine: str, why: str = "") -> tuple[str, ...]:
    """Refuse flags and keywords that have no effect with the engine.

    Variables and files can serve several commands, and a launch or workspace holds settings for any engine. Settings
    from these sources are reported, not refused.

    Args:
        settings: Settings of a command.
        engine: Name of the engine.
        why: Reason for the engine, as `which ... chose`, if no setting chose the engine.

    Returns:
        Variables and keys of files that have no effect, as the user wrote them, without secrets.

    Raises:
        UsageError: A flag or keyword has no effect. The error names the engine and the remedy.
    """
    used = {engine if engine in ALL else EMBEDDED}
    if hybrid := settings.engine == HYBRID:
        used |= {EMBEDDED, HYBRID} if engine in MODELS else {EMBEDDED, HYBRID, *MODELS}
    is_verified = isinstance(settings, LedgerSettings) and settings.verify == "ocr"
    # Kind and place of each setting without effect, such as `flag` and `--model`.
    origins = {
        setting: settings.origins.get(setting.name, "").partition(" ")
        for setting in settings_of(type(settings)).values()
        if (used.isdisjoint(setting.engines) or (hybrid and NOT_HYBRID in setting.engines))
        and not (setting.name == "ocr_language" and is_verified)
    }
    named = {setting: where for setting, (kind, _, where) in origins.items() if kind == "flag" and where}
    if not named:
        return tuple(
            where
            for setting, (kind, _, where) in origins.items()
            if kind in ("environment", ".env", "file") and not setting.secret
        )
    if hybrid and all(NOT_HYBRID in setting.engines for setting in named):
        engine = HYBRID
    kind, _, where = settings.origins.get("engine", "").partition(" ")
    if settings.engine != "auto":
        if kind == "flag":
            why = f"which `engine={settings.engine}` chose"
        elif kind == "workspace":
            why = f"with which this workspace was begun {where}".rstrip()
        elif where:
            why = f"which {where} chose"
    listed = ", ".join(named.values())
    hint = f"Add `server_url=URL` or `engine=vllm`, or leave out {listed}."
    engines = sorted({name for setting in named for name in setting.engines} - {NOT_HYBRID})
    if engine in (*MODELS, HYBRID) or engines == [HYBRID]:
        hint = f"Leave out {listed}, or use {' or '.join(f'`engine={name}`' for name in engines)}."
        if any(setting.name == "ocr_language" for setting in named):
            hint += " With `verify=ocr`, OCR of this language verifies a model's text."
    verb = "has" if len(named) == 1 else "have"
    raise UsageError(f"{listed} {verb} no effect with {about(engine)}, {why}", hint=hint)


#: Variables with the prefix of llm_ocr that are not settings: the path of the configuration file, requirements of
#: tests, and the deployment of the Modal app. Serverless endpoints and jobs (`environment.ERROR_FILE`) read them, too.
_WORKERS = ("REPLY_LIMIT", "WORKER_CONCURRENCY", "ERROR_FILE")
_MODAL = ("DATA_VOLUME", "MODEL_VOLUME", "CACHE_VOLUME", "IMAGE", "GPU", "SECRETS")
NOT_SETTINGS = frozenset(
    PREFIX + name for name in ("CONFIG", "REQUIRE", "TEST_VLLM", *(f"MODAL_{name}" for name in _MODAL), *_WORKERS)
)
MASKED = "********"
#: Message for a well-formed file with unusable values.
_BEYOND = "it contains an impossible date or number, or is nested too deeply"


@dataclass(frozen=True, slots=True)
class Given:
    """Value that the user set.

    Error messages show it between `before` and `after`, `--pages 1-x` or `MAX_SAMPLES=1k in .env`: as it was `written`,
    or the text of the value.
    """

    value: Any
    origin: str  # for --show-settings: "flag --pages", "environment MAX_SAMPLES"
    before: str
    after: str = ""
    written: str = ""


class Stored(dict[str, Any]):
    """Settings that a workspace holds by name; `by` contains the command and time of each setting."""

    def __init__(self, values: Mapping[str, Any], by: Mapping[str, str]) -> None:
        super().__init__(values)
        self.by = dict(by)


def _of_flags(
    settings: Mapping[str, Setting], flags: Mapping[str, Any], written: Mapping[str, str], warnings: list[str]
) -> dict[str, Given]:
    """Return the values of the command line.

    `written` holds the spelling of each flag, or a Python keyword in backticks.
    """
    given = {}
    for name, value in flags.items():
        setting = settings[name]
        spelling = written.get(name) or (setting.metavar if setting.positional else setting.flag)
        keyword = spelling.startswith("`")
        around = (f"`{name}=", "`") if keyword else (f"{spelling} ", "")
        given[name] = Given(value, f"flag {spelling}", *around)
        if setting.secret:
            warnings.append(
                f"{spelling}: other users of this machine can see it in the process list; "
                f"use {setting.flag}-file or {setting.variable} instead"
            )
    return given


def _of_variables(
    settings: Mapping[str, Setting],
    variables: Mapping[str, str],
    place: str,
    decided: Container[str],
    warnings: list[str],
) -> dict[str, Given]:
    """Return the values of the environment or a .env file: names with the prefix first, then the predecessor's.

    Names in `decided` have values from a source of higher precedence; their values here are ignored.
    """
    held = {name: text for name, text in variables.items() if text != ""}
    given = {}
    for setting in settings.values():
        if setting.name in decided:
            continue
        value: str | tuple[str, ...] | None
        if setting.variable in held:
            variable, value = setting.variable, held[setting.variable]
        elif setting.bare and setting.many:
            found = [bare for bare in bare_for(setting.name) if bare.name in held]
            texts = [text for bare in found if (text := bare.read(held[bare.name]))]
            if not found:
                continue
            variable, value = found[0].name, "\n".join(texts)
        elif setting.bare and (bare := chosen(setting.name, held)):
            variable, value = bare.name, bare.read(held[bare.name])
        else:
            continue
        where = "" if place == "environment" else f" in {place}"
        if setting.many and value is not None:
            try:
                value = split_list(value)
            except ValueError as error:
                raise UsageError(f"{variable}{where} {error}") from error
        # A secret is shown as the mask that messages give it, any other value as it was written.
        written = "" if setting.secret else masked(held[variable])
        given[setting.name] = Given(value, f"{place} {variable}", f"{variable}=", where, written)
    for name in sorted(held):
        if name.startswith(PREFIX) and name[len(PREFIX) :].lower() not in every_setting() and name not in NOT_SETTINGS:
            known = [setting.variable for setting in every_setting().values()]
            warnings.append(f"unknown variable {name} is ignored{did_you_mean(name, known)}")
    return given


def _of_file(settings: Mapping[str, Setting], path: Path) -> dict[str, Given]:
    """Return the values of a TOML or YAML configuration file; names lack `LLM_OCR_` and are in lower case."""
    given, unknown = {}, []
    for key, value in read_config(path).items():
        name = str(key).replace("-", "_")
        if name not in every_setting():
            unknown.append(f"unknown key {key!r} in {path}{did_you_mean(name, every_setting())}")
        elif name in settings and value is not None and value != "":
            given[name] = Given(value, f"file {path}", f"{key} = ", f" in {path}")
    if unknown:
        hint = "llm-ocr init writes a file that explains every key."
        raise UsageError(unknown[0], hint="\n".join([*unknown[1:], hint]))
    return given


def read_dotenv(path: Path) -> dict[str, str]:
    """Return prefixed names and predecessor names in a .env file.

    Values stay unchanged (no `${…}`). The result is empty for a missing file.
    """
    from dotenv import dotenv_values

    if not path.is_file():
        return {}
    try:
        held = dotenv_values(path, interpolate=False, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return {name: text for name, text in held.items() if text and (name.startswith(PREFIX) or name in NAMES)}


def read_config(path: Path) -> Mapping[Any, Any]:
    """Return the top level of a TOML or YAML file.

    Raises:
        UsageError: The file is invalid. The error names the file and the position.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"the configuration file {path} cannot be read: {reason}") from error
    if path.suffix == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{path} is not valid TOML: {error}") from error
        except (ValueError, RecursionError):
            raise UsageError(f"{path} is not valid TOML: {_BEYOND}") from None
    if path.suffix not in (".yaml", ".yml"):
        raise UsageError(f"the configuration file {path} has an unknown type", hint="Accepted: .toml, .yaml, .yml")

    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        # Not str(error): that text quotes the line, which may contain a password.
        marked = error if isinstance(error, yaml.MarkedYAMLError) else yaml.MarkedYAMLError(problem="unreadable")
        mark = marked.problem_mark
        where = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise UsageError(f"{path} is not valid YAML: {marked.problem}{where}") from None
    except (ValueError, TypeError, RecursionError):  # their messages may quote values, too
        raise UsageError(f"{path} is not valid YAML: {_BEYOND}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path} must contain names and values, one per line", hint="Example: max_samples: 10")
    return content


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?`, or an empty text without a similar name."""
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def as_text(value: Any) -> str:
    """Return a value as text for error messages and --show-settings, with names and passwords in URLs masked."""
    if isinstance(value, list | tuple):
        value = [masked(item) if isinstance(item, str) else item for item in value]
    if isinstance(value, bool | int | float | dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return masked(str(value)) or "''"


def masked(text: str) -> str:
    """Return the text with the name and password of each URL masked."""
    return without_credentials(text, MASKED)


M = TypeVar("M", bound=Group)

#: Placeholder for a missing required value, in `load(..., lenient=True)` only.
NOT_GIVEN = "(not set)"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[M]):
    """Settings, which know the origins of their values, and messages for the user."""

    settings: M
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
    """Load the settings of a command.

    Precedence: `flags` > `environ` > the file `dotenv` > the file `config` > `stored` > default. In variables,
    `LLM_OCR_*` has precedence over a bare name of the predecessor. An empty value counts as unset. Lists have one item
    per line or are JSON.

    Args:
        model: Settings model of the command.
        flags: Values of the command line, by setting.
        config: Configuration file.
        environ: Environment variables.
        dotenv: The .env file.
        stored: Settings that the workspace holds.
        written: Spelling of each flag, for messages; keywords of Python are in backticks.
        lenient: Fill a missing required value with `NOT_GIVEN`, to show settings.

    Raises:
        UsageError: A value is bad or missing, or a key is unknown. The error names the flag, variable, or key as
            written, the allowed values, and the given value unless secret.
    """
    known, warnings = settings_of(model), list[str]()
    of_flags = _of_flags(known, flags, written or {}, warnings)
    of_environment = _of_variables(known, environ, "environment", flags, warnings)
    in_dotenv = read_dotenv(dotenv)
    # A Slurm job starts in the folder of its launch. The record of the launch has precedence over the .env file there.
    of_launch = stored or {} if environ.get(f"{PREFIX}LAUNCH") else {}
    of_dotenv = _of_variables(known, in_dotenv, dotenv.name, {**flags, **of_environment, **of_launch}, warnings)
    config = config or (Path(environ[PREFIX + "CONFIG"]) if environ.get(PREFIX + "CONFIG") else None)
    of_file = _of_file(known, config) if config else {}
    by = stored.by if isinstance(stored, Stored) else {}
    of_workspace = {
        name: Given(
            value, f"workspace ({by[name]})" if by.get(name) else "workspace", f"{name} = ", " in the workspace"
        )
        for name, value in (stored or {}).items()
        if name in known  # other commands have more settings
    }
    given = {**of_workspace, **of_file, **of_dotenv, **of_environment, **of_flags}
    warnings += notices(name for variables in (environ, in_dotenv) for name, text in variables.items() if text)
    missing = [name for name, setting in known.items() if setting.required and name not in given]
    values: dict[str, Any] = {name: source.value for name, source in given.items()}
    if lenient:
        values |= dict.fromkeys(missing, NOT_GIVEN)
    try:
        settings = model(**values)
    except ValidationError as error:
        lines = [_complaint(known, given, detail) for detail in error.errors(include_url=False)]
        first, *others = dict.fromkeys(lines)
        raise UsageError(first, hint="\n".join(others)) from None
    origins = {name: given[name].origin if name in given else DEFAULT for name in known}
    origins |= dict.fromkeys(missing, "missing")
    settings.keep_origins(origins)
    return Loaded(settings, tuple(warnings))


def shown_values(settings: Group) -> dict[str, str]:
    """Return every setting as text, with secrets masked."""
    known = settings_of(type(settings))
    return {
        name: "-" if value is None or value == () else MASKED if known[name].secret else as_text(value)
        for name, value in settings
    }


def _complaint(settings: Mapping[str, Setting], given: Mapping[str, Given], detail: ErrorDetails) -> str:
    setting = settings[str(detail["loc"][0])]
    if detail["type"] == "missing":
        if setting.positional:
            return f"no {setting.name} given: write {setting.metavar} after the command, or set {setting.variable}"
        return f"no {setting.name} given: use `{setting.name}={setting.metavar}` or {setting.variable}"
    value, shown = setting.default, f"`{setting.name}`"
    if setting.name in given:
        value = given[setting.name].value
        index = next((part for part in detail["loc"][1:] if isinstance(part, int)), None)
        if index is not None and isinstance(value, list | tuple):
            value = value[index]
        source = given[setting.name]
        text = source.written or (MASKED if setting.secret else as_text(value))
        shown = f"{source.before}{text}{source.after}"
    if detail["type"] == "value_error":
        demand = detail["msg"].removeprefix("Value error, ")
    elif setting.many and detail["type"] in ("tuple_type", "list_type"):
        demand = "must be a list of strings"
    else:
        demand = f"must be {setting.allowed}"
    return f"{shown}: {demand}{did_you_mean(str(value).lower(), setting.choices) if setting.choices else ''}"


#: Files, folders, globs, URLs, lists of paths, or manifests: one or several.
Sources = str | Path | Iterable[str | Path]


def sources_keyword(sources: Sources) -> dict[str, object]:
    """Return the keyword of one or several sources; none without sources, so that variables and files count.

    Raises:
        UsageError: A source is no path or URL, but for example the content of a file, or an open file.
    """
    named: list[object] = [sources]
    if isinstance(sources, Iterable) and not isinstance(sources, str | bytes | bytearray | IOBase):
        named = list(sources)
    if wrong := next((type(one).__name__ for one in named if not isinstance(one, str | os.PathLike)), None):
        raise UsageError(
            f"a source of type {wrong}: sources are paths and URLs",
            hint="Write contents to a file first. `llm_ocr.read_page` reads the bytes of an image.",
        )
    return {"sources": tuple(named)} if named else {}


def settings_from(model: type[M], call: str, keywords: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> M:
    """Return the settings of a Python call; keywords have the rank of flags.

    Raises:
        UsageError: A value is bad or missing, or a keyword is unknown.
    """
    keywords = dict(keywords)
    config = keywords.pop("config", None)
    known = settings_of(model)
    for name in keywords:
        if name not in known:
            raise UsageError(f"{call} has no setting {name}{did_you_mean(name, known)}")
    return load(
        model,
        keywords,
        config=Path(config) if config else None,
        environ=environment(),
        dotenv=Path(".env"),
        stored=stored,
        written={name: f"`{name}`" for name in keywords},
    ).settings
