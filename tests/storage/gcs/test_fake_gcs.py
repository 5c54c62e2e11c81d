"""The stand-in for Google Cloud Storage behaves as Google's own client expects it to."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from google.api_core.exceptions import Conflict, NotFound, PreconditionFailed
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.fakes.gcs import Fault


@pytest.fixture
def bucket(gcs):
    client = storage.Client(
        project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": gcs.url}, _http=None
    )
    client._bucket_metadata_cache = None
    return client.bucket("a-bucket")


def write(bucket, name, data=b"", **kwargs):
    blob = bucket.blob(name)
    blob.upload_from_string(data, **kwargs)
    return blob


def test_buckets_are_made_found_and_removed(bucket):
    client = bucket.client
    client.create_bucket("another")
    with pytest.raises(Conflict):
        client.create_bucket("another")
    assert [found.name for found in client.list_buckets()] == ["a-bucket", "another"]
    assert client.bucket("another").exists()
    client.bucket("another").delete()
    assert not client.bucket("another").exists()
    write(bucket, "k")
    with pytest.raises(Conflict):
        bucket.delete()


@pytest.mark.parametrize("size", [0, 10, 9_000_000])
def test_contents_of_any_size_come_back_with_their_checksums(bucket, size):
    data = b"x" * size
    blob = write(bucket, "é/a b", data, checksum="md5")
    found = bucket.get_blob("é/a b")
    assert (found.size, found.generation, found.crc32c) == (size, blob.generation, blob.crc32c)
    assert found.download_as_bytes(checksum="md5") == data
    assert found.updated == found.time_created


def test_preconditions_hold_for_writes_deletes_reads_and_copies(bucket):
    blob = write(bucket, "k", b"1", if_generation_match=0)
    for stale in (0, 17):
        with pytest.raises(PreconditionFailed):
            write(bucket, "k", b"2", if_generation_match=stale)
        with pytest.raises(PreconditionFailed):
            bucket.blob("k").delete(if_generation_match=stale)
        with pytest.raises(PreconditionFailed):
            bucket.blob("k").download_as_bytes(if_generation_match=stale)
        with pytest.raises(PreconditionFailed):
            write(bucket, "k", b"2" * 9_000_000, if_generation_match=stale)
        with pytest.raises(PreconditionFailed):
            bucket.blob("k").compose([blob], if_generation_match=stale)
        with pytest.raises(PreconditionFailed):
            bucket.copy_blob(blob, bucket, "k", if_generation_match=stale)
        with pytest.raises(PreconditionFailed):
            bucket.blob("k").rewrite(blob, if_generation_match=stale)
        with pytest.raises(PreconditionFailed):
            bucket.blob("new").rewrite(blob, if_source_generation_match=17)
    assert bucket.blob("k").download_as_bytes() == b"1"
    with pytest.raises(PreconditionFailed):
        write(bucket, "absent", b"2", if_generation_match=5)
    write(bucket, "k", b"2", if_generation_match=blob.generation)
    with pytest.raises(NotFound):
        bucket.blob("k", generation=blob.generation).download_as_bytes()
    with pytest.raises(PreconditionFailed):
        write(bucket, "k", b"3", if_generation_not_match=bucket.get_blob("k").generation)


def test_ranges_are_those_of_http(gcs, bucket):
    write(bucket, "k", b"0123456789")

    def get(wanted: str) -> tuple[int, bytes, str]:
        url = f"{gcs.url}/storage/v1/b/a-bucket/o/k?alt=media"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Range": wanted})) as reply:
                return reply.status, reply.read(), reply.headers.get("Content-Range", "")
        except urllib.error.HTTPError as error:
            return error.code, b"", ""

    assert get("bytes=2-4") == (206, b"234", "bytes 2-4/10")
    assert get("bytes=7-") == (206, b"789", "bytes 7-9/10")
    assert get("bytes=-3") == (206, b"789", "bytes 7-9/10")
    assert get("bytes=7-100") == (206, b"789", "bytes 7-9/10")
    assert get("bytes=10-") == (416, b"", "")
    assert get("pages=1-2")[0] == 200


def test_content_that_is_not_what_its_checksum_says_is_refused(gcs):
    body = b'--B\r\n\r\n{"name": "k", "crc32c": "AAAAAA=="}\r\n--B\r\nContent-Type: a/b\r\n\r\ndata\r\n--B--'
    url = f"{gcs.url}/upload/storage/v1/b/a-bucket/o?uploadType=multipart"
    kind = {"Content-Type": "multipart/related; boundary=B"}
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(urllib.request.Request(url, body, kind))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{gcs.url}/storage/v1/b/a-bucket/o/k")


def test_faults_are_set_over_http_and_hit_their_share(gcs, bucket):
    write(bucket, "k", b"1")

    def ask(method: str, path: str, value: object = None) -> object:
        data = None if value is None else json.dumps(value).encode()
        with urllib.request.urlopen(urllib.request.Request(gcs.url + path, data, method=method)) as reply:
            return json.loads(reply.read())

    ask("POST", "/fake/faults", {"operation": "stat", "rate": 0.5, "status": 429, "match": "k"})
    seen = {429: 0, 200: 0}
    for _ in range(200):
        try:
            urllib.request.urlopen(f"{gcs.url}/storage/v1/b/a-bucket/o/k").close()
            seen[200] += 1
        except urllib.error.HTTPError as error:
            seen[error.code] += 1
    assert 60 < seen[429] < 140
    assert ask("GET", "/fake/faults")[0]["hit"] == seen[429]
    assert ask("GET", "/fake/requests")["stat"] == 200
    assert ask("DELETE", "/fake/faults") == []
    with pytest.raises(urllib.error.HTTPError, match="400"):
        ask("POST", "/fake/faults", {"no": "fault"})


def test_it_runs_as_a_process_and_prints_its_url():
    command = [sys.executable, "-m", "tests.fakes.gcs", "--bucket", "a-bucket", "--fault"]
    fault = json.dumps({"operation": "list", "count": 1})
    with subprocess.Popen([*command, fault], stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(f"{url}/storage/v1/b/a-bucket/o")
            with urllib.request.urlopen(f"{url}/storage/v1/b/a-bucket/o") as reply:
                assert json.loads(reply.read()) == {"kind": "storage#objects"}
        finally:
            process.terminate()


def test_a_fault_says_what_is_wrong_with_it():
    for wrong in ({"how": "loudly"}, {"when": "never"}, {"what": 1}):
        with pytest.raises(ValueError):
            Fault.of(wrong)
    assert Fault.of({"how": "cut", "seconds": 1}).how == "cut"
