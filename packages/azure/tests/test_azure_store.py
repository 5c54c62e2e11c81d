"""The Azure store: what it refuses, what failures say, lost responses, long lists, and the program over it."""

import contextlib
import http.client
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
import running
from azure_making import ENVIRONMENT, azure_environment, azurite, make_store, new_container

from llm_ocr.errors import MissingExtra, ObjectChanged, ObjectExists, StorageError, UsageError
from llm_ocr.launch.library import store_extras
from llm_ocr.storage import StoreOptions, open_store

pytest.importorskip("obstore")


@pytest.fixture
def endpoint(require) -> Iterator[str]:
    """Azurite, with its credentials in the environment."""
    require("azurite")
    with azure_environment():
        yield azurite()


@contextlib.contextmanager
def proxied(endpoint: str, spoil) -> Iterator[str]:
    """A server before `endpoint`. `spoil(method, number)` is a status, "lost" (done, but not answered), or None."""
    to, numbers = urlsplit(endpoint), iter(range(1000))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_) -> None:
            pass

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            how = spoil(self.command, next(numbers))
            if isinstance(how, int):
                return self.answer(how, [], b"<Error><Code>ServerBusy</Code><Message>Busy.</Message></Error>")
            with contextlib.closing(http.client.HTTPConnection(to.hostname, to.port)) as connection:
                connection.request(self.command, self.path, body, dict(self.headers))
                with connection.getresponse() as got:
                    status, headers, data = got.status, got.getheaders(), got.read()
            if how == "lost":
                self.close_connection = True
                return None
            return self.answer(status, headers, data)

        def answer(self, status, headers, data) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{to.path}"
        server.shutdown()


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("az://me:sesame@c-1/run", {}, "must not contain credentials"),
        ("az://c-1/run?sv=2026&sig=sesame", {}, "must not contain credentials"),
        ("az://c-1?sig=sesame", {}, "must not contain credentials"),
        ("az://", {}, "cannot be the name of a container"),
        ("az://Upper/x", {}, "cannot be the name of a container"),
        ("az://a--b/x", {}, "cannot be the name of a container"),
        ("az://c-1/a//b", {}, "empty part"),
        ("az://c-1/x", {"profile": "work"}, "AZURE_STORAGE_ACCOUNT_KEY"),
        ("az://c-1/x", {"region": "west"}, "`workspace_region` has no effect"),
        ("az://c-1/x", {"endpoint": "https://me:sesame@host"}, "`workspace_endpoint` is not an http or https URL"),
        ("az://c-1/x", {"endpoint": "https://host/?sig=sesame"}, "`workspace_endpoint` is not an http or https URL"),
    ],
)
def test_wrong_urls_and_options_are_refused_without_secrets(url, options, says):
    with pytest.raises(UsageError, match=says) as caught:
        open_store(url, StoreOptions(**options))
    assert "sesame" not in str(caught.value)


def test_a_missing_client_is_named_with_its_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match=r"pip install .*obstore"):
        open_store("az://c-1/run")


def test_a_missing_account_is_named(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(UsageError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        open_store("az://c-1/run").check()


def test_jobs_install_the_extra_of_the_store():
    assert store_extras(["az://c-1/run", "s3://b", "out"]) == ["azure", "s3"]


def test_a_job_that_installs_from_the_store_is_refused(tmp_path):
    run = running.cli("launch", "hf-jobs", "extract", "-w", "az://c-1/run", cwd=tmp_path)
    assert run.returncode == 2
    assert "a job cannot install llm-ocr from az://" in run.stderr and "--wheel image" in run.stderr


def test_an_unreachable_endpoint_is_said_and_no_signature():
    secret = "sv=2026-01-01&sig=sesame"
    with azure_environment(AZURE_STORAGE_ACCOUNT_KEY="", AZURE_STORAGE_SAS_TOKEN=secret):
        store = open_store("az://c-1/run", StoreOptions(endpoint="http://127.0.0.1:1/account"))
        with pytest.raises(StorageError, match=r"127\.0\.0\.1:1/account is unreachable") as caught:
            store.get("k")
    assert caught.value.retryable and "endpoint" in caught.value.hint
    assert "sesame" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_a_missing_container_is_said_by_methods(endpoint, tmp_path):
    store = open_store("az://no-such/run", StoreOptions(endpoint=endpoint))
    (tmp_path / "file").write_bytes(b"")
    for call in (
        store.check,
        store.capabilities,
        lambda: store.get("k"),
        lambda: store.read_range("k", 0, 1),
        lambda: store.put("k", b""),
        lambda: store.swap("k", b"", "1"),
        lambda: store.upload(tmp_path / "file", "k"),
        lambda: store.download("k", tmp_path / "copy"),
        lambda: store.delete("k"),
        lambda: list(store.list()),
    ):
        with pytest.raises(StorageError, match="there is no container no-such") as caught:
            call()
        assert type(caught.value) is StorageError and "az storage container create" in caught.value.hint


@pytest.mark.parametrize("key", ["d3Jvbmc=", "not base64"])
def test_wrong_credentials_name_what_to_set(endpoint, key):
    with azure_environment(AZURE_STORAGE_ACCOUNT_KEY=key):
        store = open_store(f"az://{new_container()}/run", StoreOptions(endpoint=endpoint))
        for call in (store.check, lambda: store.stat("k"), lambda: list(store.list())):
            with pytest.raises(StorageError, match="credentials") as caught:
                call()
            assert "Set one of: AZURE_STORAGE_ACCOUNT_KEY" in caught.value.hint
            assert not caught.value.retryable and key not in str(caught.value)


def test_a_backslash_in_a_key_is_refused(endpoint, tmp_path):
    with make_store(tmp_path) as store, pytest.raises(StorageError, match="cannot be the name"):
        store.put("a\\b", b"")


@pytest.mark.parametrize("spoiled", ["lost", 503])
def test_own_write_after_a_lost_response_is_success(endpoint, spoiled):
    place = f"az://{new_container()}/run"
    with proxied(endpoint, lambda method, number: spoiled if number == 0 else None) as before:
        created = open_store(place, StoreOptions(endpoint=before)).create("k", b"one")
    with proxied(endpoint, lambda method, number: spoiled if number == 0 else None) as before:
        swapped = open_store(place, StoreOptions(endpoint=before)).swap("k", b"two", created)
    assert open_store(place, StoreOptions(endpoint=endpoint)).fetch("k") == (b"two", swapped)


def test_equal_bytes_of_another_are_no_success(endpoint):
    place = f"az://{new_container()}/run"
    other = open_store(place, StoreOptions(endpoint=endpoint))

    def spoil(method: str, number: int) -> str | None:
        if number == 0:
            other.create("k", b"same")
        return None

    with proxied(endpoint, spoil) as before:
        store = open_store(place, StoreOptions(endpoint=before))
        with pytest.raises(ObjectExists):
            store.create("k", b"same")
        with pytest.raises(ObjectChanged):
            store.swap("k", b"same", "0x1")


def test_a_busy_server_is_retryable_after_all_retries(endpoint):
    with proxied(endpoint, lambda method, number: 503) as before:
        store = open_store(f"az://{new_container()}/run", StoreOptions(endpoint=before))
        with pytest.raises(StorageError, match="too many requests after all retries") as caught:
            store.get("k")
    assert caught.value.retryable


@pytest.mark.slow
def test_a_list_of_two_pages_of_azure_is_complete(endpoint, tmp_path):
    keys = [f"many/{number % 16:x}/{number:05d}" for number in range(5001)]
    with make_store(tmp_path) as store:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b""), keys))
        assert [info.key for info in store.list("many/")] == sorted(keys)


@pytest.mark.slow
def test_a_run_is_repeated_and_shown_and_its_page_read(endpoint, small_examples, tmp_path):
    place = f"az://{new_container()}/scans"
    reached = ("--workspace-endpoint", endpoint)
    with make_store(tmp_path):
        source = open_store(f"{place}/in", StoreOptions(endpoint=endpoint))
        source.upload(small_examples / "invoice.png", "invoice.png")
    run = ("run", f"{place}/in/", "--source-endpoint", endpoint, "-w", f"{place}/out", *reached, *running.FRUGAL)
    for _ in range(2):
        done = running.cli(*run, cwd=tmp_path, env=ENVIRONMENT)
        assert done.returncode == 0, done.stderr
    status = running.cli("status", "-w", f"{place}/out", *reached, cwd=tmp_path, env=ENVIRONMENT)
    assert status.returncode == 0 and "1" in status.stdout, status.stderr
    keys = [info.key for info in open_store(f"{place}/out", StoreOptions(endpoint=endpoint)).list("extract/")]
    assert sum(key.endswith(".parquet") for key in keys) == 1
