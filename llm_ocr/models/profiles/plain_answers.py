"""Models that answer a page with plain Markdown or text and differ only in data. All are experimental.

RolmOCR: prompt, temperature, and answer length are those of the model card.

FireRed-OCR, a fine-tuned Qwen3-VL-2B, leaves figures out. The prompt is that of the vendor's `conv_for_infer.py`. The
length of the answer and the context are those of the uv-scripts collection, which runs the model on stable vLLM. No
score was verified.

NuExtract 3: a page is an image without a prompt, because the chat template of the model has a mode for Markdown
(`chat_template.jinja`). Sizes, answer length, and context are estimates of llm_ocr.

Qianfan-OCR: prompt and scores are published; sizes, answer length, and context are estimates of llm_ocr.

POINTS-Reader: prompt and sampling are those of the model card. Only SGLang serves the architecture
(POINTSV15ChatModel); the registry of vLLM 0.33 does not have it.

Falcon-OCR: the prompt is that of the vendor's package falcon-perception; its larger pipeline with a layout detector is
not used. Only the vendor's fork of vLLM (image tiiuae/falcon-ocr) serves it; the registry of vLLM 0.33 does not have
it.
"""

from dataclasses import replace

from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Rung, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer


def _profile(name: str, model: str, mode: str, prompt: str, longest_side: int, per_side: int) -> Profile:
    """Return a profile with the values that most of these models share; sides as in `page_tokens`."""
    return Profile(
        name=name,
        model=model,
        licence="Apache-2.0",
        prompts={mode: prompt},
        parsers={"": parse_plain},
        image=ImageRule(longest_side),
        max_tokens=8192,
        context=16_384,
        page_tokens=page_tokens(longest_side, per_side, prompt),
        mode=mode,
        server_args=USUAL_ARGS,
        ladder=warmer(),
        experimental=True,
    )


# RolmOCR, FireRed-OCR, and POINTS-Reader have no published size: that of pages at 144 dpi, as for other models.
# Qwen2.5-VL and Qwen2-VL's encoder: one token per 28 x 28 pixels; Qwen3-VL: 32 x 32.
ROLMOCR = replace(
    _profile(
        "rolmocr",
        "reducto/RolmOCR",
        "text",
        "Return the plain text representation of this document as if you were reading it naturally.\n",
        side_at(144),
        28,
    ),
    aliases=("rolm-ocr",),
    max_tokens=4096,
    temperature=0.2,
    ladder=warmer(0.2),
    parameters=8.3,
)

_FIRERED = r"""You are an AI assistant specialized in converting PDF images to Markdown format. Please follow these instructions for the conversion:

1. Text Processing:
- Accurately recognize all text content in the PDF image without guessing or inferring.
- Convert the recognized text into Markdown format.
- Maintain the original document structure, including headings, paragraphs, lists, etc.

2. Mathematical Formula Processing:
- Convert all mathematical formulas to LaTeX format.
- Enclose inline formulas with \( \). For example: This is an inline formula \( E = mc^2 \)
- Enclose block formulas with \[ \]. For example: \[ \frac{-b \pm \sqrt{b^2 - 4ac}}{2a} \]

3. Table Processing:
- Convert tables to HTML format.
- Wrap the entire table with <table> and </table>.

4. Figure Handling:
- Ignore figures content in the PDF image. Do not attempt to describe or convert images.

5. Output Format:
- Ensure the output Markdown document has a clear structure with appropriate line breaks between elements.
- For complex layouts, try to maintain the original document's structure and format as closely as possible.

Please strictly follow these guidelines to ensure accuracy and consistency in the conversion. Your task is to accurately convert the content of the PDF image into Markdown format without adding any extra explanations or comments."""  # noqa: E501 - as trained

FIRERED_OCR = replace(
    _profile("firered-ocr", "FireRedTeam/FireRed-OCR", "markdown", _FIRERED, side_at(144), 32),
    context=32_768,
    parameters=2.1,
)

NUEXTRACT_3 = replace(
    # The resolution of third-party scripts.
    _profile("nuextract-3", "numind/NuExtract3", "markdown", "", side_at(170), 32),
    aliases=("nuextract3", "nuextract"),
    vllm_settings={"chat_template_kwargs": {"mode": "markdown", "enable_thinking": False}},
    parameters=4.0,
    languages="multilingual",
)

QIANFAN_OCR = replace(
    _profile("qianfan-ocr", "baidu/Qianfan-OCR", "markdown", "Parse this document to Markdown.", side_at(144), 28),
    aliases=("qianfan",),
    parameters=4.7,
    scores=(Score("olmOCR-bench", 79.8, "vendor's run"), Score("OmniDocBench v1.5", 93.12, "vendor's run")),
)

_POINTS = (
    "Please extract all the text from the image with the following requirements:\n"
    "1. Return tables in HTML format.\n"
    "2. Return all other text in Markdown format."
)
POINTS_READER = replace(
    # The card's example has 2,048 tokens, too few for a full page of small print.
    _profile("points-reader", "tencent/POINTS-Reader", "markdown", _POINTS, side_at(144), 28),
    licence="its own: LICENSE.txt of the model",
    context=32_768,
    temperature=0.7,
    settings={"top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05},
    server_args=(),
    ladder=(Rung(temperature=0.8, scale=0.8), Rung(temperature=1.0)),
    notice=(
        "points-reader: vLLM does not serve it. Start `python -m sglang.launch_server --model-path "
        "tencent/POINTS-Reader --chat-template points-v15-chat --trust-remote-code`, and give its address with "
        "--server-url."
    ),
    parameters=4.0,
)

FALCON_OCR = replace(
    # `max_image_size` of the server's settings; one token per 16 x 16 pixels. The context holds the 96 * 96 tokens of a
    # square page, and the longest answer.
    _profile(
        "falcon-ocr",
        "tiiuae/Falcon-OCR",
        "text",
        "Extract the text content from this image.\n<|OCR_PLAIN|>",
        1536,
        16,
    ),
    # Version 1.5, which replaced the weights of version 1 under the same name.
    revision="fe757d59ecd79d4d68760162306a70a015761ad9",
    max_tokens=4096,
    vllm_settings={"stop_token_ids": [11, 263]},
    server_args=(),
    notice=(
        "falcon-ocr: vLLM does not serve it. Start the vendor's image tiiuae/falcon-ocr, and give its address "
        " with --server-url."
    ),
    parameters=0.3,
)
