"""The nouns that every part of the library shares: frozen values, no behaviour beyond arithmetic, no I/O.

Coordinates: `Box` is used in two systems, and the field that holds one says which.
*Relative* boxes are 0..1 of the page as shown, x to the right, y down; all that leaves a reader or is stored uses them.
*Page units* are PDF points (or pixels for images) of the page as shown, y down; only text layers and layout use them.
"""

from llm_ocr.types.geometry import Box
from llm_ocr.types.outcome import FURNITURE, BlockKind, Reason, Status
from llm_ocr.types.page import EncodedImage, Evidence, Ink, Line, Page, PageContent, Path, Raster, Word
from llm_ocr.types.records import Attempt, Block, Figure, FigureRecord, PageRecord, Quality
from llm_ocr.types.work import ALL_PAGES, RESERVED, Counts, DocumentPart, Repeated, Unit, Wanted, figure_id, page_id

__all__ = [
    "ALL_PAGES",
    "FURNITURE",
    "RESERVED",
    "Attempt",
    "Block",
    "BlockKind",
    "Box",
    "Counts",
    "DocumentPart",
    "EncodedImage",
    "Evidence",
    "Figure",
    "FigureRecord",
    "Ink",
    "Line",
    "Page",
    "PageContent",
    "PageRecord",
    "Path",
    "Quality",
    "Raster",
    "Reason",
    "Repeated",
    "Status",
    "Unit",
    "Wanted",
    "Word",
    "figure_id",
    "page_id",
]
