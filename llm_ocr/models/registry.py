"""All profiles by name, and the match of served names to profiles."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from llm_ocr import plugins
from llm_ocr.errors import ServerError, UsageError
from llm_ocr.models.profile import Profile, complaints
from llm_ocr.models.profiles import (
    chat,
    deepseek_ocr,
    glm_ocr,
    html_blocks,
    layout_json,
    lightonocr,
    markdown,
    markers,
    paddleocr_vl,
    plain_answers,
)

#: Profiles of the library. The first profile is the default; experimental ones are last.
PROFILES: tuple[Profile, ...] = (
    deepseek_ocr.DEEPSEEK_OCR,
    deepseek_ocr.DEEPSEEK_OCR_2,
    *lightonocr.PROFILES,
    layout_json.DOTS_MOCR,
    layout_json.DOTS_OCR,
    glm_ocr.GLM_OCR,
    *paddleocr_vl.PADDLEOCR_VL,
    html_blocks.CHANDRA_2,
    html_blocks.CHANDRA_1,
    markdown.OLMOCR_2,
    markdown.OLMOCR_2_BF16,
    markdown.HUNYUANOCR,
    markdown.NANONETS_OCR2,
    markdown.NANONETS_OCR_S,
    *chat.QWEN3_VL,
    chat.INTERNVL_3_5,
    paddleocr_vl.MINERU,
    *html_blocks.SURYA_OCR,
    markers.NEMOTRON_PARSE,
    markers.GRANITE_DOCLING,
    markers.SMOLDOCLING,
    deepseek_ocr.UNLIMITED_OCR,
    plain_answers.QIANFAN_OCR,
    markdown.OVIS_OCR_2,
    layout_json.INFINITY_FLASH,
    layout_json.INFINITY_PRO,
    plain_answers.NUEXTRACT_3,
    glm_ocr.MINICPM_OCR,
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
            if re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9]){version}", word):
                held.append((len(name), profile.name))
    return max(held)[1]


def _forms(name: str) -> tuple[str, ...]:
    """Return a name as a whole, and without its owner or folder."""
    normal = _normal(name)
    return (normal, normal.rpartition("/")[2]) if normal else ()


def _normal(name: str) -> str:
    return re.sub(r"[ _.]", "-", name.strip().casefold().rstrip("/"))
