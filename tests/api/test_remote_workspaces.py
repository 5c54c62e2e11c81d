"""The three stages with a workspace on S3 or GCS: the same command with another URL. The servers are emulators."""

import functools
from collections.abc import Iterator

import bad_documents as bad
import pytest
from running import FRUGALLY, side_by_side
from store_servers import Place, gcs, s3

import llm_ocr
from llm_ocr.cli.outcome import load_line
from llm_ocr.config.models import AssembleSettings
from llm_ocr.errors import StorageError
from llm_ocr.scheduling import leases
from llm_ocr.storage import StoreOptions, open_store


@pytest.fixture
def documents(tmp_path):
    """A folder with three documents of three pages, whose text needs no OCR."""
    folder = tmp_path / "documents"
    folder.mkdir()
    for name in ("first", "second", "third"):
        (folder / f"{name}.pdf").write_bytes(bad.text_pdf(*bad.good_pages(name, 3)))
    return folder


@pytest.fixture(params=[s3, pytest.param(gcs, marks=pytest.mark.slow)], ids=["s3", "gcs"])
def remote(request) -> Iterator[Place]:
    with request.param() as found:
        yield found


def opened(url: str, settings: dict[str, str]) -> llm_ocr.Run:
    return llm_ocr.open(url, endpoint=settings["workspace_endpoint"])


def test_the_three_stages_run_there_and_go_on_where_they_stopped(remote, documents):
    url, settings = remote
    sources = [documents / "first.pdf", documents / "third.pdf"]
    llm_ocr.extract(sources, workspace=url, **settings, **FRUGALLY)
    run = llm_ocr.run(sources, workspace=url, **settings, **FRUGALLY)
    status = opened(url, settings).status
    assert status.finished
    assert status.pages.ok == status.pages.expected == run.status.pages.expected > 0
    assert sum(1 for _ in opened(url, settings).documents()) == 2
    rows = opened(url, settings).to_dataset()
    assert len(rows) == status.pages.expected
    assert rows[0]["source_image"].size[0] > 100
    line = load_line(AssembleSettings(workspace=url, **settings))
    assert len(eval(line, {"llm_ocr": llm_ocr})) == len(rows)


def test_a_missing_bucket_is_said_before_anything_is_read(remote, examples):
    url, settings = remote
    with pytest.raises(StorageError, match="nowhere"):
        llm_ocr.run(examples, workspace=url.replace("//bucket", "//nowhere"), **settings, **FRUGALLY)


@pytest.mark.slow
def test_workers_that_know_nothing_of_each_other_share_the_units(remote, documents, monkeypatch):
    url, settings = remote
    monkeypatch.setattr(leases, "_FASTEST_BEAT_ON_GCS", 1.0)
    llm_ocr.plan(documents, workspace=url, pages_per_unit=1, engine="embedded", **settings)
    # A worker that finds nothing free looks again after a fifth of the lease.
    shared = {"workspace": url, "lease_seconds": 8, **settings, **FRUGALLY}
    side_by_side(*[functools.partial(llm_ocr.extract, **shared)] * 3)
    llm_ocr.extract(**shared)
    status = opened(url, settings).status
    assert status.pages.ok == status.pages.expected == 9
    store = open_store(url, StoreOptions(endpoint=settings["workspace_endpoint"]))
    keys = [info.key for info in store.list("extract/")]
    assert not [key for key in keys if key.endswith(".lease")]
    data = [key for key in keys if key.endswith(".parquet")]
    assert len(data) == len([key for key in keys if key.endswith(".done")]) == 9
