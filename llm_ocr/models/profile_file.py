"""User profile from the names and values of a TOML or YAML file. No I/O."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from llm_ocr.errors import UsageError
from llm_ocr.models.parsers import parser_named
from llm_ocr.models.profile import ImageRule, Parser, Profile, Rung, Score, complaints
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.registry import find_profile

_BASE, _PARSER = "base", "parser"
#: Fields that are merged with those of the base by name. All other fields replace the base's.
_LAID_OVER = frozenset({"prompts", "settings", "vllm_settings", "page_settings", "guides", "region_tasks"})
#: Fields that belong to one model and are not inherited by another.
_OF_ONE_MODEL: Mapping[str, Any] = {
    "revision": None, "aliases": (), "scores": (), "parameters": 0.0, "experimental": False,
}  # fmt: skip
#: Fields that contain objects, and the types of these objects.
_INNER = {"image": ImageRule, "ladder": Rung, "scores": Score}


def profile_from(values: Mapping[str, Any], where: str) -> Profile:
    """Return the profile for a file's values.

    Keys are the fields of `Profile`, and two more: `base` and `parser`. `base` names the profile that all other fields
    are inherited from; without `base`, the profile is a chat model with the prompts of llm_ocr. `parser` names the
    parser of all modes, and `parsers` holds names by mode. `prompts`, `parsers`, the settings, `guides`,
    `region_tasks`, and `image` are merged with those of the base by name. All other fields replace the base's. `model`
    is required without a base. The default of `name` is the model's own name. Revision, scores, aliases, and number of
    parameters are not inherited by another model.

    Args:
        values: Keys and values of the file.
        where: Name of the file, for messages.

    Raises:
        UsageError: A key, parser, or base is unknown, a value has the wrong kind, or the profile is inconsistent. The
            error names the file, the key, and the nearest known name.
    """
    _check_names(values, (_BASE, _PARSER, *_types()), where)
    base = _base(values, where)
    changed = {key: _value(key, value, base, where) for key, value in values.items() if key not in (_BASE, _PARSER)}
    if _PARSER in values:
        # A parser for all modes replaces those of the base, too.
        own = {} if "parsers" not in values else changed["parsers"]
        changed["parsers"] = {**own, "": _parser(values[_PARSER], where, _PARSER)}
    other = _BASE not in values or changed.get("model", base.model) != base.model
    if other:
        changed = {"name": changed["model"].rstrip("/").rpartition("/")[2], **_OF_ONE_MODEL, **changed}
    profile = replace(base, **changed)
    if found := complaints(profile):
        raise UsageError(f"{where}: {found[0]}")
    return profile


def _check_names(names: Iterable[str], known: Iterable[str], where: str) -> None:
    known = sorted(known)
    for name in names:
        if name not in known:
            near = get_close_matches(str(name), known, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else f"Keys are {', '.join(known)}."
            raise UsageError(f"{where}: unknown key {name!r}", hint=hint)


def _base(values: Mapping[str, Any], where: str) -> Profile:
    if _BASE in values:
        name = _checked(str, values[_BASE], where, _BASE)
        try:
            return find_profile(name)
        except UsageError as error:
            raise UsageError(f"{where}: base: {error.args[0]}", hint=error.hint) from None
    if "model" not in values:
        raise UsageError(
            f"{where}: both model and base are missing",
            hint="Set the model (model: OWNER/NAME), or the profile to derive from (base: NAME).",
        )
    return generic(_checked(str, values["model"], where, "model"))


def _value(key: str, value: Any, base: Profile, where: str) -> Any:
    if key == "parsers":
        named = _checked(dict[str, str], value, where, key)
        return {**base.parsers, **{mode: _parser(name, where, f"{key}.{mode}") for mode, name in named.items()}}
    if key == "image":
        given = _checked(dict[str, Any], value, where, key)
        value = {"longest_side": base.image.longest_side, "format": base.image.format, **given}
    if inner := _INNER.get(key):
        for given in [value] if key == "image" else _checked(list[dict[str, Any]], value, where, key):
            _check_names(given, (field.name for field in fields(inner)), f"{where}: {key}")
    checked = _checked(_types()[key], value, where, key)
    return {**getattr(base, key), **checked} if key in _LAID_OVER else checked  # the field named by the key


def _parser(name: Any, where: str, key: str) -> Parser:
    name = _checked(str, name, where, key)
    try:
        return parser_named(name).parse
    except UsageError as error:
        raise UsageError(f"{where}: {key}: {error.args[0]}", hint=error.hint) from None


def _checked(kind: Any, value: Any, where: str, key: str) -> Any:
    """Return the value in the type of its field; a number in quotes is invalid.

    Raises:
        UsageError: The value is invalid.
    """
    try:
        # Validation by way of JSON accepts a list for a tuple or a set, and no other conversions.
        return TypeAdapter(kind).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, (key, *first["loc"])))
        raise UsageError(f"{where}: {place}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None


@cache
def _types() -> Mapping[str, Any]:
    """Return the type of each field."""
    hints = get_type_hints(Profile)
    return {field.name: hints[field.name] for field in fields(Profile)}
