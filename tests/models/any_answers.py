"""What any answer may be made of, and what must be true of whatever a parser makes of it."""

import re

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import BlockKind

#: Sizes of images as they were sent: none, a page, a strip, a single pixel.
FRAMES = (NO_FRAME, Frame(1654, 2339), Frame(5000, 60), Frame(1, 1))

_TAGS = r"""
<|ref|> ~ <|/ref|> ~ <|det|> ~ <|/det|> ~ [[ ~ ]] ~ [ ~ ] ~ [[1, 2, 30, 40]] ~ text[[1, 2, 30, 40]]
[[1,2,30,40],[5,6,7,8]] ~ [[900, 950, 1900, 2950]] ~ [[-5, -5, 30, 40]] ~ [[30, 40, 1, 2]] ~ [[5, 5, 5, 5]]
[[1, 2, 3]] ~ <|ref|>image<|/ref|> ~ <|det|>text [1, 2, 30, 40]<|/det|> ~ <|det|>image [900, 2, 1900, 40]<|/det|>
image_caption ~ sub_title ~ equation
"""
_MARKERS = r"""
![text](1,2,30,40) ~ ![image](1,2,30,40) ~ ![text+](5,6,7,8) ~ ![chart](900,2,1900,40) ~ ![ ~ ]( ~ ) ~ ![a](b.png)
![image](image_0.png)1,2,30,40 ~ ![words](page_1_2_30_40.png) ~ ![words](page_900_2_9000_40.png) ~ ![words](page_1_2
\$x\$ ~ <|box_start|>001 002 030 040<|box_end|> ~ <|ref_start|>text<|ref_end|> ~ <|rotate_left|> ~ txt_contd_tgt
<|box_start|> ~ <x_0.1><y_0.2> ~ <x_0.8><y_0.9><class_Text> ~ <x_9.8><y_9.1><class_Picture> ~ <class_Table> ~ <x_
<!-- ~ --> ~ \begin{tabular}{lr} ~ \end{tabular} ~ & ~ \\ ~ \multirow{2}{*}{ ~ \caption{ ~ <table> ~ </table>
<!-- Image (1, 2, 30, 40) --> ~ <!-- Table (1, 2, 3000, 40) -->
"""
_JSON = r"""
{"bbox": [1, 2, 30, 40], "category": "Text", "text": " ~ "} ~ , ~ {"bbox":[1,2,30,40],"category":"Picture"} ~ [ ~ ]
{ ~ } ~ {"bbox":[-9,2,99999,40],"label":"Table","text":"x"} ~ " ~ : ~ \ ~ \" ~ \u00e9 ~ \ud83d ~ "text": null ~ true
1e999 ~ -0 ~ NaN ~ \u12 ~ \frac ~ "bbox" ~ "category" ~ Picture
[{"bbox_2d": "1 2 30 40", ~ {"bbox":[[1,2],[30,40]],"text":["a","b"]} ~ ```json ~ "category": "Formula",
"""
_HTML = r"""
<div data-bbox="1 2 30 40" data-label="Text"> ~ <div data-bbox="[1, 2, 3000, 4]" data-label="Table"> ~ </div> ~ <p>
</p> ~ <div data-bbox="9 9 1 1" data-label="Image"> ~ <ul><li> ~ </li> ~ </ul> ~ <ol start='3'> ~ <img alt="words"/>
<math>x^2</math> ~ <math display='block'> ~ </math> ~ &lt; ~ &#0; ~ &#x110000; ~ <h1> ~ </h2> ~ <pre><code> ~ </code>
<b> ~ </i> ~ <br> ~ <input type='checkbox' checked> ~ <chem>C</chem> ~ <p data-bbox="1 2 30 40" class="title">
<a href="http://a"> ~ <!-- ~ <p ~ <!d ~ < ~ > ~ ' ~ &# ~ data-bbox ~ <caption> ~ <sup> ~ <tr> ~ <td> ~ # ~ $ ~ | a |
"""
_TABLES = r"""
<table> ~ <tr><td> ~ </td></tr> ~ </table> ~ <table ~ <td rowspan='9' colspan=99> ~ <th></th> ~ <td> ~ | a | b |
|---|---| ~ <fcel> ~ <ecel> ~ <lcel> ~ <ucel> ~ <xcel> ~ <nl> ~ <fcel>a ~ <ched> ~ <fce ~ & ~ \\ ~ \begin{tabular}{cc}
\end{tabular} ~ \multicolumn{2}{c}{ ~ \hline ~ |
"""
_DOCTAGS = r"""
<doctag> ~ <text><loc_1><loc_2><loc_30><loc_40> ~ </text> ~ <otsl> ~ </otsl>
<picture><loc_1><loc_2><loc_999><loc_40> ~ <fcel> ~ <caption> ~ <list_item> ~ <unordered_list> ~ <ordered_list>
</ordered_list> ~ <section_header_level_1> ~ <code><_Python_> ~ <formula> ~ <inline> ~ <loc_999> ~ <loc_ ~ <chart>
<bar_chart> ~ </picture> ~ <nl>
"""
_HEADS = r"""
--- ~ primary_language: en ~ rotation_correction: 90 ~ rotation_correction: 45 ~ is_rotation_valid: no
is_diagram: True ~ null ~ is_table: ~ ![ ~ ]( ~ ) ~ { ~ !!python/object ~ - a ~ & ~ *a
![words](page_1_2_30_40.png) ~ is_rotation_valid: False
"""
_MARKDOWN = r"""
# ~ ## ~ ###### ~ - a ~ * b ~ 1. c ~ ``` ~ ```markdown ~ ~~~ ~ ** ~ \# ~ > ~ $$ ~ $ ~ \[ ~ \] ~ \( ~ \begin{align}
\end{align} ~ <center> ~ </center> ~ <img> ~ </img> ~ <IMG> ~ same words
<watermark> ~ </watermark> ~ <page_number> ~ </page_number>
<think> ~ </think>
"""
_ENDS = ("<｜end▁of▁sentence｜>", "</s>", "<|im_end|>", "<|", "</doctag>", "<|endoftext|>")
_WORDS = (
    "some words of text",
    "word",
    "\ud800",
    "\x00",
    "é",
    "合同",
    "\u202e",
    "9" * 400,
    "-1",
    "....",
    "\t",
    "\r\n",
    "\ufeff",
    "\ufdd0",
    "\ufdd01\ufdd1",
)
_SPACES = (" ", "\n", "\n\n")
#: The pieces of each kind of format, with words and white space.
GROUPS = {
    name: (*(piece for line in written.strip().split("\n") for piece in line.split(" ~ ")), *_SPACES, *_WORDS, *_ENDS)
    for name, written in {
        "tags": _TAGS,
        "markers": _MARKERS,
        "json": _JSON,
        "html": _HTML,
        "tables": _TABLES,
        "doctags": _DOCTAGS,
        "heads": _HEADS,
        "markdown": _MARKDOWN,
    }.items()
}
#: The groups of parsers; all others read Markdown.
_OWN = {
    **dict.fromkeys(("grounding", "free-ocr", "spotting", "unlimited"), "tags"),
    **dict.fromkeys(("lighton", "lighton-2", "qwen-markdown", "nemotron", "mineru-layout"), "markers"),
    **dict.fromkeys(("layout-json", "dots", "dots-layout-only", "surya-layout"), "json"),
    **dict.fromkeys(("html-blocks", "chandra", "chandra-1", "surya", "qwen-html"), "html"),
    **dict.fromkeys(("otsl", "paddle-chart"), "tables"),
    "doctags": "doctags",
    "front-matter": "heads",
}
PIECES = tuple(dict.fromkeys(piece for group in GROUPS.values() for piece in group))
#: A figure is a place; a fence with nothing in it is code without text.
_MAY_BE_EMPTY = frozenset({BlockKind.FIGURE, BlockKind.CODE})
_LONGEST_LOSS = 300  # characters
_MOST_FOR_EACH = 200  # characters of text for each of the answer's
_MOST_BESIDE = 100_000


def pieces_for(parser: str) -> tuple[str, ...]:
    """What the answers are made of that a parser is for."""
    return GROUPS[_OWN.get(parser, "markdown")]


def faults_of(answer: str, parsed: Parsed) -> list[str]:
    """What is wrong with a parser's result; nothing should be."""
    found = []
    for block in parsed.blocks:
        for box in (block.box, *block.continued):
            if not (0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1):
                found.append(f"a box that does not lie on the page: {box}")
        if block.described and block.kind is not BlockKind.FIGURE:
            found.append(f"a description of what is no figure: {block.kind}")
        if not (block.text.strip() or block.label or block.kind in _MAY_BE_EMPTY or block.box != WHOLE_PAGE):
            found.append(f"a block of nothing, nowhere: {block.kind}")
    for lost in parsed.lost:
        if not lost.strip() or len(lost) > _LONGEST_LOSS or "\n" in lost:
            found.append(f"a loss that is no short sentence: {lost[:80]!r}")
    if parsed.notes is not None and parsed.notes.rotation_correction not in (None, 0, 90, 180, 270):
        found.append(f"a turn that is none: {parsed.notes.rotation_correction}")
    markdown = blocks_to_markdown(parsed.blocks)
    if len(markdown) > _MOST_FOR_EACH * len(answer) + _MOST_BESIDE:
        found.append(f"{len(markdown)} characters of text from {len(answer)}")
    return found


def words_of(text: str) -> str:
    """Text without white space, to look for words in it."""
    return re.sub(r"\s+", "", text)
