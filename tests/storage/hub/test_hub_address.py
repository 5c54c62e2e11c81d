"""Workspace URLs of the Hub."""

import pytest

from llm_ocr.errors import UsageError
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.storage.hf import Place, parse


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("hf://buckets/ns/name", Place("bucket", "ns/name")),
        ("hf://buckets/ns/name/", Place("bucket", "ns/name")),
        ("hf://buckets/ns/na.me-1/a/b c", Place("bucket", "ns/na.me-1", "a/b c")),
        ("hf://datasets/ns/name/a/", Place("dataset", "ns/name", "a")),
        ("hf://datasets/ns/name@dev", Place("dataset", "ns/name", "", "dev")),
        ("hf://datasets/ns/name@v1.0/a/b", Place("dataset", "ns/name", "a/b", "v1.0")),
        ("hf://datasets/ns/name@refs/pr/3/a", Place("dataset", "ns/name", "a", "refs/pr/3")),
        ("hf://datasets/ns/name@feature%2Fone/a", Place("dataset", "ns/name", "a", "feature/one")),
        ("hf://datasets/ns/name/mail@home", Place("dataset", "ns/name", "mail@home")),
    ],
)
def test_a_url_names_a_bucket_or_a_dataset_with_revision_and_prefix(url, place):
    assert parse(url) == place


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("hf://ns/name", "hf://buckets/ns/name (a storage bucket) or hf://datasets/ns/name (a dataset repository)"),
        ("hf://buckets/ns", "hf://buckets/NAMESPACE/NAME"),
        ("hf://buckets/ns/name@dev/a", "hf://buckets/ns/name/PREFIX"),
        ("hf://datasets/ns/name@/a", "Leave out the @"),
        ("hf://datasets/ns/na me", "letters"),
        ("hf://datasets/-ns/name", "letters"),
        ("hf://datasets/ns/na--me", "letters"),
        ("hf://datasets/ns/name/a//b", "another prefix"),
        ("hf://datasets/ns/name/../b", "another prefix"),
    ],
)
def test_what_is_no_place_says_what_to_give_instead(url, hint):
    with pytest.raises(UsageError) as caught:
        parse(url)
    assert hint in caught.value.hint


def test_a_store_shows_its_url_and_not_its_token():
    options = StoreOptions(token="hf_secret", endpoint="http://127.0.0.1:9")
    for url in ("hf://buckets/ns/name/a", "hf://datasets/ns/name@dev/a"):
        store = open_store(url, options)
        assert store.url == url
        assert "hf_secret" not in repr(options) + repr(store) + repr(vars(store))


def test_paths_and_keys_are_those_below_the_prefix():
    place = Place("dataset", "ns/name", "a/b")
    assert place.path("c/d") == "a/b/c/d"
    assert place.key("a/b/c/d") == "c/d"
    assert Place("dataset", "ns/name").key("c/d") == Place("dataset", "ns/name").path("c/d") == "c/d"
