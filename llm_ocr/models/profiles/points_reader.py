"""POINTS-Reader: Markdown with HTML tables. Experimental.

Prompt and sampling are those of the model card. Only SGLang serves the architecture (POINTSV15ChatModel); the registry
of vLLM 0.33 does not have it.
"""

from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Rung
from llm_ocr.models.profiles.shared import ANSWER, a4_tokens, prompt_tokens, side_at

_PROMPT = (
    "Please extract all the text from the image with the following requirements:\n"
    "1. Return tables in HTML format.\n"
    "2. Return all other text in Markdown format."
)
_TEMPERATURE = 0.7
# No published size: that of pages at 144 dpi, as for other models. Qwen2-VL's encoder: one token per 28 x 28 pixels.
_LONGEST = side_at(144)

POINTS_READER = Profile(
    name="points-reader",
    model="tencent/POINTS-Reader",
    licence="its own: LICENSE.txt of the model",
    prompts={"markdown": _PROMPT},
    parsers={"": parse_plain},
    image=ImageRule(_LONGEST),
    max_tokens=8192,  # 2,048 in the card's example, too few for a full page of small print
    context=32_768,
    page_tokens=a4_tokens(_LONGEST, 28) + prompt_tokens(_PROMPT) + ANSWER,
    mode="markdown",
    temperature=_TEMPERATURE,
    settings={"top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05},
    ladder=(Rung(temperature=0.8, scale=0.8), Rung(temperature=1.0)),
    notice=(
        "points-reader: vLLM does not serve it. Start `python -m sglang.launch_server --model-path "
        "tencent/POINTS-Reader --chat-template points-v15-chat --trust-remote-code`, and give its address with "
        "--server-url."
    ),
    parameters=4.0,
    experimental=True,
)

PROFILES = (POINTS_READER,)
