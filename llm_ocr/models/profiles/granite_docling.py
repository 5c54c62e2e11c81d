"""Granite-Docling and SmolDocling: very small models whose answers are DocTags. Experimental.

Prompts, the resolution, arguments, and settings are those of the model cards and of docling.
"""

from dataclasses import replace

from llm_ocr.models.parsers.doctags import parse_doctags
from llm_ocr.models.parsers.otsl import parse_formula, parse_paddle_table
from llm_ocr.models.profile import ImageRule, Profile
from llm_ocr.models.profiles.shared import ANSWER, USUAL_ARGS, prompt_tokens, side_at, warmer

_PAGE = "Convert this page to docling."
# Assumed tokens of an image, to reserve room. docling's answer limit is 8192; the limit here is what remains of that.
_IMAGE = 1024
_CONTEXT = 8192
_MAX_TOKENS = _CONTEXT - _IMAGE - 256

GRANITE_DOCLING = Profile(
    name="granite-docling",
    model="ibm-granite/granite-docling-258M",
    revision="untied",  # the card: vLLM cannot load the tied weights of the main branch
    licence="Apache-2.0",
    aliases=("granite",),
    prompts={"layout": _PAGE, "table": "Convert table to OTSL.", "formula": "Convert formula to LaTeX."},
    parsers={"": parse_doctags, "table": parse_paddle_table, "formula": parse_formula},
    image=ImageRule(side_at(144)),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    page_tokens=_IMAGE + prompt_tokens(_PAGE) + ANSWER,
    settings={"stop": ["</doctag>", "<|end_of_text|>"]},
    vllm_settings={"skip_special_tokens": False},
    server_args=("--max-num-batched-tokens", "8192", "--enable-chunked-prefill", *USUAL_ARGS),
    figure_labels=frozenset({"picture", "chart"}),
    ladder=warmer(),
    parameters=0.26,
    languages="English first",
    experimental=True,
)

SMOLDOCLING = replace(
    GRANITE_DOCLING,
    name="smoldocling",
    model="docling-project/SmolDocling-256M-preview",
    revision=None,
    licence="CDLA-Permissive-2.0",
    aliases=(),
    settings={"stop": ["</doctag>", "<end_of_utterance>"]},
)

PROFILES = (GRANITE_DOCLING, SMOLDOCLING)
