"""The pages of one document -> one Markdown text, with its figures in files beside it.

documents/reports/a.pdf.md
documents/reports/a.pdf.figures/<figure id>.png
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from llm_ocr.results.figure_links import IMAGE, encode_target, target_id
from llm_ocr.results.lines import map_prose
from llm_ocr.results.paths import safe_segment
from llm_ocr.results.schema import image_extension
from llm_ocr.types import Figure, PageRecord, Status

#: The folder of a workspace that holds the tree.
FOLDER = "documents"


def markdown_file(name: str) -> str:
    """The key of a document's Markdown; `name` as `DocumentNames` gives it."""
    return f"{FOLDER}/{name}.md"


def figure_file(name: str, figure: Figure) -> str:
    """The key of one figure's image, whose bytes are stored as they are."""
    return f"{FOLDER}/{name}.figures/{_file_name(figure)}"


def document_markdown(pages: Iterable[tuple[PageRecord, str]], name: str, *, page_markers: bool = True) -> str:
    """One text from the pages of one document and their final Markdown, in page order, ending with a newline.

    Each page begins with `<!-- page 3 -->` unless `page_markers` is off. A failed page always leaves
    `<!-- page 4 failed: render timeout -->`, a document that could not be opened `<!-- document failed: encrypted -->`.
    Links to the pages' figures lead to their files beside the text.
    """
    ordered = sorted(pages, key=lambda page: page[0].page_number or 0)
    parts = [part for record, markdown in ordered for part in _page(record, markdown, name, page_markers)]
    return "\n\n".join(parts) + "\n"


def _page(record: PageRecord, markdown: str, name: str, page_markers: bool) -> Iterator[str]:
    what = "document" if record.page_number is None else f"page {record.page_number}"
    if record.status is Status.FAILED:
        reason = f": {record.reason.value}" if record.reason else ""
        yield f"<!-- {what} failed{reason} -->"
        return
    if page_markers:
        yield f"<!-- {what} -->"
    if text := markdown.strip("\n"):
        yield _with_files(text, record.figures, name)


def _with_files(markdown: str, figures: Iterable[Figure], name: str) -> str:
    folder = f"{PurePosixPath(name).name}.figures"
    files = {figure.id: f"{encode_target(folder)}/{encode_target(_file_name(figure))}" for figure in figures}

    def to_file(image: re.Match[str]) -> str:
        file = files.get(target_id(image["target"]) or "")
        return f"![{image['alt']}]({file})" if file else image[0]

    return map_prose(markdown, lambda text: IMAGE.sub(to_file, text)) if files else markdown


def _file_name(figure: Figure) -> str:
    return f"{safe_segment(figure.id)}.{image_extension(figure.image.media_type)}"
