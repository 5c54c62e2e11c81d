"""Assemble's own rows: the final Markdown of each page, beside what Extract and Describe stored."""

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from llm_ocr.results.parquet import table_bytes, with_format
from llm_ocr.results.text import clean

if TYPE_CHECKING:
    import pyarrow as pa

_KIND = "finals"
_COLUMNS = ("page_id", "document_final_markdown")


@cache
def _schema() -> "pa.Schema":
    import pyarrow as pa

    return with_format(pa.schema([(name, pa.string()) for name in _COLUMNS]), _KIND)


def finals_to_parquet(rows: Iterable[tuple[str, str]]) -> bytes:
    """From page ids and their final Markdown."""
    return table_bytes(_schema(), [{"page_id": page, "document_final_markdown": clean(text)} for page, text in rows])
