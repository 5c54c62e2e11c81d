"""GLM-OCR: one small model for regions of a page, read whole pages too.

Prompts, settings and the routing of regions are those of the vendor's SDK (`glmocr/config.yaml`), arguments those of
the model card; the revision is one that a deployment of others pins.
"""

from llm_ocr.models.parsers.markdown import parse_glm
from llm_ocr.models.parsers.otsl import parse_formula
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, CACHES_OFF, ONE_IMAGE, a4_tokens, prompt_tokens, side_at, warmer

# Other words make it loop. The SDK reads pages with the first one too, where no detector is there.
_TEXT = "Text Recognition:"
_PROMPTS = {
    "markdown": _TEXT,
    "text": _TEXT,
    "table": "Table Recognition:",
    "formula": "Formula Recognition:",
}

# PDFs at 200 dpi: an A4 page is 3.9 million pixels. The SDK would send up to 71 million; that is more than any page
# needs, and half a context of tokens.
_LONGEST = side_at(200)
# A square page of that side has 84 * 84 tokens: with the longest answer 15,300 of the context.
_MAX_TOKENS, _CONTEXT = 8192, 16_384

GLM_OCR = Profile(
    name="glm-ocr",
    model="zai-org/GLM-OCR",
    revision="e9134f400acad80346162536e043def285fa1022",
    licence="MIT",
    aliases=("glm",),
    prompts=_PROMPTS,
    parsers={"": parse_glm, "formula": parse_formula},
    image=ImageRule(_LONGEST, "jpeg"),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    page_tokens=a4_tokens(_LONGEST, 28) + prompt_tokens(_TEXT) + ANSWER,
    mode="markdown",
    # The SDK's top_p (1e-5) and top_k (1) change nothing at temperature 0, and would give each warmer try the same
    # answer again: both are set to let all through, whatever the model's own file of defaults says.
    settings={"top_p": 1.0},
    vllm_settings={"top_k": -1, "repetition_penalty": 1.1},
    server_args=(
        "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 3}',
        *CACHES_OFF,
        *ONE_IMAGE,
    ),
    min_vllm="0.19.0",
    min_transformers="5.3.0",
    ladder=warmer(),
    parameters=0.9,
    scores=(
        Score("OmniDocBench v1.5", 94.62, "vendor's run, with its detector"),
        Score("OmniDocBench v1.6", 95.15, "vendor's run, with its detector; 95.22 in another place"),
        Score(
            "historical pages (Elo)",
            1518,
            "davanstrien/ocr-board-historical-v0, independent: 338 old pages judged by a model; whole pages",
        ),
    ),
    region_tasks={"text": "text", "table": "table", "formula": "formula"},
    layout_first=True,
)

PROFILES = (GLM_OCR,)
