"""`export --format json`: one file a document, `documents/<name>.json`, named as in the Markdown tree.

A document of which copies were found is one file, under the first of its names; the others stand in it.
"""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from llm_ocr.api.assembled_rows import Document
from llm_ocr.api.export_files import Batch, File, Form, export_files
from llm_ocr.api.export_job import Exported, ExportJob
from llm_ocr.api.provenance import provenance
from llm_ocr.results.documents import FOLDER
from llm_ocr.results.export.document_json import FORMAT, document_json
from llm_ocr.results.export.lines import json_document


async def export_json(job: ExportJob) -> Exported:
    """Write a JSON file for each document; errors as in `export_files`. Fields: `results.export.document_json`."""
    about = cache(partial(provenance, job.workspace))

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        return (_file(document, about(batch.key)) for document in documents)

    return await export_files(job, Form("json", FORMAT, write, _opened))


def _file(document: Document, about: dict[str, Any]) -> File:
    value = document_json(document.id, document.source, document.names, document.page_total, document.rows, about)
    return File(f"{FOLDER}/{document.names[0]}.json", json_document(value))


def _opened(url: str) -> str:
    return f'[json.load(file.open()) for file in fsspec.open_files("{url}/{FOLDER}/**/*.json")]'
