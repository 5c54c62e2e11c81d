"""dots.ocr and dots.mocr: layout and text as JSON, many scripts.

Prompts, sizes, and settings are those of the vendor's repository (`dots_ocr/utils/prompts.py`, `consts.py`, README).
"""

from typing import Any

from llm_ocr.models.parsers.layout_json import parse_dots, parse_dots_layout_only
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer

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


def _profile(name: str, aliases: tuple[str, ...], scores: tuple[Score, ...]) -> Profile:
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


DOTS_OCR = _profile(
    "dots.ocr",
    ("dots-ocr",),
    (
        Score("olmOCR-bench", 79.1, _VENDOR),
        Score("OmniDocBench v1.5", 88.41, _VENDOR),
        Score(
            "historical pages (Elo)",
            1557,
            "davanstrien/ocr-board-historical-v0, independent: 338 old pages judged by a model",
        ),
    ),
)
DOTS_MOCR = _profile(
    "dots.mocr",
    ("dots-mocr", "dots", "dots.ocr-1.5"),
    (
        Score("olmOCR-bench", 83.9, _VENDOR),
        Score("OmniParseBench", 87.9, "run by datalab, which makes Chandra and Surya"),
    ),
)

PROFILES = (DOTS_MOCR, DOTS_OCR)
