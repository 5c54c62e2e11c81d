"""Stores on moto's S3 server, which runs in this process."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import store_servers
from store_servers import AWS, moto_url

from llm_ocr.storage import StoreOptions
from llm_ocr.storage.s3 import S3Store
from llm_ocr.storage.s3.client import Limits, Place

#: More than two pages of its lists.
MANY = 210

#: The user of AWS, who reaches the server without a proxy.
ENVIRONMENT = {**AWS, "NO_PROXY": "127.0.0.1"}

#: Short waits, so that a test of a service that stays away is quick.
QUICK_RETRIES = Limits(retries=1, connect_timeout=5, read_timeout=5)


@contextlib.contextmanager
def aws_environment() -> Iterator[None]:
    """The environment with the credentials of the tests and no other setting of AWS."""
    with store_servers.aws_environment(**ENVIRONMENT):
        yield


@cache
def raw() -> Any:
    """A client of the server that no store made."""
    import boto3

    with aws_environment():
        return boto3.client("s3", endpoint_url=moto_url(), region_name="us-east-1")


def new_place(prefix: str = "runs/one") -> Place:
    """A prefix in a new, empty bucket."""
    bucket = f"bucket-{secrets.token_hex(8)}"  # moto keeps one state a process, whoever imports this file
    raw().create_bucket(Bucket=bucket)
    return Place(bucket, prefix)


def store_at(place: Place, endpoint: str | None = None, limits: Limits = QUICK_RETRIES, **options: str) -> S3Store:
    """A store that asks moto's server, or what is before it."""
    return S3Store(place, StoreOptions(endpoint=endpoint or moto_url(), **options), limits)


@contextlib.contextmanager
def make_store(tmp_path: Path) -> Iterator[S3Store]:
    """An empty store; files above 5 MiB go up in parts, and lists come in pages of 100 (S3's have 1,000)."""
    with aws_environment(), mock.patch.dict(os.environ, MOTO_S3_DEFAULT_MAX_KEYS="100"):
        yield store_at(new_place(), limits=Limits(multipart=5 << 20))
