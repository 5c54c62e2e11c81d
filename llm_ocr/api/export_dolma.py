"""`export --format dolma`: documents for training, `documents/<batch>.jsonl.gz`, one a line.

The fields are those of `results.export.dolma`. Every document is a line, those without any text too.
"""

import gzip
import io
from collections.abc import Iterable, Iterator
from functools import cache

from llm_ocr.api.assembled_rows import Document
from llm_ocr.api.export_files import Batch, File, Form, export_files
from llm_ocr.api.export_job import Exported, ExportJob
from llm_ocr.api.provenance import provenance
from llm_ocr.results.export.dolma import Origin, dolma_document
from llm_ocr.results.export.lines import json_line
from llm_ocr.work.keys import EXTRACT, stage_keys
from llm_ocr.work.workspace import Workspace

_LEVEL = 6


async def export_dolma(job: ExportJob) -> Exported:
    """Write the documents; errors as in `export_files`."""
    origin = cache(lambda key: _origin(job.workspace, key))

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        data, lines = _zipped(
            json_line(dolma_document(one.id, one.source, one.page_total, one.rows, origin(batch.key)))
            for one in documents
        )
        if lines:
            yield File(f"documents/{batch.name}.jsonl.gz", data, lines)

    def opened(_: str) -> str:
        return job.output.load_line("documents/*.jsonl.gz", described=False, reader="json")

    return await export_files(job, Form("dolma", 1, write, opened))


def _origin(workspace: Workspace, key: str) -> Origin:
    about = provenance(workspace, key)
    read = about["extract"]
    created = next((one.created for one in stage_keys(workspace, EXTRACT) if one.key == read["key"]), "")
    return Origin(created[: len("2026-03-01")], str(read["model"] or read["engine"] or ""), about["version"])


def _zipped(lines: Iterable[bytes]) -> tuple[bytes, int]:
    """The lines, and how many; without a time and a file name in the header, so that the same lines are the same."""
    buffer, count = io.BytesIO(), 0
    with gzip.GzipFile("", "wb", _LEVEL, buffer, mtime=0) as file:
        for line in lines:
            file.write(line)
            count += 1
    return buffer.getvalue(), count
