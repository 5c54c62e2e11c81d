"""Falcon-OCR: pages as plain text. Experimental.

The prompt is that of the vendor's package falcon-perception; its larger pipeline with a layout detector is not used.
Only the vendor's fork of vLLM (image tiiuae/falcon-ocr) serves it; the registry of vLLM 0.33 does not have it.
"""

from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile
from llm_ocr.models.profiles.shared import ANSWER, a4_tokens, prompt_tokens, warmer

_PROMPT = "Extract the text content from this image.\n<|OCR_PLAIN|>"
_LONGEST = 1536  # `max_image_size` of the server's settings; one token per 16 x 16 pixels
_MAX_TOKENS = 4096

FALCON_OCR = Profile(
    name="falcon-ocr",
    model="tiiuae/Falcon-OCR",
    # Version 1.5, which replaced the weights of version 1 under the same name.
    revision="fe757d59ecd79d4d68760162306a70a015761ad9",
    licence="Apache-2.0",
    prompts={"text": _PROMPT},
    parsers={"": parse_plain},
    image=ImageRule(_LONGEST),
    max_tokens=_MAX_TOKENS,
    context=16_384,  # 96 * 96 tokens of a square page, and the longest answer
    page_tokens=a4_tokens(_LONGEST, 16) + prompt_tokens(_PROMPT) + ANSWER,
    mode="text",
    vllm_settings={"stop_token_ids": [11, 263]},
    ladder=warmer(),
    notice=(
        "falcon-ocr: vLLM does not serve it. Start the vendor's image tiiuae/falcon-ocr, and give its address "
        " with --server-url."
    ),
    parameters=0.3,
    experimental=True,
)

PROFILES = (FALCON_OCR,)
