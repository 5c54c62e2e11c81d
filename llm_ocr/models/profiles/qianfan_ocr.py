"""Qianfan-OCR: pages as Markdown. Experimental.

Prompt and scores are published; sizes, answer length, and context are estimates of llm_ocr.
"""

from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, CACHES_OFF, ONE_IMAGE, a4_tokens, prompt_tokens, side_at, warmer

_PROMPT = "Parse this document to Markdown."
_LONGEST = side_at(144)

QIANFAN_OCR = Profile(
    name="qianfan-ocr",
    model="baidu/Qianfan-OCR",
    licence="Apache-2.0",
    aliases=("qianfan",),
    prompts={"markdown": _PROMPT},
    parsers={"": parse_plain},
    image=ImageRule(_LONGEST),
    max_tokens=8192,
    context=16_384,
    page_tokens=a4_tokens(_LONGEST, 28) + prompt_tokens(_PROMPT) + ANSWER,
    mode="markdown",
    server_args=(*CACHES_OFF, *ONE_IMAGE),
    ladder=warmer(),
    parameters=4.7,
    scores=(
        Score("olmOCR-bench", 79.8, "vendor's run"),
        Score("OmniDocBench v1.5", 93.12, "vendor's run"),
    ),
    experimental=True,
)

PROFILES = (QIANFAN_OCR,)
