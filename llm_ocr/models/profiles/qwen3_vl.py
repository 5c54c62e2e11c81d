"""Qwen3-VL: general vision models, mainly for figures.

Names, licenses, and sizes are those of the model cards, arguments those of vLLM's recipe. The two prompts that begin
with `qwenvl` are the trained prompts for documents.
"""

from llm_ocr.models.parsers.html_blocks import parse_qwen_html
from llm_ocr.models.parsers.labels import FIGURE_LABELS
from llm_ocr.models.parsers.markdown import parse_qwen_markdown
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.chat import ANCHOR, LADDER, LONGEST_SIDE, PROMPTS, SERVER_ARGS
from llm_ocr.models.profiles.shared import ANSWER, a4_tokens

# In billions; of "30B-A3B", three are active, and all must fit.
_SIZES = {"2B": 2.0, "4B": 4.0, "8B": 8.0, "32B": 32.0, "30B-A3B": 30.0, "235B-A22B": 235.0}
_DEFAULT = "8B"
_SCORES = {
    "8B": (Score("olmOCR-bench", 64.6, "as quoted by others"),),
    "235B-A22B": (Score("OmniDocBench v1.5", 89.15, "as quoted by others"),),
}
_PROMPTS = {**PROMPTS, "layout": "qwenvl html", "layout-markdown": "qwenvl markdown"}
_PARSERS = {"": parse_plain, "layout": parse_qwen_html, "layout-markdown": parse_qwen_markdown}

# One token per 32 x 32 pixels: 38 * 53 for an A4 page of 1190 x 1684, plus the prompt and 1,000 tokens of answer.
_PAGE_TOKENS = a4_tokens(LONGEST_SIDE, 32) + 100 + ANSWER


def _profile(size: str) -> Profile:
    name = f"qwen3-vl-{size.lower()}"
    return Profile(
        name=name,
        model=f"Qwen/Qwen3-VL-{size}-Instruct",
        licence="Apache-2.0",
        aliases=("qwen3-vl",) if size == _DEFAULT else (),
        prompts=_PROMPTS,
        parsers=_PARSERS,
        image=ImageRule(longest_side=LONGEST_SIDE),
        max_tokens=8192,  # the card's lower bound for long answers; its upper bound is 16,384
        context=32_768,
        page_tokens=_PAGE_TOKENS,
        mode="markdown",
        server_args=SERVER_ARGS,
        figure_labels=FIGURE_LABELS,
        ladder=LADDER,
        parameters=_SIZES[size],
        scores=_SCORES.get(size, ()),
        anchor=ANCHOR,
    )


PROFILES = tuple(map(_profile, _SIZES))
