"""How the contract suite makes an empty store on Google Cloud Storage."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from llm_ocr.storage import ObjectStore, StoreOptions

#: More than two pages of its lists.
MANY = 210


@contextlib.contextmanager
def make_store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A store with the real client, on a server of its own; lists come in pages of 100."""
    pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")
    from llm_ocr.storage.gcs import parse_url
    from llm_ocr.storage.gcs.store import GcsStore, Limits
    from tests.fakes.gcs import running

    with running("a-bucket") as gcs, mock.patch("llm_ocr.storage.gcs.store._PAGE", 100):
        yield GcsStore(parse_url("gs://a-bucket/a folder/run"), StoreOptions(endpoint=gcs.url), Limits(pause=0.02))
