"""Unlimited-OCR: tags like those of DeepSeek-OCR, a long context. Experimental.

Prompt, arguments, and settings are those of vLLM's recipe. Another project uses `<|grounding|>OCR this image.` and
reports empty answers to other prompts. Neither claim has been verified.
"""

from llm_ocr.models.parsers.markers import parse_unlimited
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, USUAL_ARGS, prompt_tokens, side_at, warmer

# The prompt contains the image placeholder, and precedes the image, so that vLLM does not add a placeholder.
_PAGE = "<image>document parsing."
# Image tokens of the largest page of DeepSeek-OCR, the base of this model.
_IMAGE = 960

UNLIMITED_OCR = Profile(
    name="unlimited-ocr",
    model="baidu/Unlimited-OCR",
    licence="MIT",
    aliases=("unlimited",),
    prompts={"layout": _PAGE},
    parsers={"": parse_unlimited},
    image=ImageRule(side_at(144)),
    max_tokens=8192,
    context=32_768,
    page_tokens=_IMAGE + prompt_tokens(_PAGE) + ANSWER,
    image_first=False,
    vllm_settings={"skip_special_tokens": False},
    page_settings={"vllm_xargs": {"ngram_size": 35, "window_size": 128}},
    server_args=(
        "--logits-processors",
        "vllm.model_executor.models.unlimited_ocr:NGramPerReqLogitsProcessor",
        *USUAL_ARGS,
    ),
    min_vllm="0.25.0",
    trust_remote_code=True,
    figure_labels=frozenset({"image", "figure"}),
    ladder=warmer(),
    parameters=3.3,
    scores=(
        Score("OmniDocBench v1.5", 93.23, "vendor's run"),
        Score("OmniDocBench v1.6", 93.92, "vendor's run"),
    ),
    experimental=True,
)

PROFILES = (UNLIMITED_OCR,)
