"""Infinity-Parser2: layout and text as JSON. Experimental.

Prompts, sampling, and image sizes are those of the vendor's package (`infinity_parser2/prompts.py`, `backends/`). The
answer's length is that of its README's example; the context is an estimate of llm_ocr.
"""

from llm_ocr.models.parsers.layout_json import parse_json
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, CACHES_OFF, ONE_IMAGE, a4_tokens, prompt_tokens, side_at, warmer

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
_MARKDOWN = "Please transform the document's contents into Markdown format."

# The vendor renders PDFs at 300 dpi: 8.7 million pixels of an A4 page, within its limit of 16.8 million. A square page
# of that side has 110 * 110 tokens, and 28,700 of the context with the prompt and the longest answer.
_LONGEST = side_at(300)
_MAX_TOKENS, _CONTEXT = 16_384, 32_768


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
        page_tokens=a4_tokens(_LONGEST, 32) + prompt_tokens(_LAYOUT) + ANSWER,
        settings={"top_p": 1.0},
        vllm_settings={"chat_template_kwargs": {"enable_thinking": False}},
        server_args=(*CACHES_OFF, *ONE_IMAGE),
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
