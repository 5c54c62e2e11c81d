"""DeepSeek-OCR, Unlimited-OCR, Nemotron Parse, and Granite-Docling, which answer with text between marks of places.

DeepSeek-OCR and DeepSeek-OCR-2 give text, layout, and boxes in one request. Their prompts are those of the models'
READMEs, arguments and settings those of vLLM's recipes. The other models are experimental.

Unlimited-OCR has tags like DeepSeek's and a long context. Its prompt, arguments, and settings are those of vLLM's
recipe. Another project uses `<|grounding|>OCR this image.` and reports empty answers to other prompts. Neither claim
has been verified.

NVIDIA Nemotron Parse 2 writes classes and boxes as fractions of a canvas. Prompt, settings, and the size of the canvas
are those of the model card. Granite-Docling and SmolDocling are very small models whose answers are DocTags. Prompts,
the resolution, arguments, and settings are those of the model cards and of docling.
"""

from dataclasses import replace

from llm_ocr.models.parsers.markers import (
    parse_free,
    parse_grounding,
    parse_nemotron,
    parse_spotting,
    parse_unlimited,
)
from llm_ocr.models.parsers.otsl import parse_doctags, parse_formula, parse_paddle_table
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, DEEPSEEK_PROMPTS, USUAL_ARGS, prompt_tokens, side_at, warmer

# vLLM puts "<image>\n" before each prompt, as in the model's own prompts.
_PAGE = "<|grounding|>Convert the document to markdown."
_PROMPTS = {
    "layout": _PAGE,
    "markdown": _PAGE,
    "text": "Free OCR.",
    "spotting": "<|grounding|>OCR this image.",  # pictures other than documents: each line with its box
    **DEEPSEEK_PROMPTS,
}

# Context of the model, for prompt and answer together.
_CONTEXT = 8192
# Prompt tokens of an A4 page in tiles, as counted by vLLM (1240 x 1754 pixels: 914). A page with the most tiles (6 of
# 100 tokens, their line ends, 273 for the whole page) has fewer than 960; the prompt's words have fewer than 20.
_PAGE_PROMPT = 914
_LARGEST_PROMPT = 1024
# Second model: 256 tokens for the whole page and 144 for each of at most six tiles.
_SECOND_PAGE = 256 + 6 * 144
_SECOND_LARGEST_PROMPT = 1280

# Keys and values of 12 layers with 10 heads of 128 values in 2 bytes. Measured: 2,119,408 tokens in 130 GB.
_KV_BYTES = 2 * 12 * 10 * 128 * 2

# Long side of A4 at 144 dpi, the resolution of the model's own PDF script; the server cuts the tiles.
_IMAGE = ImageRule(side_at(144))
# Tags are special tokens of the model.
_TAGS = {"skip_special_tokens": False}
# Blocks n-grams that recur within the window; the two allowed tokens are <td> and </td>.
_NO_REPETITION = {"vllm_xargs": {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]}}
_SERVER_ARGS = (
    "--logits-processors",
    "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor",
    *USUAL_ARGS,
)
_FIGURES = frozenset({"image", "figure"})
# Another image size gives other tiles. The plain prompt gives text without places and is therefore late.
_LADDER = warmer(plainer="text")

DEEPSEEK_OCR = Profile(
    name="deepseek-ocr",
    model="deepseek-ai/DeepSeek-OCR",
    licence="MIT",
    aliases=("deepseek", "deepseek-ocr-1", "deepseekocr"),
    prompts=_PROMPTS,
    parsers={"": parse_free, "layout": parse_grounding, "markdown": parse_grounding, "spotting": parse_spotting},
    image=_IMAGE,
    max_tokens=_CONTEXT - _LARGEST_PROMPT,
    context=_CONTEXT,
    page_tokens=_PAGE_PROMPT + ANSWER,
    kv_bytes=_KV_BYTES,
    vllm_settings=_TAGS,
    page_settings=_NO_REPETITION,
    server_args=_SERVER_ARGS,
    figure_labels=_FIGURES,
    # The model answers figures with tables and text and is not trained for JSON. Only the class choice is enforced.
    structured=frozenset({"classify"}),
    ladder=_LADDER,
    parameters=3.3,
    scores=(
        Score("olmOCR-bench", 75.7, "as quoted by others"),
        Score("OmniDocBench v1.5", 87.0, "as quoted by others; 87.4 in other places"),
    ),
)

# Before vLLM's pull request 33642 (February 2026), servers had no chat template for this model: answers were empty.
DEEPSEEK_OCR_2 = replace(
    DEEPSEEK_OCR,
    name="deepseek-ocr-2",
    model="deepseek-ai/DeepSeek-OCR-2",
    licence="Apache-2.0",
    aliases=(),
    prompts={"layout": _PAGE, "markdown": _PAGE, "text": "Free OCR."},
    parsers={"": parse_free, "layout": parse_grounding, "markdown": parse_grounding},
    # vLLM's first release with this architecture: release notes of 0.16.0, pull request 33165.
    min_vllm="0.16.0",
    max_tokens=_CONTEXT - _SECOND_LARGEST_PROMPT,
    page_tokens=_SECOND_PAGE + ANSWER,
    kv_bytes=0,
    structured=frozenset({"parse", "classify"}),
    parameters=3.4,
    scores=(Score("OmniDocBench v1.5", 91.09, "vendor's paper, arXiv 2601.20552"),),
)


# The prompt contains the image placeholder, and precedes the image, so that vLLM does not add a placeholder.
_UNLIMITED_PAGE = "<image>document parsing."
# Image tokens of the largest page of DeepSeek-OCR, the base of this model.
_UNLIMITED_IMAGE = 960

UNLIMITED_OCR = Profile(
    name="unlimited-ocr",
    model="baidu/Unlimited-OCR",
    licence="MIT",
    aliases=("unlimited",),
    prompts={"layout": _UNLIMITED_PAGE},
    parsers={"": parse_unlimited},
    image=ImageRule(side_at(144)),
    max_tokens=8192,
    context=32_768,
    page_tokens=_UNLIMITED_IMAGE + prompt_tokens(_UNLIMITED_PAGE) + ANSWER,
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


_DOCLING_PAGE = "Convert this page to docling."
# Assumed tokens of an image, to reserve room. docling's answer limit is 8192; the limit here is what remains of that.
_DOCLING_IMAGE = 1024
_DOCLING_CONTEXT = 8192
_DOCLING_TOKENS = _DOCLING_CONTEXT - _DOCLING_IMAGE - 256

GRANITE_DOCLING = Profile(
    name="granite-docling",
    model="ibm-granite/granite-docling-258M",
    revision="untied",  # the card: vLLM cannot load the tied weights of the main branch
    licence="Apache-2.0",
    aliases=("granite",),
    prompts={"layout": _DOCLING_PAGE, "table": "Convert table to OTSL.", "formula": "Convert formula to LaTeX."},
    parsers={"": parse_doctags, "table": parse_paddle_table, "formula": parse_formula},
    image=ImageRule(side_at(144)),
    max_tokens=_DOCLING_TOKENS,
    context=_DOCLING_CONTEXT,
    page_tokens=_DOCLING_IMAGE + prompt_tokens(_DOCLING_PAGE) + ANSWER,
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
