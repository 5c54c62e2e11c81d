"""Which URL is which store, and what is said to those that are none."""

import subprocess
import sys
from pathlib import Path

import pytest

from llm_ocr.errors import MissingExtra, UsageError
from llm_ocr.storage import StoreOptions, open_store, opening, register_store


def files(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


@pytest.fixture
def opened(monkeypatch) -> list[tuple[str, StoreOptions]]:
    """What would be opened, without the clients."""
    found: list[tuple[str, StoreOptions]] = []
    for scheme in ("s3", "gs", "hf"):
        monkeypatch.setitem(opening._OPENERS, scheme, lambda url, options: found.append((url, options)))
    return found


@pytest.mark.parametrize(
    ("url", "opens"),
    [
        ("s3://bucket", "s3://bucket"),
        ("S3://Bucket/Run 1/", "s3://Bucket/Run 1/"),
        ("s3://bucket/a?b#c%20@d", "s3://bucket/a?b#c%20@d"),
        ("gs://bucket/run", "gs://bucket/run"),
        ("hf://buckets/ns/name/run", "hf://buckets/ns/name/run"),
        ("hf://datasets/ns/name@v1/run", "hf://datasets/ns/name@v1/run"),
    ],
)
def test_urls_reach_their_store_as_they_were_written(opened, url, opens):
    options = StoreOptions(profile="work", token="secret")
    open_store(url, options)
    assert opened == [(opens, options)]


@pytest.mark.parametrize("url", ["gs://bucket/run", "hf://buckets/ns/name/a", "hf://datasets/ns/name@dev/a"])
def test_a_store_shows_its_url_and_not_its_token(url):
    options = StoreOptions(token="secret", endpoint="http://127.0.0.1:9")
    store = open_store(url, options)
    assert store.url == url
    assert "secret" not in repr(options) + repr(store) + repr(vars(store))


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("gcs://bucket/run", "gs://bucket/run"),
        ("s3a://bucket/run", "s3://bucket/run"),
        ("s3n://bucket", "s3://bucket"),
        ("s4://bucket", "s3://bucket"),
        ("s3:/bucket", "s3://bucket"),
        ("huggingface://datasets/ns/x", "hf://datasets/ns/x"),
        ("fil:///tmp/x", "file:///tmp/x"),
        ("file://tmp/x", "file:///tmp/x"),
        ("https://huggingface.co/datasets/ns/x/tree/main", "hf://datasets/ns/x"),
        ("https://huggingface.co/buckets/ns/x", "hf://buckets/ns/x"),
        ("https://bucket.s3.eu-west-1.amazonaws.com/run", "s3://bucket/run"),
        ("https://s3.amazonaws.com/bucket/run", "s3://bucket/run"),
        ("https://storage.googleapis.com/bucket/run", "gs://bucket/run"),
        ("https://bucket.storage.googleapis.com/run", "gs://bucket/run"),
        ("hf://ns/name", "hf://buckets/ns/name"),
        ("hf://ns/name", "hf://datasets/ns/name"),
    ],
)
def test_nearly_right_url_is_never_a_folder_and_shows_the_fix(tmp_path, monkeypatch, url, near):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert caught.value.exit_code == 2
    assert "Did you mean" in caught.value.hint
    assert near in caught.value.hint
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://host/x", "s3://BUCKET/PREFIX"),
        ("abfss://container/x", "Installed packages add az://"),
        ("https://minio.example/x", "`workspace_endpoint=URL`"),
        ("hf://", "hf://datasets/NAMESPACE/NAME"),
        ("hf://datasets", "hf://datasets/NAMESPACE/NAME"),
        ("hf://models/ns/name", "hf://buckets/"),
    ],
)
def test_what_is_no_workspace_is_said_with_the_forms_that_are(tmp_path, monkeypatch, url, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert says in str(caught.value)
    assert files(tmp_path) == []


@pytest.mark.parametrize("url", [f"{scheme}://me:sesame@bucket/run" for scheme in ("s3", "gs", "gcs", "https")])
def test_credentials_in_a_url_are_refused_and_not_shown(url):
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "a\nb", "a\0b", "s3://bucket/a\nb"])
def test_no_name_is_no_workspace(url):
    with pytest.raises(UsageError):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "package"),
    [("s3://bucket/x", "boto3"), ("gs://bucket/x", "google-cloud-storage"), ("hf://buckets/a/b", "hub")],
)
def test_missing_client_is_named_with_its_install_command(monkeypatch, url, package):
    monkeypatch.setattr("llm_ocr.storage.names.find_spec", lambda module: None)
    with pytest.raises(MissingExtra, match=f"pip install .*{package}"):
        open_store(url)


def test_a_folder_needs_no_client():
    code = """
import sys
from llm_ocr.storage import open_store
open_store("somewhere")
print(*sorted({"boto3", "botocore", "google.cloud.storage", "huggingface_hub"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


class Own:
    """What an opener of a user's gives."""

    def __init__(self, url: str, options: StoreOptions) -> None:
        self.url, self.options = url, options


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(opening, "_USERS", {})
    return register_store


def test_a_store_of_ones_own_is_opened_by_its_scheme(registered):
    registered("sqlite", Own)
    store = open_store("sqlite:///a/run.db", StoreOptions(profile="work"))
    assert (store.url, store.options.profile) == ("sqlite:///a/run.db", "work")
    with pytest.raises(UsageError, match="the scheme sqlit:// is unknown"):
        open_store("sqlit:///a/run.db")


def test_custom_store_without_base_class_has_gathering_members(registered):
    class Gathers(Own):
        most_files = 7

        def flush(self):
            self.flushed = True

    registered("plain", Own)
    registered("gathers", Gathers)
    plain, gathers = open_store("plain://a"), open_store("gathers://a")
    assert (plain.most_files, plain.gathers, plain.flush(), plain.share(2)) == (None, False, None, None)
    gathers.flush()
    gathers.share(2)
    assert (gathers.most_files, gathers.gathers, gathers.flushed) == (7, True, True)


@pytest.mark.parametrize("scheme", ["s3", "file", "", "a:b", "Upper"])
def test_the_librarys_own_schemes_cannot_be_taken(registered, scheme):
    with pytest.raises(UsageError, match="cannot be the scheme"):
        registered(scheme, Own)


def test_an_installed_package_brings_its_store_by_an_entry_point(registered, monkeypatch, tmp_path):
    package = tmp_path / "filing-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: filing\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[llm_ocr.stores]\nfiling = filing:open_filing\n")
    opener = "from types import SimpleNamespace\ndef open_filing(url, options):\n    return SimpleNamespace(url=url)\n"
    (tmp_path / "filing.py").write_text(opener)
    monkeypatch.syspath_prepend(tmp_path)
    assert open_store("filing://cabinet/run").url == "filing://cabinet/run"
