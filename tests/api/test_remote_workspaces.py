"""The three stages with a workspace on S3 or GCS: the same command with another URL. The servers are emulators."""

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from unittest import mock

import pytest

import llm_ocr
from llm_ocr.errors import LlmOcrError, StorageError
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.testing.fake_gcs import running

NUMBERS = itertools.count()
FRUGAL = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1}


@contextlib.contextmanager
def s3() -> Iterator[tuple[str, dict[str, str]]]:
    """A workspace URL on an S3 server, and the settings that reach it."""
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    keys = {"AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST", "AWS_SECRET_ACCESS_KEY": "of the tests"}
    nothing = {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with mock.patch.dict(os.environ, {**kept, **keys, **nothing}, clear=True):
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="bucket")
        try:
            # moto keeps one state for the whole process
            yield f"s3://bucket/runs/{next(NUMBERS)}", {"workspace_endpoint": endpoint}
        finally:
            server.stop()


@contextlib.contextmanager
def gcs() -> Iterator[tuple[str, dict[str, str]]]:
    """The same on a GCS server."""
    pytest.importorskip("google.cloud.storage")
    with running("bucket") as server:
        yield f"gs://bucket/runs/{next(NUMBERS)}", {"workspace_endpoint": server.url}


@pytest.fixture(params=[s3, gcs], ids=["s3", "gcs"])
def remote(request) -> Iterator[tuple[str, dict[str, str]]]:
    with request.param() as found:
        yield found


def opened(url: str, settings: dict[str, str]) -> llm_ocr.Run:
    return llm_ocr.open(url, endpoint=settings["workspace_endpoint"])


def test_the_three_stages_run_there_and_go_on_where_they_stopped(remote, examples):
    url, settings = remote
    sources = [examples / "paper.pdf", examples / "invoice.png"]
    llm_ocr.extract(sources, workspace=url, **settings, **FRUGAL)
    run = llm_ocr.run(sources, workspace=url, **settings, **FRUGAL)
    status = opened(url, settings).status
    assert status.finished
    assert status.pages.ok == status.pages.expected == run.status.pages.expected > 0
    assert sum(1 for _ in opened(url, settings).documents()) == 2
    rows = opened(url, settings).to_dataset()
    assert len(rows) == status.pages.expected
    assert rows[0]["source_image"].size[0] > 100


def test_two_workers_of_one_workspace_do_each_page_once(remote, examples):
    url, settings = remote
    llm_ocr.plan(examples, workspace=url, pages_per_unit=2, engine="embedded", **settings)
    errors: list[BaseException] = []

    def worker(index: int) -> None:
        try:
            llm_ocr.extract(workspace=url, shard_index=index, shard_count=2, **settings, **FRUGAL)
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=worker, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    status = opened(url, settings).status
    assert status.pages.ok == status.pages.expected == 9


def test_a_missing_bucket_is_said_before_anything_is_read(remote, examples):
    url, settings = remote
    with pytest.raises(StorageError, match="nowhere"):
        llm_ocr.run(examples, workspace=url.replace("//bucket", "//nowhere"), **settings, **FRUGAL)


@pytest.mark.parametrize(
    ("url", "said"), [("gcs://bucket/x", "gs://"), ("s4://bucket/x", "s3://"), ("hf://ns/name", "hf://buckets/ns/name")]
)
def test_a_misspelt_url_is_never_a_folder(examples, tmp_path, monkeypatch, url, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LlmOcrError, match=said):
        llm_ocr.run(examples / "invoice.png", workspace=url, **FRUGAL)
    assert list(tmp_path.iterdir()) == []


def test_workers_that_know_nothing_of_each_other_share_the_units(remote, examples):
    url, settings = remote
    llm_ocr.plan(examples, workspace=url, pages_per_unit=1, engine="embedded", **settings)
    # Who finds nothing free looks again after a fifth of the lease: no shorter one is taken by GCS.
    shared = {"workspace": url, "lease_seconds": 150, **settings, **FRUGAL}
    threads = [threading.Thread(target=llm_ocr.extract, kwargs=shared) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    llm_ocr.extract(**shared)
    status = opened(url, settings).status
    assert status.pages.ok == status.pages.expected == 9
    store = open_store(url, StoreOptions(endpoint=settings["workspace_endpoint"]))
    keys = [info.key for info in store.list("extract/")]
    assert not [key for key in keys if key.endswith(".lease")]
    data = [key for key in keys if key.endswith(".parquet")]
    assert len(data) == len([key for key in keys if key.endswith(".done")]) == 9


@pytest.mark.slow
def test_a_unit_of_a_worker_that_died_is_taken_over(examples, tmp_path):
    llm_ocr.plan(examples, workspace=tmp_path / "w", pages_per_unit=2, engine="embedded")
    words = [sys.executable, "-m", "llm_ocr", "extract", "-w", str(tmp_path / "w"), "--engine", "embedded"]
    first = subprocess.Popen([*words, "--lease-seconds", "5", "--quiet"])
    deadline = time.monotonic() + 60
    while not list((tmp_path / "w").rglob("*.lease")) and time.monotonic() < deadline:
        time.sleep(0.05)
    first.kill()
    first.wait()
    assert list((tmp_path / "w").rglob("*.lease"))
    llm_ocr.extract(workspace=tmp_path / "w", lease_seconds=5, **FRUGAL)
    status = llm_ocr.open(tmp_path / "w").status
    assert status.pages.ok == status.pages.expected == 9
    assert not list((tmp_path / "w").rglob("*.lease"))
