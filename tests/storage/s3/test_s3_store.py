"""What an S3 bucket can hold and show, beside what every store promises."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from llm_ocr.errors import ObjectNotFound, StorageError
from llm_ocr.storage import s3
from llm_ocr.storage.s3.client import Limits, Service, _time
from tests.storage.s3 import making

STRANGE = ["a b", "a+b", "a%2Bb", "a?b&c=d", "a#b", "é/日本", "[x],-y", "a\\b", "~'\"<>", "a:b@c", "😀"]


def names(store, prefix=""):
    return [info.key for info in store.list(prefix)]


@pytest.mark.parametrize("prefix", ["", "runs/a b+c%20d/é"])
def test_keys_and_prefixes_are_taken_as_they_are(raw, prefix):
    place = making.new_place(prefix)
    store = making.store_at(place)
    for key in STRANGE:
        store.put(key, key.encode())
    assert names(store) == sorted(STRANGE)
    assert all(store.get(key) == key.encode() and store.stat(key).key == key for key in STRANGE)
    there = raw.list_objects_v2(Bucket=place.bucket)["Contents"]
    assert sorted(one["Key"] for one in there) == sorted(place.root + key for key in STRANGE)
    for key in STRANGE:
        store.delete(key)
    assert names(store) == []


def test_a_workspace_sees_nothing_beside_its_prefix(store, place, raw):
    for key in ("runs/one", "runs/one2/x", "runs/on", "other"):
        raw.put_object(Bucket=place.bucket, Key=key, Body=b"not ours")
    store.put("x", b"ours")
    assert names(store) == ["x"]
    assert names(store, "x") == ["x"]
    assert store.stat("2/x") is None


def test_foreign_objects_that_are_not_keys_are_not_listed(store, place, raw):
    for key in ("", "folder/", "a//b", ".probe/left"):
        raw.put_object(Bucket=place.bucket, Key=f"{place.root}{key}", Body=b"")
    store.put("folder/x", b"")
    assert names(store) == ["folder/x"]


def test_one_client_serves_many_threads(store):
    begin = threading.Barrier(16)

    def work(number: int) -> object:
        begin.wait()
        store.put(f"k/{number}", b"%d" % number)
        assert store.get(f"k/{number}") == b"%d" % number
        return store._connection.client

    with ThreadPoolExecutor(16) as pool:
        assert len(set(map(id, pool.map(work, range(16))))) == 1
    assert len(names(store)) == 16


def test_nothing_is_connected_to_before_the_first_use(proxy, place):
    assert making.store_at(place, proxy.url).url == place.url
    assert proxy.seen == []


def test_only_a_file_above_the_limit_is_uploaded_in_parts(behind, place, proxy, tmp_path):
    data = random.Random(1).randbytes(9_000_000)
    (tmp_path / "big").write_bytes(data)
    (tmp_path / "small").write_bytes(data[: 5 << 20])
    store = making.store_at(place, proxy.url, Limits(multipart=5 << 20))
    store.upload(tmp_path / "big", "big")
    assert sorted(proxy.methods()) == ["POST", "POST", "PUT", "PUT"]
    assert store.get("big") == data
    proxy.seen.clear()
    store.upload(tmp_path / "small", "small")
    assert proxy.methods() == ["PUT"]
    assert store.get("small") == data[: 5 << 20]
    assert list(store.unfinished()) == []


@pytest.mark.parametrize(("method", "lost"), [("PUT", "partNumber=2"), ("POST", "uploadId=")], ids=["part", "joining"])
def test_lost_answer_to_a_part_or_to_joining_parts_is_no_error(place, proxy, tmp_path, method, lost):
    data = random.Random(2).randbytes(9_000_000)
    (tmp_path / "big").write_bytes(data)
    store = making.store_at(place, proxy.url, Limits(retries=2, multipart=5 << 20))
    proxy.add(method=method, containing=lost, lost="after")
    store.upload(tmp_path / "big", "big")
    assert store.get("big") == data
    assert list(store.unfinished()) == []


def test_an_upload_that_fails_is_given_up(place, proxy, tmp_path):
    (tmp_path / "big").write_bytes(bytes(9_000_000))
    store = making.store_at(place, proxy.url, Limits(retries=0, multipart=5 << 20))
    proxy.add(method="PUT", containing="partNumber=2", status=403, code="AccessDenied")
    with pytest.raises(StorageError, match="s3:PutObject"):
        store.upload(tmp_path / "big", "folder/big")
    assert list(store.unfinished()) == []
    assert names(store) == []


def test_parts_of_a_dead_process_are_found_with_size_and_removed(store, place, raw):
    begun = raw.create_multipart_upload(Bucket=place.bucket, Key=f"{place.root}a/b: c")
    upload = {"Bucket": place.bucket, "Key": f"{place.root}a/b: c", "UploadId": begun["UploadId"]}
    raw.upload_part(**upload, PartNumber=1, Body=b"12345")
    raw.create_multipart_upload(Bucket=place.bucket, Key="runs/other/x")
    store.put("a/whole", b"")
    (left,) = store.unfinished()
    assert left.key.startswith("a/.tmp-")
    assert left.size == 5
    assert left.modified > 1_200_000_000  # moto says 2010
    store.delete(left.key)
    store.delete(left.key)
    assert list(store.unfinished()) == []
    assert names(store) == ["a/whole"]
    assert len(raw.list_multipart_uploads(Bucket=place.bucket)["Uploads"]) == 1


@pytest.mark.parametrize(
    ("status", "code"), [(501, "NotImplemented"), (405, "MethodNotAllowed"), (403, "AccessDenied")]
)
def test_uploads_that_cannot_be_listed_are_none_and_it_is_said(behind, proxy, caplog, status, code):
    proxy.add(containing="uploads", status=status, code=code)
    assert list(behind.unfinished()) == []
    assert code in caplog.text


def test_only_hugging_face_may_answer_upload_list_unclearly(behind, proxy):
    proxy.add(containing="uploads", status=400, code="InvalidRequest", times=2)
    with pytest.raises(StorageError, match="InvalidRequest"):
        list(behind.unfinished())
    behind._connection = replace(behind._connection, service=Service.HUGGING_FACE)
    assert list(behind.unfinished()) == []


def test_removal_answered_with_object_not_found_is_no_error(behind, proxy):
    proxy.add(method="DELETE", status=404, code="NoSuchKey")
    behind.delete("k")
    proxy.add(method="DELETE", status=404, code="NoSuchBucket")
    with pytest.raises(StorageError, match="no bucket"):
        behind.delete("k")


def test_interrupted_list_is_an_error_and_not_a_short_list(behind, place, proxy, raw):
    for number in range(3):
        raw.put_object(Bucket=place.bucket, Key=f"{place.root}{number}", Body=b"")
    proxy.add(containing="list-type=2", status=500, code="InternalError", times=9)
    with pytest.raises(StorageError) as caught:
        names(behind)
    assert caught.value.retryable


@pytest.mark.slow
def test_a_download_appears_whole_or_not_at_all(behind, proxy, tmp_path, monkeypatch):
    monkeypatch.setattr(s3, "_WRITE_PAUSES", (0.0, 0.0))
    data = bytes(range(256)) * 400
    behind.put("k", data)
    target = tmp_path / "file"
    proxy.add(method="GET", torn=True, times=2)
    behind.download("k", target)
    assert target.read_bytes() == data
    target.write_bytes(b"older")
    proxy.add(method="GET", torn=True, times=99)
    with pytest.raises(StorageError) as caught:
        behind.download("k", target)
    assert caught.value.retryable
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"older")]


def test_a_download_into_a_folder_that_is_not_there_says_so(store, tmp_path):
    store.put("k", b"1")
    with pytest.raises(StorageError, match="No such file") as caught:
        store.download("k", tmp_path / "missing" / "file")
    assert not isinstance(caught.value, ObjectNotFound)


def test_the_range_of_a_service_that_knows_no_ranges_is_cut_here(behind, proxy):
    behind.put("k", b"0123456789")
    proxy.hidden = {"Range"}
    assert behind.read_range("k", 3, 4) == b"3456"
    assert behind.read_range("k", 20, 4) == b""


def test_encryption_is_left_to_the_bucket(behind, proxy, tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    behind.create("a", b"1")
    behind.put("b", b"1")
    behind.upload(tmp_path / "file", "c")
    sent = {name.lower() for _, _, headers in proxy.seen for name in headers}
    assert not any("encryption" in name or "acl" in name or "storage-class" in name for name in sent)


@pytest.mark.parametrize(
    "written",
    [
        *("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00"),
        *("Thu, 01 Jan 2026 00:00:00 GMT", "20260101T000000Z", "2026-01-01T00:00:00", 1767225600, "1767225600"),
    ],
)
def test_all_forms_of_one_time_are_the_same(written):
    assert _time(written).timestamp() == 1767225600


def test_what_is_no_time_is_an_error():
    with pytest.raises(ValueError, match="no time"):
        _time("no time")
