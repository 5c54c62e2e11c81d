"""Workspaces on each kind of store, each on a server of this process, that any process can open."""

import atexit
import contextlib
import itertools
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from llm_ocr.storage import ObjectStore, StoreOptions
from tests.fakes.crash import CrashingLocalStore, CrashPoint

_NUMBERS = itertools.count(1)

_FOREIGN = ("AWS_", "HF_", "HUGGING", "GOOGLE_", "STORAGE_EMULATOR", "LLM_OCR_")


@dataclass(frozen=True, slots=True)
class Place:
    """One workspace. `leases`: whether its workers can share its units; else each has a static share."""

    kind: str
    url: str
    endpoint: str | None = None
    leases: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def keywords(self) -> dict[str, Any]:
        """How the Python API is told of it."""
        return {"workspace": self.url, "workspace_endpoint": self.endpoint}

    @property
    def sharing(self) -> dict[str, Any]:
        """What stages are told besides: in a folder leases are only taken where they are asked for."""
        return {"lease_seconds": 300.0} if self.leases and self.kind == "local" else {}

    @property
    def flags(self) -> list[str]:
        """How the command line is told of it."""
        return ["-w", self.url, *(["--workspace-endpoint", self.endpoint] if self.endpoint else [])]

    def store(self) -> ObjectStore:
        """A new store, with few retries. Its client reads the environment of `entered`."""
        return _OPENERS[self.kind](self)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This process with the credentials of the place, and none of the machine's."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, {**others, **self.environment}, clear=True))
            if "HF_ENDPOINT" in self.environment:
                from tests.storage.hub.making import hub_constants

                stack.enter_context(hub_constants(self.environment["HF_ENDPOINT"], Path(self.environment["HF_HOME"])))
            yield


def _open_local(place: Place) -> ObjectStore:
    return CrashingLocalStore(Path(place.url), CrashPoint())  # does not wait for the disk


def _open_s3(place: Place) -> ObjectStore:
    from llm_ocr.storage.s3 import S3Store
    from llm_ocr.storage.s3.client import Limits, parse_url

    limits = Limits(retries=3, connect_timeout=5, read_timeout=5)
    return S3Store(parse_url(place.url), StoreOptions(endpoint=place.endpoint), limits)


def _open_gcs(place: Place) -> ObjectStore:
    from llm_ocr.storage.gcs import parse_url
    from llm_ocr.storage.gcs.store import GcsStore, Limits

    return GcsStore(parse_url(place.url), StoreOptions(endpoint=place.endpoint), Limits(total=20.0, pause=0.02))


def _open_hub(place: Place) -> ObjectStore:
    from llm_ocr.storage.hf import parse
    from llm_ocr.storage.hf.bucket import BucketStore
    from llm_ocr.storage.hf.client import RetryPolicy
    from llm_ocr.storage.hf.commits import Rate
    from llm_ocr.storage.hf.dataset import DatasetStore

    found, retries = parse(place.url), RetryPolicy(tries=4, first=0.02, longest=0.1, limit=10.0)
    options = StoreOptions(token=place.environment["HF_TOKEN"])
    if found.kind == "bucket":
        return BucketStore(found, options, retries)
    return DatasetStore(found, options, retries, Rate(per_hour=360_000, at_once=1000, gather=0.01, linger=0.1))


_OPENERS: dict[str, Callable[[Place], ObjectStore]] = {
    "local": _open_local,
    "s3": _open_s3,
    "gcs": _open_gcs,
    "hub-bucket": _open_hub,
    "hub-dataset": _open_hub,
}

#: Each kind of store, and for folders both ways to share out the units.
KINDS = ("local", "local-leases", "s3", "gcs", "hub-bucket", "hub-dataset")


def new_place(kind: str, folder: Path) -> Place:
    """An empty workspace. `folder` is for what its store keeps on this machine."""
    name = f"w{next(_NUMBERS)}"
    if kind.startswith("local"):
        return Place("local", str(folder / name), leases=kind == "local-leases")
    if kind == "s3":
        from tests.storage.s3.making import ENVIRONMENT

        return Place("s3", f"s3://bucket/runs/{name}", moto(), True, ENVIRONMENT)
    if kind == "gcs":
        return Place("gcs", f"gs://bucket/runs/{name}", gcs().url, True)
    home = folder / "hf home"
    home.mkdir(parents=True, exist_ok=True)
    environment = hub().environment(home)
    _make_at_hub(kind, name, environment)
    url = f"hf://{'buckets' if kind == 'hub-bucket' else 'datasets'}/tester/{name}/run"
    return Place(kind, url, None, False, environment)


def _make_at_hub(kind: str, name: str, environment: Mapping[str, str]) -> None:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=environment["HF_ENDPOINT"], token=environment["HF_TOKEN"])
    if kind == "hub-bucket":
        api.create_bucket(f"tester/{name}", private=True)
    else:
        api.create_repo(f"tester/{name}", repo_type="dataset", private=True)


def needed(kind: str) -> None:
    """Skip a test of a store whose server is not installed."""
    import pytest

    if kind == "s3":
        pytest.importorskip("moto.server")
        pytest.importorskip("boto3")
    if kind == "gcs":
        pytest.importorskip("google.cloud.storage")


def moto() -> str:
    """The URL of an S3 server with a bucket, made anew where it is gone; the server ends with the process."""
    from tests.storage.s3.making import moto_url, raw

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    raw().create_bucket(Bucket="bucket")
    return moto_url()


@cache
def gcs() -> Any:
    """A server that stands for Google Cloud Storage, with a bucket."""
    from tests.fakes.gcs import running

    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running("bucket"))


@cache
def hub() -> Any:
    """A server that stands for the Hugging Face Hub."""
    from tests.fakes.hub import FakeHub

    made = FakeHub()
    made.start()
    atexit.register(made.stop)
    return made
