"""The address of a row survives being written down, whatever its file and column are called."""

import pytest

from llm_ocr.documents.remote.urls import is_remote
from llm_ocr.documents.rows.address import DataFile, RowAddress, row_address
from llm_ocr.workspace.codec import document_id

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("path", ["train.parquet", "a b/c#d.parquet", "50%/ü?x=1&y.parquet", "x@main/y.parquet"])
@pytest.mark.parametrize("column", ["image", "page image", "a&b#c=d/e", "Bild ü", ""])
def test_an_address_comes_back_from_its_url(path, column):
    address = RowAddress(DataFile("ns/name", COMMIT, path), 1234567, column)
    assert row_address(address.url) == address
    assert is_remote(address.url)
    assert address.relative == f"{path}/1234567"


@pytest.mark.parametrize(
    "source",
    [
        "/docs/a.pdf",
        "hf://datasets/ns/name/a.parquet",
        f"hf://datasets/ns/name@{COMMIT}/a.parquet",
        "hf://datasets/ns/name@main/a.parquet#row=1&column=image",
        f"hf://datasets/ns/name@{COMMIT}/a.parquet#row=x&column=image",
        f"hf://buckets/ns/name@{COMMIT}/a.parquet#row=1&column=image",
    ],
)
def test_other_sources_are_no_rows(source):
    assert row_address(source) is None


def test_ids_are_made_of_commit_file_and_row():
    def made(commit=COMMIT, path="a.parquet", row=1):
        address = RowAddress(DataFile("ns/name", commit, path), row, "image")
        return document_id(None, relative=address.relative, version=address.version, source=address.url)

    ids = {made(), made(commit="f" * 40), made(path="b.parquet"), made(row=2)}
    assert len(ids) == 4
    assert all(len(one) == 16 for one in ids)
    assert made() == made()
