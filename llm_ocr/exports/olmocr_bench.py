"""`export --format olmocr-bench`: Markdown files that the scorer of olmOCR-bench reads."""

from collections.abc import Iterator, Sequence

from llm_ocr.errors import UsageError
from llm_ocr.exports.files import Batch, File, Form, export_files
from llm_ocr.exports.job import Exported, ExportJob
from llm_ocr.exports.source import Document
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.figure_text import new_words, short, with_figures, without_comments
from llm_ocr.results.markdown import clean, escape
from llm_ocr.types import Status

# Pages as the scorer of olmOCR-bench reads them: one Markdown file a page, in the folder of a candidate. The rules are
# those of `olmocr/bench/benchmark.py` and `convert.py` (allenai/olmocr, 0.4.27): a candidate is a folder beside `pdfs/`
# and `*.jsonl`, a file in it is `<path of the PDF below pdfs/, without .pdf>_pg<N>_repeat<M>.md`, N and M count from 1;
# a page that could not be read is an empty file, so that its tests fail and the candidate is still scored.


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


# `export --format olmocr-bench`: the output is a candidate's folder, whose name is the candidate's. Put it beside
# `pdfs/` of the benchmark: `--output olmOCR-bench/bench_data/NAME`, of a run over that folder `pdfs/`. Rules of the
# files: `results.export.olmocr_bench`.


async def export_olmocr_bench(job: ExportJob) -> Exported:
    """Write a file for each page; a copy of a document has files of its own. Errors as in `export_files`.

    Raises `UsageError` with --drop-over-error-rate: the scorer rejects a candidate that has no file for a document.
    """
    if job.settings.drop_over_error_rate:
        raise UsageError(
            "--drop-over-error-rate is not for --format olmocr-bench: the scorer takes no candidate that lacks one",
            hint="Leave it out; pages that failed are empty files, which the scorer counts as such.",
        )
    return await export_files(job, Form("olmocr-bench", 1, _write, _opened, unit="pages"))


def _write(_: Batch, documents: Iterator[Document]) -> Iterator[File]:
    return (file for document in documents for file in _files(document))


def _files(document: Document) -> Iterator[File]:
    for number, text in bench_pages(document.rows):
        for place, name in enumerate(document.names):
            yield File(bench_file(name, number), text.encode(), records=int(place == 0))


def _opened(url: str) -> str:
    folder, _, candidate = url.rstrip("/").rpartition("/")
    return f'python -m olmocr.bench.benchmark --dir "{folder}" --candidate "{candidate}"'
