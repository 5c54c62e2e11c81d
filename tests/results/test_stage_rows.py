"""Rows of Extract and Describe survive the way to Parquet and back, and nobody reads images that he does not want."""

import io
import json
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import TEXT, dataset_to_parquet, described, failed, page_records, picture, record
from running import COLUMNS

from llm_ocr.errors import StorageError, WorkspaceMismatch
from llm_ocr.results import schema
from llm_ocr.results.dataset import FEATURES, DatasetRow, DatasetWriter, dataset_file
from llm_ocr.results.schema import (
    Images,
    RangeFile,
    figures_from_parquet,
    figures_to_parquet,
    finals_to_parquet,
    iter_pages,
    page_statuses,
    pages_from_parquet,
    pages_to_parquet,
)
from llm_ocr.types import Box, FigureRecord, Ledger, Reason, Span, Status

PROPERTY = settings(deadline=None)


class RecordedStore:
    """Objects in memory that remember which ranges were read."""

    url = "memory:"

    def __init__(self, **objects: bytes) -> None:
        self.objects = objects
        self.ranges: list[tuple[int, int]] = []

    def read_range(self, key, start, length):
        self.ranges.append((start, length))
        return self.objects[key][start : start + length]


@PROPERTY
@given(st.lists(page_records(), max_size=4))
def test_pages_come_back_as_they_were(records):
    assert pages_from_parquet(pages_to_parquet(records), images=Images.ALL) == records


def test_lone_surrogates_are_replaced_and_nul_stays():
    page = record(markdown="a\ud800b\udc00\0c \ud83d\ude00", source="/in/\udcff.pdf", attempts=({"\ud800": "\udfff"},))
    [back] = pages_from_parquet(pages_to_parquet([page]), images=Images.ALL)
    assert back.markdown == "a�b�\0c 😀"
    assert back.source == "/in/�.pdf"
    assert back.attempts == ({"�": "�"},)


def test_without_images_everything_else_is_there():
    page = record(figures=2)
    [bare] = pages_from_parquet(pages_to_parquet([page]), images=Images.NONE)
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
    assert len(list(iter_pages(RangeFile(partial(store.read_range, "unit"), len(data)), images=images))) == 20
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


def test_statuses_of_pages_are_read_without_their_texts():
    rows = [record(1), failed(), failed(7, reason=Reason.RENDER_LIMIT)]
    opened, locked, slow = page_statuses(pages_to_parquet(rows))
    assert (opened.page_number, opened.status, opened.quality) == (1, rows[0].status, rows[0].quality)
    assert opened.figures == len(rows[0].figures)
    assert (locked.page_id, locked.page_number) == ("fedcba9876543210-p00000", None)
    assert (locked.status, locked.reason) == (Status.FAILED, Reason.ENCRYPTED)
    assert (slow.page_number, slow.reason) == (7, Reason.RENDER_LIMIT)


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


def test_stored_blocks_without_the_continued_field_are_read():
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
    assert pages_from_parquet(stored.getvalue(), images=Images.ALL) == page


@pytest.mark.parametrize("data", [b"", b"PAR1", b"garbage" * 100, pages_to_parquet([record()])[:-20]])
def test_a_damaged_file_says_so(data):
    with pytest.raises(StorageError, match="cannot read"):
        pages_from_parquet(data, images=Images.ALL)


def test_rows_of_another_kind_are_refused():
    with pytest.raises(StorageError, match="expected a Parquet file with pages"):
        pages_from_parquet(figures_to_parquet([described("f", "text")]), images=Images.ALL)
    other = io.BytesIO()
    pq.write_table(pa.table({"page_id": ["a"]}), other)
    with pytest.raises(StorageError, match="expected a Parquet file with pages"):
        pages_from_parquet(other.getvalue(), images=Images.ALL)


def test_a_newer_format_is_refused(monkeypatch):

    schema._page_schema.cache_clear()
    monkeypatch.setattr(schema, "FORMAT", 2)
    newer = pages_to_parquet([record()])
    schema._page_schema.cache_clear()
    monkeypatch.undo()
    with pytest.raises(WorkspaceMismatch, match="format 2, this version reads up to format 1"):
        pages_from_parquet(newer, images=Images.NONE)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write files into a workspace's dataset folder and open it, without network and outside of the user's cache."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    def opened(files: dict[str, bytes], **options):
        for item, data in files.items():
            path = tmp_path / "workspace" / dataset_file(item)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return datasets.load_dataset(
            str(tmp_path / "workspace" / "dataset"), cache_dir=str(tmp_path / "cache"), **options
        )

    return opened


def good(number: int = 1, **changes) -> DatasetRow:
    page = record(number, figures=2, **changes)
    figures = {page.figures[0].id: described(page.figures[0].id, "A chart.")}
    return DatasetRow(page, f"final {number}", figures, picture(80, 60, "image/jpeg", "green"))


def test_a_folder_with_failed_rows_opens_with_one_schema(load):
    files = {
        "0001-000000": dataset_to_parquet([DatasetRow(failed(), "")]),
        "0001-000001": dataset_to_parquet([good(1), DatasetRow(failed(2, document="0123456789abcdef"), "")]),
        "0001-000002": dataset_to_parquet([]),
        "test-0002": dataset_to_parquet([good(3)]),
    }
    rows = load(files)
    assert list(rows) == ["train"]
    data = rows["train"]
    assert data.column_names == COLUMNS
    assert data["status"][:] == ["failed", "ok", "failed", "ok"]
    assert data["page_number"][:] == [None, 1, 2, 3]
    assert data[0]["source_image"] is None
    assert data[0]["extracted_figures"] == []
    assert data[0]["reason"] == "encrypted"


def test_images_decode_and_figures_carry_their_metadata(load):
    [row] = load({"a": dataset_to_parquet([good()])})["train"]
    assert row["sample_id"] == "0123456789abcdef-p00001"
    assert row["source_image"].size == (400, 300)
    assert row["document_with_boxes_image"].size == (80, 60)
    assert [figure.size for figure in row["extracted_figures"]] == [(40, 30), (40, 30)]
    first, second = map(json.loads, row["extracted_figures_metadata"])
    assert first == {
        "figure_id": "0123456789abcdef-p00001-f01",
        "label": "chart",
        "bounding_box_pixels": {"x1": 100, "y1": 30, "x2": 200, "y2": 270},
        "description": "A chart.",
        "caption": "A chart",
        "status": "ok",
        "class": None,
        "data": None,
    }
    assert (second["description"], second["status"]) == (None, None)
    assert row["document_final_markdown"] == "final 1"
    assert row["blocks"][0]["kind"] == "heading"
    assert row["blocks"][0]["box"] == {"x0": 0.1, "y0": 0.1, "x1": 0.9, "y1": 0.2}
    assert [json.loads(text) for text in row["attempts"]] == [{"status": "ok", "tokens_in": 3}]


def test_the_ledger_is_in_the_dataset(load):
    ledger = Ledger(0.25, 0.03, 0.2, 0.1, (Box(0.1, 0.8, 0.9, 0.9),), (Span(1, 4, 9),), "layer")
    row, without = load({"a": dataset_to_parquet([good(1, ledger=ledger, invisible_chars=16), good(2)])})["train"]
    assert (row["ink"], row["unread_share"], row["unsupported_share"], row["furniture_share"]) == (0.25, 0.03, 0.2, 0.1)
    assert (row["invisible_chars"], without["invisible_chars"], row["verified_by"]) == (16, 0, "layer")
    assert row["unread"] == [{"x0": 0.1, "y0": 0.8, "x1": 0.9, "y1": 0.9}]
    assert row["unsupported"] == [{"block": 1, "start": 4, "end": 9}]
    assert (without["ink"], without["verified_by"], without["unread"], without["unsupported"]) == (None, None, [], [])


def test_image_bytes_are_copied_not_encoded_again(load):
    import datasets

    row = good()
    data = load({"a": dataset_to_parquet([row])})["train"]
    raw = data.cast_column("source_image", datasets.Image(decode=False))[0]["source_image"]
    assert raw["bytes"] == row.record.image.data
    assert raw["path"] == "0123456789abcdef-p00001.png"


@pytest.mark.parametrize(("images", "pages", "figures"), [("all", 1, 2), ("figures", 0, 2), ("none", 0, 0)])
def test_images_can_be_left_out_while_the_columns_stay(load, images, pages, figures):
    data = load({"a": dataset_to_parquet([good()], Images(images))})["train"]
    assert data.column_names == COLUMNS
    assert (data[0]["source_image"] is not None) == bool(pages)
    assert (data[0]["document_with_boxes_image"] is not None) == bool(pages)
    assert len(data[0]["extracted_figures"]) == figures
    assert len(data[0]["extracted_figures_metadata"]) == 2


def test_the_same_folder_can_be_streamed(load):
    stream = load({"a": dataset_to_parquet([good(n) for n in range(1, 4)])}, streaming=True, split="train")
    assert [row["source_image"].size for row in stream] == [(400, 300)] * 3


def test_features_are_those_that_datasets_would_write():
    import datasets

    data = dataset_to_parquet([good()])
    schema = pq.read_schema(io.BytesIO(data))
    features = datasets.Features.from_arrow_schema(schema)
    assert features == datasets.Features.from_dict(dict(FEATURES))
    assert features.arrow_schema.remove_metadata() == schema.remove_metadata()
    assert isinstance(features["source_image"], datasets.Image)


def test_row_groups_are_small_enough_to_stream(tmp_path):
    path = tmp_path / "many.parquet"
    with DatasetWriter(path, Images.NONE) as writer:
        for number in range(1, 122):
            writer.add(good(number))
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [100, 21]


def test_row_groups_are_bounded_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("llm_ocr.results.dataset.GROUP_BYTES", 100_000)
    heavy = replace(picture(), data=b"x" * 30_000)
    path = tmp_path / "heavy.parquet"
    with DatasetWriter(path) as writer:
        for number in range(1, 7):
            writer.add(DatasetRow(record(number, figures=0, image=heavy), ""))
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [4, 2]


def test_text_that_cannot_be_stored_is_cleaned(load):
    page = record(1, markdown="a\ud800", source="/in/\udcff.pdf", status=Status.DEGRADED)
    [row] = load({"a": dataset_to_parquet([DatasetRow(page, "b\udfff\0")])})["train"]
    assert (row["document_markdown"], row["document_final_markdown"], row["source"]) == ("a�", "b�\0", "/in/�.pdf")


def read(data: bytes) -> list[tuple[str, str]]:
    return [tuple(row.values()) for row in pq.read_table(io.BytesIO(data)).to_pylist()]


def test_final_markdown_comes_back_by_page():
    rows = [("d-p00001", "# A\n\n![x](figure:f)"), ("d-p00002", ""), ("é/日本-p00003", "a\x00b \U0001f600 ```")]
    assert read(finals_to_parquet(rows)) == rows
    assert read(finals_to_parquet([])) == []
