"""MiniCPM-OCR 1.0: a small model for regions of a page that a detector found. Experimental.

Prompts and the routing of regions are those of the vendor's SDK (`ocrcpm/default_prompts.py`). The answer's length is
the SDK's longest; the page size and the image tokens are estimates of llm_ocr.
"""

from llm_ocr.models.parsers.otsl import parse_formula
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer

_TEXT = "Text Recognition:"
_LONGEST = side_at(200)

MINICPM_OCR = Profile(
    name="minicpm-ocr",
    model="openbmb/MiniCPM-OCR-1.0",
    licence="Apache-2.0",
    notice=(
        "minicpm-ocr is trained on regions of pages: where no detector finds the regions, expect bad results of pages "
        "with more than one column."
    ),
    aliases=("minicpm-ocr-1", "minicpm"),
    prompts={"markdown": _TEXT, "text": _TEXT, "table": "Table Recognition:", "formula": "Formula Recognition:"},
    parsers={"": parse_plain, "formula": parse_formula},
    image=ImageRule(_LONGEST),
    max_tokens=8192,
    context=16_384,
    page_tokens=page_tokens(_LONGEST, 32, _TEXT),
    mode="markdown",
    server_args=USUAL_ARGS,
    ladder=warmer(),
    parameters=1.3,
    languages="English, Chinese",
    scores=(Score("OmniParseBench", 83.2, "as quoted by others, with the vendor's detector"),),
    region_tasks={"text": "text", "table": "table", "formula": "formula"},
    layout_first=True,
    experimental=True,
)

PROFILES = (MINICPM_OCR,)
