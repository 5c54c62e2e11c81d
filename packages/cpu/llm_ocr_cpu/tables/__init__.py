"""Find the tables of a page: ruled, between horizontal rules, colored, and plain with clear columns."""

from llm_ocr.types import PageContent
from llm_ocr_cpu.regions import Region
from llm_ocr_cpu.tables.finder import Finder


def find_tables(content: PageContent) -> list[Region]:
    """Return the tables from top to bottom; no line belongs to two of them. Never raises on unusual content."""
    return Finder(content).tables() if content.lines else []
