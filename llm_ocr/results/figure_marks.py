"""Links to figures in Markdown that leaves us without the figures' files: put in other words, or taken out."""

import re
from collections.abc import Callable

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.figure_links import IMAGE, one_line, target_id
from llm_ocr.results.figure_words import figure_words
from llm_ocr.results.lines import collapse_blank_lines, map_prose

_OPEN, _CLOSE = "<!--", "-->"


def with_figures(markdown: str, shown: Callable[[str], str]) -> str:
    """The Markdown with what `shown` gives for a figure's id in place of each link to it; code is left alone."""

    def change(image: re.Match[str]) -> str:
        figure = target_id(image["target"])
        return image[0] if figure is None else shown(figure)

    return collapse_blank_lines(map_prose(markdown, lambda text: IMAGE.sub(change, text)))


def without_comments(markdown: str) -> str:
    """The Markdown without HTML comments; code is left alone, and a comment that is never closed stays."""
    return collapse_blank_lines(map_prose(markdown, _bare)) if _OPEN in markdown else markdown


def _bare(text: str) -> str:
    kept: list[str] = []
    at = 0
    while (start := text.find(_OPEN, at)) >= 0 and (end := text.find(_CLOSE, start + len(_OPEN))) >= 0:
        kept.append(text[at:start])
        at = end + len(_CLOSE)
    return "".join((*kept, text[at:]))


def new_words(row: DatasetRow, figure: str) -> str:
    """What is known of a figure of the page beside the page's own text, in one line; "" for nothing.

    The embedded describer quotes the caption, which is text of the page: that is left out.
    """
    described = row.figures.get(figure)
    words = one_line(figure_words(described)) if described else ""
    caption = next((one_line(one.caption) for one in row.record.figures if one.id == figure), "")
    return words.removeprefix(f'Caption: "{caption}"').lstrip() if caption else words
