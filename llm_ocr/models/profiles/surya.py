"""Surya OCR 2 and 2.5: small models with the labels and boxes of Chandra. Experimental.

Prompts, settings, and the version of vLLM are those of the vendor's package `surya-ocr`.
"""

from typing import Any

from llm_ocr.models.parsers.html_blocks import parse_surya
from llm_ocr.models.parsers.layout_json import parse_surya_layout
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer

_PAGE = "OCR this image to HTML. Each block is a div with data-label and data-bbox (x0 y0 x1 y1, normalized 0-1000)."
_PROMPTS = {
    "layout": _PAGE,
    "layout-only": (
        'Output the layout of this image as JSON. Each entry is a dict with "label", "bbox", and "count" fields. '
        "Bbox is x0 y0 x1 y1, normalized 0-1000."
    ),
    "text": "OCR this block image to HTML.",
}
# The vendor enforces this form, up to 200 entries.
_LAYOUT: dict[str, Any] = {
    "type": "array",
    "maxItems": 200,
    "items": {
        "type": "object",
        "properties": {"label": {"type": "string"}, "bbox": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["label", "bbox", "count"],
        "additionalProperties": False,
    },
}

# No published size: that of Chandra. One token per 28 x 28 pixels is assumed. A square page has 81 * 81 tokens, and
# 18,900 of the context with the longest answer. The answer's length and the limits of pixels are those of surya-ocr
# 0.22.1, whose context (18,000) is too small for a square page.
_LONGEST = side_at(192)
_MAX_TOKENS, _CONTEXT = 12_288, 20_480
_PIXELS = ("--mm-processor-kwargs", '{"min_pixels": 3136, "max_pixels": 6291456}')


def _profile(version: str, parameters: float, bench: float, parse_bench: float) -> Profile:
    name = f"surya-ocr-{version}"
    return Profile(
        name=name,
        model=f"datalab-to/{name}",
        licence="modified OpenRAIL-M (weights)",
        notice=(
            f"{name}: the license of the weights restricts use by organizations above 5 million dollars: read it "
            "before you use them."
        ),
        aliases=("surya",) if version == "2.5" else (),
        prompts=_PROMPTS,
        parsers={"": parse_surya, "layout-only": parse_surya_layout},
        image=ImageRule(_LONGEST),
        max_tokens=_MAX_TOKENS,
        context=_CONTEXT,
        page_tokens=page_tokens(_LONGEST, 28, _PAGE),
        guides={"layout-only": {"structured_outputs": {"json": _LAYOUT}}},
        server_args=(*_PIXELS, *USUAL_ARGS),
        min_vllm="0.20.1",
        figure_labels=frozenset({"Image", "Figure", "Diagram"}),
        ladder=warmer(),
        parameters=parameters,
        scores=(
            Score("olmOCR-bench", bench, "vendor's run"),
            Score("OmniParseBench", parse_bench, "vendor's run"),
        ),
        experimental=True,
        region_tasks={"text": "text", "table": "text", "formula": "text"},
    )


PROFILES = (_profile("2.5", 0.69, 83.7, 85.9), _profile("2", 0.65, 83.3, 83.1))
