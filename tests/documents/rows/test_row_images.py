"""Images of rows equal the dataset's bytes, each row group is fetched once, and a missing image fails alone."""

import asyncio
import contextlib
import os
import threading
import time

import pyarrow as pa
import pytest
from dataset_hub import IMAGE, TOKEN, cell, parquet, picture

from llm_ocr.documents.remote import RemoteOptions
from llm_ocr.documents.remote.cache import DiskError
from llm_ocr.documents.remote.listing import RemoteDocuments
from llm_ocr.documents.rows import DataFile, DatasetOptions, RowAddress, row_address
from llm_ocr.documents.rows import files as files_of_rows
from llm_ocr.documents.rows.images import Groups, RowImages
from llm_ocr.documents.rows.listing import dataset_rows
from llm_ocr.errors import PageFailure, StorageError
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.hf.client import RetryPolicy
from llm_ocr.types import Reason
from tests.fakes.hub.server import Fault, How

NAME = "tester/docs"
LISTS = pa.list_(IMAGE)


@contextlib.asynccontextmanager
async def row_images(hub, tmp_path, **options):
    """The way in, as a run has it."""
    folder = tmp_path / "copies"
    limits = RemoteOptions(StoreOptions(token=TOKEN), cache_folder=folder, **options)
    async with RemoteDocuments(limits) as others:
        images = RowImages(limits, others.open)
        try:
            yield images
        finally:
            await images.close()


def addresses(**options):
    return [row_address(row.source) for row in dataset_rows(DatasetOptions(NAME, **options))]


async def content(images, address, number=1):
    async with images.open(address, number) as (path, _):
        return path.read_bytes()


async def failure(images, address, number=1):
    with pytest.raises(PageFailure) as caught:
        await content(images, address, number)
    return caught.value


def everything(hub, tmp_path, asked, **options):
    """What is asked for, all at once; failures as such."""

    async def run():
        async with row_images(hub, tmp_path, **options) as images:
            return await asyncio.gather(*(content(images, *one) for one in asked), return_exceptions=True)

    return asyncio.run(run())


def put(hub, columns, types, *, name="train.parquet", **how):
    return hub.add(NAME, {name: parquet(columns, types, **how)})


@pytest.mark.parametrize("kind", [IMAGE, pa.binary(), pa.struct([("bytes", pa.large_binary())])], ids=str)
def test_images_are_those_of_the_dataset(hub, tmp_path, kind):
    pictures = [picture(str(n), kind="JPEG") for n in range(11)]
    rows = pictures if kind == pa.binary() else [{"bytes": one} for one in pictures]
    put(hub, {"image": rows}, {"image": kind})
    asked = [(address,) for address in addresses(image_column="image")]
    assert everything(hub, tmp_path, asked) == pictures


def test_lists_give_each_of_their_images(hub, tmp_path):
    pictures = [picture(str(n)) for n in range(6)]
    rows = [[cell(one) for one in pictures[first:last]] for first, last in ((0, 1), (1, 4), (4, 4), (4, 6))]
    put(hub, {"images": rows}, {"images": LISTS}, rows=3)
    first, second, empty, last = addresses()
    asked = [(first, 1), (second, 1), (second, 2), (second, 3), (last, 1), (last, 2), (empty, 1), (second, 4)]
    found = everything(hub, tmp_path, asked)
    assert found[:6] == pictures
    assert [(one.reason, one.detail) for one in found[6:]] == [
        (Reason.NOT_FOUND, "no image in row 2"),
        (Reason.NO_SUCH_PAGE, "image 4 of 3 in row 1"),
    ]


def test_row_group_is_read_once_for_all_rows_and_nothing_else(hub, tmp_path):
    big = [picture("x") + os.urandom(100_000) for _ in range(12)]
    types = {"image": IMAGE, "other": pa.binary()}
    columns = {"image": [cell(one) for one in big], "other": [os.urandom(1_000_000) for _ in big]}
    put(hub, columns, types, rows=4, use_dictionary=False, compression="none")
    asked = [(address,) for address in addresses(image_column="image")[4:8]]
    hub.served.clear()
    assert everything(hub, tmp_path, asked * 3) == big[4:8] * 3
    group = sum(len(one) for one in big[4:8])
    assert group < sum(hub.served) < 1.5 * group


def test_rows_without_an_image_fail_alone(hub, tmp_path):
    put(hub, {"image": [cell(picture("a")), None, cell(None), cell(b"")]}, {"image": IMAGE})
    good, none, nothing, empty = everything(hub, tmp_path, [(address,) for address in addresses()])
    assert good == picture("a")
    assert [str(one) for one in (none, nothing)] == ["not found: no image in row 1", "not found: no image in row 2"]
    assert empty == b""  # the renderer says what is wrong with it


def test_rows_that_name_repository_files_are_read_from_there(hub, tmp_path):
    at_root, beside = picture("root"), picture("beside")
    hub.add(NAME, {"images/a.png": at_root, "data/images/b.png": beside, "other/c.png": b"of the first commit"})
    paths = [
        "images/a.png",
        "images/b.png",
        "./images/a.png",
        f"hf://datasets/{NAME}@main/images/a.png",
        f"{hub.server.url.replace('http', 'https')}/datasets/{NAME}/resolve/main/images/a.png",
    ]
    put(hub, {"image": [cell(None, path) for path in paths]}, {"image": IMAGE}, name="data/train.parquet")
    asked = [(address,) for address in addresses()]
    hub.add(NAME, {"images/a.png": picture("another")})  # the plan's commit is read
    assert everything(hub, tmp_path, asked) == [at_root, beside, at_root, at_root, at_root]


@pytest.mark.parametrize(
    "path",
    [
        *("images/missing.png", "../../etc/passwd", "/etc/passwd", "https://example.invalid/a.png"),
        *("http://127.0.0.1:9/a.png", "file:///etc/passwd", "hf://datasets/tester/other/a.png", "s3://bucket/a.png"),
    ],
)
def test_row_cannot_fetch_files_outside_the_repository(hub, tmp_path, path):
    put(hub, {"image": [cell(None, path)]}, {"image": IMAGE})
    (found,) = everything(hub, tmp_path, [(address,) for address in addresses()])
    assert isinstance(found, PageFailure)
    assert found.reason is Reason.NOT_FOUND
    assert path in str(found)


def test_a_damaged_row_group_costs_its_rows_alone(hub, tmp_path):
    good = parquet({"image": [cell(picture(str(n))) for n in range(8)]}, {"image": IMAGE}, compression="gzip")
    start = pa.parquet.ParquetFile(pa.BufferReader(good)).metadata.row_group(1).column(0).data_page_offset
    hub.add(NAME, {"train.parquet": good[:start] + bytes(60) + good[start + 60 :]})
    found = everything(hub, tmp_path, [(address,) for address in addresses()])
    assert found[:4] == [picture(str(n)) for n in range(4)]
    assert {one.reason for one in found[4:]} == {Reason.UNREADABLE}
    assert all("train.parquet" in str(one) for one in found[4:])


def test_a_file_that_is_no_longer_there_fails_its_rows(hub, tmp_path):
    put(hub, {"image": [cell(picture("a"))]}, {"image": IMAGE})
    (address,) = addresses()
    gone = RowAddress(DataFile(NAME, address.file.commit, "gone.parquet"), 0, "image")
    beyond = RowAddress(address.file, 7, "image")
    found = everything(hub, tmp_path, [(gone,), (beyond,)])
    assert [one.reason for one in found] == [Reason.NOT_FOUND, Reason.NOT_FOUND]


@pytest.mark.parametrize("what", ["gone", "no right", "outage"])
def test_unreadable_dataset_ends_the_run_and_fails_no_page(hub, tmp_path, monkeypatch, what):
    put(hub, {"image": [cell(picture("a"))]}, {"image": IMAGE})
    asked = [(address,) for address in addresses()]
    if what == "gone":
        hub.api.delete_repo(NAME, repo_type="dataset")
    elif what == "no right":
        monkeypatch.delenv("HF_TOKEN")
    else:
        quick = RetryPolicy(tries=2, first=0.01, longest=0.02)
        monkeypatch.setattr(files_of_rows, "RETRIES", quick)
        hub.server.faults.add(Fault("resolve", status=500, times=1000))
        monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    (found,) = everything(hub, tmp_path, asked)
    assert isinstance(found, StorageError)
    assert NAME in str(found)


def test_a_hub_that_fails_for_a_moment_costs_nothing(hub, tmp_path, monkeypatch):
    put(hub, {"image": [cell(picture("a"))]}, {"image": IMAGE})
    asked = [(address,) for address in addresses()]
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.server.faults.add(Fault("resolve", status=503), Fault("lfs_get", status=429), Fault("lfs_get", how=How.CUT))
    assert everything(hub, tmp_path, asked) == [picture("a")]


def test_the_local_copies_keep_to_their_limit_and_go_at_the_end(hub, tmp_path):
    big = [os.urandom(50_000) for _ in range(24)]
    put(hub, {"image": [cell(one) for one in big]}, {"image": IMAGE}, use_dictionary=False)
    folder = tmp_path / "copies"
    most = 0

    async def run():
        nonlocal most
        async with row_images(hub, tmp_path, cache_bytes=500_000) as images:
            for address, expected in zip(addresses(), big, strict=True):
                assert await content(images, address) == expected
                sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
                most = max(most, sum(sizes))

    asyncio.run(run())
    assert 200_000 < most <= 500_000 + 50_000
    assert list(folder.iterdir()) == []


def test_unwritable_local_disk_is_no_error_of_the_dataset(hub, tmp_path):
    put(hub, {"image": [cell(picture("a"))]}, {"image": IMAGE})
    (address,) = addresses()
    groups = Groups(files_of_rows.HubFiles())
    with pytest.raises(DiskError, match="missing"):
        groups.copy(groups.of(address), address.column, tmp_path / "missing" / "group", threading.Event())


def test_who_gives_up_leaves_nothing_behind(hub, tmp_path):
    put(hub, {"image": [cell(os.urandom(50_000)) for _ in range(8)]}, {"image": IMAGE}, use_dictionary=False)
    one, *_, other = addresses()
    hub.server.faults.add(Fault("lfs_get", how=How.DELAY, seconds=0.2, after=1))  # behind the footer

    async def run():
        async with row_images(hub, tmp_path) as images:
            before = hub.server.requests["lfs_get"]
            waiting = asyncio.create_task(content(images, one))
            await asyncio.to_thread(_asked, hub, before + 2)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert len(await content(images, other)) == 50_000
            assert len(await content(images, one)) == 50_000

    asyncio.run(run())
    for thread in threading.enumerate():
        if thread.name.startswith("llm-ocr-rows"):
            thread.join(60)
    assert list((tmp_path / "copies").iterdir()) == []


def _asked(hub, often):
    """Wait until so many ranges were asked for."""
    end = time.monotonic() + 60
    while hub.server.requests["lfs_get"] < often:
        assert time.monotonic() < end
        time.sleep(0.005)
