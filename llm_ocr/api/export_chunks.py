"""`export --format chunks`: passages for retrieval, `chunks/<batch>.jsonl` or `.parquet`, one a row.

How documents are cut: `results.chunks`; the fields: `results.chunk_rows`.
"""

import asyncio
import io
from collections.abc import Iterator
from functools import partial
from typing import Any

from llm_ocr.api.assembled_rows import Document
from llm_ocr.api.export_files import Batch, File, Form, export_files
from llm_ocr.api.export_job import Exported, ExportJob
from llm_ocr.api.tokenizing import token_count
from llm_ocr.errors import UsageError
from llm_ocr.results.chunk_rows import chunk_row, write_parquet
from llm_ocr.results.chunks import Limits, document_chunks
from llm_ocr.results.export.lines import json_line
from llm_ocr.settings.models import ExportSettings

#: Raised when the same rows give other passages.
_VERSION = 1


async def export_chunks(job: ExportJob) -> Exported:
    """Write the passages; errors as in `export_files` and `token_count`.

    Raises `UsageError` for an overlap that leaves no room for anything else.
    """
    settings = job.settings
    if settings.chunk_overlap > settings.chunk_size // 2:
        raise UsageError(
            f"--chunk-overlap {settings.chunk_overlap} is more than half of --chunk-size {settings.chunk_size}",
            hint="Give a smaller overlap, or larger passages.",
        )
    limits, tokenizer = await asyncio.to_thread(_limits, settings)
    form = Form(
        "chunks",
        _VERSION,
        partial(_write, limits=limits, tokens=bool(tokenizer), parquet=settings.chunk_format == "parquet"),
        lambda _: job.output.load_line(
            f"chunks/*.{settings.chunk_format}",
            described=False,
            reader="parquet" if settings.chunk_format == "parquet" else "json",
        ),
        {
            "size": limits.size,
            "overlap": limits.overlap,
            "tokenizer": tokenizer,
            "format": settings.chunk_format,
        },
        unit="passages",
    )
    return await export_files(job, form)


def _limits(settings: ExportSettings) -> tuple[Limits, str]:
    """How passages are measured, and the identity of the tokenizer; "" for characters."""
    if settings.tokenizer is None:
        return Limits(settings.chunk_size, settings.chunk_overlap), ""
    count = token_count(settings.tokenizer)
    return Limits(settings.chunk_size, settings.chunk_overlap, count.measure), count.identity


def _write(
    batch: Batch, documents: Iterator[Document], *, limits: Limits, tokens: bool, parquet: bool
) -> Iterator[File]:
    rows = (row for document in documents for row in _rows(document, limits, tokens))
    buffer, count = io.BytesIO(), 0
    if parquet:
        count = write_parquet(rows, buffer)
    else:
        for row in rows:
            buffer.write(json_line(row))
            count += 1
    if count:
        yield File(f"chunks/{batch.name}.{'parquet' if parquet else 'jsonl'}", buffer.getvalue(), count)


def _rows(document: Document, limits: Limits, tokens: bool) -> Iterator[dict[str, Any]]:
    for chunk in document_chunks(document.id, document.source, document.names[0], document.rows, limits):
        yield chunk_row(chunk, tokens=tokens)
