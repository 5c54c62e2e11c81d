"""URLs do not reach addresses inside a network: neither by name, nor by spelling, nor by redirect."""

import asyncio
import base64
import ipaddress
import shutil
import ssl
import subprocess

import pytest
from web_servers import PDF, Names, failing, moved, remote, sending, serving

from llm_ocr.documents.remote import (
    StoreUrl,
    fingerprint,
    http,
    is_remote,
    joined,
    kind_by_url,
    matcher,
    name_of,
    shown,
    split,
    unknown_scheme,
)
from llm_ocr.documents.remote.http import problem
from llm_ocr.errors import UsageError
from llm_ocr.types import Reason


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.9.1", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("100.100.100.200", "0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255", "0.1.2.3", "192.0.0.1"),
        *("192.0.0.9", "192.0.0.170", "192.0.0.192", "192.0.0.255", "192.0.2.1", "192.31.196.1", "192.52.193.1"),
        *("192.88.99.1", "192.175.48.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "168.63.129.16", "::1", "::"),
        *("fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:db8::1", "2001:0:1::1", "2001:1::1"),
        *("2001:20::1", "2620:4f:8000::1", "3fff::1", "5f00::1", "100::1", "100:0:0:1::1", "4000::1", "::127.0.0.1"),
        *("::8.8.8.8", "::ffff:192.0.0.192", "64:ff9b::c000:c0", "64:ff9b:1::808:808", "2002:c000:c0::1"),
    ],
)
def test_addresses_that_are_not_public_are_known(address):
    assert problem(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "93.184.216.34", "192.0.1.1", "198.20.0.1", "2606:4700::1111", "64:ff9b::808:808"),
        *("2002:808:808::1", "::ffff:8.8.8.8", "2001:200::1", "2a00:1450::1"),
    ],
)
def test_public_addresses_pass(address):
    assert problem(ipaddress.ip_address(address)) == ""


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "127.0.0.1.", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "0x7f000001", "0",
     "[::1]", "[::ffff:127.0.0.1]", "[::1%25lo]", "127。0。0。1", "①27.0.0.1"],
)  # fmt: skip
async def test_loopback_is_not_reached_in_any_spelling(tmp_path, host):
    async with serving({"/a.pdf": sending()}) as server:
        async with remote(tmp_path, allow_private_addresses=False, tries=1) as documents:
            failure = await failing(documents, f"http://{host}:{server.port}/a.pdf")
        seen = server.seen
    assert failure.reason in (Reason.UNREADABLE, Reason.NOT_FOUND)
    assert not seen


async def test_the_failure_names_the_address_and_the_setting(tmp_path):
    names = Names(inside_example=[["10.1.2.3"]])
    async with remote(tmp_path, names, allow_private_addresses=False) as documents:
        failure = await failing(documents, "http://inside.example/a.pdf")
    assert "inside.example is 10.1.2.3" in failure.detail
    assert "`allow_private_addresses`" in failure.hint


def test_one_inner_address_among_public_ones_refuses_the_host(tmp_path):
    async def run():
        names = Names(mixed_example=[["93.184.216.34", "fe80::1%eth0"]])
        async with remote(tmp_path, names, allow_private_addresses=False) as documents:
            return await failing(documents, "http://mixed.example/a.pdf")

    assert "link-local" in asyncio.run(run()).detail


@pytest.fixture
def loopback_is_public(monkeypatch):
    """The tests' servers stand on 127.0.0.1, which passes for an address of the internet here; others do not."""
    monkeypatch.setattr(http, "problem", lambda one: "" if str(one) == "127.0.0.1" else problem(one))


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest/meta-data/", "//10.0.0.1/a", "http://inner.example/a", "http://[::1]/a",
     "http://0x0a.1/a"],
)  # fmt: skip
async def test_inward_redirect_is_refused_before_connecting(tmp_path, loopback_is_public, target):
    names = Names(outer_example=[["127.0.0.1"]], inner_example=[["10.0.0.1"]])
    outer = serving({"/a.pdf": moved(target)})
    async with outer as server, remote(tmp_path, names, allow_private_addresses=False) as documents:
        failure = await failing(documents, f"http://outer.example:{server.port}/a.pdf")
        paths = server.paths()
    assert failure.reason is Reason.UNREADABLE
    assert "redirect" not in failure.detail
    assert paths == ["/a.pdf"]


async def test_connection_uses_the_address_that_was_checked(tmp_path, loopback_is_public):
    names = Names(rebinding_example=[["127.0.0.1"], ["10.0.0.1"]])  # another answer to a second question
    async with serving({"/a.pdf": sending()}) as server:
        url = f"http://rebinding.example:{server.port}/a.pdf"
        documents = remote(tmp_path, names, allow_private_addresses=False)
        async with documents, documents.open(url) as copy:
            assert copy.path.read_bytes() == PDF
        assert names.asked == ["rebinding.example"]
        assert [one.host for one in server.seen] == [f"rebinding.example:{server.port}"]


async def test_tls_verifies_name_and_connects_to_checked_address(tmp_path):
    certificate = made_certificate(tmp_path, "docs.example")
    asked = []
    serve = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serve.load_cert_chain(certificate)
    serve.sni_callback = lambda _, name, __: asked.append(name)

    names = Names(docs_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
    trusted = ssl.create_default_context(cafile=certificate)
    async with serving({"/a.pdf": sending()}, serve) as server:
        async with remote(tmp_path, names, trusted) as documents:
            async with documents.open(f"https://docs.example:{server.port}/a.pdf") as copy:
                assert copy.path.read_bytes() == PDF
            assert asked == ["docs.example"]
            failure = await failing(documents, f"https://other.example:{server.port}/a.pdf")
            assert "certificate" in failure.detail
        async with remote(tmp_path, names) as documents:
            failure = await failing(documents, f"https://docs.example:{server.port}/a.pdf")
            assert "certificate" in failure.detail
        assert len(server.seen) == 1


def made_certificate(folder, name):
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, pem = folder / "key.pem", folder / "both.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN={name} -addext subjectAltName=DNS:{name}"
    subprocess.run(["openssl", *words.split(), "-keyout", key, "-out", pem], check=True, capture_output=True)
    pem.write_bytes(pem.read_bytes() + key.read_bytes())
    return pem


async def test_https_is_not_left_for_http(tmp_path):
    certificate = made_certificate(tmp_path, "docs.example")
    serve = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serve.load_cert_chain(certificate)

    names = Names(docs_example=[["127.0.0.1"]])
    trusted = ssl.create_default_context(cafile=certificate)
    async with serving({"/b.pdf": sending()}) as plain, remote(tmp_path, names, trusted) as documents:
        async with serving({"/a.pdf": moved(f"http://docs.example:{plain.port}/b.pdf")}, serve) as server:
            failure = await failing(documents, f"https://docs.example:{server.port}/a.pdf")
        seen = plain.seen
    assert "from https to http" in failure.detail
    assert not seen


async def test_url_credentials_go_only_to_their_host_and_are_not_shown(tmp_path):
    names = Names(one_example=[["127.0.0.1"]], two_example=[["127.0.0.1"]])
    async with serving({"/c.pdf": sending(b"", 404)}) as second:
        pages = {
            "/a.pdf": moved("/b.pdf"),
            "/b.pdf": moved(f"http://me:other@two.example:{second.port}/c.pdf"),
        }
        async with serving(pages) as first:
            async with remote(tmp_path, names) as documents:
                url = f"http://user:s%C3%A9same@one.example:{first.port}/a.pdf?token=abc&page=2"
                failure = await failing(documents, url)
            sent = [one.headers.get("Authorization", "") for one in (*first.seen, *second.seen)]
    basic = "Basic " + base64.b64encode("user:sésame".encode()).decode()
    assert sent == [basic, basic, ""]
    assert "sésame" not in str(failure)
    assert "s%C3" not in str(failure)
    assert "abc" not in str(failure)
    assert "page=2" in str(failure)


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
def test_secrets_of_a_url_are_not_shown(url, expected):
    assert shown(url) == expected


def test_only_the_fragment_is_removed_when_nothing_is_secret():
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
