"""Define the regions that table and figure finders pass to the layout."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm_ocr.types import Box, Line, PageContent, Path, Raster

#: Kind and label of display formulas.
FORMULA = "formula"


@dataclass(frozen=True, slots=True)
class Region:
    """Table, figure, or display formula. `box` in page units; `lines` are indices in `PageContent.lines`."""

    kind: str  # "table", "figure", or "formula"
    box: Box
    lines: frozenset[int]
    text: str = ""  # tables: Markdown pipe table, or HTML if cells span; formulas: LaTeX, "" if uncertain
    label: str = ""  # figures: image, chart or diagram; tables: the pass of `Finder`, such as ruled or tagged
    caption: frozenset[int] = frozenset()  # lines of its caption, which stay in the page's text


@dataclass(frozen=True, slots=True)
class ScanObjects:
    """Objects in a scan's pixels, in the form of a PDF's objects. Page units are pixels of the image."""

    rasters: tuple[Raster, ...] = ()  # picture-like areas
    paths: tuple[Path, ...] = ()  # ruling lines


def nothing_drawn(content: PageContent) -> bool:
    """Return whether the page has neither images nor drawings, and therefore no figures."""
    return not content.rasters and not content.paths


def scaled_lines(lines: Sequence[Line], across: float, down: float) -> tuple[Line, ...]:
    """Return the lines with boxes and sizes in another unit, of which an old one has `across` and `down`."""
    return tuple(
        replace(
            line,
            box=line.box.scaled(across, down),
            size=line.size * down,
            words=tuple(replace(word, box=word.box.scaled(across, down)) for word in line.words),
        )
        for line in lines
    )


def inside_text(lines: tuple[Line, ...], members: frozenset[int]) -> str:
    """Return the text of a figure, one line per row, top to bottom, left to right."""
    chosen = sorted((lines[index] for index in members), key=lambda line: (round(line.box.y0), line.box.x0))
    return "\n".join(line.text for line in chosen)
