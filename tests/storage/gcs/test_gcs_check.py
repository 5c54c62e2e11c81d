"""What the check of a bucket says before any work is done, and which credentials go where."""

import json

import pytest

from llm_ocr.errors import StorageError, UsageError
from llm_ocr.storage import Capabilities, StoreOptions
from llm_ocr.storage.gcs import open_gcs as open_by_url
from llm_ocr.storage.gcs import parse_url
from tests.fakes.gcs import Fault, How, When, running

DENIED = (
    "worker@project.iam.gserviceaccount.com does not have storage.objects.{} access to the Google Cloud Storage object."
)


def answer(status: int, message: str, reason: str = "forbidden", operation: str = "") -> Fault:
    return Fault(How.STATUS, When.BEFORE, operation, status=status, reason=reason, message=message)


def failure(store) -> StorageError:
    with pytest.raises(StorageError) as caught:
        store.check()
    assert not isinstance(caught.value, UsageError)
    assert caught.value.exit_code == 1
    return caught.value


def test_a_missing_bucket_is_said_by_every_method(open_gcs, tmp_path):
    store = open_gcs("gs://no-such-bucket/run")
    for call in (
        store.check,
        store.capabilities,
        lambda: store.get("k"),
        lambda: store.read_range("k", 0, 1),
        lambda: store.stat("k"),
        lambda: store.put("k", b""),
        lambda: store.create("k", b""),
        lambda: store.swap("k", b"", "1"),
        lambda: store.delete("k"),
        lambda: list(store.list()),
        lambda: store.download("k", tmp_path / "file"),
    ):
        with pytest.raises(StorageError, match="there is no bucket no-such-bucket") as caught:
            call()
        assert type(caught.value) is StorageError
        assert "gcloud storage buckets create gs://no-such-bucket" in caught.value.hint


@pytest.mark.parametrize(
    ("operation", "permission", "says"),
    [
        ("write", "create", "cannot write gs://a-bucket/run/.probe/"),
        ("read", "get", "cannot read gs://a-bucket/run/.probe/"),
        ("list", "list", "cannot list gs://a-bucket/run/.probe/"),
        ("delete", "delete", "cannot remove gs://a-bucket/run/.probe/"),
    ],
)
def test_each_missing_permission_is_found_and_named(gcs, open_gcs, operation, permission, says):
    gcs.faults.add(answer(403, DENIED.format(permission), operation=operation))
    error = failure(open_gcs())
    assert says in str(error)
    assert DENIED.format(permission) in str(error)
    assert "roles/storage.objectAdmin" in error.hint
    assert not error.retryable


@pytest.mark.parametrize(
    ("fault", "says", "hint"),
    [
        (answer(400, "Bucket is a requester pays bucket but no user project provided.", "required"),
         "charges the requester", "QUOTA"),
        (answer(403, "Caller does not have required permission to use project x. Grant the caller "
                "roles/serviceusage.serviceUsageConsumer", "forbidden"),
         "may not bill the project", "GOOGLE_CLOUD_QUOTA_PROJECT"),
        (answer(403, "The billing account for the owning project is disabled in state closed", "accountDisabled"),
         "billing is disabled", "another project"),
        (answer(403, "Cloud Storage API has not been used in project 1 before or it is disabled.",
                "accessNotConfigured"), "API is disabled", "Enable the Cloud Storage API"),
        (answer(403, "Object 'a-bucket/k' is subject to bucket's retention policy", "retentionPolicyNotMet"),
         "does not allow changes to its objects", "without retention policy"),
        (answer(418, "I am a teapot", "teapot"), "answered 418 I am a teapot", ""),
    ],
)  # fmt: skip
def test_other_refusals_name_what_to_set(gcs, open_gcs, fault, says, hint):
    gcs.faults.add(fault)
    error = failure(open_gcs())
    assert says in str(error)
    assert hint in error.hint


def test_an_expired_token_is_said_and_a_good_one_works():
    with running("a-bucket", token="good") as gcs:
        error = failure(open_by_url("gs://a-bucket", StoreOptions(endpoint=gcs.url, token="old secret")))
        assert "the access token is wrong or has expired" in str(error)
        assert "gcloud auth print-access-token" in error.hint
        assert "secret" not in str(error)
        open_by_url("gs://a-bucket", StoreOptions(endpoint=gcs.url, token="good")).check()


def test_credentials_required_of_an_emulator_client_are_an_error():
    with running("a-bucket", token="good") as gcs:
        error = failure(open_by_url("gs://a-bucket", StoreOptions(endpoint=gcs.url)))
    assert "requires credentials, but an emulator receives none" in str(error)
    assert "`workspace_profile=FILE`" in error.hint


def test_missing_credentials_error_names_the_login_command():
    error = failure(open_by_url("gs://a-bucket/run"))
    assert "no usable Google credentials" in str(error)
    assert "gcloud auth application-default login" in error.hint


def test_a_credentials_variable_that_points_nowhere_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "gone.json"))
    error = failure(open_by_url("gs://a-bucket/run"))
    assert "gone.json" in str(error)
    assert "GOOGLE_APPLICATION_CREDENTIALS" in error.hint


@pytest.mark.parametrize("content", [None, "no json", "{}", '{"type": "service_account"}', '{"type": "other"}'])
def test_a_profile_that_is_no_credentials_file_is_wrong_usage(tmp_path, content):
    if content is not None:
        (tmp_path / "key.json").write_text(content)
    store = open_by_url("gs://a-bucket", StoreOptions(profile=str(tmp_path / "key.json"), endpoint="https://localhost"))
    with pytest.raises(UsageError, match=r"key\.json is not a file with Google credentials") as caught:
        store.check()
    assert caught.value.exit_code == 2
    assert "service account" in caught.value.hint


@pytest.fixture(scope="module")
def private_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, format_ = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, format_, serialization.NoEncryption()).decode()


@pytest.fixture
def profile(tmp_path, private_key):
    """`profile(url)`: a service account's key file whose sign-in is the server at `url`."""

    def write(url: str) -> str:
        account = {
            "type": "service_account",
            "client_email": "worker@project.iam.gserviceaccount.com",
            "private_key": private_key,
            "token_uri": f"{url}/token",
        }
        (tmp_path / "account.json").write_text(json.dumps(account))
        return str(tmp_path / "account.json")

    return write


def test_a_service_account_signs_in(profile):
    with running("a-bucket", token="good") as gcs:
        options = StoreOptions(profile=profile(gcs.url), endpoint=gcs.url)
        open_by_url("gs://a-bucket/run", options).check()
        assert gcs.requests["token"] == 1


def test_a_key_that_was_revoked_is_said(profile):
    with running("a-bucket", token="good") as gcs:
        gcs.faults.add(Fault(operation="token", status=400, reason="invalid_grant", message="Invalid JWT Signature."))
        error = failure(open_by_url("gs://a-bucket/run", StoreOptions(profile=profile(gcs.url), endpoint=gcs.url)))
        assert "account.json are no longer valid (invalid_grant: Invalid JWT Signature.)" in str(error)
        assert "Give another credentials file" in error.hint
        assert "PRIVATE KEY" not in str(error)


def test_credentials_are_not_sent_unencrypted_over_the_network(tmp_path):
    for options in (StoreOptions(token="t"), StoreOptions(profile=str(tmp_path / "key.json"))):
        far = StoreOptions(token=options.token, profile=options.profile, endpoint="http://storage.example")
        with pytest.raises(UsageError, match="unencrypted"):
            open_by_url("gs://a-bucket", far).check()


def test_emulator_variable_is_used_unless_an_endpoint_is_set(gcs, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url.removeprefix("http://"))
    open_by_url("gs://a-bucket/run").check()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    open_by_url("gs://a-bucket/run", StoreOptions(endpoint=gcs.url)).check()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://user:secret@127.0.0.1:9")
    with pytest.raises(UsageError, match="STORAGE_EMULATOR_HOST") as caught:
        open_by_url("gs://a-bucket/run").check()
    assert "secret" not in str(caught.value)


def test_the_project_that_pays_is_named_in_every_request(gcs, monkeypatch):
    monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "payer")
    asked = []
    answer = gcs.answer
    monkeypatch.setattr(
        gcs, "answer", lambda request: (asked.append(request.query.get("userProject")), answer(request))[1]
    )
    open_by_url("gs://a-bucket/run", StoreOptions(endpoint=gcs.url, token="t")).check()
    assert set(asked) == {"payer"}
    assert len(asked) >= 4


def test_the_check_waits_out_a_short_failure(gcs, open_gcs):
    gcs.faults.add(Fault(count=3, status=503))
    store = open_gcs()
    store.check()
    assert list(store.list()) == list(store.unfinished()) == []


def test_google_honours_both_conditions(gcs_store):
    assert gcs_store.capabilities() == Capabilities(create=True, swap=True)


def test_an_emulator_without_preconditions_is_found_out(gcs, gcs_store, monkeypatch):
    write = gcs.objects.write

    def careless(bucket, name, data, expected=None, **kwargs):
        return write(bucket, name, data, **kwargs)

    monkeypatch.setattr(gcs.objects, "write", careless)
    found = gcs_store.capabilities()
    assert (found.create, found.swap) == (False, False)
    assert f"{gcs.url} does not honour generation preconditions" in found.note
    assert list(gcs_store.list()) == []


@pytest.mark.parametrize(
    ("url", "shown", "root"),
    [
        ("gs://bucket", "gs://bucket", ""),
        ("gs://bucket/", "gs://bucket", ""),
        ("GS://my.bucket_1-x/a b/ü?#%20", "gs://my.bucket_1-x/a b/ü?#%20", "a b/ü?#%20/"),
        ("gs://bucket/run/", "gs://bucket/run", "run/"),
    ],
)
def test_a_url_names_a_bucket_and_a_prefix_as_they_are(gcs, url, shown, root):
    store = open_by_url(url, StoreOptions(endpoint=gcs.url))
    assert store.url == shown
    bucket = parse_url(url).bucket
    gcs.objects.make_bucket(bucket)
    store.put("k", b"1")
    assert gcs.objects.find(bucket, f"{root}k").data == b"1"
    assert [info.key for info in store.list()] == ["k"]


@pytest.mark.parametrize(
    "url",
    [
        *("gs://", "gs://user:secret/run", "gs:///run", "gs://b", "gs://My-Bucket/run", "gs://-b-/x"),
        *("gs://bucket//run", "gs://bucket/a/../b"),
    ],
)
def test_a_url_that_names_no_place_is_wrong_usage(url):
    with pytest.raises(UsageError) as caught:
        open_by_url(url)
    assert "gs://" in caught.value.hint
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "endpoint", ["localhost:9023", "ftp://host", "http://", "http://u:secret@host", "https://h/?a=b"]
)
def test_an_endpoint_that_is_none_is_wrong_usage(endpoint):
    with pytest.raises(UsageError, match="is not an http or https URL") as caught:
        open_by_url("gs://bucket", StoreOptions(endpoint=endpoint))
    assert "secret" not in str(caught.value)


def test_foreign_objects_that_no_key_can_name_are_not_listed(gcs, gcs_store):
    for name in ("run/", "run/folder/", "run/a//b", "run/a", "other/b", "runs"):
        gcs.objects.write("a-bucket", name, b"")
    assert [info.key for info in gcs_store.list()] == ["a"]


def test_a_key_that_is_too_long_with_its_prefix_is_refused(open_gcs):
    store = open_gcs(f"gs://a-bucket/{'p' * 500}")
    store.put("k" * 523, b"")
    with pytest.raises(StorageError, match="longer than 1024 bytes"):
        store.put("k" * 524, b"")


def test_a_version_of_another_store_is_no_version_here(gcs_store):
    gcs_store.put("k", b"1")
    for version in ("", "0", "-1", "abc", '"etag"'):
        with pytest.raises(StorageError, match="is no version"):
            gcs_store.swap("k", b"2", version)
