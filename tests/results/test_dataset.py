"""The dataset folder opens with the real `load_dataset`, images and failed rows included."""

import io
import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from made import dataset_to_parquet, described, failed, picture, record
from running import COLUMNS

from llm_ocr.results.dataset import FEATURES, DatasetRow, DatasetWriter, dataset_file
from llm_ocr.results.schema import Images
from llm_ocr.types import Status


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
        for number in range(1, 251):
            writer.add(good(number))
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [100, 100, 50]


def test_row_groups_are_bounded_in_bytes(tmp_path):
    heavy = replace(picture(), data=b"x" * 30_000_000)
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
