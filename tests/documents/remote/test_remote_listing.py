"""Documents on stores and on the web are listed as in folders, without reading them."""

import asyncio
import json
import threading
from collections import Counter
from itertools import islice

import pytest
from store_doubles import Buckets
from web_servers import sending, serving

from llm_ocr.documents.manifests import ManifestEntry
from llm_ocr.documents.remote import RemoteOptions
from llm_ocr.documents.remote.listing import RemoteListing
from llm_ocr.errors import StorageError, UsageError
from llm_ocr.types import Reason


@pytest.fixture
def buckets(tmp_path):
    buckets = Buckets(tmp_path)
    for key in (
        *("a/b.pdf", "a/c.PDF", "a/sub/d.png", "a/sub/deep/e.pdf", "a/.git/f.pdf", "a/.g.pdf", "ab.pdf", "a/n.docx"),
    ):
        buckets.put(f"s3://bucket/{key}", b"PK" if key.endswith("docx") else b"%PDF-1.5 x")
    return buckets


def names(found):
    return [document.relative for document in found]


def test_prefix_lists_documents_in_key_order_without_reading(buckets):
    listing = buckets.listing()
    found = list(listing.documents("s3://bucket/a"))
    assert names(found) == ["b.pdf", "c.PDF", "sub/d.png", "sub/deep/e.pdf"]
    assert [document.kind for document in found] == ["pdf", "pdf", "image", "pdf"]
    assert found[0].source == "s3://bucket/a/b.pdf"
    assert all(document.version for document in found)
    assert len({document.version for document in found}) == 4
    assert listing._skipped == Counter({".docx": 1})
    assert buckets.opened["s3://bucket"].calls["read"] == 0
    assert names(buckets.listing().documents("s3://bucket/a/")) == names(found)
    assert len(list(buckets.listing().documents("s3://bucket"))) == 5


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a/*.pdf", ["b.pdf"]),
        ("a/*.[pP]??", ["b.pdf", "c.PDF"]),
        ("a/**/*.pdf", ["b.pdf", "sub/deep/e.pdf"]),
        ("a/**", ["b.pdf", "c.PDF", "sub/d.png", "sub/deep/e.pdf"]),
        ("a/s*", ["sub/d.png", "sub/deep/e.pdf"]),
        ("a/*/d*/*.pdf", ["sub/deep/e.pdf"]),
        ("a*.pdf", ["ab.pdf"]),
        ("**/[be].pdf", ["a/b.pdf", "a/sub/deep/e.pdf"]),
        ("a/.g*", [".g.pdf", ".git/f.pdf"]),
        ("a/[!b].PDF", ["c.PDF"]),
    ],
)
def test_remote_patterns_match_as_file_patterns(buckets, pattern, expected):
    assert names(buckets.listing().documents(f"s3://bucket/{pattern}")) == expected


def test_pattern_lists_only_its_fixed_prefix(buckets):
    list(buckets.listing().documents("s3://bucket/a/sub/de*"))
    assert buckets.opened["s3://bucket"].calls["listed"] == 1


def test_a_million_keys_would_be_listed_as_they_are_asked_for(tmp_path):
    buckets = Buckets(tmp_path)
    for number in range(1000):
        buckets.put(f"s3://bucket/{number:04}.pdf")
    assert names(islice(buckets.listing().documents("s3://bucket/"), 3)) == ["0000.pdf", "0001.pdf", "0002.pdf"]
    assert buckets.opened["s3://bucket"].calls["listed"] <= 100


def test_a_literal_name_wins_over_a_pattern_and_a_folder(buckets):
    for key in ("x [1].pdf", "x 1.pdf", "folder.pdf/y.pdf", "100%#?.pdf"):
        buckets.put(f"gs://other/{key}")
    for key in ("x [1].pdf", "100%#?.pdf"):
        (document,) = buckets.listing().documents(f"gs://other/{key}")
        assert (document.source, document.relative) == (f"gs://other/{key}", key)
        assert document.version
    assert names(buckets.listing().documents("gs://other/folder.pdf")) == ["y.pdf"]


def test_objects_without_a_suffix_are_known_by_their_first_bytes(buckets):
    for key, data in {"0a1b": b"\n%PDF-1.7", "0a1c": b"\x89PNG\r\n\x1a\n", "_SUCCESS": b"", "log": b"text"}.items():
        buckets.put(f"s3://hashed/p/{key}", data)
    listing = buckets.listing()
    found = list(listing.documents("s3://hashed/p"))
    assert [(document.relative, document.kind) for document in found] == [("0a1b", "pdf"), ("0a1c", "image")]
    assert listing._skipped == Counter({"": 2})
    (alone,) = buckets.listing().documents("s3://hashed/p/0a1b")
    assert alone.kind == "pdf"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://bucket/no.pdf", Reason.NOT_FOUND),
        ("s3://bucket/none/", Reason.NOT_FOUND),
        ("s3://bucket/*.tiff", Reason.NOT_FOUND),
        ("s3://empty", Reason.NOT_FOUND),
        ("s3://bucket/a/n.docx", Reason.UNKNOWN_TYPE),
    ],
)
def test_missing_object_is_a_failed_document(buckets, url, reason):
    (document,) = buckets.listing().documents(url)
    assert (document.source, document.reason) == (url, reason)


def test_a_store_that_fails_in_the_middle_ends_the_listing(tmp_path):
    def failing(call, key):
        if key == "c.pdf":
            raise StorageError("no more")

    buckets = Buckets(tmp_path, failing)
    for name in "abc":
        buckets.put(f"s3://bucket/{name}.pdf")
    with pytest.raises(StorageError, match="no more"):
        list(buckets.listing().documents("s3://bucket/"))


def test_hub_datasets_and_buckets_are_stores_others_get_a_hint(buckets):
    buckets.put("hf://datasets/owner/name@v1/docs/a.pdf")
    buckets.put("hf://buckets/owner/name/b.pdf")
    assert names(buckets.listing().documents("hf://datasets/owner/name@v1/docs")) == ["a.pdf"]
    assert names(buckets.listing().documents("hf://buckets/owner/name")) == ["b.pdf"]
    with pytest.raises(UsageError, match="hf://buckets/owner/name"):
        list(buckets.listing().documents("hf://owner/name/docs"))


LIST = """# a comment

b.pdf\r
./sub/../sub/d.png
../ab.pdf
sub/
*.PDF
s3://elsewhere/x/z.pdf
https://example.com/paper.pdf?page=1
/etc/passwd.pdf
file:///etc/passwd
gcs://bucket/q.pdf
s3://
"""


def test_list_on_a_store_names_relative_and_absolute_documents(buckets):
    buckets.put("s3://bucket/a/list.txt", LIST.encode())
    found = list(buckets.listing().documents("s3://bucket/a/list.txt"))
    assert [(document.source, document.relative) for document in found[:8]] == [
        ("s3://bucket/a/b.pdf", "b.pdf"),
        ("s3://bucket/a/sub/d.png", "sub/d.png"),
        ("s3://bucket/ab.pdf", "ab.pdf"),
        ("s3://bucket/a/sub/d.png", "d.png"),
        ("s3://bucket/a/sub/deep/e.pdf", "deep/e.pdf"),
        ("s3://bucket/a/c.PDF", "c.PDF"),
        ("s3://elsewhere/x/z.pdf", "x/z.pdf"),
        ("https://example.com/paper.pdf?page=1", "paper.pdf"),
    ]
    assert found[8].source == "s3://bucket/etc/passwd.pdf"  # of the bucket, not of this machine
    assert [document.reason for document in found[9:]] == [Reason.UNREADABLE] * 3
    assert "gs://" in found[10].detail


def test_a_long_list_asks_the_store_for_nothing_but_itself(buckets):
    buckets.put("s3://bucket/long.txt", b"".join(b"docs/%d.pdf\n" % number for number in range(5000)))
    assert len(list(buckets.listing().documents("s3://bucket/long.txt"))) == 5000
    calls = buckets.opened["s3://bucket"].calls
    assert (calls["read"], calls["list"]) == (0, 0)


def test_a_manifest_on_a_store_gives_ids_and_pages(buckets):
    lines = [
        {"document_id": "x1", "pdf_path": "b.pdf", "pages": "1-3"},
        {"id": 7, "pdf_path": "https://example.com/view?id=5"},
        {"id": "lost", "pdf_path": "file:///etc/passwd"},
    ]
    buckets.put("s3://bucket/a/m.jsonl", "\n".join(map(json.dumps, lines)).encode())
    found = list(buckets.listing().documents("s3://bucket/a/m.jsonl"))
    assert [(d.document_id, d.relative, d.pages, d.kind, d.reason) for d in found] == [
        ("x1", "b.pdf", (1, 2, 3), "pdf", None),
        ("7", "view", None, "", None),
        ("lost", "passwd", None, "", Reason.UNREADABLE),
    ]


def test_a_bad_line_of_a_remote_manifest_is_named_with_its_url(buckets):
    buckets.put("s3://bucket/m.jsonl", b'{"pdf_path": "b.pdf", "id": 1}\n{"pdf_path": "c.pdf", "id": 1}\n')
    with pytest.raises(UsageError, match=r"s3://bucket/m\.jsonl line 2") as caught:
        list(buckets.listing().documents("s3://bucket/m.jsonl"))
    assert "s3://bucket/m.jsonl line 1" in str(caught.value)


@pytest.mark.parametrize("name", ["list.txt", "m.jsonl"])
def test_a_list_that_is_not_there_is_wrong_usage(buckets, name):
    with pytest.raises(UsageError, match=name):
        list(buckets.listing().documents(f"s3://bucket/{name}"))


def test_remote_lines_of_local_lists_and_manifests_are_taken(buckets):
    listing = buckets.listing()
    assert names(listing.line("s3://bucket/a/*.pdf")) == ["b.pdf"]
    assert names(listing.line("https://example.com/x/y.pdf")) == ["x/y.pdf"]
    (none,) = listing.line("hf://owner/name/x.pdf")
    assert none.reason is Reason.UNREADABLE
    document = listing.entry(ManifestEntry("gs://other/x.pdf", "id", (2,)))
    assert (document.source, document.document_id, document.pages, document.reason) == (
        "gs://other/x.pdf",
        "id",
        (2,),
        None,
    )


@pytest.mark.parametrize("root", ["s3://bucket/", "gs://bucket/", "hf://datasets/a/b/", "https://example.com/"])
def test_lines_of_local_lists_keep_folders_and_former_ids(buckets, root):
    lines = [f"{root}t/a/b/edgar.pdf", f"{root}t/c/edgar.pdf"]
    listing = buckets.listing()
    found = [document for line in lines for document in listing.line(line)]
    found += [listing.entry(ManifestEntry(line, None, None)) for line in lines]
    assert [document.relative for document in found] == 2 * ["t/a/b/edgar.pdf", "t/c/edgar.pdf"]
    assert {document.name_in_id for document in found} == {"edgar.pdf"}


def test_lines_without_a_suffix_keep_their_folders_too(buckets):
    buckets.put("s3://bucket/t/a/edgar")
    (document,) = buckets.listing().line("s3://bucket/t/a/edgar")
    assert (document.relative, document.name_in_id) == ("t/a/edgar", "edgar")


def test_a_document_called_a_list_is_a_document(buckets):
    (document,) = buckets.listing().documents(buckets.put("s3://bucket/odd.txt", b"%PDF-1.4"))
    assert (document.source, document.kind) == ("s3://bucket/odd.txt", "pdf")


def on_the_web(url, **more):
    """The documents of a web source, listed in a thread as planning does."""
    options = RemoteOptions(allow_private_addresses=True, pause=0.01, **more)
    return list(RemoteListing(Counter(), {}, options).documents(url))


def test_web_lists_and_manifests_resolve_relative_names(tmp_path):
    before = set(threading.enumerate())
    manifest = b'{"id": "m", "pdf_path": "../top.pdf?v=2"}\n'
    pages = {
        "/docs/list.txt": sending(b"sub/a%20b.pdf\nhttps://example.com/c.pdf\n/d.pdf\nhttp://[bad/e.pdf\n"),
        "/docs/m.jsonl": sending(manifest),
    }

    async def run():
        async with serving(pages) as server:
            listed = await asyncio.to_thread(on_the_web, f"{server.url}/docs/list.txt?token=secret")
            assert [(one.source.removeprefix(server.url), one.relative) for one in listed] == [
                ("/docs/sub/a%20b.pdf", "sub/a b.pdf"),
                ("https://example.com/c.pdf", "c.pdf"),
                ("/d.pdf", "d.pdf"),
                ("http://[bad/e.pdf", "e.pdf"),
            ]
            (entry,) = await asyncio.to_thread(on_the_web, f"{server.url}/docs/m.jsonl")
            assert (entry.source, entry.document_id) == (f"{server.url}/top.pdf?v=2", "m")
            with pytest.raises(UsageError) as caught:
                await asyncio.to_thread(on_the_web, f"{server.url}/no.txt?token=secret")
            assert "404" in str(caught.value)
            assert "secret" not in str(caught.value)
            with pytest.raises(UsageError, match="larger"):
                await asyncio.to_thread(on_the_web, f"{server.url}/docs/m.jsonl", most_bytes=10)
            on_the_web_within_a_loop = on_the_web(f"{server.url}/x.pdf")  # asks nobody, hence may stand here
            assert on_the_web_within_a_loop[0].kind == "pdf"

    asyncio.run(run())
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if "Pool" in thread.name]
