"""The Azure store: what it refuses, what failures say, lost responses, long lists, and the program over it."""

import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import running
from azure_making import ENVIRONMENT, azure_environment, azurite, make_store, new_container

from llm_ocr.errors import MissingExtra, ObjectChanged, ObjectExists, StorageError, UsageError
from llm_ocr.launch.library import store_extras
from llm_ocr.storage import ObjectStore, StoreOptions, open_store
from tests.storage.proxy import Proxy

pytest.importorskip("obstore")


@pytest.fixture
def endpoint(require) -> Iterator[str]:
    """Azurite, with its credentials in the environment."""
    require("azurite")
    with azure_environment():
        yield azurite()


@pytest.fixture
def proxy(endpoint) -> Iterator[Proxy]:
    """What stands before Azurite and can spoil requests."""
    with contextlib.closing(Proxy(endpoint)) as standing:
        yield standing


def opened(place: str, proxy: Proxy) -> ObjectStore:
    """A store whose requests go through the proxy."""
    return open_store(place, StoreOptions(endpoint=proxy.url + proxy.to.path))


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


@pytest.mark.parametrize("spoiled", [{"lost": "after"}, {"status": 503, "code": "ServerBusy"}])
def test_own_write_after_a_lost_response_is_success(endpoint, proxy, spoiled):
    place = f"az://{new_container()}/run"
    store = opened(place, proxy)
    proxy.add(**spoiled)
    created = store.create("k", b"one")
    proxy.add(**spoiled)
    swapped = store.swap("k", b"two", created)
    assert [fault.met for fault in proxy.faults] == [True, True]
    assert open_store(place, StoreOptions(endpoint=endpoint)).fetch("k") == (b"two", swapped)


def test_equal_bytes_of_another_are_no_success(endpoint, proxy):
    place = f"az://{new_container()}/run"
    other = open_store(place, StoreOptions(endpoint=endpoint))

    def first(method: str, path: str) -> None:
        proxy.before = lambda method, path: None
        other.create("k", b"same")

    proxy.before = first
    store = opened(place, proxy)
    with pytest.raises(ObjectExists):
        store.create("k", b"same")
    with pytest.raises(ObjectChanged):
        store.swap("k", b"same", "0x1")


def test_a_busy_server_is_retryable_after_all_retries(proxy):
    proxy.add(status=503, code="ServerBusy", times=1000)
    with pytest.raises(StorageError, match="too many requests after all retries") as caught:
        opened(f"az://{new_container()}/run", proxy).get("k")
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
