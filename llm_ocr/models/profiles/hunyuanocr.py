"""HunyuanOCR: pages as Markdown, tables as HTML; no boxes of figures.

Prompts, the empty system message, and settings are those of the model card.
"""

from llm_ocr.models.parsers.markdown import parse_hunyuan
from llm_ocr.models.parsers.otsl import parse_formula
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, CACHES_OFF, ONE_IMAGE, a4_tokens, prompt_tokens, side_at, warmer

_PAGE = (
    "Extract all information from the main body of the document image and represent it in markdown format, ignoring "
    "headers and footers. Tables should be expressed in HTML format, formulas in the document should be represented "
    "using LaTeX format, and the parsing should be organized according to the reading order."
)
_PROMPTS = {
    "markdown": _PAGE,
    "text": "Extract the text in the image.",
    "table": "Parse the table in the image into HTML.",
    "formula": "Identify the formula in the image and represent it using LaTeX format.",
    "chart": "Parse the chart in the image; use Mermaid format for flowcharts and Markdown for other charts.",
}

# No published size: that of pages at 144 dpi, as for other models. One token per 28 x 28 pixels is assumed.
_LONGEST = side_at(144)
# A square page of that side has 61 * 61 tokens, and 20,200 of the 32,768 with the longest answer.
_MAX_TOKENS, _CONTEXT = 16_384, 32_768

HUNYUANOCR = Profile(
    name="hunyuanocr",
    model="tencent/HunyuanOCR",
    licence="Tencent Hunyuan community licence",
    notice=(
        "hunyuanocr: licenses of this family exclude the European Union, the United Kingdom and South Korea, and "
        "sources disagree on this model: read the LICENSE file in its repository before you use it."
    ),
    aliases=("hunyuan", "hunyuan-ocr"),
    prompts=_PROMPTS,
    parsers={"": parse_hunyuan, "formula": parse_formula},
    image=ImageRule(_LONGEST),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    page_tokens=a4_tokens(_LONGEST, 28) + prompt_tokens(_PAGE) + ANSWER,
    mode="markdown",
    system="",
    # The card's top_k (1) has no effect at temperature 0, and would give the same answer in each warmer attempt.
    settings={"top_p": 1.0},
    vllm_settings={"top_k": -1, "repetition_penalty": 1.0},
    server_args=(*CACHES_OFF, *ONE_IMAGE),
    ladder=warmer(plainer="text"),
    parameters=1.0,
    scores=(Score("OmniDocBench v1.5", 94.10, "vendor's run"),),
)

PROFILES = (HUNYUANOCR,)
