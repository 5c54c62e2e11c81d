"""DeepSeek-OCR's answers with boxes -> blocks.

Each piece of the page is a tag with a label and boxes, and behind it the text in Markdown: tables as HTML, formulas in
`\\[ \\]`, captions in `<center>`, titles with their `#`. Coordinates count 0 to 999 over each side.
"""

from llm_ocr.models.captions import with_captions
from llm_ocr.models.coordinates import WHOLE_PAGE, from_bins
from llm_ocr.models.labelled import labelled, unlabelled
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.models.tags import read_tags
from llm_ocr.models.tokens import without_special
from llm_ocr.types import Block, BlockKind

# As DeepSeek's own script replaces them: KaTeX and MathJax lack the two.
_SYMBOLS = ((r"\coloneqq", ":="), (r"\eqqcolon", "=:"))


def parse_grounding(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Blocks of an answer to the page prompt. Never raises; linear in the length.

    A figure with several boxes is one block for each; text with several goes on in the others (`Block.continued`). Text
    without a tag, or with boxes that cannot be read, has the whole page as its box; a figure without a box is lost.
    """
    return _parsed(text, labels_are_text=False)


def parse_spotting(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Blocks of an answer to `OCR this image`: each tag holds a line of text where others hold a label."""
    return _parsed(text, labels_are_text=True)


def _parsed(text: str, *, labels_are_text: bool) -> Parsed:
    found = read_tags(_tidy(text), from_bins)
    lost = found.lost
    blocks: list[Block] = []
    untagged, *tags = found.tags
    if untagged.text.strip():
        lost.append("text without a tag: its place on the page is not known")
        blocks += unlabelled(untagged.text, "", (WHOLE_PAGE,), headings=True)
    for tag in tags:
        if labels_are_text:
            line = " ".join(f"{tag.label} {tag.text}".split())
            blocks += [Block(BlockKind.TEXT, (tag.boxes or (WHOLE_PAGE,))[0], line)] if line else []
        else:
            blocks += labelled(tag.label or "", tag.boxes, tag.text, lost)
    return Parsed(with_captions(blocks), tuple(lost))


def _tidy(text: str) -> str:
    text = without_special(text).replace("\r\n", "\n")
    for symbol, written in _SYMBOLS:
        text = text.replace(symbol, written)
    return text
