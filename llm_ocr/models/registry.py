"""All profiles, by name."""

from collections.abc import Iterator
from difflib import get_close_matches

from llm_ocr.errors import UsageError
from llm_ocr.models import (
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
from llm_ocr.models.profile import Profile

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
