"""Infinity-Parser2: layout and text as JSON. Experimental.

Prompts, sampling, image sizes, the answer's length, and the context are those of the vendor's package
(0.4.0: `infinity_parser2/prompts.py`, `backends/`).
"""

from llm_ocr.models.parsers.layout_json import parse_json
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer

_LAYOUT = """
- Extract layout information from the provided PDF image.
- For each layout element, output its bbox, category, and the text content within the bbox.
- Bbox format: [x1, y1, x2, y2].
- Allowed layout categories: ['header', 'title', 'text', 'figure', 'table', 'formula', 'figure_caption', \
'table_caption', 'formula_caption', 'figure_footnote', 'table_footnote', 'page_footnote', 'footer'].
- Text extraction and formatting:
  1) For 'figure', the text field must be an empty string.
  2) For 'formula', format text as LaTeX.
  3) For 'table', format text as HTML.
  4) For all other categories (e.g., text, title), format text as Markdown.
- The output text must be exactly the original text from the image, with no translation or rewriting.
- Sort all layout elements in human reading order.
- Final output must be a single JSON object.
"""
_MARKDOWN = """
You are an AI assistant specialized in converting PDF images to Markdown format. Please follow these instructions \
for the conversion:

1. Text Processing:
- Accurately recognize all text content in the PDF image without guessing or inferring.
- Convert the recognized text into Markdown format.
- Maintain the original document structure, including headings, paragraphs, lists, etc.

2. Mathematical Formula Processing:
- Convert all mathematical formulas to LaTeX format.
- Enclose inline formulas with $ $. For example: This is an inline formula $E = mc^2$
- Enclose block formulas with $$ $$. For example: $$\\frac{-b \\pm \\sqrt{b^2 - 4ac}}{2a}$$

3. Table Processing:
- Convert tables to HTML format.

4. Figure Handling:
- Ignore figures content in the PDF image. Do not attempt to describe or convert images.

5. Output Format:
- Ensure the output Markdown document has a clear structure with appropriate line breaks between elements.
- For complex layouts, try to maintain the original document's structure and format as closely as possible.

Please strictly follow these guidelines to ensure accuracy and consistency in the conversion. Your task is to \
accurately convert the content of the PDF image into Markdown format without adding any extra explanations or \
comments.
"""

# The vendor renders PDFs at 300 dpi: 8.7 million pixels of an A4 page, within its limit of 16.8 million. A square page
# of that side has 110 * 110 tokens, and 45,100 of the context with the prompt and the longest answer.
_LONGEST = side_at(300)
_MAX_TOKENS, _CONTEXT = 32_768, 65_536


def _profile(name: str, model: str, parameters: float, aliases: tuple[str, ...], scores: tuple[Score, ...]) -> Profile:
    return Profile(
        name=name,
        model=model,
        licence="not stated",
        notice=f"{name}: no license of its weights is known; the vendor's package declares Apache-2.0.",
        aliases=aliases,
        prompts={"layout": _LAYOUT, "markdown": _MARKDOWN},
        parsers={"": parse_plain, "layout": parse_json},
        image=ImageRule(_LONGEST),
        max_tokens=_MAX_TOKENS,
        context=_CONTEXT,
        page_tokens=page_tokens(_LONGEST, 32, _LAYOUT),
        settings={"top_p": 1.0},
        vllm_settings={"chat_template_kwargs": {"enable_thinking": False}},
        server_args=USUAL_ARGS,
        min_vllm="0.17.1",
        min_transformers="5.3.0",
        figure_labels=frozenset({"figure"}),
        ladder=warmer(plainer="markdown"),
        parameters=parameters,
        languages="English, Chinese",
        scores=scores,
        experimental=True,
    )


FLASH = _profile(
    "infinity-parser2-flash", "infly/Infinity-Parser2-Flash", 2.0, ("infinity-parser2", "infinity-parser"), ()
)
PRO = _profile(
    "infinity-parser2-pro",
    "infly/Infinity-Parser2-Pro",
    35.0,
    (),
    (Score("olmOCR-bench", 87.6, "vendor's run; 86.9 in LightOn's"),),
)

PROFILES = (FLASH, PRO)
