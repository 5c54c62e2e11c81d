"""Export with `format=olmocr-bench`: Markdown files for the scorer of olmOCR-bench."""

from collections.abc import Iterator

from llm_ocr.errors import UsageError
from llm_ocr.exporting import Exported, ExportJob
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.figure_text import new_words, short, with_figures, without_comments
from llm_ocr.results.markdown import clean, escape, without_web_links
from llm_ocr.types import Status
from llm_ocr_outputs.files import Batch, File, Form, export_files
from llm_ocr_outputs.source import Document

# Pages for the scorer of olmOCR-bench: one Markdown file per page, in the folder of a candidate. The rules are from
# `olmocr/bench/benchmark.py` and `convert.py` (allenai/olmocr, 0.4.27). A candidate is a sibling folder of `pdfs/` and
# `*.jsonl`. A file in it is `<path of the PDF below pdfs/, without .pdf>_pg<N>_repeat<M>.md`; N and M count from 1. A
# failed page is an empty file, so that its tests fail and the candidate is still scored.


_SUFFIX = ".pdf"
#: Target of figure links: the scorer skips links, and digits of a figure id must not count as text of the page.
_TARGET = "figure.png"


def bench_file(name: str, page: int) -> str:
    """Return the key of a page. `name` is the document's in the Markdown tree; non-PDF files keep their extension."""
    return f"{name.removesuffix(_SUFFIX)}_pg{page}_repeat1.md"


def bench_markdown(row: DatasetRow) -> str:
    """Return plain Markdown of the page's own text, ending with a newline; "" for a failed page.

    A figure is `![first sentence of its description](figure.png)`. Full descriptions and targets of links, which are
    not text of the page, and HTML comments are removed.
    """
    if row.record.status is Status.FAILED:
        return ""

    def link(figure: str) -> str:
        return f"![{escape(short(new_words(row, figure)))}]({_TARGET})"

    text = without_web_links(without_comments(with_figures(clean(row.record.markdown), link)))
    return f"{text}\n" if text else ""


# The output is a candidate's folder, whose name is the candidate's. It belongs next to the benchmark's `pdfs/`:
# `output=olmOCR-bench/bench_data/NAME`, of a run over that folder `pdfs/`.


async def export_olmocr_bench(job: ExportJob) -> Exported:
    """Write a file for each page; a copy of a document has its own files. Errors as in `export_files`.

    Raises:
        UsageError: documents or pages are to be left out, but the scorer rejects a candidate that lacks files.
    """
    given = {"drop_over_error_rate": job.settings.drop_over_error_rate, "only": job.settings.only}
    for name in (name for name, value in given.items() if value):
        raise UsageError(
            f"`{name}` is not possible with `format=olmocr-bench`: the scorer needs every document",
            hint=f"Leave out `{name}`. Failed pages become empty files, which count as failed.",
        )
    return await export_files(job, Form("olmocr-bench", 1, _write, _opened, unit="pages"))


def _write(_: Batch, documents: Iterator[Document]) -> Iterator[File]:
    for document in documents:
        for row in document.rows:
            number, text = row.record.page_number or 1, bench_markdown(row)  # 1 if the document could not be opened
            for place, name in enumerate(document.names):
                yield File(bench_file(name, number), text.encode(), records=int(place == 0))


def _opened(url: str) -> str:
    folder, _, candidate = url.rstrip("/").rpartition("/")
    return f'python -m olmocr.bench.benchmark --dir "{folder}" --candidate "{candidate}"'
