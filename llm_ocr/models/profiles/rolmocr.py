"""RolmOCR: pages as plain text. Experimental.

The prompt, the temperature, and the answer's length are those of the model card.
"""

from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile
from llm_ocr.models.profiles.shared import ANSWER, CACHES_OFF, ONE_IMAGE, a4_tokens, prompt_tokens, side_at, warmer

_PROMPT = "Return the plain text representation of this document as if you were reading it naturally.\n"
_TEMPERATURE = 0.2
# No published size: that of pages at 144 dpi, as for other models. Qwen2.5-VL: one token per 28 x 28 pixels.
_LONGEST = side_at(144)

ROLMOCR = Profile(
    name="rolmocr",
    model="reducto/RolmOCR",
    licence="Apache-2.0",
    aliases=("rolm-ocr",),
    prompts={"text": _PROMPT},
    parsers={"": parse_plain},
    image=ImageRule(_LONGEST),
    max_tokens=4096,
    context=16_384,
    page_tokens=a4_tokens(_LONGEST, 28) + prompt_tokens(_PROMPT) + ANSWER,
    mode="text",
    temperature=_TEMPERATURE,
    server_args=(*CACHES_OFF, *ONE_IMAGE),
    ladder=warmer(_TEMPERATURE),
    parameters=8.3,
    experimental=True,
)

PROFILES = (ROLMOCR,)
