"""All profiles by name, and the match of served names to profiles."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from llm_ocr.errors import ServerError, UsageError
from llm_ocr.models.profile import Profile
from llm_ocr.models.profiles import (
    chandra,
    deepseek_ocr,
    dots,
    glm_ocr,
    granite_docling,
    hunyuanocr,
    internvl,
    lightonocr,
    mineru,
    nanonets_ocr,
    nemotron_parse,
    olmocr,
    paddleocr_vl,
    qianfan_ocr,
    qwen3_vl,
    surya,
    unlimited_ocr,
)

# All profiles, by name.


#: The first is the default; experimental ones stand last.
PROFILES: tuple[Profile, ...] = (
    *deepseek_ocr.PROFILES,
    *lightonocr.PROFILES,
    *dots.PROFILES,
    *glm_ocr.PROFILES,
    *paddleocr_vl.PROFILES,
    *chandra.PROFILES,
    *olmocr.PROFILES,
    *hunyuanocr.PROFILES,
    *nanonets_ocr.PROFILES,
    *qwen3_vl.PROFILES,
    *internvl.PROFILES,
    *mineru.PROFILES,
    *surya.PROFILES,
    *nemotron_parse.PROFILES,
    *granite_docling.PROFILES,
    *unlimited_ocr.PROFILES,
    *qianfan_ocr.PROFILES,
)
DEFAULT = PROFILES[0].name


def profile_names() -> tuple[str, ...]:
    """The names of all profiles, the default first."""
    return tuple(profile.name for profile in PROFILES)


def find_profile(name: str) -> Profile:
    """The profile of that name, alias or Hugging Face id (with or without its owner); case makes no difference.

    Raises `UsageError` that names close ones for a name that is none of them.
    """
    wanted = name.strip().casefold()
    known = {one.casefold(): profile for profile in reversed(PROFILES) for one in _names(profile)}
    if profile := known.get(wanted):
        return profile
    close = get_close_matches(wanted, known, n=3, cutoff=0.5)
    names = list(dict.fromkeys(known[one].name for one in close))
    hint = f"Did you mean {' or '.join(names)}? " if names else ""
    raise UsageError(f"no profile for model {name!r}", hint=f"{hint}Known models: {', '.join(profile_names())}.")


def _names(profile: Profile) -> Iterator[str]:
    yield profile.name
    yield profile.model
    yield profile.model.rpartition("/")[2]
    yield from profile.aliases


# Whether what a server serves is the model that was asked for.


def choose_served(
    served: Mapping[str, str], url: str, profile: Profile, model: str, profiles: Sequence[Profile]
) -> str:
    """Which of a server's models to ask: the one that is the profile's, under whatever name it is known by.

    `served`: what the server was started with (an id or folder, "" where it does not say), by the names that it serves.
    `model`: the id or folder of the weights, where they are not the profile's. `profiles`: all that are known.

    Raises `ServerError` that names both when none is it.
    """
    fits = [name for name, root in served.items() if _is(profile, model, (name, root), profiles)]
    if len(fits) == 1:
        return fits[0]
    asked = profile.name if profile.name == model else f"{profile.name} ({model})"
    if fits:
        raise ServerError(
            f"the server {url} has several models that may be {asked}: {', '.join(fits)}",
            hint="Say which to ask for: --server-model NAME",
        )
    names = ", ".join(served)
    others = [
        one.name for name, root in served.items() for one in profiles if _is(one, one.model, (name, root), profiles)
    ]
    way_out = f"To read with what it serves: --model {others[0]}. " if others else ""
    one = next(iter(served)) if len(served) == 1 else "NAME"
    raise ServerError(
        f"the server {url} serves {names}, and {asked} was asked for",
        hint=f"{way_out}If it is the same model under another name: --server-model {one}",
    )


def _is(profile: Profile, model: str, said: tuple[str, str], profiles: Sequence[Profile]) -> bool:
    """Whether a server's words for a model (its name there, what it was started with) mean the profile's."""
    own = {normal for name in (profile.name, profile.model, model, *profile.aliases) for normal in _forms(name)}
    if any(form in own for word in said for form in _forms(word)):
        return True
    # A copy of it (quantised, say) has the name of the original in its own. The longest counts: what holds
    # `deepseek-ocr-2` holds `deepseek-ocr` too.
    for word in said:
        held = [
            (len(name), one.name) for one in (*profiles, profile) for name in _whole_names(one) if _holds(word, name)
        ]
        if held:
            return max(held)[1] == profile.name
    return False


def _forms(name: str) -> Iterator[str]:
    """A name as a whole, and without its owner or folder."""
    if normal := _normal(name):
        yield normal
        yield normal.rpartition("/")[2]


def _whole_names(profile: Profile) -> tuple[str, str]:
    return _normal(profile.name), _normal(profile.model).rpartition("/")[2]


def _holds(word: str, name: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", _normal(word)) is not None


def _normal(name: str) -> str:
    return re.sub(r"[ _.]", "-", name.strip().casefold().rstrip("/"))
