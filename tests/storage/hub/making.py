"""Stores on the fake Hub, which runs in this process and is asked through the real huggingface_hub."""

import atexit
import contextlib
import itertools
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from huggingface_hub import HfApi, constants

from llm_ocr.storage import StoreOptions
from llm_ocr.storage.hf import Place
from llm_ocr.storage.hf.bucket import BucketStore
from llm_ocr.storage.hf.client import RetryPolicy
from llm_ocr.storage.hf.commits import Rate
from llm_ocr.storage.hf.dataset import DatasetStore
from tests.fakes.hub import TOKEN, FakeHub

#: More than one page of the server's lists.
MANY = 130
PAGE = 50

#: Short waits, so that a test of what passes, or does not, is quick.
QUICK_RETRIES = RetryPolicy(tries=3, first=0.01, longest=0.05, limit=5.0)
AT_ONCE = Rate(per_hour=360_000, at_once=1000, gather=0.02, linger=0.2)

_NUMBERS = itertools.count(1)


@cache
def hub() -> FakeHub:
    """A server that ends with the process."""
    made = FakeHub(page=PAGE)
    made.start()
    atexit.register(made.stop)
    return made


@contextlib.contextmanager
def hub_environment(home: Path) -> Iterator[None]:
    """Nothing of this machine's: no token, no cache."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    with mock.patch.dict(os.environ, others, clear=True), hub_constants(hub().url, home):
        yield


def hub_constants(url: str, home: Path) -> contextlib.AbstractContextManager[Any]:
    """huggingface_hub of this process turned to a server; it has read its environment when it was imported."""
    return mock.patch.multiple(
        constants,
        ENDPOINT=url,
        HUGGINGFACE_CO_URL_TEMPLATE=url + "/{repo_id}/resolve/{revision}/{filename}",
        HF_HOME=str(home),
        HF_HUB_CACHE=str(home / "hub"),
        HF_TOKEN_PATH=str(home / "token"),
        HF_STORED_TOKENS_PATH=str(home / "stored_tokens"),
        HF_HUB_DISABLE_XET=True,
        HF_HUB_OFFLINE=False,
    )


def api(token: str = TOKEN) -> HfApi:
    """A client that no store made."""
    return HfApi(endpoint=hub().url, token=token)


def new_place(kind: str, prefix: str = "runs/one", revision: str = "", *, private: bool = True) -> Place:
    """A prefix in a new, empty bucket or dataset repository."""
    name = f"tester/{kind}-{next(_NUMBERS)}"
    if kind == "bucket":
        api().create_bucket(name, private=private)
    else:
        api().create_repo(name, repo_type="dataset", private=private)
    return Place(kind, name, prefix, revision)


def store_at(place: Place, token: str | None = TOKEN, rate: Rate = AT_ONCE) -> BucketStore | DatasetStore:
    """A store on the server."""
    options = StoreOptions(endpoint=hub().url, token=token)
    if place.kind == "bucket":
        return BucketStore(place, options, QUICK_RETRIES)
    return DatasetStore(place, options, QUICK_RETRIES, rate)


@contextlib.contextmanager
def make_store(tmp_path: Path) -> Iterator[BucketStore]:
    """An empty store in a bucket."""
    with hub_environment(_home(tmp_path)):
        yield store_at(new_place("bucket"))


@contextlib.contextmanager
def make_dataset_store(tmp_path: Path) -> Iterator[DatasetStore]:
    """An empty store in a dataset repository."""
    with hub_environment(_home(tmp_path)):
        yield store_at(new_place("dataset"))


def _home(tmp_path: Path) -> Path:
    folder = tmp_path / "hf home"
    folder.mkdir(exist_ok=True)
    return folder
