"""Nemotron Parse and Granite-Docling, which answer with text between marks of places. Experimental.

NVIDIA Nemotron Parse 2 writes classes and boxes as fractions of a canvas. Prompt, settings, and the size of the canvas
are those of the model card. Granite-Docling and SmolDocling are very small models whose answers are DocTags. Prompts,
the resolution, arguments, and settings are those of the model cards and of docling.
"""

from dataclasses import replace

from llm_ocr.models.parsers.markers import parse_nemotron
from llm_ocr.models.parsers.otsl import parse_doctags, parse_formula, parse_paddle_table
from llm_ocr.models.profile import ImageRule, Profile
from llm_ocr.models.profiles.shared import ANSWER, USUAL_ARGS, prompt_tokens, side_at, warmer

_NEMOTRON_PROMPT = "</s><s><predict_bbox><predict_classes><output_markdown><predict_no_text_in_pic>"
# Height of the canvas of 1664 x 2048 pixels on which the model sees each page.
_CANVAS = 2048
_NEMOTRON_TOKENS = 9000
# The prompt has a few tokens. The image tokens are not part of the context.
_NEMOTRON_CONTEXT = 9216

NEMOTRON_PARSE = Profile(
    name="nemotron-parse",
    model="nvidia/NVIDIA-Nemotron-Parse-2.0",
    licence="OpenMDW-1.1",  # its tokenizer: CC-BY-4.0
    aliases=("nemotron",),
    prompts={"layout": _NEMOTRON_PROMPT},
    parsers={"": parse_nemotron},
    image=ImageRule(_CANVAS),
    max_tokens=_NEMOTRON_TOKENS,
    context=_NEMOTRON_CONTEXT,
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
