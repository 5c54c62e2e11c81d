"""LightOnOCR: small models; the third generation gives text, layout, descriptions, and boxes in one answer.

Prompts, image sizes, arguments, and settings are those of the model cards and of the vendor's repository. Revisions are
those that a third-party project pins.
"""

from dataclasses import replace

from llm_ocr.models.parsers.markdown import parse_lighton2, parse_lighton2_plain
from llm_ocr.models.parsers.markers import parse_lighton3
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, BOARD, CACHES_OFF, ONE_IMAGE, a4_tokens, prompt_tokens, warmer

_LICENCE = "Apache-2.0"
_CARD = "vendor's run with its post-processing, vendor's repository"
_RAW = "vendor's run without post-processing, vendor's repository"
_CARD_2 = "vendor's run, model card"

# Any other text is echoed or read as noise. The prompt for Markdown is the image alone, that for layout is one word.
_ALONE = ""
_PROMPTS_3 = {"layout": "grounding", "markdown": _ALONE}
_FIGURES_3 = frozenset({"image", "chart", "figure", "header_image", "footer_image"})
# From the card of the second generation. For the third, the card only states a training centered on Europe.
_LANGUAGES = (
    "English, French, German, Spanish, Italian, Dutch, Portuguese, Swedish, Danish, Chinese, Japanese; "
    "more in Latin script"
)

# These models loop with greedy decoding: the first request is warm, and retries are warmer.
_TEMPERATURE_3, _TEMPERATURE_2 = 0.1, 0.2
_MAX_TOKENS_3 = 12_288  # limit in the vendor's script
_MAX_TOKENS_2 = 4096

# One token per 32 x 32 pixels (Qwen3.5) or 28 x 28 (Pixtral). A square page has 64 * 64 or 55 * 55 tokens. With the
# longest answer, the sum is 16,384 of a context of 18,000, or 15,313 of 16,384.
_QWEN, _PIXTRAL = 32, 28
_PROMPT = prompt_tokens("grounding")


def _third(size: str, parameters: float, revision: str | None, scores: tuple[Score, ...]) -> Profile:
    """Return a size with the architecture of Qwen3.5: larger images, a switch for thinking, a newer vLLM."""
    longest = 2048
    thinking = {"enable_thinking": False}
    return Profile(
        name=f"lightonocr-3-{size.lower()}",
        model=f"lightonai/LightOnOCR-3-{size}",
        revision=revision,
        licence=_LICENCE,
        aliases=("lightonocr-3", "lightonocr", "lighton") if size == "0.8B" else (),
        prompts=_PROMPTS_3,
        parsers={"": parse_plain, "layout": parse_lighton3},
        image=ImageRule(longest),
        max_tokens=_MAX_TOKENS_3,
        context=18_000,
        page_tokens=a4_tokens(longest, _QWEN) + _PROMPT + ANSWER,
        temperature=_TEMPERATURE_3,
        settings={"top_p": 1.0},
        vllm_settings={"chat_template_kwargs": thinking},
        server_args=(
            *ONE_IMAGE,
            *CACHES_OFF,
            "--default-chat-template-kwargs",
            '{"enable_thinking": false}',
        ),
        min_vllm="0.30.0",
        figure_labels=_FIGURES_3,
        ladder=warmer(_TEMPERATURE_3, plainer="markdown"),
        parameters=parameters,
        languages=_LANGUAGES,
        scores=scores,
    )


LIGHTONOCR_3 = _third(
    "0.8B",
    0.85,
    "4a953edfc77f0e435532c503dd69dd74663d44c3",
    (
        Score("olmOCR-bench", 85.4, _CARD),
        Score("olmOCR-bench without post-processing", 84.7, _RAW),
        Score("ParseBench", 74.6, _CARD),
        Score("historical pages (Elo)", 1643, BOARD),
    ),
)
LIGHTONOCR_3_4B = _third(
    "4B",
    4.3,
    "a06e5c5459551c9d1696468aece70ffbcf01ae62",
    (
        Score("olmOCR-bench", 86.1, _CARD),
        Score("olmOCR-bench without post-processing", 85.4, _RAW),
        Score("ParseBench", 75.1, _CARD),
    ),
)

# transformers 5.17 breaks this model on vLLM 0.30.0 (a class was renamed); the vendor pins 5.16.1.
LIGHTONOCR_3_1B = replace(
    LIGHTONOCR_3,
    name="lightonocr-3-1b",
    model="lightonai/LightOnOCR-3-1B",
    revision=None,
    aliases=(),
    image=ImageRule(1540),
    context=16_384,
    page_tokens=a4_tokens(1540, _PIXTRAL) + _PROMPT + ANSWER,
    vllm_settings={},
    server_args=(*ONE_IMAGE, *CACHES_OFF),
    min_vllm="0.30.0",  # the release of the vendor's measurements
    parameters=1.0,
    scores=(
        Score("olmOCR-bench", 84.5, _CARD),
        Score("olmOCR-bench without post-processing", 84.0, _RAW),
        Score("ParseBench", 71.4, _CARD),
    ),
)


def _second(weights: str = "") -> Profile:
    """Return a profile of the second generation; `weights` is the suffix of the model's name.

    Weights with `bbox` give the boxes of figures.
    """
    boxes = "bbox" in weights
    mode = "layout" if boxes else "markdown"
    ending = f"-{weights}" if weights else ""
    return Profile(
        name=f"lightonocr-2-1b{ending}",
        model=f"lightonai/LightOnOCR-2-1B{ending}",
        licence=_LICENCE,
        aliases=(f"lightonocr-2{ending}",),
        prompts={mode: _ALONE},
        parsers={"": parse_lighton2 if boxes else parse_lighton2_plain},
        image=ImageRule(1540),  # the vendor renders at 200 dpi
        max_tokens=_MAX_TOKENS_2,
        context=16_384,
        page_tokens=a4_tokens(1540, _PIXTRAL) + ANSWER,
        mode=mode,
        temperature=_TEMPERATURE_2,
        settings={"top_p": 0.9},
        server_args=(*ONE_IMAGE, *CACHES_OFF),
        min_vllm="0.11.1",  # vLLM's first release with this architecture: model card of LightOnOCR-1B-1025
        figure_labels=frozenset({"image"}) if boxes else frozenset(),
        ladder=warmer(_TEMPERATURE_2),
        parameters=1.0,
        languages=_LANGUAGES,
        # Score of the plain weights; no scores of the other weights were found.
        scores=() if weights else (Score("olmOCR-bench", 83.2, f"{_CARD_2}; headers and footers left out"),),
    )


PROFILES = (
    LIGHTONOCR_3,
    LIGHTONOCR_3_1B,
    LIGHTONOCR_3_4B,
    *map(_second, ("", "bbox", "bbox-soup", "ocr-soup")),
)
