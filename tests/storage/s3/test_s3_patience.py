"""How often requests are tried again, and by whom."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_ocr.errors import StorageError
from tests.storage.s3 import making


def test_many_readers_outlast_a_service_that_answers_nobody(place, proxy):
    """More retries at a time than botocore's own quota allows a client."""
    store = making.store_at(place, proxy.url, making.Limits(retries=8))
    store.put("a", b"content")
    proxy.add(method="GET", times=56, lost="before")
    with ThreadPoolExecutor(16) as readers:
        assert list(readers.map(lambda _: store.get("a"), range(16))) == [b"content"] * 16


def test_who_may_not_try_again_gives_up_at_the_first_loss(place, proxy):
    store = making.store_at(place, proxy.url, making.Limits(retries=0))
    store.put("a", b"content")
    proxy.add(method="GET", times=1, lost="before")
    with pytest.raises(StorageError, match="connection"):
        store.get("a")
