"""What S3 answers when something is wrong, and what we say then."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_ocr.errors import ObjectNotFound, StorageError
from llm_ocr.storage.s3 import client
from llm_ocr.storage.s3.client import Place
from llm_ocr.storage.waiting import STOPPING, Notices
from tests.storage.s3 import making


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, ""), (429, "TooManyRequests"), (503, "SlowDown"), (503, ""), (500, "InternalError"), (502, ""), (504, "")],
)
def test_a_service_that_fails_for_a_moment_is_asked_again(place, proxy, status, code):
    store = making.store_at(place, proxy.url, making.Limits(retries=3))
    proxy.add(method="PUT", status=status, code=code, times=1)
    proxy.add(method="GET", status=status, code=code, times=1)
    store.put("k", b"data")
    assert store.get("k") == b"data"
    assert proxy.methods() == ["PUT", "PUT", "GET", "GET"]


def test_long_pause_for_s3_is_a_warning(place, proxy, monkeypatch, caplog):
    monkeypatch.setattr(client, "NOTICES", Notices())
    monkeypatch.setattr(client.random, "uniform", lambda least, most: most)
    monkeypatch.setattr(client, "_FIRST_THROTTLED", 6.0)
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    proxy.add(method="GET", status=503, code="SlowDown", times=2)
    store = making.store_at(place, proxy.url, making.Limits(retries=3))
    store.put("k", b"data")
    assert store.get("k") == b"data"
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("llm_ocr")]
    assert messages == [f"{proxy.url}: status 503; trying again in 6 s"]


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (429, "", "still overloaded"),
        (503, "SlowDown", "still overloaded"),
        (503, "", "still overloaded"),
        (500, "InternalError", "failed"),
        (504, "", "failed"),
    ],
)
def test_persistent_service_failure_is_a_retryable_error(place, proxy, status, code, says):
    store = making.store_at(place, proxy.url, making.Limits(retries=0))
    proxy.add(status=status, code=code, times=99)
    for call in (lambda: store.get("k"), lambda: store.put("k", b""), lambda: store.stat("k"), store.check):
        with pytest.raises(StorageError, match=says) as caught:
            call()
        assert caught.value.retryable
        assert caught.value.exit_code == 1
        assert "Run the same command again" in caught.value.hint


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_connection_that_breaks_is_made_again(behind, proxy, lost):
    proxy.add(method="PUT", lost=lost)
    behind.put("k", b"data")
    proxy.add(method="GET", lost=lost)
    assert behind.get("k") == b"data"
    proxy.add(method="DELETE", lost=lost)
    behind.delete("k")
    assert behind.stat("k") is None


def test_an_answer_that_breaks_off_is_asked_for_again(behind, proxy):
    data = bytes(range(256)) * 4000
    behind.put("k", data)
    proxy.add(method="GET", torn=True, times=2)
    assert behind.get("k") == data
    proxy.add(method="GET", torn=True, times=1)
    assert behind.read_range("k", 100, 5000) == data[100:5100]


def test_unresponsive_service_is_given_up_after_the_time_limit(place, proxy):
    store = making.store_at(place, proxy.url, making.Limits(retries=1, read_timeout=0.5))
    proxy.add(wait=2.0, lost="before", times=2)
    with pytest.raises(StorageError, match="connection failed") as caught:
        store.get("k")
    assert caught.value.retryable
    assert len(proxy.seen) == 2


@pytest.mark.parametrize(
    "fault", [{"wait": 0.5, "lost": "before"}, {"status": 503, "code": "SlowDown"}, {"torn": True}]
)
def test_stopped_command_does_not_repeat_failed_requests(place, proxy, monkeypatch, fault):
    store = making.store_at(place, proxy.url, making.Limits(read_timeout=0.1))
    store.put("k", b"data")
    monkeypatch.setattr("llm_ocr.storage.waiting.GRACE", 0.0)
    STOPPING.begin()
    try:
        proxy.add(**fault, method="GET", times=20)
        with pytest.raises(StorageError) as caught:
            store.get("k")
    finally:
        STOPPING.reset()
    assert caught.value.retryable
    assert proxy.methods().count("GET") == 1


def test_nobody_at_the_endpoint_is_said_with_the_setting(place):
    store = making.store_at(place, "http://127.0.0.1:9", making.Limits(retries=0))
    with pytest.raises(StorageError, match="`workspace_endpoint`") as caught:
        store.check()
    assert caught.value.retryable


def test_the_wrong_scheme_is_said(place, proxy):
    store = making.store_at(place, proxy.url.replace("http:", "https:"), making.Limits(retries=0))
    with pytest.raises(StorageError, match="http or https") as caught:
        store.check()
    assert not caught.value.retryable


def test_a_missing_bucket_is_named_with_what_to_do(moto):
    store = making.store_at(Place("nobody-made-this", "run"))
    for call in (store.check, lambda: store.put("k", b""), lambda: store.create("k", b""), lambda: list(store.list())):
        with pytest.raises(StorageError, match="aws s3 mb s3://nobody-made-this --endpoint-url http://") as caught:
            call()
        assert not isinstance(caught.value, ObjectNotFound)
        assert not caught.value.retryable
    with pytest.raises(StorageError, match="no bucket nobody-made-this"):
        store.get("k")


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (400, "ExpiredToken", r"have expired.*\n.*AWS_SESSION_TOKEN"),
        (400, "InvalidToken", r"have expired"),
        (403, "InvalidAccessKeyId", r"does not know these credentials.*\n.*AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", r"does not know.*\n.*AWS_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", r"clock of this machine"),
        (403, "AccessDenied", r"s3:ListBucket\)\nAllow s3:ListBucket on arn:aws:s3:::bucket-[0-9a-f]+ for"),
        (507, "XMinioStorageFull", r"no space left"),
        (400, "SomethingNew", r"SomethingNew said by the tests"),
    ],
)
def test_what_the_check_meets_is_said_with_the_setting_to_fix(place, proxy, status, code, says):
    store = making.store_at(place, proxy.url, making.Limits(retries=0))
    proxy.add(status=status, code=code, times=9)
    with pytest.raises(StorageError, match=says) as caught:
        store.check()
    assert caught.value.exit_code == 1
    assert making.ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "permission"), [("PUT", "s3:PutObject"), ("GET", "s3:GetObject"), ("DELETE", "s3:DeleteObject")]
)
def test_each_missing_permission_is_found_by_the_check_and_named(behind, place, proxy, method, permission):
    proxy.add(method=method, containing=".probe", status=403, code="AccessDenied", times=99)
    with pytest.raises(StorageError) as caught:
        behind.check()
    assert f"Allow {permission} on arn:aws:s3:::{place.bucket}/runs/one/* " in str(caught.value)


def test_an_answer_without_words_is_asked_for_in_words(behind, proxy):
    behind.put("k", b"")
    proxy.add(method="HEAD", status=400, times=9)
    proxy.add(method="GET", status=400, code="ExpiredToken", times=9)
    with pytest.raises(StorageError, match="have expired"):
        behind.stat("k")


def test_another_region_is_followed_where_the_service_says_which(behind, proxy):
    proxy.add(status=301, code="PermanentRedirect", headers={"x-amz-bucket-region": "eu-west-1"})
    behind.check()
    assert any("/eu-west-1/s3/" in headers.get("Authorization", "") for _, _, headers in proxy.seen)


@pytest.mark.parametrize(
    ("status", "code", "headers", "more", "says"),
    [
        (301, "PermanentRedirect", {"x-amz-bucket-region": "eu-west-1"}, "", "`workspace_region=eu-west-1`"),
        (400, "AuthorizationHeaderMalformed", {}, "<Region>eu-west-1</Region>", "`workspace_region=eu-west-1`"),
        (400, "IllegalLocationConstraintException", {}, "", "region of the bucket"),
    ],
)
def test_persistent_wrong_region_error_names_the_setting(behind, proxy, status, code, headers, more, says):
    proxy.add(status=status, code=code, headers=headers, more=more, times=99)
    with pytest.raises(StorageError, match=says) as caught:
        behind.check()
    assert "us-east-1" in str(caught.value)


def test_a_check_that_failed_half_way_leaves_nothing(behind, place, proxy, raw):
    proxy.add(method="GET", containing=".probe", status=403, code="AccessDenied", times=99)
    with pytest.raises(StorageError):
        behind.check()
    assert raw.list_objects_v2(Bucket=place.bucket)["KeyCount"] == 0


def test_many_readers_outlast_a_service_that_answers_nobody(place, proxy):
    """More retries at a time than botocore's own quota allows a client."""
    store = making.store_at(place, proxy.url, making.Limits(retries=8))
    store.put("a", b"content")
    proxy.add(method="GET", times=56, lost="before")
    with ThreadPoolExecutor(16) as readers:
        assert list(readers.map(lambda _: store.get("a"), range(16))) == [b"content"] * 16


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("<Key>of/another/run.json</Key><Size>1</Size>", "does not begin with"),
        ("<Key>ROOTextract/a.done</Key><Size>1</Size>", "lacks size, time, or ETag"),
    ],
)
def test_a_listing_that_breaks_the_protocol_is_an_error(behind, place, proxy, entry, says):
    listed = f"<ListBucketResult><Contents>{entry.replace('ROOT', place.root)}</Contents></ListBucketResult>"
    proxy.add(status=200, body=listed)
    with pytest.raises(StorageError, match=says):
        list(behind.list("extract/"))
