"""Tables of a page: ruled ones, those between horizontal rules, coloured ones, and plain ones with clear columns."""

from llm_ocr.engines.embedded.regions import Region
from llm_ocr.engines.embedded.tables.finder import Finder
from llm_ocr.types import PageContent


def find_tables(content: PageContent) -> list[Region]:
    """The tables, from top to bottom; no line belongs to two of them. Never raises on odd content."""
    return Finder(content).tables() if content.lines else []
