"""What an S3 URL and an endpoint mean, and where credentials come from."""

import pytest

from llm_ocr.errors import StorageError, UsageError
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.s3 import S3Store, open_s3
from llm_ocr.storage.s3.client import Limits, Place, Service, connect, parse_url, service_of
from tests.storage.s3 import making


@pytest.fixture
def no_keys(monkeypatch):
    """No credentials in the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)


@pytest.fixture
def files(monkeypatch, tmp_path):
    """Writes ~/.aws/config and ~/.aws/credentials."""

    def write(config: str = "", credentials: str = "") -> None:
        for name, text in (("AWS_CONFIG_FILE", config), ("AWS_SHARED_CREDENTIALS_FILE", credentials)):
            (tmp_path / name).write_text(text)
            monkeypatch.setenv(name, str(tmp_path / name))

    return write


@pytest.mark.usefixtures("no_keys")
def test_without_credentials_the_settings_are_named(store):
    for call in (store.check, lambda: store.get("k")):
        with pytest.raises(StorageError, match=r"no credentials.*\n.*AWS_ACCESS_KEY_ID.*`workspace_profile`") as caught:
            call()
        assert caught.value.exit_code == 1


@pytest.mark.parametrize("missing", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_half_of_the_variables_is_said_before_any_request(behind, proxy, monkeypatch, missing):
    monkeypatch.delenv(missing)
    with pytest.raises(StorageError, match=rf"credentials[\s\S]*{missing}"):
        behind.check()
    assert proxy.seen == []


@pytest.mark.usefixtures("no_keys")
def test_half_of_a_profile_is_said_before_any_request(place, proxy, files):
    files(credentials="[work]\naws_access_key_id = AKIAHALF\n")
    with pytest.raises(StorageError, match=r"the credentials are incomplete.*aws_secret_access_key"):
        making.store_at(place, proxy.url, profile="work").check()
    assert proxy.seen == []


def test_an_empty_secret_is_half_of_the_credentials(behind, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    with pytest.raises(StorageError, match="credentials"):
        behind.check()


def test_a_temporary_key_without_its_token_is_said(behind, proxy, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ASIATEMPORARYTEMPORARY")
    with pytest.raises(StorageError, match=r"temporary.*\n.*AWS_SESSION_TOKEN"):
        behind.check()
    assert proxy.seen == []
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    behind.check()


def test_a_profile_that_is_not_there_is_named(place):
    with pytest.raises(StorageError, match=r"profile \(work\)|no such profile.*work"):
        making.store_at(place, profile="work").check()


def test_a_profile_whose_sign_in_is_over_is_said(place, files):
    files(
        config="[profile work]\nsso_start_url = https://example.org/start\nsso_region = us-east-1\n"
        "sso_account_id = 123456789012\nsso_role_name = reader\n"
    )
    with pytest.raises(StorageError, match="aws sso login"):
        making.store_at(place, profile="work").check()


def test_a_broken_configuration_file_is_said(store, files):
    files(config="[profile work\nnonsense")
    with pytest.raises(StorageError, match=r"~/.aws/config"):
        store.check()


def test_two_stores_use_two_profiles(place, proxy, files):
    files(
        credentials="[one]\naws_access_key_id = AKIAONE\naws_secret_access_key = 1\n"
        "[two]\naws_access_key_id = AKIATWO\naws_secret_access_key = 2\n"
    )
    for profile in ("one", "two"):
        making.store_at(place, proxy.url, profile=profile).put("k", b"")
    used = [headers["Authorization"].partition("Credential=")[2].partition("/")[0] for _, _, headers in proxy.seen]
    assert used == ["AKIAONE", "AKIATWO"]


def test_a_profile_brings_its_region_and_endpoint(place, proxy, files):
    files(
        config=f"[profile work]\nregion = eu-north-1\nendpoint_url = {proxy.url}\n",
        credentials="[work]\naws_access_key_id = AKIAWORK\naws_secret_access_key = 1\n",
    )
    S3Store(place, StoreOptions(profile="work")).put("k", b"data")
    ((method, _, headers),) = proxy.seen
    assert method == "PUT"
    assert "/us-east-1/s3/" in headers["Authorization"]  # AWS_DEFAULT_REGION counts more, as it does for the SDK
    assert "x-amz-checksum-crc32" not in {name.lower() for name in headers}


def test_the_region_that_is_asked_for_is_used(place, proxy):
    making.store_at(place, proxy.url, region="ap-south-1").put("k", b"")
    assert "/ap-south-1/s3/" in proxy.seen[0][2]["Authorization"]


def test_amazon_gets_checksums_and_no_region_if_none_is_set(monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    made = connect(Place("bucket", "run"), StoreOptions(), Limits())
    assert made.service is Service.AMAZON
    assert made.client.meta.config.request_checksum_calculation == "when_supported"
    assert made.multipart == 64 << 20
    assert made.context.region is None


def test_the_client_waits_and_retries_as_said():
    config = connect(Place("bucket", "run"), StoreOptions(), Limits()).client.meta.config
    assert config.max_pool_connections == 64
    assert config.retries == {"mode": "standard", "total_max_attempts": 9}
    assert (config.connect_timeout, config.read_timeout) == (10, 60)


def test_the_hugging_face_gateway_gets_what_it_supports(monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    made = connect(Place("data", "run"), StoreOptions(endpoint="https://s3.hf.co/me"), Limits())
    config = made.client.meta.config
    assert made.service is Service.HUGGING_FACE
    assert made.client.meta.region_name == "us-east-1"
    assert config.s3["addressing_style"] == "path"
    assert config.request_checksum_calculation == config.response_checksum_validation == "when_required"
    assert made.multipart > 1 << 30
    url = made.client.generate_presigned_url("get_object", {"Bucket": "data", "Key": "run/x y"})
    assert url.startswith("https://s3.hf.co/me/data/run/x%20y?")


def test_an_endpoint_with_a_path_works(place, proxy, tmp_path):
    proxy.base = "/me"
    store = making.store_at(place, proxy.url)
    store.check()
    version = store.create("a b", b"1")
    store.swap("a b", b"2", version)
    (tmp_path / "file").write_bytes(b"3")
    store.upload(tmp_path / "file", "c")
    assert [info.key for info in store.list()] == ["a b", "c"]
    assert all(path.startswith(f"/me/{place.bucket}") for _, path, _ in proxy.seen)
    assert not any("x-amz-checksum" in name.lower() for _, _, headers in proxy.seen for name in headers)


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
def test_url_names_bucket_and_prefix_with_literal_characters(url, bucket, prefix, shown):
    place = parse_url(url)
    assert (place.bucket, place.prefix, place.url) == (bucket, prefix, shown)
    assert open_s3(url).url == shown


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3:///run", "names no bucket"),
        ("s3://", "names no bucket"),
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
def test_wrong_endpoint_is_wrong_usage_without_its_secrets(endpoint, says):
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
