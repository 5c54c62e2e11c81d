"""Datasets in the predecessor's form, created with the real `datasets`, in a folder and on the emulated stores."""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from PIL import Image, ImageDraw, ImageFont

import llm_ocr
from tests.fakes.gcs import running

if TYPE_CHECKING:
    from datasets import Dataset

WIDTH, HEIGHT = 400, 300
BOX = (100, 60, 300, 150)
_NUMBERS = itertools.count(1)


def page_image(number: int) -> Image.Image:
    """Return a page with a framed word, different on each page."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle(BOX, outline="black", width=2)
    draw.text((BOX[0] + 12, BOX[1] + 25), f"Sales {2000 + number}", fill="black", font=ImageFont.load_default(32))
    return image


def figure_name(number: int, figure: int = 1) -> str:
    """Return the predecessor's name of a figure of row `number`."""
    return f"sample_{number:05d}_fig{figure:02d}"


def metadata(number: int, description: str | None = None, figure: int = 1, **other: Any) -> str:
    """Return one figure's metadata."""
    sides = dict(zip(("x1", "y1", "x2", "y2"), BOX, strict=True))
    about = {"figure_id": figure_name(number, figure), "label": "image", "bounding_box_pixels": sides}
    return json.dumps({**about, "description": description, **other})


def row(number: int, description: str | None = None, **other: Any) -> dict[str, Any]:
    """Return one page with one figure; `other` replaces columns."""
    image, name = page_image(number), figure_name(number)
    made = {
        "sample_id": f"sample_{number:05d}",
        "dataset_index": number,
        "source_image": image,
        "document_with_boxes_image": image,
        "document_markdown": f"# Page {number}\n\n![{name}](figure:{name})\n\nThe end.",
        "extracted_figures": [image.crop(BOX)],
        "extracted_figures_metadata": [metadata(number, description)],
        "document_final_markdown": "",
    }
    return {**made, **other}


def dataset(rows: list[dict[str, Any]]) -> "Dataset":
    """Return the rows in the form of the predecessor's Extract, as in its documentation: one row is one page."""
    import datasets

    text, image = datasets.Value("string"), datasets.Image()
    many = getattr(datasets, "List", None) or datasets.Sequence  # before datasets 4
    columns = {
        "sample_id": text,
        "dataset_index": datasets.Value("int64"),
        "source_image": image,
        "document_with_boxes_image": image,
        "document_markdown": text,
        "extracted_figures": many(image),
        "extracted_figures_metadata": many(text),
        "document_final_markdown": text,
    }
    return datasets.Dataset.from_list(rows, features=datasets.Features(columns))


def saved(rows: list[dict[str, Any]], folder: Path, *, shards: int = 2) -> Path:
    """Return the folder that `save_to_disk` has written."""
    dataset(rows).save_to_disk(folder, num_shards=min(shards, len(rows)))
    return folder


def folder_input(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    """Return the same at the predecessor's path below the folder of a run."""
    return saved(rows, tmp_path / "run" / "dataset")


def documents(run: llm_ocr.Run) -> dict[str, str]:
    """Return the assembled Markdown by document id."""
    return {document.document_id: document.markdown for document in run.documents()}


def saved_splits(splits: dict[str, list[dict[str, Any]]], folder: Path) -> Path:
    """Return the folder that `save_to_disk` has written for several splits."""
    from datasets import DatasetDict

    DatasetDict({name: dataset(rows) for name, rows in splits.items()}).save_to_disk(folder)
    return folder


def parquet(rows: list[dict[str, Any]], folder: Path, *, split: str = "train") -> Path:
    """Write Parquet files with the names of `push_to_hub`, one per two rows."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [rows[start : start + 2] for start in range(0, len(rows), 2)]
    for number, part in enumerate(parts):
        dataset(part).to_parquet(folder / f"{split}-{number:05d}-of-{len(parts):05d}.parquet")
    return folder


@dataclass(frozen=True)
class Place:
    """Place of a dataset, and possibly of a workspace: `input` is the name for users."""

    input: str
    workspace: str
    settings: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)  # for access from another process


Put = Callable[[Path], Place]


@contextlib.contextmanager
def in_folder(tmp_path: Path) -> Iterator[Put]:
    """Leave the dataset in its folder."""
    yield lambda folder: Place(str(folder), str(tmp_path / "w"))


@contextlib.contextmanager
def on_s3(tmp_path: Path) -> Iterator[Put]:
    """Copy the dataset to moto's server, next to the workspace."""
    from tests.storage.s3 import making

    with making.aws_environment():
        bucket = making.new_place().bucket

        def put(folder: Path) -> Place:
            for path in sorted(folder.rglob("*.*")):
                making.raw().upload_file(str(path), bucket, f"run/dataset/{path.relative_to(folder).as_posix()}")
            settings = {"workspace_endpoint": making.moto_url()}
            variables = {**making.ENVIRONMENT, "AWS_ENDPOINT_URL": making.moto_url()}
            return Place(f"s3://{bucket}/run/dataset", f"s3://{bucket}/w", settings, variables)

        yield put


@contextlib.contextmanager
def on_gcs(tmp_path: Path) -> Iterator[Put]:
    """Copy the dataset to the fake GCS; the workspace is a folder."""
    pytest.importorskip("google.cloud.storage")
    from llm_ocr.storage import StoreOptions, open_store

    with running("bucket") as server, mock.patch.dict(os.environ, {"STORAGE_EMULATOR_HOST": server.url}):

        def put(folder: Path) -> Place:
            url = f"gs://bucket/run-{next(_NUMBERS)}/dataset"
            store = open_store(url, StoreOptions())
            for path in sorted(folder.rglob("*.*")):
                store.upload(path, path.relative_to(folder).as_posix())
            return Place(url, str(tmp_path / "w"), variables={"STORAGE_EMULATOR_HOST": server.url})

        yield put


@contextlib.contextmanager
def on_hub(tmp_path: Path) -> Iterator[Put]:
    """Copy the dataset to a dataset repository of the fake Hub; the workspace is a folder."""
    from tests.storage.hub import making

    home = tmp_path / "hf home"
    home.mkdir()
    with making.hub_environment(home), mock.patch.dict(os.environ, {"HF_TOKEN": making.TOKEN}):

        def put(folder: Path) -> Place:
            place = making.new_place("dataset", "")
            making.api().upload_folder(
                repo_id=place.id, folder_path=folder, path_in_repo="data", repo_type="dataset", commit_message="rows"
            )
            return Place(place.id, str(tmp_path / "w"))

        yield put
