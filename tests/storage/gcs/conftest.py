"""A server that stands for Google Cloud Storage, and stores on it; the user's own Google settings are not seen."""

import pytest

pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")

from llm_ocr.storage import StoreOptions
from llm_ocr.storage.gcs import parse_url
from llm_ocr.storage.gcs.store import GcsStore, Limits
from tests.fakes.gcs import running

_MINE = (
    "STORAGE_EMULATOR_HOST",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
)


@pytest.fixture(autouse=True)
def nothing_of_the_users(monkeypatch, tmp_path):
    for name in _MINE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
def gcs():
    """The server, with a bucket `a-bucket`; a fault that no request met is a test of nothing."""
    with running("a-bucket") as server:
        yield server
        assert [fault for fault in server.faults.listed() if not fault["hit"]] == []


@pytest.fixture
def open_gcs(gcs):
    """`open_gcs(url, **options)`: a store on the server, that waits for little."""

    def make(url="gs://a-bucket/run", *, total=20.0, chunk=1 << 20, **options):
        options.setdefault("endpoint", gcs.url)
        return GcsStore(
            parse_url(url), StoreOptions(**options), Limits(total=total, timeout=10, pause=0.01, chunk=chunk)
        )

    return make


@pytest.fixture
def gcs_store(open_gcs):
    return open_gcs()
