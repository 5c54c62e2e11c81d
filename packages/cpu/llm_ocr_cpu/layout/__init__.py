"""Arrange a page's lines, tables, and figures as blocks in reading order, for text layers and OCR alike.

`page_blocks` receives the lines of the text layer or OCR, and the regions of the table and figure finders. It assigns
each line to exactly one block. The steps are:

1. Remove furniture at the edges (`furniture`).
2. Split the page at its gutters into reading order (`columns`).
3. Build rows (`rows`) and group them (`groups`).
4. Classify the groups (`kinds`).
5. Write Markdown (`blocks`).
"""

from llm_ocr_cpu.layout.blocks import escape, page_blocks, unescape

__all__ = ["escape", "page_blocks", "unescape"]
