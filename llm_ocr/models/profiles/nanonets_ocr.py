"""Nanonets-OCR2 and Nanonets-OCR-s: Markdown with descriptions of pictures, watermarks, page numbers, and check boxes.

The prompt is that of both model cards. Settings are those of the card and of third-party scripts.
"""

from dataclasses import replace

from llm_ocr.models.parsers.markdown import parse_nanonets
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer

_PROMPT = (
    "Extract the text from the above document as if you were reading it naturally. Return the tables in html format. "
    "Return the equations in LaTeX representation. If there is an image in the document and image caption is not "
    "present, add a small description of the image inside the <img></img> tag; otherwise, add the image caption inside "
    "<img></img>. Watermarks should be wrapped in brackets. Ex: <watermark>OFFICIAL COPY</watermark>. Page numbers "
    "should be wrapped in brackets. Ex: <page_number>14</page_number> or <page_number>9/22</page_number>. Prefer using "
    "☐ and ☑ for check boxes."
)

# No published size: that of pages at 144 dpi, as for other models.
_LONGEST = side_at(144)
# Qwen2.5-VL: one token per 28 x 28 pixels. A square page has 61 * 61 tokens, and 18,900 with the longest answer.
_MAX_TOKENS, _CONTEXT = 15_000, 20_480

NANONETS_OCR2 = Profile(
    name="nanonets-ocr2",
    model="nanonets/Nanonets-OCR2-3B",
    licence="not stated",
    notice=(
        "nanonets-ocr2: its model card states no license, and that of the model on which it is built (Qwen2.5-VL-3B) "
        "allows research only, no commercial use."
    ),
    aliases=("nanonets",),
    prompts={"markdown": _PROMPT},
    parsers={"": parse_nanonets},
    image=ImageRule(_LONGEST),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    page_tokens=page_tokens(_LONGEST, 28, _PROMPT),
    mode="markdown",
    vllm_settings={"repetition_penalty": 1.0},
    server_args=USUAL_ARGS,
    ladder=warmer(),
    parameters=3.0,
    scores=(Score("olmOCR-bench", 69.5, "as quoted by others"),),
)

NANONETS_OCR_S = replace(
    NANONETS_OCR2,
    name="nanonets-ocr-s",
    model="nanonets/Nanonets-OCR-s",
    notice=NANONETS_OCR2.notice.replace(NANONETS_OCR2.name, "nanonets-ocr-s"),
    aliases=(),
    scores=(),
)

PROFILES = (NANONETS_OCR2, NANONETS_OCR_S)
