"""What an S3 URL and an endpoint mean."""

import pytest

from llm_ocr.errors import StorageError, UsageError
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.s3 import open_s3
from llm_ocr.storage.s3.client import Service, parse_url, service_of


@pytest.mark.parametrize(
    ("url", "bucket", "prefix", "shown"),
    [
        ("s3://bucket/run", "bucket", "run", "s3://bucket/run"),
        ("s3://bucket/a/b/", "bucket", "a/b", "s3://bucket/a/b"),
        ("s3://bucket", "bucket", "", "s3://bucket"),
        ("s3://bucket/", "bucket", "", "s3://bucket"),
        ("S3://Bucket_1/x", "Bucket_1", "x", "s3://Bucket_1/x"),
        ("s3://b.c/a%20b/é c?d#e", "b.c", "a%20b/é c?d#e", "s3://b.c/a%20b/é c?d#e"),
    ],
)
def test_a_url_names_bucket_and_prefix_and_its_characters_mean_themselves(url, bucket, prefix, shown):
    place = parse_url(url)
    assert (place.bucket, place.prefix, place.url) == (bucket, prefix, shown)
    assert open_s3(url).url == shown


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3:///run", "name of a bucket"),
        ("s3://", "name of a bucket"),
        ("s3://b ucket/run", "name of a bucket"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket/../b", "has a part . or .."),
        ("s3://bucket/a\nb", "control character"),
        ("s3://express--usw2-az1--x-s3/run", "general purpose bucket"),
        ("s3://arn:aws:s3:us-east-1:1:accesspoint/x", "alias"),
    ],
)
def test_a_url_that_names_no_place_is_wrong_usage(url, says):
    with pytest.raises(UsageError, match=says):
        open_s3(url)


def test_credentials_in_a_url_are_refused_and_not_repeated():
    with pytest.raises(UsageError, match="Give a profile for credentials") as caught:
        open_s3("s3://AKIAKEY:topsecret@bucket/run")
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("localhost:9000", "Did you mean https://localhost:9000"),
        ("s3.hf.co/me", "Did you mean https://s3.hf.co/me"),
        ("ftp://host", "not an http or https URL"),
        ("http://", "not an http or https URL"),
        ("http://host:port", "not an http or https URL"),
        ("https://me:topsecret@host", "user, a query"),
        ("https://host/?key=topsecret", "user, a query"),
    ],
)
def test_a_wrong_endpoint_is_wrong_usage_and_its_secrets_are_not_repeated(endpoint, says):
    with pytest.raises(UsageError) as caught:
        open_s3("s3://bucket/run", StoreOptions(endpoint=endpoint))
    assert says in str(caught.value)
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "service"),
    [
        ("https://s3.eu-west-1.amazonaws.com", Service.AMAZON),
        ("https://s3.cn-north-1.amazonaws.com.cn", Service.AMAZON),
        ("https://s3.hf.co/me", Service.HUGGING_FACE),
        ("https://account.r2.cloudflarestorage.com", Service.OTHER),
        ("http://amazonaws.com.example.org:9000", Service.OTHER),
    ],
)
def test_the_service_is_known_by_its_host(endpoint, service):
    assert service_of(endpoint) is service


def test_keys_count_with_their_prefix():
    place = parse_url("s3://bucket/" + "p" * 1000)
    assert place.inside("k" * 23) == "p" * 1000 + "/" + "k" * 23
    with pytest.raises(StorageError, match="shorter prefix"):
        place.inside("k" * 24)
