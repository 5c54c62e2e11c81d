"""All profiles by name, the match of served names to profiles, and profiles from files of users."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from llm_ocr import plugins
from llm_ocr.errors import ServerError, UsageError
from llm_ocr.models.parsers import parser_named
from llm_ocr.models.profile import ImageRule, Parser, Profile, Rung, Score, complaints
from llm_ocr.models.profiles import (
    chat,
    html_blocks,
    layout_json,
    lightonocr,
    markdown,
    markers,
    plain_answers,
    regions,
)
from llm_ocr.models.profiles.chat import generic

#: Profiles of the library. The first profile is the default; experimental ones are last.
PROFILES: tuple[Profile, ...] = (
    markers.DEEPSEEK_OCR,
    markers.DEEPSEEK_OCR_2,
    *lightonocr.PROFILES,
    layout_json.DOTS_MOCR,
    layout_json.DOTS_OCR,
    regions.GLM_OCR,
    *regions.PADDLEOCR_VL,
    html_blocks.CHANDRA_2,
    html_blocks.CHANDRA_1,
    markdown.OLMOCR_2,
    markdown.OLMOCR_2_BF16,
    markdown.HUNYUANOCR,
    markdown.NANONETS_OCR2,
    markdown.NANONETS_OCR_S,
    *chat.QWEN3_VL,
    chat.INTERNVL_3_5,
    regions.MINERU,
    *html_blocks.SURYA_OCR,
    markers.NEMOTRON_PARSE,
    markers.GRANITE_DOCLING,
    markers.SMOLDOCLING,
    markers.UNLIMITED_OCR,
    plain_answers.QIANFAN_OCR,
    markdown.OVIS_OCR_2,
    layout_json.INFINITY_FLASH,
    layout_json.INFINITY_PRO,
    plain_answers.NUEXTRACT_3,
    regions.MINICPM_OCR,
    plain_answers.ROLMOCR,
    plain_answers.FIRERED_OCR,
    plain_answers.POINTS_READER,
    plain_answers.FALCON_OCR,
)
DEFAULT = PROFILES[0].name


def all_profiles() -> tuple[Profile, ...]:
    """Return the profiles of the library, followed by those of other packages in the order of their names.

    Raises:
        UsageError: A package's profile contradicts itself, or two packages provide the same name.
        LlmOcrError: A package's profile cannot be imported.
    """
    added = [(name, plugins.PROFILES.get(name)) for name in plugins.PROFILES.names()]
    for name, profile in added:
        if found := complaints(profile):
            raise UsageError(f"the model profile {name!r} of an installed package is not usable: {found[0]}")
    return (*PROFILES, *(profile for _, profile in added))


def find_profile(name: str) -> Profile:
    """Return the profile with a name, alias, or Hugging Face id (with or without owner), ignoring case.

    Raises:
        UsageError: The name is unknown. The error contains similar names.
    """
    wanted = name.strip().casefold()
    known = {
        known_name.casefold(): profile
        for profile in reversed(all_profiles())
        for known_name in (profile.name, profile.model, profile.model.rpartition("/")[2], *profile.aliases)
    }
    if profile := known.get(wanted):
        return profile
    close = get_close_matches(wanted, known, n=3, cutoff=0.5)
    names = list(dict.fromkeys(known[near].name for near in close))
    hint = f"Did you mean {' or '.join(names)}? " if names else ""
    raise UsageError(f"no profile for model {name!r}", hint=f"{hint}All models with a profile: llm-ocr models")


_ID = re.compile(r"[\w.-]+/[\w.-]+")  # owner and name at Hugging Face, not a folder


def choose_served(
    served: Mapping[str, str], url: str, profile: Profile, model: str, profiles: Sequence[Profile]
) -> str:
    """Return the server's name for the profile's model.

    Args:
        served: Ids or folders that the server was started with ("" if unknown), by served name.
        url: Address of the server, for messages.
        profile: Requested profile.
        model: Id or folder of the weights, if they are not the profile's.
        profiles: All known profiles.

    Raises:
        ServerError: No served model matches. The error names the served and the requested models.
    """
    fits = [served_as[0] for served_as in served.items() if _is(profile, model, served_as, profiles)]
    if len(fits) == 1:
        return fits[0]
    asked = profile.name if profile.name == model else f"{profile.name} ({model})"
    if fits:
        raise ServerError(
            f"the server {url} serves several models that match {asked}: {', '.join(fits)}",
            hint="Choose one: `server_model=NAME`",
        )
    names = ", ".join(served)
    others = [
        other.name for served_as in served.items() for other in profiles if _is(other, other.model, served_as, profiles)
    ]
    way_out = f"To use the model that it serves: `model={others[0]}`. " if others else ""
    name = next(iter(served)) if len(served) == 1 else "NAME"
    raise ServerError(
        f"the server {url} serves {names} instead of {asked}",
        hint=f"{way_out}If it is the same model under another name: `server_model={name}`",
    )


def served_profile(served: Mapping[str, str], profiles: Sequence[Profile]) -> Profile | None:
    """Return the first profile that fits the only model of a server; None for several or unknown models.

    Args:
        served: As in `choose_served`.
        profiles: All known profiles.
    """
    if len(served) != 1:
        return None
    [served_as] = served.items()
    return next((profile for profile in profiles if _is(profile, profile.model, served_as, profiles)), None)


def _is(profile: Profile, model: str, served_as: tuple[str, str], profiles: Sequence[Profile]) -> bool:
    """Return whether a server's names for a model (served name, and id or folder at start) mean the profile's model.

    The id or folder decides if it names a known model, or is an id: anybody may choose the served name.
    """
    name, root = served_as
    ids = {_normal(profile.model), _normal(model)}
    if _normal(root) in ids:
        return True
    if known := _known_in(root, (*profiles, profile)):
        # Several profiles may have the same weights, such as a profile file that inherits from another profile.
        return known == profile.name or any(known == same.name for same in profiles if _normal(same.model) in ids)
    if _ID.fullmatch(root):
        return False
    own = {form for word in (profile.name, *ids, *profile.aliases) for form in _forms(word)}
    return not own.isdisjoint(_forms(name)) or _known_in(name, (*profiles, profile)) == profile.name


def _known_in(word: str, profiles: Sequence[Profile]) -> str:
    """Return the name of the profile whose model this is, or a copy of it; "" for another model.

    A copy (for example, quantized) contains the name of the original in its own name. The longest match counts: a name
    with `deepseek-ocr-2` contains `deepseek-ocr`, too.
    """
    word = _normal(word)
    last = word.rpartition("/")[2]
    # A number behind the name is the version of another model, but not a size such as `0.9B`.
    version = r"(?!-v?\d+(?:-\d+)*(?:$|-(?!\d)))"
    held = [(0, "")]
    for profile in profiles:
        model = _normal(profile.model).rpartition("/")[2]
        if last and last == model:
            return profile.name
        for name in (_normal(profile.name), model):
            if name in word and re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9]){version}", word):
                held.append((len(name), profile.name))
    return max(held)[1]


def _forms(name: str) -> tuple[str, ...]:
    """Return a name as a whole, and without its owner or folder."""
    normal = _normal(name)
    return (normal, normal.rpartition("/")[2]) if normal else ()


def _normal(name: str) -> str:
    return re.sub(r"[ _.]", "-", name.strip().casefold().rstrip("/"))


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
        return parser_named(name)
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
