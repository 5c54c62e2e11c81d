"""What many profiles share: arguments of servers, sizes of page images, the usual retry ladder. Arithmetic only."""

from math import ceil, sqrt

from llm_ocr.models.profile import Rung

# Caches only cost memory and copies where each image comes once (vLLM's recipes for most of these models).
CACHES_OFF = ("--no-enable-prefix-caching", "--mm-processor-cache-gb", "0")
# Saves memory when the server measures itself.
ONE_IMAGE = ("--limit-mm-per-prompt", '{"image": 1}')

#: Tokens of the answer for a usual page, by which throughput is reckoned.
ANSWER = 1000
_A4_LONG_SIDE = 297 / 25.4  # inches

# The temperatures of olmOCR's pipeline lie between 0.1 and 1.0; above 0.8 models without its front matter wander off.
_WARMTH = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
_RESIZED = 0.3  # the rung that changes the image
_PLAINER = 0.6  # the one that changes the prompt


def side_at(dpi: int) -> int:
    """The long side in pixels of an A4 page at a resolution."""
    return round(_A4_LONG_SIDE * dpi)


def a4_tokens(longest_side: int, per_side: int) -> int:
    """Image tokens of an A4 page whose long side has so many pixels, one token for each square of `per_side` pixels."""
    return ceil(longest_side / per_side) * ceil(longest_side / sqrt(2) / per_side)


def prompt_tokens(prompt: str) -> int:
    """About the tokens of a prompt's words and of the chat template around them."""
    return len(prompt) // 4 + 20


def warmer(above: float = 0.0, *, scale: float = 0.8, plainer: str | None = None) -> tuple[Rung, ...]:
    """The usual ladder from the first step that is warmer than `above`.

    A smaller image (its sides times `scale`) comes early, another prompt (the mode `plainer`), which mostly gives text
    without places, late.
    """
    return tuple(
        Rung(
            temperature=value,
            mode=plainer if value == _PLAINER else None,
            scale=scale if value == _RESIZED else 1.0,
        )
        for value in _WARMTH
        if value > above
    )
