"""`export --format jsonl`: a line of JSON for each page, those that succeeded and those that failed in files apart.

successes/<batch>.jsonl     pages that are ok or degraded
errors/<batch>.jsonl        pages that failed; no file where there is none

The fields are those of `results.export.page_lines`.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from llm_ocr.api.assembled_rows import Document
from llm_ocr.api.export_files import Batch, File, Form, export_files
from llm_ocr.api.export_job import Exported, ExportJob
from llm_ocr.api.provenance import identity_of, provenance
from llm_ocr.results.export.lines import json_line
from llm_ocr.results.export.page_lines import page_line
from llm_ocr.work.stored import remembered_in


async def export_jsonl(job: ExportJob) -> Exported:
    """Write the pages as lines of JSON; errors as in `export_files`.

    The batch id is the one that the workspace remembers (`--batch-id`), else the workspace's own id.
    """
    remembered = (await asyncio.to_thread(remembered_in, job.workspace)).get("batch_id")
    batch_id = str(remembered or await asyncio.to_thread(identity_of, job.workspace))

    @cache
    def model(key: str) -> str:
        read = provenance(job.workspace, key)["extract"]
        return str(read["model"] or read["engine"] or "")

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        return _page_files(batch, documents, partial(page_line, model=model(batch.key), batch_id=batch_id))

    def opened(_: str) -> str:
        return job.output.load_line("successes/*.jsonl", described=False, reader="json")

    return await export_files(job, Form("jsonl", 1, write, opened, {"batch_id": batch_id}, unit="pages"))


def _page_files(batch: Batch, documents: Iterator[Document], line: Callable[..., dict[str, Any]]) -> Iterator[File]:
    """The two files of a batch."""
    texts = {"successes": bytearray(), "errors": bytearray()}
    records = dict.fromkeys(texts, 0)
    for document in documents:
        for index, row in enumerate(document.rows, 1):
            record = line(row, index=index)
            where = "successes" if record["success"] else "errors"
            texts[where] += json_line(record)
            records[where] += 1
    for where, text in texts.items():
        if text:
            yield File(f"{where}/{batch.name}.jsonl", bytes(text), records[where])
