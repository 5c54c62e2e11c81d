"""Rows of Extract and Describe survive the way to Parquet and back, and nobody reads images that he does not want."""

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import ANY_TEXT, TEXT, described, failed, page_records, picture, record

from llm_ocr.errors import ObjectNotFound, StorageError, WorkspaceMismatch
from llm_ocr.results import schema
from llm_ocr.results.schema import (
    Images,
    ObjectFile,
    failed_pages,
    figures_from_parquet,
    figures_to_parquet,
    iter_pages,
    pages_from_parquet,
    pages_to_parquet,
)
from llm_ocr.storage import ObjectInfo
from llm_ocr.types import FigureRecord, Reason, Status

PROPERTY = settings(deadline=None)


class RecordedStore:
    """Objects in memory that remember which ranges were read."""

    url = "memory:"

    def __init__(self, **objects: bytes) -> None:
        self.objects = objects
        self.ranges: list[tuple[int, int]] = []

    def stat(self, key):
        return ObjectInfo(key, len(self.objects[key]), "1") if key in self.objects else None

    def read_range(self, key, start, length):
        self.ranges.append((start, length))
        return self.objects[key][start : start + length]


@PROPERTY
@given(st.lists(page_records(), max_size=4))
def test_pages_come_back_as_they_were(records):
    assert pages_from_parquet(pages_to_parquet(records), images=True) == records


@PROPERTY
@given(page_records(ANY_TEXT))
def test_text_that_utf8_cannot_hold_is_cleaned_once(page):
    [once] = pages_from_parquet(pages_to_parquet([page]), images=True)
    assert pages_from_parquet(pages_to_parquet([once]), images=True) == [once]


def test_lone_surrogates_become_replacement_characters_and_nul_stays():
    page = record(markdown="a\ud800b\udc00\0c \ud83d\ude00", source="/in/\udcff.pdf", attempts=({"\ud800": "\udfff"},))
    [back] = pages_from_parquet(pages_to_parquet([page]), images=True)
    assert back.markdown == "a�b�\0c 😀"
    assert back.source == "/in/�.pdf"
    assert back.attempts == ({"�": "�"},)


def test_a_document_that_could_not_be_opened_has_neither_number_nor_image():
    pages = [failed(), failed(4, reason=Reason.RENDER_TIMEOUT)]
    assert pages_from_parquet(pages_to_parquet(pages), images=True) == pages
    assert pages_from_parquet(pages_to_parquet(pages), images=False) == pages


def test_without_images_everything_else_is_there():
    page = record(figures=2)
    [bare] = pages_from_parquet(pages_to_parquet([page]), images=False)
    no_data = tuple(replace(figure, image=replace(figure.image, data=b"")) for figure in page.figures)
    assert bare == replace(page, image=replace(page.image, data=b""), figures=no_data)


def test_figures_can_be_read_without_page_images():
    [page] = pages_from_parquet(pages_to_parquet([record()]), images=Images.FIGURES)
    assert page.figures == record().figures
    assert page.image.data == b""
    assert (page.image.width, page.image.height) == (400, 300)


@pytest.mark.parametrize(
    ("images", "read"), [(Images.NONE, "neither"), (Images.FIGURES, "figures"), (Images.ALL, "both")]
)
def test_only_the_bytes_asked_for_are_fetched(images, read):
    page_bytes, figure_bytes = 400_000, 30_000
    big = replace(picture(), data=b"P" * page_bytes)
    crop = replace(record().figures[0], image=replace(picture(), data=b"F" * figure_bytes))
    data = pages_to_parquet([replace(record(n), image=big, figures=(crop,)) for n in range(1, 21)])
    store = RecordedStore(unit=data)
    assert len(list(iter_pages(ObjectFile(store, "unit"), images=images))) == 20
    fetched = sum(length for _, length in store.ranges)
    least = {"neither": 0, "figures": 20 * figure_bytes, "both": 20 * (figure_bytes + page_bytes)}[read]
    assert least <= fetched < least + 120_000


def test_image_bytes_are_stored_uncompressed_and_text_is_not():
    data = pages_to_parquet([replace(record(n), image=replace(picture(), data=b"P" * 100_000)) for n in range(1, 9)])
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert columns["image.bytes"].compression == "UNCOMPRESSED"
    assert columns["figure_images.list.element.bytes"].compression == "UNCOMPRESSED"
    assert columns["markdown"].compression == "ZSTD"
    assert columns["image.bytes"].statistics is None


def test_a_missing_object_is_named():
    with pytest.raises(ObjectNotFound, match="no object gone"):
        ObjectFile(RecordedStore(), "gone")


def test_failed_pages_are_found_by_the_status_columns_alone():
    store = RecordedStore(unit=pages_to_parquet([record(1), failed(), failed(7, reason=Reason.RENDER_LIMIT)]))
    found = failed_pages(ObjectFile(store, "unit"))
    assert [(page.page_number, page.reason) for page in found] == [(None, Reason.ENCRYPTED), (7, Reason.RENDER_LIMIT)]
    assert found[0].page_id == "fedcba9876543210-p00000"
    assert found[0].status is Status.FAILED


@PROPERTY
@given(
    st.lists(
        st.builds(
            FigureRecord,
            TEXT,
            TEXT,
            TEXT,
            st.sampled_from(Status),
            TEXT,
            reason=st.none() | st.sampled_from(Reason),
            detail=TEXT,
            description=TEXT,
            data=TEXT,
            label=TEXT,
            engine=TEXT,
            tokens_in=st.integers(0, 10**12),
            seconds=st.floats(0, 1e6),
        ),
        max_size=4,
    )
)
def test_figures_come_back_as_they_were(records):
    assert figures_from_parquet(figures_to_parquet(records)) == records


def test_blocks_that_were_stored_before_they_could_continue_are_read():
    page = [record()]
    table = pq.read_table(io.BytesIO(pages_to_parquet(page)))
    rows = table.to_pylist()
    for row in rows:
        for block in row["blocks"]:
            del block["continued"]
    older = [field for field in table.schema.field("blocks").type.value_type if field.name != "continued"]
    place = table.schema.get_field_index("blocks")
    schema = table.schema.set(place, pa.field("blocks", pa.list_(pa.struct(older))))
    stored = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), stored)
    assert rows[0]["blocks"]
    assert pages_from_parquet(stored.getvalue(), images=True) == page


def test_a_unit_without_rows_is_a_file_too():
    assert pages_from_parquet(pages_to_parquet([]), images=True) == []
    assert figures_from_parquet(figures_to_parquet([])) == []


@pytest.mark.parametrize("data", [b"", b"PAR1", b"garbage" * 100, pages_to_parquet([record()])[:-20]])
def test_a_damaged_file_says_so(data):
    with pytest.raises(StorageError, match="cannot read"):
        pages_from_parquet(data, images=True)


def test_rows_of_another_kind_are_refused():
    with pytest.raises(StorageError, match="expected a Parquet file with pages"):
        pages_from_parquet(figures_to_parquet([described("f", "text")]), images=True)
    other = io.BytesIO()
    pq.write_table(pa.table({"page_id": ["a"]}), other)
    with pytest.raises(StorageError, match="expected a Parquet file with pages"):
        pages_from_parquet(other.getvalue(), images=True)


def test_a_newer_format_is_refused(monkeypatch):

    schema._page_schema.cache_clear()
    monkeypatch.setattr(schema, "FORMAT", 2)
    newer = pages_to_parquet([record()])
    schema._page_schema.cache_clear()
    monkeypatch.undo()
    with pytest.raises(WorkspaceMismatch, match="format 2, this version reads up to format 1"):
        pages_from_parquet(newer, images=False)
