"""NuExtract 3: pages as Markdown. Experimental.

A page is an image without a prompt: the chat template of the model has a mode for Markdown (`chat_template.jinja`).
Sizes, answer length, and context are estimates of llm_ocr.
"""

from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile
from llm_ocr.models.profiles.shared import ANSWER, CACHES_OFF, ONE_IMAGE, a4_tokens, prompt_tokens, side_at, warmer

_LONGEST = side_at(170)  # the resolution of third-party scripts

NUEXTRACT_3 = Profile(
    name="nuextract-3",
    model="numind/NuExtract3",
    licence="Apache-2.0",
    aliases=("nuextract3", "nuextract"),
    prompts={"markdown": ""},
    parsers={"": parse_plain},
    image=ImageRule(_LONGEST),
    max_tokens=8192,
    context=16_384,
    page_tokens=a4_tokens(_LONGEST, 32) + prompt_tokens("") + ANSWER,
    mode="markdown",
    vllm_settings={"chat_template_kwargs": {"mode": "markdown", "enable_thinking": False}},
    server_args=(*CACHES_OFF, *ONE_IMAGE),
    ladder=warmer(),
    parameters=4.0,
    languages="multilingual",
    experimental=True,
)

PROFILES = (NUEXTRACT_3,)
