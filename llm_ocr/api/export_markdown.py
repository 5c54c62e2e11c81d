"""`export --format markdown`: the tree `documents/` of the workspace, texts and figures, in a place of its own.

The files are those that Assemble wrote, byte for byte; of documents that are left out for their bad pages, none.
"""

from collections.abc import Iterator
from functools import partial

from llm_ocr.api.assembled_rows import Document
from llm_ocr.api.export_files import Batch, File, Form, export_files
from llm_ocr.api.export_job import Exported, ExportJob
from llm_ocr.errors import ObjectNotFound, StorageError
from llm_ocr.results.documents import FOLDER, figure_file, markdown_file
from llm_ocr.work.workspace import Workspace


async def export_markdown(job: ExportJob) -> Exported:
    """Copy the documents; errors as in `export_files`, `StorageError` for one that Assemble's files lack."""

    def write(_: Batch, documents: Iterator[Document]) -> Iterator[File]:
        return (file for document in documents for file in _files(job.workspace, document))

    return await export_files(job, Form("markdown", 1, write, _opened))


def _files(workspace: Workspace, document: Document) -> Iterator[File]:
    """The document's text and figures, once for each of its names."""
    for place, name in enumerate(document.names):
        figures = [figure_file(name, figure) for row in document.rows for figure in row.record.figures]
        for key in figures:
            yield File(key, records=0, fetch=partial(_read, workspace, key))
        text = markdown_file(name)
        yield File(text, records=int(place == 0), fetch=partial(_read, workspace, text))


def _read(workspace: Workspace, key: str) -> bytes:
    try:
        return workspace.store.get(key)
    except ObjectNotFound as error:
        raise StorageError(
            f"{workspace.url}: {key} is missing",
            hint=f"Run `llm-ocr assemble -w {workspace.url}`, which writes it anew; then export again.",
        ) from error


def _opened(url: str) -> str:
    return f'[file.open().read() for file in fsspec.open_files("{url}/{FOLDER}/**/*.md", "r")]'
