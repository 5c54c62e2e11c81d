"""GLM-OCR, MiniCPM-OCR, PaddleOCR-VL, and MinerU2.5-Pro: small models for regions of a page that a detector found.

GLM-OCR also reads whole pages. Its prompts, settings, and the routing of regions are those of the vendor's SDK
(`glmocr/config.yaml`), arguments those of the model card. The revision is one that a third-party deployment pins.

MiniCPM-OCR 1.0, which is experimental, has the same prompts and regions by its vendor's SDK
(`ocrcpm/default_prompts.py`). The answer's length is the SDK's longest; the page size and the image tokens are
estimates of llm_ocr.

Prompts, sizes, and settings of PaddleOCR-VL are those of the vendor's documentation and pipeline, arguments those of
vLLM's recipe.

MinerU2.5-Pro, which is experimental, gives the layout of a page in a separate request, and reads figures, too. Prompts,
the system message, and settings are those of the vendor's package (`mineru-vl-utils`), arguments those of its
documentation. The vendor requests the layout of the page stretched to 1036 x 1036 pixels and then each region. Here the
page keeps its shape (fractions of the sides are the same), and a detector finds the regions.
"""

from llm_ocr.models.parsers.markers import parse_mineru_layout
from llm_ocr.models.parsers.otsl import (
    parse_formula,
    parse_paddle_chart,
    parse_paddle_spotting,
    parse_paddle_table,
    parse_paddle_text,
)
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, BOARD, USUAL_ARGS, page_tokens, prompt_tokens, side_at, warmer

# Other prompts make the model loop. Without a detector, the SDK reads pages with the first prompt, too.
_TEXT = "Text Recognition:"
_PROMPTS = {
    "markdown": _TEXT,
    "text": _TEXT,
    "table": "Table Recognition:",
    "formula": "Formula Recognition:",
}

_TASKS = {"text": "text", "table": "table", "formula": "formula"}

# PDFs at 200 dpi: an A4 page has 3.9 million pixels. The SDK sends up to 71 million, which exceeds the need of any page
# and fills half a context.
_LONGEST = side_at(200)
# A square page of that side has 84 * 84 tokens, and 15,300 of the context with the longest answer.
_MAX_TOKENS, _CONTEXT = 8192, 16_384

GLM_OCR = Profile(
    name="glm-ocr",
    model="zai-org/GLM-OCR",
    revision="e9134f400acad80346162536e043def285fa1022",
    licence="MIT",
    aliases=("glm",),
    prompts=_PROMPTS,
    parsers={"": parse_plain, "formula": parse_formula},
    image=ImageRule(_LONGEST, "jpeg"),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    page_tokens=page_tokens(_LONGEST, 28, _TEXT),
    mode="markdown",
    # The SDK's top_p (1e-5) and top_k (1) have no effect at temperature 0, and would give the same answer in each
    # warmer attempt. Both are therefore set to allow all tokens, whatever defaults the model's own file sets.
    # Servers other than vLLM do not read the model's end tokens, and go on with a turn of the user.
    settings={"top_p": 1.0, "stop": ["<|user|>"]},
    vllm_settings={"top_k": -1, "repetition_penalty": 1.1},
    server_args=(
        "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 3}',
        *USUAL_ARGS,
    ),
    min_vllm="0.19.0",
    min_transformers="5.3.0",
    ladder=warmer(),
    parameters=0.9,
    scores=(
        Score("OmniDocBench v1.5", 94.62, "vendor's run, with its detector"),
        Score("OmniDocBench v1.6", 95.15, "vendor's run, with its detector; 95.22 in another place"),
        Score("historical pages (Elo)", 1518, f"{BOARD}; whole pages"),
    ),
    region_tasks=_TASKS,
    layout_first=True,
)


MINICPM_OCR = Profile(
    name="minicpm-ocr",
    model="openbmb/MiniCPM-OCR-1.0",
    licence="Apache-2.0",
    notice=(
        "minicpm-ocr is trained on regions of pages: where no detector finds the regions, expect bad results of pages "
        "with more than one column."
    ),
    aliases=("minicpm-ocr-1", "minicpm"),
    prompts=_PROMPTS,
    parsers={"": parse_plain, "formula": parse_formula},
    image=ImageRule(_LONGEST),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    page_tokens=page_tokens(_LONGEST, 32, _TEXT),
    mode="markdown",
    server_args=USUAL_ARGS,
    ladder=warmer(),
    parameters=1.3,
    languages="English, Chinese",
    scores=(Score("OmniParseBench", 83.2, "as quoted by others, with the vendor's detector"),),
    region_tasks=_TASKS,
    layout_first=True,
    experimental=True,
)


_PADDLE_TEXT = "OCR:"
_PADDLE_PROMPTS = {
    "markdown": _PADDLE_TEXT,
    "text": _PADDLE_TEXT,
    "table": "Table Recognition:",
    "formula": "Formula Recognition:",
    "chart": "Chart Recognition:",
}
# Trained prompts of the second and third models.
_PADDLE_MORE = {"spotting": "Spotting:", "seal": "Seal Recognition:"}

# Regions are cut from pages at 200 dpi. The model's processor limits each image to 1,003,520 pixels: 1280 tokens of 28
# x 28. For spotting, the limit is 1,605,632 pixels: 2048 tokens.
_LARGEST_IMAGE = 1280
_PADDLE_MAX_TOKENS = 4096  # limit of the pipeline
# The model's limit is 131,072; this context holds the largest image and the longest answer twice.
_PADDLE_CONTEXT = 16_384
_VENDOR = "vendor's run, with its detector"


def _paddle(version: str, model: str, aliases: tuple[str, ...], scores: tuple[Score, ...]) -> Profile:
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
        prompts=_PADDLE_PROMPTS if first else {**_PADDLE_PROMPTS, **_PADDLE_MORE},
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
        max_tokens=_PADDLE_MAX_TOKENS,
        context=_PADDLE_CONTEXT,
        page_tokens=_LARGEST_IMAGE + prompt_tokens(_PADDLE_TEXT) + ANSWER,
        mode="markdown",
        server_args=("--max-num-batched-tokens", "16384", *USUAL_ARGS),
        min_vllm="0.11.1",
        trust_remote_code=True,
        ladder=warmer(),
        parameters=0.9,
        scores=scores,
        region_tasks={**_TASKS, "chart": "chart"},
        layout_first=True,
    )


PADDLEOCR_VL = (
    _paddle(
        "1.6",
        "PaddleOCR-VL-1.6",
        ("paddleocr",),
        (
            Score("OmniDocBench v1.6", 96.33, _VENDOR),
            Score("historical pages (Elo)", 1399, f"{BOARD}; whole pages, without its detector"),
        ),
    ),
    _paddle("1.5", "PaddleOCR-VL-1.5", (), (Score("OmniDocBench v1.5", 94.5, _VENDOR),)),
    _paddle(
        "1",
        "PaddleOCR-VL",
        (),
        (Score("OmniDocBench v1.5", 92.86, _VENDOR), Score("olmOCR-bench", 80.0, _VENDOR)),
    ),
)


_MINERU_TEXT = "\nText Recognition:"
_MINERU_PROMPTS = {
    "text": _MINERU_TEXT,
    "layout-only": "\nLayout Detection:",
    "table": "\nTable Recognition:",
    "formula": "\nFormula Recognition:",
    "describe": "\nImage Analysis:",
}

MINERU = Profile(
    name="mineru2.5-pro",
    model="opendatalab/MinerU2.5-Pro-2605-1.2B",
    licence="see its model card (sources disagree: Apache-2.0 or the vendor's own)",
    notice="mineru2.5-pro: sources disagree on the license of its weights: read its model card before you use it.",
    aliases=("mineru",),
    prompts=_MINERU_PROMPTS,
    parsers={
        "": parse_plain,
        "layout-only": parse_mineru_layout,
        "table": parse_paddle_table,
        "formula": parse_formula,
    },
    # Answer length and context are those of GLM-OCR, which has the same kind of requests: the vendor gives no numbers.
    image=ImageRule(_LONGEST),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    # Qwen2-VL: one token per 28 x 28 pixels.
    page_tokens=page_tokens(_LONGEST, 28, _MINERU_TEXT),
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
    region_tasks=_TASKS,
    layout_first=True,
)
