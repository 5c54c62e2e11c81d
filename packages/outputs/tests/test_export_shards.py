"""Shards of an exported dataset: cut by size alone, made of row groups, and named by what is in them."""

import io
from fnmatch import fnmatch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import dataset_to_parquet, picture, record

from llm_ocr.errors import StorageError
from llm_ocr.results.dataset import DatasetRow, DatasetWriter
from llm_ocr.types import Reason, Status
from llm_ocr_outputs.exports.shards import (
    GLOB,
    Part,
    Shard,
    Source,
    cut,
    excluded_of,
    group_sizes,
    is_shard,
    write_shard,
)


def source(name: str, size: int, content: str = "") -> Source:
    return Source(f"dataset/train-{name}.parquet", size, content or f"content of {name}", f"version of {name}")


class Files:
    """Dataset files in memory."""

    def __init__(self):
        self.data = {}

    def add(self, name: str, rows: int) -> Source:
        out = io.BytesIO()
        with DatasetWriter(out) as writer:
            for number in range(1, rows + 1):
                page = record(number, document=name, image=picture(60, 40, colour=f"#{number:06x}"))
                writer.add(DatasetRow(page, f"page {number}"))
        made = source(name, len(out.getvalue()))
        self.data[made.key] = out.getvalue()
        return made

    def read(self, key: str, start: int, length: int) -> bytes:
        return self.data[key][start : start + length]


@pytest.fixture
def files() -> Files:
    return Files()


def written(path, parts, files) -> pa.Table:
    rows = write_shard(path, parts, files.read)
    table = pq.read_table(path)
    assert table.num_rows == rows
    return table


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 60))
def test_shards_hold_each_file_once_in_order_within_the_size(sizes, most):
    sources = [source(str(number), size) for number, size in enumerate(sizes)]
    groups = {one: [1] * one.size for one in sources}
    shards = list(cut(sources, most, groups.__getitem__))
    parts = [part for shard in shards for part in shard.parts]
    assert [shard.index for shard in shards] == list(range(len(shards)))
    assert all(0 < shard.size <= most for shard in shards)
    assert list(dict.fromkeys(part.source for part in parts)) == sources
    for one in sources:
        ranges = [part.groups or (0, one.size) for part in parts if part.source == one]
        assert [row for begin, end in ranges for row in range(begin, end)] == list(range(one.size))


def test_a_row_group_larger_than_a_shard_is_a_shard():
    one = source("a", 25)
    assert [shard.parts[0].groups for shard in cut([one], 10, lambda _: [20, 5])] == [(0, 1), (1, 2)]


def test_names_change_with_content_and_sort_in_order():
    before = [shard.name for shard in cut([source(str(n), 5) for n in range(20)], 10, lambda _: [])]
    sources = [source(str(n), 5, "other" if n == 7 else "") for n in range(20)]
    after = [shard.name for shard in cut(sources, 10, lambda _: [])]
    assert sorted(before) == before
    assert [number for number in range(10) if before[number] != after[number]] == [3]
    assert all(map(is_shard, before))


def test_same_content_in_another_store_has_the_same_shard_name():
    there = Source("dataset/other.parquet", 5, "content of a", "another version")
    assert Shard(0, (Part(there, 5),)).name == Shard(0, (Part(source("a", 5), 5),)).name


@pytest.mark.parametrize(
    "name",
    [
        "data/train-00000-of-00001.parquet",
        "data/train-00000-0123456789abcdef.txt",
        "train-00000-0123456789abcdef.parquet",
        "data/train-00000-of-00001-0123456789abcdef.parquet",
        "data/train-0-0123456789abcdef.parquet",
    ],
)
def test_files_of_others_are_no_shards(name):
    assert not is_shard(name)


def test_rows_are_unchanged_and_small_row_groups_are_joined(files, tmp_path):
    sources = [files.add("a", 30), files.add("b", 30), files.add("c", 50)]
    table = written(tmp_path / "s.parquet", [Part(one, one.size) for one in sources], files)
    assert table.equals(pa.concat_tables([pq.read_table(io.BytesIO(files.data[one.key])) for one in sources]))
    metadata = pq.ParquetFile(tmp_path / "s.parquet").metadata
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [60, 50]
    assert b"Image" in pq.read_schema(tmp_path / "s.parquet").metadata[b"huggingface"]


@pytest.mark.slow
def test_a_long_file_is_divided_between_its_row_groups(files, tmp_path):
    one = files.add("a", 250)
    sizes = group_sizes(files.read, one)
    assert len(sizes) == 3
    assert sum(sizes) <= one.size
    shards = list(cut([one], max(sizes), lambda _: sizes))
    tables = [written(tmp_path / f"{shard.index}.parquet", shard.parts, files) for shard in shards]
    assert [table.num_rows for table in tables] == [100, 100, 50]
    assert pa.concat_tables(tables).equals(pq.read_table(io.BytesIO(files.data[one.key])))


def test_a_damaged_file_is_named_with_what_to_do(files, tmp_path):
    one = files.add("a", 5)
    files.data[one.key] = b"x" * one.size
    with pytest.raises(StorageError, match=r"dataset/train-a\.parquet") as caught:
        write_shard(tmp_path / "s.parquet", [Part(one, one.size)], files.read)
    assert "run Assemble again" in caught.value.hint


def test_reader_pattern_matches_shards_and_no_foreign_files():
    assert fnmatch(Shard(0, ()).name, GLOB)
    assert fnmatch(Shard(123456, ()).name, GLOB)
    assert not fnmatch("data/train-00000-of-00001.parquet", GLOB)


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


def document_rows(data: bytes, most: float | None = None) -> Source:
    return Source("a.parquet", len(data), "a", "1", most)


def reading(data: bytes):
    return lambda key, start, length: data[start : start + length]


def kept(path) -> list[tuple[str, int]]:
    table = pq.read_table(path, columns=["document_id", "page_number"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_documents_beyond_the_rate_are_told(file):
    assert pq.ParquetFile(io.BytesIO(file)).num_row_groups == 2
    one, other = excluded_of(reading(file), document_rows(file, 0.2))[0]
    assert one == {
        "document_id": "bad", "source": "/in/bad.pdf", "pages": 80, "failed": 40, "error_rate": 0.5,
        "reasons": ["repetition loop"],
    }  # fmt: skip
    assert (other["document_id"], other["failed"], other["error_rate"], other["reasons"]) == ("some", 0, 0.25, [])
    assert [one["document_id"] for one in excluded_of(reading(file), document_rows(file, 0.25))[0]] == ["bad"]


def test_rows_beyond_the_error_rate_leave_every_row_group(file, tmp_path):
    rows = write_shard(tmp_path / "o", [Part(document_rows(file, 0.3), len(file))], reading(file))
    assert rows == 70
    assert {document for document, _ in kept(tmp_path / "o")} == {"good", "some"}


def test_a_part_of_a_file_is_judged_by_the_whole_of_it(file, tmp_path):
    write_shard(tmp_path / "o", [Part(document_rows(file, 0.3), len(file), (1, 2))], reading(file))
    assert kept(tmp_path / "o") == [("some", number) for number in range(1, 5)]


def test_a_shard_of_which_nothing_is_left_is_a_file_without_rows(tmp_path):
    data = dataset_to_parquet([row("bad", 1, fails=True)])
    assert write_shard(tmp_path / "o", [Part(document_rows(data, 0.0), len(data))], reading(data)) == 0
    assert kept(tmp_path / "o") == []
