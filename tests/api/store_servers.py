"""Places for workspaces, documents, and models on servers that replace S3 and GCS."""

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from unittest import mock

import pytest

from tests.fakes.gcs import running

#: A place: its URL, and the settings that connect to it as a workspace.
Place = tuple[str, dict[str, str]]
_NUMBERS = itertools.count()
#: A user of AWS, and nothing of the machine on which the tests run.
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "s3cret-of-the-tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@cache
def load_models_once() -> None:
    """Let the clients of all S3 sessions share botocore's data files; parsing them takes longer than most tests.

    Also make moto check the condition of a write and write as one step, as S3 does: its threads can do it at once.
    """
    import botocore.loaders
    import botocore.session

    botocore.session.create_loader = cache(botocore.loaders.create_loader)
    try:
        from moto.s3.responses import S3Response
    except ImportError:
        return
    put, lock = S3Response.put_object, threading.Lock()

    def put_alone(response: S3Response) -> object:
        with lock:
            return put(response)

    S3Response.put_object = put_alone


@contextlib.contextmanager
def aws_environment(**more: str) -> Iterator[None]:
    """Set the credentials of the tests, and `more`, and no other variable of AWS."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with mock.patch.dict(os.environ, {**others, **AWS, **more}, clear=True):
        yield


@cache
def moto_url() -> str:
    """Return the URL of an S3 server that ends with the process: moto's servers would share one state anyway."""
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    load_models_once()
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    return f"http://{host}:{port}"


@contextlib.contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """Yield the URL of an S3 server with this bucket."""
    boto3 = pytest.importorskip("boto3")
    with aws_environment():
        boto3.client("s3", endpoint_url=moto_url()).create_bucket(Bucket=bucket)
    yield moto_url()


@contextlib.contextmanager
def s3() -> Iterator[Place]:
    """Yield a workspace URL on an S3 server, and the settings that connect to it."""
    with s3_server("bucket") as endpoint, aws_environment():
        yield f"s3://bucket/runs/{next(_NUMBERS)}", {"workspace_endpoint": endpoint}


@contextlib.contextmanager
def gcs() -> Iterator[Place]:
    """Yield the same on a GCS server."""
    pytest.importorskip("google.cloud.storage")
    with running("bucket") as server:
        yield f"gs://bucket/runs/{next(_NUMBERS)}", {"workspace_endpoint": server.url}


#: Variables with the server's address for the clients, instead of a setting.
_VARIABLES = {"s3": "AWS_ENDPOINT_URL", "gs": "STORAGE_EMULATOR_HOST"}


@contextlib.contextmanager
def by_environment(kind: Callable[[], AbstractContextManager[Place]]) -> Iterator[str]:
    """Yield the URL of a place that needs no setting."""
    with kind() as (url, settings), pytest.MonkeyPatch.context() as patch:
        patch.setenv(_VARIABLES[url.partition(":")[0]], settings["workspace_endpoint"])
        yield url
