"""GLM-OCR and MiniCPM-OCR: one small model for regions of a page that also reads whole pages.

Prompts, settings, and the routing of regions of GLM-OCR are those of the vendor's SDK (`glmocr/config.yaml`), arguments
those of the model card. The revision is one that a third-party deployment pins.

MiniCPM-OCR 1.0, which is experimental, has the same prompts and regions by its vendor's SDK
(`ocrcpm/default_prompts.py`). The answer's length is the SDK's longest; the page size and the image tokens are
estimates of llm_ocr.
"""

from llm_ocr.models.parsers.otsl import parse_formula
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer

# Other prompts make the model loop. Without a detector, the SDK reads pages with the first prompt, too.
_TEXT = "Text Recognition:"
_PROMPTS = {
    "markdown": _TEXT,
    "text": _TEXT,
    "table": "Table Recognition:",
    "formula": "Formula Recognition:",
}

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
        Score(
            "historical pages (Elo)",
            1518,
            "davanstrien/ocr-board-historical-v0, independent: 338 old pages judged by a model; whole pages",
        ),
    ),
    region_tasks={"text": "text", "table": "table", "formula": "formula"},
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
    region_tasks={"text": "text", "table": "table", "formula": "formula"},
    layout_first=True,
    experimental=True,
)
