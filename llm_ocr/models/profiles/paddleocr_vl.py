"""PaddleOCR-VL: small models for regions of a page that a detector found.

Prompts, sizes, and settings are those of the vendor's documentation and pipeline, arguments those of vLLM's recipe.
"""

from llm_ocr.models.parsers.otsl import (
    parse_formula,
    parse_paddle_chart,
    parse_paddle_spotting,
    parse_paddle_table,
    parse_paddle_text,
)
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, USUAL_ARGS, prompt_tokens, side_at, warmer

_TEXT = "OCR:"
_PROMPTS = {
    "markdown": _TEXT,
    "text": _TEXT,
    "table": "Table Recognition:",
    "formula": "Formula Recognition:",
    "chart": "Chart Recognition:",
}
# Trained prompts of the second and third models.
_MORE_PROMPTS = {"spotting": "Spotting:", "seal": "Seal Recognition:"}
_TASKS = {"text": "text", "table": "table", "formula": "formula", "chart": "chart"}

# Regions are cut from pages at 200 dpi. The model's processor limits each image to 1,003,520 pixels: 1280 tokens of 28
# x 28. For spotting, the limit is 1,605,632 pixels: 2048 tokens.
_LARGEST_IMAGE = 1280
_MAX_TOKENS = 4096  # limit of the pipeline
# The model's limit is 131,072; this context holds the largest image and the longest answer twice.
_CONTEXT = 16_384
_VENDOR = "vendor's run, with its detector"


def _profile(version: str, model: str, aliases: tuple[str, ...], scores: tuple[Score, ...]) -> Profile:
    first = version == "1"
    return Profile(
        name=f"paddleocr-vl-{version}",
        model=f"PaddlePaddle/{model}",
        licence="Apache-2.0",
        notice=(
            f"paddleocr-vl-{version} is trained on regions of pages, not on whole ones: where no detector finds the "
            "regions, expect bad results of pages with more than one column."
        ),
        aliases=aliases,
        prompts=_PROMPTS if first else {**_PROMPTS, **_MORE_PROMPTS},
        parsers={
            "": parse_plain,
            "markdown": parse_paddle_text,
            "text": parse_paddle_text,
            "table": parse_paddle_table,
            "formula": parse_formula,
            "chart": parse_paddle_chart,
            **({} if first else {"spotting": parse_paddle_spotting}),
        },
        image=ImageRule(side_at(200)),
        max_tokens=_MAX_TOKENS,
        context=_CONTEXT,
        page_tokens=_LARGEST_IMAGE + prompt_tokens(_TEXT) + ANSWER,
        mode="markdown",
        server_args=("--max-num-batched-tokens", "16384", *USUAL_ARGS),
        min_vllm="0.11.1",
        trust_remote_code=True,
        ladder=warmer(),
        parameters=0.9,
        scores=scores,
        region_tasks=_TASKS,
        layout_first=True,
    )


PROFILES = (
    _profile(
        "1.6",
        "PaddleOCR-VL-1.6",
        ("paddleocr",),
        (
            Score("OmniDocBench v1.6", 96.33, _VENDOR),
            Score(
                "historical pages (Elo)",
                1399,
                "davanstrien/ocr-board-historical-v0, independent: 338 old pages judged by a model; whole pages, "
                "without its detector",
            ),
        ),
    ),
    _profile("1.5", "PaddleOCR-VL-1.5", (), (Score("OmniDocBench v1.5", 94.5, _VENDOR),)),
    _profile(
        "1",
        "PaddleOCR-VL",
        (),
        (Score("OmniDocBench v1.5", 92.86, _VENDOR), Score("olmOCR-bench", 80.0, _VENDOR)),
    ),
)
