"""Lines, tables and figures of a page into blocks in reading order: one way for text layers and for OCR.

`page_blocks` takes what the page's text layer or the OCR has found and what the table and figure finders claim, and
gives every line a place in exactly one block. Steps: furniture off the edges (`furniture`), reading order by cutting
the page at its gutters (`order`, `gutters`), rows (`rows`), groups of rows (`groups`, `margins`), what each of them is
(`flow`, `kinds`, `headings`, `markers`), Markdown (`writing`, `joining`, `escape`).
"""

from llm_ocr.engines.embedded.layout.blocks import escape, page_blocks, unescape

__all__ = ["escape", "page_blocks", "unescape"]
