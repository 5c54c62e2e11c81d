"""`export --format olmocr-bench`: the output is a candidate's folder, whose name is the candidate's.

Put it beside `pdfs/` of the benchmark: `--output olmOCR-bench/bench_data/NAME`, of a run over that folder `pdfs/`.
Rules of the files: `results.export.olmocr_bench`.
"""

from collections.abc import Iterator

from llm_ocr.api.assembled_rows import Document
from llm_ocr.api.export_files import Batch, File, Form, export_files
from llm_ocr.api.export_job import Exported, ExportJob
from llm_ocr.errors import UsageError
from llm_ocr.results.export.olmocr_bench import bench_file, bench_pages


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
