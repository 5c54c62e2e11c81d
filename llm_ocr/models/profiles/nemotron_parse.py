"""NVIDIA Nemotron Parse 2: text, classes, and boxes as fractions of a canvas. Experimental.

Prompt, settings, and the size of the canvas are those of the model card.
"""

from llm_ocr.models.parsers.markers import parse_nemotron
from llm_ocr.models.profile import ImageRule, Profile
from llm_ocr.models.profiles.shared import ANSWER, USUAL_ARGS, warmer

_PROMPT = "</s><s><predict_bbox><predict_classes><output_markdown><predict_no_text_in_pic>"
# Height of the canvas of 1664 x 2048 pixels on which the model sees each page.
_LONGEST = 2048
_MAX_TOKENS = 9000
# The prompt has a few tokens. The image tokens are not part of the context.
_CONTEXT = 9216

NEMOTRON_PARSE = Profile(
    name="nemotron-parse",
    model="nvidia/NVIDIA-Nemotron-Parse-2.0",
    licence="OpenMDW-1.1",  # its tokenizer: CC-BY-4.0
    aliases=("nemotron",),
    prompts={"layout": _PROMPT},
    parsers={"": parse_nemotron},
    image=ImageRule(_LONGEST),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    page_tokens=20 + ANSWER,
    image_first=False,
    # The card's top_k (1) has no effect at temperature 0, and would give the same answer in each warmer attempt.
    settings={"top_p": 1.0},
    vllm_settings={"top_k": -1, "repetition_penalty": 1.1, "skip_special_tokens": False},
    server_args=USUAL_ARGS,
    # vLLM's first release with this architecture: release notes of 0.14.0, pull request 30864.
    min_vllm="0.14.0",
    trust_remote_code=True,
    notice="nemotron-parse: its image processor needs the package `albumentations`, which vLLM's own image lacks.",
    figure_labels=frozenset({"Picture", "Chart"}),
    ladder=warmer(),
    parameters=0.9,
    experimental=True,
)

PROFILES = (NEMOTRON_PARSE,)
