"""Whether a profile holds together. Pure."""

from collections.abc import Iterator

from llm_ocr.models.profile import Profile

#: Below it next to nothing but the likeliest token is left, whatever the temperature.
_SMALL_TOP_P = 0.5
_DESCRIBING = frozenset({"describe", "parse", "classify"})


def complaints(profile: Profile) -> list[str]:
    """What is wrong with a profile, one short sentence each; empty for a sound one."""
    return [*_modes(profile), *_numbers(profile)]


def _modes(profile: Profile) -> Iterator[str]:
    prompts = profile.prompts
    known = f"its prompts are {', '.join(prompts) or 'none'}"
    if profile.mode not in prompts or profile.mode in _DESCRIBING:
        yield f"mode is {profile.mode!r}, and no prompt of that name reads pages: {known}"
    if "" not in profile.parsers:
        yield "no parser reads its answers: parser is missing"
    named = {
        "parsers": set(profile.parsers) - {""},
        "guides": set(profile.guides),
        "region_tasks": set(profile.region_tasks.values()),
        "ladder": {rung.mode for rung in profile.ladder if rung.mode},
    }
    for field, modes in named.items():
        for mode in sorted(modes - set(prompts)):
            yield f"{field} names the mode {mode!r}, which has no prompt: {known}"
    if profile.anchor and "{text}" not in profile.anchor:
        yield "anchor has no {text}, the place of the page's own text"


def _numbers(profile: Profile) -> Iterator[str]:
    sizes = {"max_tokens": profile.max_tokens, "context": profile.context, "page_tokens": profile.page_tokens}
    for name, size in sizes.items():
        if size < 1:
            yield f"{name} must be at least 1"
    if profile.image.longest_side < 1:
        yield "image.longest_side must be at least 1"
    if profile.image.format not in ("png", "jpeg"):
        yield f"image.format is {profile.image.format!r}, and must be png or jpeg"
    if profile.max_tokens >= profile.context:
        yield f"max_tokens ({profile.max_tokens}) leaves no room in a context of {profile.context} for the prompt"
    if any(rung.scale <= 0 for rung in profile.ladder):
        yield "a scale of the ladder must be more than 0"
    if any((rung.temperature or 0) < 0 for rung in profile.ladder) or profile.temperature < 0:
        yield "temperatures must not be negative"
    if any(rung.temperature for rung in profile.ladder) and not _warms(profile):
        yield "top_k 1 or a small top_p would give each warmer try of the ladder the same answer again"


def _warms(profile: Profile) -> bool:
    """Whether a higher temperature can give another answer."""
    sampling = {**profile.settings, **profile.vllm_settings}
    top_k, top_p = sampling.get("top_k"), sampling.get("top_p")
    return top_k != 1 and not (isinstance(top_p, int | float) and top_p < _SMALL_TOP_P)
