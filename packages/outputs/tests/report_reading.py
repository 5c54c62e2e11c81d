"""Reports as their readers see them."""

import html
import re
from pathlib import Path

import llm_ocr


def report_of(workspace, file: Path) -> str:
    """Return the page's HTML, also written to a file."""
    return llm_ocr.open(str(workspace)).report(file).read_text(encoding="utf-8")


def words_of(text: str) -> str:
    """Return the visible text of a page."""
    return html.unescape(re.sub(r"<[^>]+>", " ", text.partition("</style>")[2]))
