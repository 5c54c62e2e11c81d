"""Documents over HTTP are complete and as planned, or fail with a reason and affect no other document."""

import asyncio
import hashlib

import pytest
from web_servers import PDF, failing, in_turn, moved, remote, sending, serving, speaking, trickling

from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason


def fetch(folder, handler, path="/a.pdf", version="", pages=None, **more):
    """The content and version of one document, and the requests that it took."""

    async def run():
        every = {path.partition("?")[0]: handler, **(pages or {})}
        async with serving(every) as server, remote(folder, **more) as documents:
            try:
                async with documents.open(server.url + path, version) as copy:
                    return copy.path.read_bytes(), copy.version, server.paths()
            except PageFailure as failure:
                return failure, "", server.paths()

    return asyncio.run(run())


async def test_document_arrives_whole_without_cookies_or_compression(tmp_path):
    async with serving({"/a b.pdf": sending(Set_Cookie="a=b")}) as server, remote(tmp_path) as documents:
        for _ in range(2):
            async with documents.open(f"{server.url}/a b.pdf?x=%2B+1#part") as copy:
                assert copy.path.read_bytes() == PDF
                assert copy.path.suffix == ".pdf"
        assert server.paths() == ["/a%20b.pdf?x=%2B+1"] * 2
        assert all("Cookie" not in one.headers for one in server.seen)
        assert all(one.headers["Accept-Encoding"] == "identity" for one in server.seen)


def test_quoted_parts_of_a_url_reach_the_server_unchanged(tmp_path):
    _, _, paths = fetch(tmp_path, sending(), "/a.pdf?X-Amz-Signature=a%2Fb%3D&q=%7e")
    assert paths == ["/a.pdf?X-Amz-Signature=a%2Fb%3D&q=%7e"]


async def test_etag_is_the_version_and_another_is_a_changed_source(tmp_path):
    changing = in_turn(sending(ETag='"1"'), sending(PDF + b"more", ETag='"2"'))
    async with serving({"/a.pdf": changing, "/b.pdf": sending(ETag='"1"')}) as server:
        async with remote(tmp_path) as planning:
            async with planning.open(f"{server.url}/a.pdf") as copy:
                version = copy.version
            async with planning.open(f"{server.url}/b.pdf") as copy:
                assert copy.version != version  # equal ETags of two URLs do not make copies of them
        async with remote(tmp_path) as working:
            failure = await failing(working, f"{server.url}/a.pdf", version)
    assert version.startswith("etag:")
    assert failure.reason is Reason.SOURCE_CHANGED


async def test_unchanged_etag_is_same_document_for_another_worker(tmp_path):
    async with serving({"/a.pdf": in_turn(sending(ETag='"1"'), sending(ETag='W/"1"'))}) as server:
        async with remote(tmp_path) as planning, planning.open(f"{server.url}/a.pdf") as copy:
            version = copy.version
        async with remote(tmp_path) as working, working.open(f"{server.url}/a.pdf", version) as copy:
            assert (copy.version, copy.path.read_bytes()) == (version, PDF)


def test_without_an_etag_modified_time_or_content_is_the_version(tmp_path):
    day = "Wed, 21 Oct 2015 07:28:00 GMT"
    assert fetch(tmp_path, sending(Last_Modified=day))[1].startswith("modified:")
    content = f"sha256:{hashlib.sha256(PDF).hexdigest()}"
    assert fetch(tmp_path, sending())[1] == content
    # What was planned by its content is proved by its content, whatever the server says by then.
    assert fetch(tmp_path, sending(ETag='"9"'), version=content)[0] == PDF
    failure, _, _ = fetch(tmp_path, sending(PDF + b"!"), version=content)
    assert failure.reason is Reason.SOURCE_CHANGED


@pytest.mark.parametrize(
    ("status", "reason", "requests"),
    [
        (404, Reason.NOT_FOUND, 1),
        (410, Reason.NOT_FOUND, 1),
        (401, Reason.UNREADABLE, 1),
        (403, Reason.UNREADABLE, 1),
        (418, Reason.UNREADABLE, 1),
        (204, Reason.UNREADABLE, 1),
        (304, Reason.UNREADABLE, 1),
        (429, Reason.UNREADABLE, 4),
        (500, Reason.UNREADABLE, 4),
        (503, Reason.UNREADABLE, 4),
    ],
)
def test_permanent_statuses_fail_at_once_transient_after_retries(tmp_path, status, reason, requests):
    failure, _, paths = fetch(tmp_path, sending(b"" if status in (204, 304) else b"no", status))
    assert (failure.reason, len(paths)) == (reason, requests)
    assert str(status) in failure.detail


def test_temporary_failure_is_retried(tmp_path):
    cut = speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n%PDF-1.5")
    busy = sending(b"later", 429, Retry_After="0")
    content, _, paths = fetch(tmp_path, in_turn(busy, cut, speaking(b"garbage\r\n\r\n"), sending()))
    assert (content, len(paths)) == (PDF, 4)


def test_a_document_that_is_always_cut_is_not_taken_for_whole(tmp_path):
    failure, _, paths = fetch(tmp_path, speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n%PDF-1.5"))
    assert (failure.reason, failure.retryable, len(paths)) == (Reason.UNREADABLE, True, 4)
    assert "ended early" in failure.detail


def test_too_large_is_refused_by_announced_and_by_received_size(tmp_path):
    failure, _, paths = fetch(tmp_path, sending(), most_bytes=5000)
    assert (failure.reason, len(paths)) == (Reason.UNREADABLE, 1)
    assert "larger" in failure.detail
    failure, _, _ = fetch(tmp_path, speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n%PDF"))
    assert "larger than 512 MiB" in failure.detail
    failure, _, _ = fetch(tmp_path, trickling(b"x" * 65536, 0), most_bytes=1 << 21)
    assert "larger than 2 MiB" in failure.detail
    assert not list(tmp_path.rglob("*.part"))


def test_a_server_without_an_end_is_left_when_the_time_is_over(tmp_path):
    failure, _, _ = fetch(tmp_path, trickling(b"x", 0.02), seconds=0.4)
    assert failure.reason is Reason.UNREADABLE
    assert "0.4 s" in failure.detail


def test_a_silent_server_is_left_when_no_byte_comes(tmp_path):
    async def silent(_):
        await asyncio.sleep(60)

    failure, _, paths = fetch(tmp_path, silent, stall_seconds=0.5, tries=2)
    assert len(paths) == 2
    assert "stopped sending" in failure.detail


def test_web_page_is_no_document_with_any_name(tmp_path):
    failure, _, _ = fetch(tmp_path, sending(b"\xef\xbb\xbf\n<!DOCTYPE HTML><p>Please log in"))
    assert failure.reason is Reason.UNKNOWN_TYPE
    assert "web page" in failure.detail


def test_content_decides_when_the_server_names_another_type(tmp_path):
    assert fetch(tmp_path, sending(Content_Type="text/html"), "/view")[0] == PDF


def test_compressed_answers_that_nobody_asked_for_are_named(tmp_path):
    failure, _, _ = fetch(tmp_path, sending(Content_Encoding="gzip"))
    assert "gzip" in failure.detail


def test_redirects_are_followed_up_to_a_limit_and_loops_end(tmp_path):
    hops = {f"/{number}": moved(f"/{number + 1}", 301 + number % 2) for number in range(1, 5)}
    assert fetch(tmp_path, moved("1"), "/0", pages={**hops, "/5": sending()})[0] == PDF
    failure, _, paths = fetch(tmp_path, moved("/0"), "/0")
    assert (failure.reason, len(paths)) == (Reason.UNREADABLE, 6)
    assert "5 redirects" in failure.detail


@pytest.mark.parametrize("place", ["", "file:///etc/passwd", "ftp://h/a", "http://h:99999/", "//[x"])
def test_redirect_to_an_invalid_target_fails(tmp_path, place):
    failure, _, paths = fetch(tmp_path, moved(place))
    assert (failure.reason, len(paths)) == (Reason.UNREADABLE, 1)
    assert "redirect" in failure.detail


@pytest.mark.parametrize("url", ["https://", "https://[x/a.pdf", "http://h:99999/a.pdf", "http://ü..x/a.pdf"])
async def test_invalid_url_fails_alone(tmp_path, url):
    async with remote(tmp_path) as documents:
        assert (await failing(documents, url)).reason in (Reason.UNREADABLE, Reason.NOT_FOUND)


async def test_an_unreachable_server_is_tried_again_and_then_a_failure(tmp_path):
    async with remote(tmp_path, tries=2) as documents:
        failure = await failing(documents, "http://127.0.0.1:1/a.pdf")
    assert (failure.reason, failure.retryable) == (Reason.UNREADABLE, True)


def test_one_bad_url_does_not_stop_the_others(tmp_path):
    async def run():
        pages = {"/good.pdf": sending(), "/cut.pdf": speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")}
        async with serving(pages) as server, remote(tmp_path) as documents:

            async def one(name):
                try:
                    async with documents.open(f"{server.url}/{name}.pdf") as copy:
                        return copy.path.read_bytes()
                except PageFailure as failure:
                    return failure.reason

            return await asyncio.gather(*map(one, ["gone", "good", "cut"]))

    assert asyncio.run(run()) == [Reason.NOT_FOUND, PDF, Reason.UNREADABLE]
