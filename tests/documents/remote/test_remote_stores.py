"""Documents on stores come whole, of one version, or fail with a reason."""

import asyncio
import os

import pytest
from store_doubles import Buckets, Passing, copies, opened, version_of

from llm_ocr.documents.remote.cache import DiskError, store_version
from llm_ocr.errors import PageFailure, StorageError
from llm_ocr.storage import ObjectInfo
from llm_ocr.types import Reason


@pytest.fixture
def buckets(tmp_path):
    return Buckets(tmp_path / "buckets")


def test_a_changed_object_is_a_changed_source_and_a_missing_one_not_found(buckets, tmp_path):
    url = buckets.put("s3://bucket/a.pdf")

    async def failing(version):
        async with opened(buckets, tmp_path) as documents:
            with pytest.raises(PageFailure) as caught:
                async with documents.open(url, version):
                    pass
        return caught.value.reason

    async def run():
        async with opened(buckets, tmp_path) as documents:
            version = await version_of(documents, url)
        buckets.put(url, b"%PDF-1.5 y and more")
        assert await failing(version) is Reason.SOURCE_CHANGED
        (tmp_path / "buckets/s3/bucket/a.pdf").unlink()
        assert await failing(version) is Reason.NOT_FOUND
        assert await failing("") is Reason.NOT_FOUND

    asyncio.run(run())


@pytest.mark.parametrize("content", [b"%PDF-1.5 z", b"%PDF", b"%PDF-1.5 longer"])
@pytest.mark.parametrize("piece", [4, 1000])
def test_an_object_that_changes_while_it_is_read_is_not_taken(tmp_path, monkeypatch, piece, content):
    monkeypatch.setattr("llm_ocr.documents.remote.stores._PIECE", piece)

    def change(call, key):
        if call == "read":
            buckets.put(url, content)

    buckets = Buckets(tmp_path / "buckets", change)
    url = buckets.put("s3://bucket/a.pdf")

    async def run():
        async with opened(buckets, tmp_path) as documents:
            with pytest.raises(PageFailure) as caught:
                await version_of(documents, url)
            assert caught.value.reason is Reason.SOURCE_CHANGED
            assert copies(tmp_path) == []
            assert documents.used == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "requests", "passes"), [(StorageError, 1, False), (Passing, 4, False), (Passing, 2, True)]
)
def test_errors_of_a_store_fail_the_document_and_passing_ones_are_tried_again(tmp_path, error, requests, passes):
    left = [True] * (1 if passes else 99)

    def failing(call, key):
        if call == "read" and left:
            left.pop()
            raise error("no luck")

    buckets = Buckets(tmp_path / "buckets", failing)
    url = buckets.put("s3://bucket/a.pdf")

    async def run():
        async with opened(buckets, tmp_path) as documents:
            if passes:
                assert await version_of(documents, url)
            else:
                for _ in range(3):  # all pages of the document; its server is asked for the first alone
                    with pytest.raises(PageFailure) as caught:
                        await version_of(documents, url)
                    assert caught.value.reason is Reason.UNREADABLE
                    assert "no luck" in caught.value.detail
            assert buckets.opened["s3://bucket"].calls["read"] == requests

    asyncio.run(run())


def test_a_url_that_names_no_object_fails_alone(buckets, tmp_path):
    async def run():
        async with opened(buckets, tmp_path) as documents:
            for url in ("s3://", "hf://owner/name/a.pdf", "s3://bucket/../a.pdf"):
                with pytest.raises(PageFailure) as caught:
                    await version_of(documents, url)
                assert caught.value.reason is Reason.UNREADABLE

    asyncio.run(run())


def test_documents_are_read_in_pieces_that_are_joined_right(buckets, tmp_path, monkeypatch):
    monkeypatch.setattr("llm_ocr.documents.remote.stores._PIECE", 7)
    data = os.urandom(100)
    urls = [buckets.put("gs://bucket/a.pdf", data), buckets.put("hf://datasets/o/n@main/empty.pdf", b"")]

    async def run():
        documents = opened(buckets, tmp_path)
        async with documents, documents.open(urls[0]) as one, documents.open(urls[1]) as two:
            assert (one.path.read_bytes(), two.path.read_bytes()) == (data, b"")
        assert set(buckets.opened) == {"gs://bucket", "hf://datasets/o/n@main"}

    asyncio.run(run())


def test_a_full_disk_is_no_fault_of_the_document(buckets, tmp_path):
    url = buckets.put("s3://bucket/a.pdf")

    async def run():
        async with opened(buckets, tmp_path) as documents:
            await version_of(documents, buckets.put("s3://bucket/b.pdf"))
            (folder,) = (tmp_path / "copies").iterdir()
            moved = folder.rename(tmp_path / "copies" / "away")
            with pytest.raises(DiskError) as caught:
                await version_of(documents, url)
            assert str(folder) in str(caught.value)
            moved.rename(folder)
            assert await version_of(documents, url)

    asyncio.run(run())


def test_equal_tokens_make_copies_only_where_tokens_are_made_of_the_content():
    def versions(root):
        return {store_version(f"{root}/{key}", ObjectInfo(key, 5, "token")) for key in ("a.pdf", "b.pdf")}

    assert len(versions("s3://bucket")) == 1
    assert len(versions("gs://bucket")) == 2
