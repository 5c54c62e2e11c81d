"""MinerU2.5-Pro: regions of pages, and their layout in a separate request; figures are read, too. Experimental.

Prompts, the system message, and settings are those of the vendor's package (`mineru-vl-utils`), arguments those of its
documentation. The vendor requests the layout of the page stretched to 1036 x 1036 pixels and then each region. Here the
page keeps its shape (fractions of the sides are the same), and a detector finds the regions.
"""

from llm_ocr.models.parsers.markers import parse_mineru_layout
from llm_ocr.models.parsers.otsl import parse_formula, parse_paddle_table
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer

_TEXT = "\nText Recognition:"
_PROMPTS = {
    "text": _TEXT,
    "layout-only": "\nLayout Detection:",
    "table": "\nTable Recognition:",
    "formula": "\nFormula Recognition:",
    "describe": "\nImage Analysis:",
}

# Regions are cut from pages at 200 dpi. Answer length and context are those of GLM-OCR, which has the same kind of
# requests: the vendor gives no numbers.
_LONGEST = side_at(200)
_MAX_TOKENS, _CONTEXT = 8192, 16_384

MINERU = Profile(
    name="mineru2.5-pro",
    model="opendatalab/MinerU2.5-Pro-2605-1.2B",
    licence="see its model card (sources disagree: Apache-2.0 or the vendor's own)",
    notice="mineru2.5-pro: sources disagree on the license of its weights: read its model card before you use it.",
    aliases=("mineru",),
    prompts=_PROMPTS,
    parsers={
        "": parse_plain,
        "layout-only": parse_mineru_layout,
        "table": parse_paddle_table,
        "formula": parse_formula,
    },
    image=ImageRule(_LONGEST),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    # Qwen2-VL: one token per 28 x 28 pixels.
    page_tokens=page_tokens(_LONGEST, 28, _TEXT),
    mode="text",
    system="You are a helpful assistant.",
    # The vendor's top_p (0.01) and top_k (1) have no effect at temperature 0, and would give the same answer in each
    # warmer attempt. Its penalties differ for text, tables, and layouts; n-grams are blocked without them, too.
    settings={"top_p": 1.0},
    vllm_settings={
        "top_k": -1,
        "repetition_penalty": 1.0,
        "skip_special_tokens": False,
        "vllm_xargs": {"no_repeat_ngram_size": 100},
    },
    # The package `mineru-vl-utils` must be installed next to vLLM.
    server_args=("--logits-processors", "mineru_vl_utils:MinerULogitsProcessor", *USUAL_ARGS),
    figure_labels=frozenset({"image", "chart", "image_block"}),
    structured=frozenset(),
    ladder=warmer(),
    parameters=1.2,
    scores=(
        Score("OmniDocBench v1.6", 95.7, "vendor's run, in two steps"),
        Score("OmniParseBench", 87.1, "run by datalab, which makes Chandra and Surya"),
    ),
    experimental=True,
    region_tasks={"text": "text", "table": "table", "formula": "formula"},
    layout_first=True,
)

PROFILES = (MINERU,)
