"""Regions that table and figure finders pass to the layout."""

import re
from dataclasses import dataclass

from llm_ocr.types import Block, Box, Line, PageContent, Path, Raster

# How captions begin, in the languages that the engine knows.


_NUMBER = r"(?:[A-Z]{0,2}[\s.\-]?\d+(?:[.\-–]\d+)*[a-z]?|[IVXL]+\b|[A-Z]\b)"
TABLE_CAPTION = re.compile(
    rf"^\W{{0,2}}(?:table|tab\.|tabelle|tableau|tabla|tabela|tabella|表|표)\s*{_NUMBER}", re.IGNORECASE
)

FIGURE_CAPTION = re.compile(
    rf"^\W{{0,2}}(?:(?:figure|fig\.?|figura|abbildung|abb\.?|chart|exhibit|plate|scheme|diagram|photo|graph|illustration|map|bild)"
    rf"\s*{_NUMBER}|[图圖図그림]{{1,2}}\s*[\d一二三四五六七八九十]+)\s*(?:[.:|,)–—-]|\s|$)",
    re.IGNORECASE,
)


# What the table and figure finders hand to the layout: rectangles of a page that are read as one thing.


@dataclass(frozen=True, slots=True)
class Region:
    """A table or figure. `box` in page units; `lines` are indices into `PageContent.lines` that it takes in."""

    kind: str  # "table" or "figure"
    box: Box
    lines: frozenset[int]
    text: str = ""  # tables: Markdown pipe table, or HTML when cells span
    label: str = ""  # figures: image, chart or diagram; tables: ruled, booktabs, filled, keys, plain or aligned
    caption: frozenset[int] = frozenset()  # lines of its caption; they stay in the page's text


@dataclass(frozen=True, slots=True)
class ScanObjects:
    """What is seen in the pixels of a scan, as a PDF's objects would be given. Page units are pixels of the image."""

    rasters: tuple[Raster, ...] = ()  # picture-like areas
    paths: tuple[Path, ...] = ()  # ruling lines


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found on a page that something else reads: blocks in reading order, figures among them.

    `blocks` are empty where there is no figure. `digital`: they come from the page's own objects, which are all there
    are; else from its pixels. `unread`: those of a scan that was not read, since no picture is seen on it and nobody
    spoke of one. `detail` says why it could not be looked for figures.
    """

    blocks: tuple[Block, ...] = ()
    digital: bool = False
    detail: str = ""
    unread: bool = False


def nothing_drawn(content: PageContent) -> bool:
    """Whether the page has neither images nor drawings: then there are no figures on it."""
    return not content.rasters and not content.paths


def inside_text(lines: tuple[Line, ...], members: frozenset[int]) -> str:
    """The text of a figure, one line a row, top to bottom, left to right."""
    chosen = sorted((lines[index] for index in members), key=lambda line: (round(line.box.y0), line.box.x0))
    return "\n".join(line.text for line in chosen)
