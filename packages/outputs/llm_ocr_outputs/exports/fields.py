"""Export with `format=fields`: the values of each document as JSON lines, Parquet, and CSV.

fields/<batch>.jsonl    one document per line: document_id, source, status, reason, detail, values (in the form of the
                        schema), fields (path, value, page, box, quote, quoted, and others, see `FieldsRecord`)
fields/<batch>.parquet  the same: values, and the value of each field, are JSON texts
fields/<batch>.csv      one document per row, one column per field; lists are JSON texts. `not_quoted` names the fields
                        whose quote the text does not contain
"""

import asyncio
import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from llm_ocr.errors import StageMissing, UsageError
from llm_ocr.exporting import Exported, ExportJob
from llm_ocr.results.field_schema import Node, below, node_of
from llm_ocr.results.schema import table_bytes
from llm_ocr.scheduling.scanner import PlannedItems
from llm_ocr.types import FieldsRecord
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import FIELDS, key_settings, required_key
from llm_ocr.workspace.publish import done_units
from llm_ocr.workspace.published import published_fields
from llm_ocr_outputs.files import Batch, File, Form, export_files, json_line
from llm_ocr_outputs.source import Document

if TYPE_CHECKING:
    import pyarrow as pa

_VERSION = 2
#: First characters by which spreadsheets take a cell for a formula (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_ABOUT = ("document_id", "source", "status", "reason", "not_quoted")


async def export_fields(job: ExportJob) -> Exported:
    """Write the fields; errors as in `export_files`.

    Raises:
        UsageError: The setting `only` is given: values can come from any page.
        StageMissing: Fields has not finished all documents.
    """
    if job.settings.only is not None:
        raise UsageError(
            "`only` is not possible with `format=fields`, whose values can come from any page",
            hint="Leave it out. Each value says whether its quote is in the verified text.",
        )
    key, planned, schema = await asyncio.to_thread(_finished, job.workspace)

    def opened(url: str) -> str:
        return job.output.load_line("fields/*.parquet", described=False)

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        records = {
            one.document_id: one
            for place in batch.places
            for one in published_fields(job.workspace, key, planned[place])
        }
        rows = [(records[document.id], document.source) for document in documents]
        if not rows:
            return
        lines: list[dict[str, Any]] = [
            {
                "document_id": record.document_id,
                "source": source,
                "status": record.status.value,
                "reason": record.reason and record.reason.value,
                "detail": record.detail,
                "values": dict(record.values),
                "fields": [dict(one) for one in record.fields],
            }
            for record, source in rows
        ]
        yield File(f"fields/{batch.name}.jsonl", b"".join(map(json_line, lines)), len(rows))
        cells = [
            {
                **line,
                "values": json.dumps(line["values"], ensure_ascii=False),
                "fields": [
                    {**_with_text(one), "others": [*map(_with_text, one.get("others", ()))]} for one in line["fields"]
                ],
            }
            for line in lines
        ]
        yield File(f"fields/{batch.name}.parquet", table_bytes(_schema(), cells), 0)
        yield File(f"fields/{batch.name}.csv", csv_bytes(schema, rows), 0)

    return await export_files(job, Form("fields", _VERSION, write, opened, {"key": key}))


def _finished(workspace: Workspace) -> tuple[str, PlannedItems, Node]:
    """Return the newest key of Fields, the items of the plan, and the schema."""
    key = required_key(workspace, FIELDS)
    planned, done = PlannedItems(workspace), done_units(workspace, FIELDS, key)
    missing = sum(item.name not in done for item in planned.read())
    if missing:
        raise StageMissing(
            f"the fields of {missing} of {len(planned)} items are missing in {workspace.url}",
            hint=f"Run first, with the same schema: llm-ocr fields -w {workspace.url} `fields_schema=FILE`",
        )
    return key, planned, node_of(json.loads(key_settings(workspace, FIELDS, key)["reader"]["schema"]))


def _with_text(field: Mapping[str, Any]) -> dict[str, Any]:
    return {**field, "value": json.dumps(field["value"], ensure_ascii=False)}


@cache
def _schema() -> "pa.Schema":
    import pyarrow as pa

    box = pa.struct([(side, pa.float64()) for side in ("x0", "y0", "x1", "y1")])
    kinds = {"page": pa.int32(), "box": box, "quoted": pa.bool_()}
    value = [(name, kinds.get(name, pa.string())) for name in ("value", "page", "box", "quote", "quoted")]
    fields = pa.struct([("path", pa.string()), *value, ("others", pa.list_(pa.struct(value)))])
    texts = [(name, pa.string()) for name in ("document_id", "source", "status", "reason", "detail", "values")]
    return pa.schema([*texts, ("fields", pa.list_(fields))])


def csv_bytes(schema: Node, rows: Sequence[tuple[FieldsRecord, str]]) -> bytes:
    """Return documents as CSV (RFC 4180, UTF-8), in which no text can act as a formula.

    Args:
        schema: The schema of the fields.
        rows: The record and the source of each document.
    """
    columns = dict(_columns(schema))
    titles = [f"value.{name}" if name in _ABOUT else name for name in columns]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(map(_cell, (*_ABOUT, *titles)))
    for record, source in rows:
        unquoted = ", ".join(one["path"] for one in record.fields if not one["quoted"])
        about = (record.document_id, source, record.status.value, record.reason or "", unquoted)
        writer.writerow([*map(_cell, about), *(_cell(_inner(record.values, path)) for path in columns.values())])
    return text.getvalue().encode()


def _columns(node: Node, names: tuple[str, ...] = (), path: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns of an object, `seller.name`, each with the names on its way."""
    for name, member in node.members.items():
        if member.kind == "object":
            yield from _columns(member, (*names, name), below(path, name))
        else:
            yield below(path, name), (*names, name)


def _inner(values: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = values
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _cell(value: Any) -> str:
    """Return a value as the text of a cell. A number is no formula, whatever its sign."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA) else text
