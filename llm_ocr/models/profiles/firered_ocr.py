"""FireRed-OCR: Markdown with HTML tables and LaTeX, from a fine-tuned Qwen3-VL-2B. Figures are left out. Experimental.

The prompt is that of the vendor's `conv_for_infer.py`. The length of the answer and the context are those of the
uv-scripts collection, which runs the model on stable vLLM. No score was verified.
"""

from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile
from llm_ocr.models.profiles.shared import ANSWER, CACHES_OFF, ONE_IMAGE, a4_tokens, prompt_tokens, side_at, warmer

_PROMPT = r"""You are an AI assistant specialized in converting PDF images to Markdown format. Please follow these instructions for the conversion:

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
# No published size: that of pages at 144 dpi, as for other models. Qwen3-VL: one token per 32 x 32 pixels.
_LONGEST = side_at(144)

FIRERED_OCR = Profile(
    name="firered-ocr",
    model="FireRedTeam/FireRed-OCR",
    licence="Apache-2.0",
    prompts={"markdown": _PROMPT},
    parsers={"": parse_plain},
    image=ImageRule(_LONGEST),
    max_tokens=8192,
    context=32_768,
    page_tokens=a4_tokens(_LONGEST, 32) + prompt_tokens(_PROMPT) + ANSWER,
    mode="markdown",
    server_args=(*CACHES_OFF, *ONE_IMAGE),
    ladder=warmer(),
    parameters=2.1,
    experimental=True,
)

PROFILES = (FIRERED_OCR,)
