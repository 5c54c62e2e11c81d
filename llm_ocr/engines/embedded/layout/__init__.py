"""Arrange a page's lines, tables, and figures as blocks in reading order, for text layers and OCR alike.

`page_blocks` receives the lines of the text layer or OCR, and the regions of the table and figure finders. It assigns
each line to exactly one block. The steps are: remove furniture at the edges (`furniture`), split the page at its
gutters into reading order (`columns`), build rows (`rows`), group rows (`groups`), classify the groups (`kinds`), and
write Markdown (`blocks`).
"""

from llm_ocr.engines.embedded.layout.blocks import escape, page_blocks, unescape

__all__ = ["escape", "page_blocks", "unescape"]
