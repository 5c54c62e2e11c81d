"""Rows of documents with too many bad pages, left out while shards are made."""

import io

import pyarrow.parquet as pq
import pytest
from made import dataset_to_parquet, record

from llm_ocr.exports.shards import Part, Source, bad_documents_of, write_shard
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.types import Reason, Status


def row(document, number, *, fails=False, fallback=False):
    changes = {"status": Status.FAILED, "reason": Reason.LOOP} if fails else {}
    if fallback:
        changes = {"text_source": "ocr", "attempts": ({"server": "a"},)}
    changes |= {"source": f"/in/{document}.pdf", "image": None, "blocks": (), "markdown": "text"}
    return DatasetRow(record(number, document=document, figures=0, **changes), "text")


@pytest.fixture(scope="module")
def file() -> bytes:
    """150 rows, more than a row group: `bad` stands in both groups, `some` has a bad page in four."""
    bad = [row("bad", number, fails=number % 2 == 0) for number in range(1, 81)]
    some = [row("some", number, fallback=number == 2) for number in range(1, 5)]
    good = [row("good", number) for number in range(1, 67)]
    return dataset_to_parquet([*good, *bad, *some])


def source(data: bytes, most: float | None = None) -> Source:
    return Source("a.parquet", len(data), "a", "1", most)


def reading(data: bytes):
    return lambda key, start, length: data[start : start + length]


def kept(path) -> list[tuple[str, int]]:
    table = pq.read_table(path, columns=["document_id", "page_number"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_documents_beyond_the_rate_are_told(file):
    assert pq.ParquetFile(io.BytesIO(file)).num_row_groups == 2
    one, other = bad_documents_of(reading(file), source(file), 0.2)
    assert one == {
        "document_id": "bad", "source": "/in/bad.pdf", "pages": 80, "failed": 40, "error_rate": 0.5,
        "reasons": ["repetition loop"],
    }  # fmt: skip
    assert (other["document_id"], other["failed"], other["error_rate"], other["reasons"]) == ("some", 0, 0.25, [])
    assert [one["document_id"] for one in bad_documents_of(reading(file), source(file), 0.25)] == ["bad"]


def test_rows_of_documents_beyond_the_rate_go_from_every_row_group(file, tmp_path):
    rows = write_shard(tmp_path / "o", [Part(source(file, 0.3), len(file))], reading(file))
    assert rows == 70
    assert {document for document, _ in kept(tmp_path / "o")} == {"good", "some"}


def test_a_part_of_a_file_is_judged_by_the_whole_of_it(file, tmp_path):
    write_shard(tmp_path / "o", [Part(source(file, 0.3), len(file), (1, 2))], reading(file))
    assert kept(tmp_path / "o") == [("some", number) for number in range(1, 5)]


def test_a_shard_of_which_nothing_is_left_is_a_file_without_rows(tmp_path):
    data = dataset_to_parquet([row("bad", 1, fails=True)])
    assert write_shard(tmp_path / "o", [Part(source(data, 0.0), len(data))], reading(data)) == 0
    assert kept(tmp_path / "o") == []
