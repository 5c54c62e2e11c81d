"""Pages as the scorer of olmOCR-bench reads them: one Markdown file a page, in the folder of a candidate.

The rules are those of `olmocr/bench/benchmark.py` and `convert.py` (allenai/olmocr, 0.4.27): a candidate is a folder
beside `pdfs/` and `*.jsonl`, a file in it is `<path of the PDF below pdfs/, without .pdf>_pg<N>_repeat<M>.md`, N and M
count from 1; a page that could not be read is an empty file, so that its tests fail and the candidate is still scored.
"""

from collections.abc import Iterator, Sequence

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.enrich import short
from llm_ocr.results.figure_links import escape
from llm_ocr.results.figure_marks import new_words, with_figures, without_comments
from llm_ocr.results.text import clean
from llm_ocr.types import Status

_SUFFIX = ".pdf"
#: Where links to figures lead: the scorer skips links, and no digits of ours may pass for text of the page.
_TARGET = "figure.png"


def bench_file(name: str, page: int, repeat: int = 1) -> str:
    """The key of one page. `name` is the document's in the Markdown tree; others than PDFs keep their extension."""
    return f"{name.removesuffix(_SUFFIX)}_pg{page}_repeat{repeat}.md"


def bench_pages(rows: Sequence[DatasetRow]) -> Iterator[tuple[int, str]]:
    """The number and the text of each page; a document that could not be opened is an empty first page."""
    for row in rows:
        yield row.record.page_number or 1, bench_markdown(row)


def bench_markdown(row: DatasetRow) -> str:
    """Plain Markdown of what stands on the page, ending with a newline; "" for a failed page.

    A figure is `![first sentence of its description](figure.png)`; whole descriptions, which are no text of the page,
    and HTML comments are left out.
    """
    if row.record.status is Status.FAILED:
        return ""

    def link(figure: str) -> str:
        return f"![{escape(short(new_words(row, figure)))}]({_TARGET})"

    text = without_comments(with_figures(clean(row.record.markdown), link))
    return f"{text}\n" if text else ""
