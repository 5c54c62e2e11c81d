"""dots.ocr and Infinity-Parser2, which answer with layout and text as JSON; Infinity-Parser2 is experimental.

dots.ocr and dots.mocr read many scripts. Their prompts, sizes, and settings are those of the vendor's repository
(`dots_ocr/utils/prompts.py`, `consts.py`, README). Prompts, sampling, image sizes, the answer's length, and the context
of Infinity-Parser2 are those of the vendor's package (0.4.0: `infinity_parser2/prompts.py`, `backends/`).
"""

from typing import Any

from llm_ocr.models.parsers.layout_json import parse_dots, parse_dots_layout_only, parse_json
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import BOARD, USUAL_ARGS, page_tokens, side_at, warmer

# The template joins the parts of a message as one string. A message with an image placeholder is not changed.
_IMAGE = "<|img|><|imgpad|><|endofimg|>"
_LABELS = (
    "Caption", "Footnote", "Formula", "List-item", "Page-footer", "Page-header", "Picture", "Section-header", "Table",
    "Text", "Title",
)  # fmt: skip
_LAYOUT = """\
Please output the layout information from the PDF image, including each layout element's bbox, its category, and the \
corresponding text content within the bbox.

1. Bbox format: [x1, y1, x2, y2]

2. Layout Categories: The possible categories are ['Caption', 'Footnote', 'Formula', 'List-item', 'Page-footer', \
'Page-header', 'Picture', 'Section-header', 'Table', 'Text', 'Title'].

3. Text Extraction & Formatting Rules:
    - Picture: For the 'Picture' category, the text field should be omitted.
    - Formula: Format its text as LaTeX.
    - Table: Format its text as HTML.
    - All Others (Text, Title, etc.): Format their text as Markdown.

4. Constraints:
    - The output text must be the original text from the image, with no translation.
    - All layout elements must be sorted according to human reading order.

5. Final Output: The entire output must be a single JSON object.
"""
_LAYOUT_ONLY = (
    "Please output the layout information from this PDF image, including each layout's bbox and its category. "
    "The bbox should be in the format [x1, y1, x2, y2]. The layout categories for the PDF document include "
    "['Caption', 'Footnote', 'Formula', 'List-item', 'Page-footer', 'Page-header', 'Picture', 'Section-header', "
    "'Table', 'Text', 'Title']. Do not output the corresponding text. The layout result should be in JSON format."
)
_PROMPTS = {
    "layout": f"{_IMAGE}{_LAYOUT}",
    "layout-only": f"{_IMAGE}{_LAYOUT_ONLY}",
    "text": f"{_IMAGE}Extract the text content from this image.",
    "webpage": f"{_IMAGE}Parsing the layout info of this webpage image with format json:\n",
    "scene": f"{_IMAGE}Detect and recognize the text in the image.",
}


def _schema(*, text: bool) -> dict[str, Any]:
    """Return the form of the answers, for servers that enforce a form."""
    properties: dict[str, Any] = {
        "bbox": {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 4},
        "category": {"type": "string", "enum": list(_LABELS)},
    }
    if text:
        properties["text"] = {"type": "string"}
    item = {
        "type": "object",
        "properties": properties,
        "required": ["bbox", "category"],
        "additionalProperties": False,
    }
    return {"structured_outputs": {"json": {"type": "array", "items": item}}}


# Rendered at 200 dpi as in the vendor's parser; the server resizes to multiples of 28 within 11,289,600 pixels.
_LONGEST = side_at(200)
# A square page of that side has 84 * 84 tokens, and 23,900 of the context with the prompt and the longest answer.
_MAX_TOKENS, _CONTEXT = 16_384, 24_576
_VENDOR = "vendor's run, vendor's repository"


def _dots(name: str, aliases: tuple[str, ...], scores: tuple[Score, ...]) -> Profile:
    return Profile(
        name=name,
        model=f"rednote-hilab/{name}",
        licence="MIT with the dots.ocr licence agreement",
        notice=(
            f"{name}: besides the MIT license, a license agreement has clauses on responsible use. It asks not to "
            "digitize copyrighted publications in bulk without the rights."
        ),
        aliases=aliases,
        prompts=_PROMPTS,
        parsers={"": parse_plain, "layout": parse_dots, "layout-only": parse_dots_layout_only, "webpage": parse_dots},
        image=ImageRule(_LONGEST),
        max_tokens=_MAX_TOKENS,
        context=_CONTEXT,
        page_tokens=page_tokens(_LONGEST, 28, _LAYOUT),
        temperature=0.1,
        settings={"top_p": 0.9},
        guides={"layout": _schema(text=True), "layout-only": _schema(text=False)},
        server_args=(
            "--chat-template-content-format",
            "string",
            "--gpu-memory-utilization",
            "0.9",
            # Users reported loops with the prefix cache.
            *USUAL_ARGS,
        ),
        min_vllm="0.11.0",
        trust_remote_code=True,
        figure_labels=frozenset({"Picture"}),
        # A slightly smaller image prevents its loops.
        ladder=warmer(0.1, scale=0.95, plainer="text"),
        parameters=3.0,
        languages="many scripts, Chinese, Japanese, Korean, Arabic and Indic ones among them",
        scores=scores,
    )


DOTS_OCR = _dots(
    "dots.ocr",
    ("dots-ocr",),
    (
        Score("olmOCR-bench", 79.1, _VENDOR),
        Score("OmniDocBench v1.5", 88.41, _VENDOR),
        Score("historical pages (Elo)", 1557, BOARD),
    ),
)
DOTS_MOCR = _dots(
    "dots.mocr",
    ("dots-mocr", "dots", "dots.ocr-1.5"),
    (
        Score("olmOCR-bench", 83.9, _VENDOR),
        Score("OmniParseBench", 87.9, "run by datalab, which makes Chandra and Surya"),
    ),
)


_INFINITY_LAYOUT = """
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
_INFINITY_LONGEST = side_at(300)
_INFINITY_TOKENS, _INFINITY_CONTEXT = 32_768, 65_536


def _infinity(name: str, model: str, parameters: float, aliases: tuple[str, ...], scores: tuple[Score, ...]) -> Profile:
    return Profile(
        name=name,
        model=model,
        licence="not stated",
        notice=f"{name}: no license of its weights is known; the vendor's package declares Apache-2.0.",
        aliases=aliases,
        prompts={"layout": _INFINITY_LAYOUT, "markdown": _MARKDOWN},
        parsers={"": parse_plain, "layout": parse_json},
        image=ImageRule(_INFINITY_LONGEST),
        max_tokens=_INFINITY_TOKENS,
        context=_INFINITY_CONTEXT,
        page_tokens=page_tokens(_INFINITY_LONGEST, 32, _INFINITY_LAYOUT),
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


INFINITY_FLASH = _infinity(
    "infinity-parser2-flash", "infly/Infinity-Parser2-Flash", 2.0, ("infinity-parser2", "infinity-parser"), ()
)
INFINITY_PRO = _infinity(
    "infinity-parser2-pro",
    "infly/Infinity-Parser2-Pro",
    35.0,
    (),
    (Score("olmOCR-bench", 87.6, "vendor's run; 86.9 in LightOn's"),),
)
