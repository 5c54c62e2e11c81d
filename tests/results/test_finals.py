"""What Assemble stores is there for every reader as it was, whatever is in it."""

import io

import pyarrow.parquet as pq

from llm_ocr.results.schema import finals_to_parquet


def read(data: bytes) -> list[tuple[str, str]]:
    return [tuple(row.values()) for row in pq.read_table(io.BytesIO(data)).to_pylist()]


def test_final_markdown_comes_back_by_page():
    rows = [("d-p00001", "# A\n\n![x](figure:f)"), ("d-p00002", ""), ("é/日本-p00003", "a\x00b \U0001f600 ```")]
    assert read(finals_to_parquet(rows)) == rows
    assert read(finals_to_parquet([])) == []
