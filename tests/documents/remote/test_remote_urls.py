"""URLs are told apart, split and shown without what is secret."""

import pytest

from llm_ocr.documents.remote.urls import (
    StoreUrl,
    fingerprint,
    is_remote,
    joined,
    kind_by_url,
    matcher,
    name_of,
    shown,
    split,
    unknown_scheme,
)
from llm_ocr.errors import UsageError


@pytest.mark.parametrize("url", ["s3://b/k", "gs://b", "hf://datasets/o/n", "https://h/a.pdf", "HTTP://h", "S3://b/k"])
def test_remote_sources_are_known_by_their_scheme(url):
    assert is_remote(url)
    assert unknown_scheme(url) is None


@pytest.mark.parametrize("path", ["a.pdf", "/a/b", "./s3:/x", "a:b.pdf", "file:///a.pdf", ""])
def test_paths_and_file_urls_are_not_remote(path):
    assert not is_remote(path)
    assert unknown_scheme(path) is None


@pytest.mark.parametrize(
    ("url", "hint"),
    [("gcs://b/k", "gs://"), ("s3a://b/k", "s3://"), ("htps://h", "https://"), ("qqqqq://h", "Known schemes")],
)
def test_an_unknown_scheme_is_explained(url, hint):
    error = unknown_scheme(url)
    assert error is not None
    assert hint in error.hint


def test_keys_are_taken_as_they_are_written():
    assert split("s3://b/a%20b #?/c.pdf") == StoreUrl("s3://b", "a%20b #?/c.pdf")
    assert split("hf://datasets/o/n@refs%2Fpr%2F1/x/y.pdf") == StoreUrl("hf://datasets/o/n@refs%2Fpr%2F1", "x/y.pdf")
    assert split("GS://Bucket") == StoreUrl("gs://Bucket", "")


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///key", "gs://", "hf://", "hf://o/n", "hf://datasets/o", "hf://buckets//n/x"]
)
def test_half_an_address_is_wrong_usage(url):
    with pytest.raises(UsageError) as caught:
        split(url)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://me:pw@h/a.pdf", "https://h/a.pdf"),
        ("https://h/a.pdf?X-Amz-Signature=abc&X-Amz-Credential=AK%2F1&page=2", "https://h/a.pdf?X-Amz-Signature=***&X-Amz-Credential=***&page=2"),
        ("https://h/a?sv=1&sig=s%3D#frag", "https://h/a?sv=1&sig=***"),
        ("https://h/a?access_token=t", "https://h/a?access_token=***"),
        ("https://h/a?x=%7e&y", "https://h/a?x=%7e&y"),
        ("s3://AK:secret@b/a.pdf", "s3://b/a.pdf"),
        ("hf://datasets/o/n@v1/a@b.pdf", "hf://datasets/o/n@v1/a@b.pdf"),
        ("s3://b/a?token=x@y.pdf", "s3://b/a?token=x@y.pdf"),
        ("/a/b?token=x", "/a/b?token=x"),
    ],
)  # fmt: skip
def test_what_is_secret_is_not_shown(url, expected):
    assert shown(url) == expected


def test_the_fragment_and_nothing_else_is_lost_when_nothing_is_secret():
    assert shown("https://h/a+b%20.pdf?q=%2B+&r#x") == "https://h/a+b%20.pdf?q=%2B+&r"


def test_new_credentials_do_not_make_another_document():
    one, two = (f"https://h/a.pdf?id=1&X-Goog-Signature={signature}" for signature in ("abc", "def"))
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(one) != fingerprint(one.replace("id=1", "id=2"))


@pytest.mark.parametrize(
    ("url", "name", "kind"),
    [
        ("https://h/a/b%20c.PDF?x=y.png", "b c.PDF", "pdf"),
        ("https://h/..%2F..%2Fetc.pdf", ".._.._etc.pdf", "pdf"),
        ("https://h", "h", ""),
        ("https://h/?x=/a.pdf", "h", ""),
        ("s3://b/a/b#1.tiff", "b#1.tiff", "image"),
        ("https://[bad/a.pdf", "a.pdf", "pdf"),
    ],
)
def test_names_and_kinds_come_from_the_path(url, name, kind):
    assert (name_of(url), kind_by_url(url)) == (name, kind)


def test_lines_of_a_list_cannot_leave_its_store():
    assert joined("s3://b/x/list.txt", "../../../y.pdf") == "s3://b/y.pdf"
    assert joined("https://h/x/list.txt", "../../y.pdf") == "https://h/y.pdf"


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("**/a.pdf", "a.pdf", True),
        ("**/**/a.pdf", "x/a.pdf", True),
        ("x/**/y/**/z", "x/1/y/2/y/3/z", True),
        ("x/**/y/**/z", "x/1/2/z", False),
        ("*", ".hidden", False),
        ("**", "a/.hidden/b", False),
        ("a?c", "a/c", False),
        ("[z-a]", "a", False),
        ("a[", "a[", True),
        ("a*", "ab/c/d", True),
        ("a*", "ab/.c/d", False),
        ("a*", "a\nb", True),
    ],
)
def test_patterns_of_keys(pattern, key, expected):
    assert matcher(pattern)(key) is expected
