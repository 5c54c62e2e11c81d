"""Parsers by name, for models and profiles from users."""

from collections.abc import Mapping
from difflib import get_close_matches

from llm_ocr.errors import UsageError
from llm_ocr.models.parsers.html_blocks import parse_chandra, parse_chandra1, parse_qwen_html, parse_surya
from llm_ocr.models.parsers.layout_json import parse_dots, parse_dots_layout_only, parse_json, parse_surya_layout
from llm_ocr.models.parsers.markdown import (
    parse_front_matter,
    parse_hunyuan,
    parse_lighton2,
    parse_lighton2_plain,
    parse_nanonets,
    parse_ovis,
    parse_qwen_markdown,
)
from llm_ocr.models.parsers.markers import (
    parse_free,
    parse_grounding,
    parse_lighton3,
    parse_mineru_layout,
    parse_nemotron,
    parse_spotting,
    parse_unlimited,
)
from llm_ocr.models.parsers.otsl import (
    parse_doctags,
    parse_formula,
    parse_paddle_chart,
    parse_paddle_spotting,
    parse_paddle_table,
    parse_paddle_text,
)
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import Parser

#: Every named parser, the plain one first.
PARSERS: Mapping[str, Parser] = {
    "plain": parse_plain,  # Markdown without places
    "front-matter": parse_front_matter,  # Markdown behind olmOCR's front matter
    "nanonets": parse_nanonets,  # Markdown with Nanonets' tags for pictures and page numbers
    "glm": parse_plain,  # GLM-OCR's Markdown
    "hunyuan": parse_hunyuan,  # Markdown with HunyuanOCR's places of figures
    "grounding": parse_grounding,  # DeepSeek-OCR's tags with boxes, the text behind each
    "free-ocr": parse_free,  # Markdown, or the tags of `grounding`
    "spotting": parse_spotting,  # DeepSeek-OCR's tags with a line of text in each
    "lighton": parse_lighton3,  # LightOnOCR-3's ![label](box) text
    "lighton-2": parse_lighton2,  # Markdown with LightOnOCR-2's boxes of figures
    "lighton-2-plain": parse_lighton2_plain,  # the same of weights without boxes
    "ovis": parse_ovis,  # Markdown with OvisOCR2's image tags that hold boxes
    "qwen-markdown": parse_qwen_markdown,  # Markdown with Qwen-VL's comments that hold boxes
    "unlimited": parse_unlimited,  # Unlimited-OCR's tags with boxes
    "nemotron": parse_nemotron,  # Nemotron Parse's text between corners, with classes
    "mineru-layout": parse_mineru_layout,  # MinerU's layout without texts
    "doctags": parse_doctags,  # DocTags, boxes in 0..500
    "layout-json": parse_json,  # a JSON list of boxes in 0..1000, labels and texts
    "dots": parse_dots,  # dots.ocr's JSON, boxes in pixels of its own resizing
    "dots-layout-only": parse_dots_layout_only,  # the same without texts
    "surya-layout": parse_surya_layout,  # Surya's JSON of a layout without texts
    "html-blocks": parse_qwen_html,  # HTML with data-bbox in 0..1000 at any elements
    "chandra": parse_chandra,  # Chandra 2's HTML, boxes in 0..1000
    "chandra-1": parse_chandra1,  # Chandra 1's HTML, boxes in 0..1024
    "surya": parse_surya,  # Surya's HTML, boxes in 0..1000
    "qwen-html": parse_qwen_html,  # Qwen-VL's HTML
    "otsl": parse_paddle_table,  # one table in OTSL, HTML or Markdown
    "paddle-text": parse_paddle_text,  # text with LaTeX between \( \) and \[ \]
    "paddle-spotting": parse_paddle_spotting,  # lines of text with PaddleOCR-VL's corners, no figures
    "paddle-chart": parse_paddle_chart,  # a chart's data as a pipe table
    "formula": parse_formula,  # one formula in LaTeX
}
#: Parsers whose blocks have places on the page, so that figures can be cut out of the page.
PLACED = frozenset(PARSERS.values()) - {
    parse_plain,
    parse_free,
    parse_front_matter,
    parse_nanonets,
    parse_hunyuan,
    parse_lighton2_plain,
    parse_paddle_table,
    parse_paddle_text,
    parse_paddle_spotting,
    parse_paddle_chart,
    parse_formula,
}
#: Parsers of answers that describe the figures of the page.
TELLING = frozenset({parse_front_matter, parse_nanonets, parse_lighton3, parse_chandra, parse_chandra1})


def parser_named(name: str) -> Parser:
    """Return the parser with a name, ignoring case, with `_` and `-` equal.

    Raises:
        UsageError: The name is unknown. The error contains similar names.
    """
    wanted = name.strip().casefold().replace("_", "-")
    if found := PARSERS.get(wanted):
        return found
    close = get_close_matches(wanted, PARSERS, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(f"no parser is named {name!r}", hint=f"{hint}Parsers: {', '.join(PARSERS)}.")
