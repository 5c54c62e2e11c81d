"""Chandra and Surya, which answer with HTML blocks with labels and boxes; Surya is experimental.

Chandra OCR 1 and 2 describe pictures, and give charts as data. Prompts, sizes, arguments, and the rule for retries are
those of the vendor's package `chandra-ocr` (0.2.0 for the second model, 0.1.8 for the first). Prompts, settings, and
the version of vLLM of Surya OCR 2 and 2.5 are those of the vendor's package `surya-ocr`.
"""

from dataclasses import replace
from typing import Any

from llm_ocr.models.parsers.html_blocks import parse_chandra, parse_chandra1, parse_surya
from llm_ocr.models.parsers.layout_json import parse_surya_layout
from llm_ocr.models.profile import ImageRule, Profile, Rung, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer

_TAGS = (
    "'math', 'br', 'i', 'b', 'u', 'del', 'sup', 'sub', 'table', 'tr', 'td', 'p', 'th', 'div', 'pre', 'h1', 'h2', 'h3', "
    "'h4', 'h5', 'ul', 'ol', 'li', 'input', 'a', 'span', 'img', 'hr', 'tbody', 'small', 'caption', 'strong', 'thead', "
    "'big', 'code'"
)
_ATTRIBUTES = (
    "'class', 'colspan', 'rowspan', 'display', 'checked', 'type', 'border', 'value', 'style', 'href', 'alt', 'align'"
)
_LABELS = """\
- Caption
- Footnote
- Equation-Block
- List-Group
- Page-Header
- Page-Footer
- Image
- Section-Header
- Table
- Text
- Complex-Block
- Code-Block
- Form
- Table-Of-Contents
- Figure"""
_MORE_LABELS = """
- Chemical-Block
- Diagram
- Bibliography
- Blank-Page"""
_OCR = "OCR this image to HTML"


def _layout(corners: str, most: int, labels: str) -> str:
    return (
        f"{_OCR}, arranged as layout blocks.  Each layout block should be a div with the data-bbox attribute "
        f"representing the bounding box of the block in {corners} format.  Bboxes are normalized 0-{most}. The "
        f"data-label attribute is the label for the block.\n\nUse the following labels:\n{labels}"
    )


def _rules(*, second: bool) -> str:
    tags = f"[{_TAGS}, 'chem']" if second else f"[{_TAGS}]"
    attributes = f"[{_ATTRIBUTES}, 'data-bbox', 'data-label']" if second else f"[{_ATTRIBUTES}]"
    lines = [
        f"Only use these tags {tags}, and these attributes {attributes}.",
        "",
        "Guidelines:",
        "* Inline math: Surround math with <math>...</math> tags. Math expressions should be rendered in "
        "KaTeX-compatible LaTeX. Use display for block math.",
        "* Tables: Use colspan and rowspan attributes to match table structure.",
        "* Formatting: Maintain consistent formatting with the image, including spacing, indentation, "
        "subscripts/superscripts, and special characters.",
        "* Images: Include a description of any images in the alt attribute of an <img> tag. Do not fill out the src "
        "property."
        + (
            " Describe in detail inside the div tag. Also convert charts to high fidelity data, and convert diagrams "
            "to mermaid."
            if second
            else ""
        ),
        "* Forms: Mark checkboxes and radio buttons properly.",
        "* Text: join lines together properly into paragraphs using <p>...</p> tags.  Use <br> tags for line breaks "
        "within paragraphs, but only when absolutely necessary to maintain meaning.",
        *(
            (
                "* Chemistry: Use <chem>...</chem> tags for chemical formulas with reactive SMILES.",
                "* Lists: Preserve indents and proper list markers.",
            )
            if second
            else ()
        ),
        "* Use the simplest possible HTML structure that accurately represents the content of the block.",
        "* Make sure the text is accurate and easy for a human to read and interpret.  Reading order should be correct "
        "and natural.",
    ]
    return "\n".join(lines)


def _prompts(*, second: bool) -> dict[str, str]:
    head = (
        _layout("x0 y0 x1 y1", 1000, _LABELS + _MORE_LABELS) if second else _layout("[x0, y0, x1, y1]", 1024, _LABELS)
    )
    rules = _rules(second=second)
    return {"layout": f"{head}\n\n{rules}", "markdown": f"{_OCR}.\n\n{rules}"}


# PDFs at 192 dpi. The vendor limits the area to 3072 * 2048 pixels, and an A4 page fits (1588 * 2245).
_LONGEST = side_at(192)
# min(0.2 * n, 0.8), then the last step again: the vendor's rule of six retries.
_LADDER = (Rung(0.2), Rung(0.4), Rung(0.6), Rung(0.8))
# The vendor's first request has a top_p of 0.1, without effect at temperature 0; its retries have 0.95.
_SETTINGS = {"top_p": 0.95}
_SERVER_ARGS = "--max-num-seqs {} --dtype bfloat16 --max-num-batched-tokens {} --gpu-memory-utilization {}"
# The vendor's limits of pixels.
_PIXELS = ("--mm-processor-kwargs", '{"min_pixels": 3136, "max_pixels": 6291456}')
_FIGURES = frozenset({"Image", "Figure", "Diagram"})
_LICENCE = "modified OpenRAIL-M (weights)"


def _notice(name: str) -> str:
    return (
        f"{name}: the weights are free for research, personal use and organizations below 2 million dollars of revenue "
        "or funding, and not for a service that competes with the vendor's; others need its license."
    )


_SECOND, _FIRST = _prompts(second=True), _prompts(second=False)

CHANDRA_2 = Profile(
    name="chandra-2",
    model="datalab-to/chandra-ocr-2",
    aliases=("chandra",),  # the newest, although the first one's id ends so
    licence=_LICENCE,
    notice=_notice("chandra-2"),
    prompts=_SECOND,
    parsers={"": parse_chandra},
    image=ImageRule(_LONGEST),
    max_tokens=12_384,
    # At most one token per 28 x 28 pixels: 4,600 for an A4 page, 17,900 with the prompt and the longest answer.
    context=18_000,
    page_tokens=page_tokens(_LONGEST, 28, _SECOND["layout"]),
    settings=_SETTINGS,
    # As the vendor's for 80 GB, but without the prefix cache. The vendor's image enables the cache, but pages never hit
    # it.
    server_args=(
        *_SERVER_ARGS.format(64, 8192, ".85").split(),
        *_PIXELS,
        *USUAL_ARGS,
    ),
    min_vllm="0.17.0",
    figure_labels=_FIGURES,
    ladder=_LADDER,
    parameters=5.0,  # "4-5 B"
    scores=(
        Score("olmOCR-bench", 85.9, "vendor's run, vendor's repository"),
        Score("OmniParseBench", 90.1, "vendor's run"),
    ),
)

CHANDRA_1 = replace(
    CHANDRA_2,
    name="chandra-1",
    model="datalab-to/chandra",
    aliases=(),
    notice=_notice("chandra-1"),
    prompts=_FIRST,
    parsers={"": parse_chandra1},
    max_tokens=8192,
    context=32_768,
    # Qwen3-VL: one token per 32 x 32 pixels.
    page_tokens=page_tokens(_LONGEST, 32, _FIRST["layout"]),
    server_args=(*_SERVER_ARGS.format(32, 65536, ".9").split(), *USUAL_ARGS),
    min_vllm="",
    # Its ladder is that of the second: the first package always retried at 0.3, the second one's rule becomes warmer.
    parameters=9.0,
    scores=(Score("olmOCR-bench", 83.1, "vendor's run, vendor's repository"),),
)


_SURYA = "OCR this image to HTML. Each block is a div with data-label and data-bbox (x0 y0 x1 y1, normalized 0-1000)."
_SURYA_PROMPTS = {
    "layout": _SURYA,
    "layout-only": (
        'Output the layout of this image as JSON. Each entry is a dict with "label", "bbox", and "count" fields. '
        "Bbox is x0 y0 x1 y1, normalized 0-1000."
    ),
    "text": "OCR this block image to HTML.",
}
# The vendor enforces this form, up to 200 entries.
_SURYA_LAYOUT: dict[str, Any] = {
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
_MAX_TOKENS, _CONTEXT = 12_288, 20_480


def _surya(version: str, parameters: float, bench: float, parse_bench: float) -> Profile:
    name = f"surya-ocr-{version}"
    return Profile(
        name=name,
        model=f"datalab-to/{name}",
        licence=_LICENCE,
        notice=(
            f"{name}: the license of the weights restricts use by organizations above 5 million dollars: read it "
            "before you use them."
        ),
        aliases=("surya",) if version == "2.5" else (),
        prompts=_SURYA_PROMPTS,
        parsers={"": parse_surya, "layout-only": parse_surya_layout},
        image=ImageRule(_LONGEST),
        max_tokens=_MAX_TOKENS,
        context=_CONTEXT,
        page_tokens=page_tokens(_LONGEST, 28, _SURYA),
        guides={"layout-only": {"structured_outputs": {"json": _SURYA_LAYOUT}}},
        server_args=(*_PIXELS, *USUAL_ARGS),
        min_vllm="0.20.1",
        figure_labels=_FIGURES,
        ladder=warmer(),
        parameters=parameters,
        scores=(
            Score("olmOCR-bench", bench, "vendor's run"),
            Score("OmniParseBench", parse_bench, "vendor's run"),
        ),
        experimental=True,
        region_tasks={"text": "text", "table": "text", "formula": "text"},
    )


SURYA_OCR = (_surya("2.5", 0.69, 83.7, 85.9), _surya("2", 0.65, 83.3, 83.1))
