"""Parsers by name, for models and profiles from users."""

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class NamedParser:
    """Parser with a short description and the contents of its blocks."""

    parse: Parser
    reads: str
    places: bool = True  # places on the page
    tells: bool = False  # contents of figures


#: Every named parser, the plain one first.
PARSERS: Mapping[str, NamedParser] = {
    "plain": NamedParser(parse_plain, "Markdown without places", places=False),
    "front-matter": NamedParser(parse_front_matter, "Markdown behind olmOCR's front matter", places=False, tells=True),
    "nanonets": NamedParser(
        parse_nanonets, "Markdown with Nanonets' tags for pictures and page numbers", places=False, tells=True
    ),
    "glm": NamedParser(parse_plain, "the same: GLM-OCR's Markdown", places=False),
    "hunyuan": NamedParser(parse_hunyuan, "Markdown with HunyuanOCR's places of figures", places=False),
    "grounding": NamedParser(parse_grounding, "DeepSeek-OCR's tags with boxes, the text behind each"),
    "spotting": NamedParser(parse_spotting, "DeepSeek-OCR's tags with a line of text in each"),
    "lighton": NamedParser(parse_lighton3, "LightOnOCR-3's ![label](box) text", tells=True),
    "lighton-2": NamedParser(parse_lighton2, "Markdown with LightOnOCR-2's boxes of figures"),
    "lighton-2-plain": NamedParser(parse_lighton2_plain, "the same of weights without boxes", places=False),
    "ovis": NamedParser(parse_ovis, "Markdown with OvisOCR2's image tags that hold boxes"),
    "qwen-markdown": NamedParser(parse_qwen_markdown, "Markdown with Qwen-VL's comments that hold boxes"),
    "unlimited": NamedParser(parse_unlimited, "Unlimited-OCR's tags with boxes"),
    "nemotron": NamedParser(parse_nemotron, "Nemotron Parse's text between corners, with classes"),
    "mineru-layout": NamedParser(parse_mineru_layout, "MinerU's layout without texts"),
    "doctags": NamedParser(parse_doctags, "DocTags, boxes in 0..500"),
    "layout-json": NamedParser(parse_json, "a JSON list of boxes in 0..1000, labels and texts"),
    "dots": NamedParser(parse_dots, "dots.ocr's JSON, boxes in pixels of its own resizing"),
    "dots-layout-only": NamedParser(parse_dots_layout_only, "the same without texts"),
    "surya-layout": NamedParser(parse_surya_layout, "Surya's JSON of a layout without texts"),
    "html-blocks": NamedParser(parse_qwen_html, "HTML with data-bbox in 0..1000 at any elements"),
    "chandra": NamedParser(parse_chandra, "Chandra 2's HTML, boxes in 0..1000", tells=True),
    "chandra-1": NamedParser(parse_chandra1, "Chandra 1's HTML, boxes in 0..1024", tells=True),
    "surya": NamedParser(parse_surya, "Surya's HTML, boxes in 0..1000"),
    "qwen-html": NamedParser(parse_qwen_html, "the same: Qwen-VL's HTML"),
    "otsl": NamedParser(parse_paddle_table, "one table in OTSL, HTML or Markdown", places=False),
    "paddle-text": NamedParser(parse_paddle_text, "text with LaTeX between \\( \\) and \\[ \\]", places=False),
    "paddle-spotting": NamedParser(
        parse_paddle_spotting, "lines of text with PaddleOCR-VL's corners, no figures", places=False
    ),
    "paddle-chart": NamedParser(parse_paddle_chart, "a chart's data as a pipe table", places=False),
    "formula": NamedParser(parse_formula, "one formula in LaTeX", places=False),
}
_PLACED = frozenset(named.parse for named in PARSERS.values() if named.places)
_TELLING = frozenset(named.parse for named in PARSERS.values() if named.tells)


def parser_named(name: str) -> NamedParser:
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


def gives_places(parser: Parser) -> bool:
    """Return whether a parser's blocks have places on the page, so that figures can be cut out of the page."""
    return parser in _PLACED


def describes_figures(parser: Parser) -> bool:
    """Return whether the page's own answer, as read by this parser, describes figures."""
    return parser in _TELLING
