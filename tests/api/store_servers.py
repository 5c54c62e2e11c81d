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
def s3() -> Iterator[Place]:
    """Yield a workspace URL on an S3 server, and the settings that connect to it."""
    boto3 = pytest.importorskip("boto3")
    load_models_once()
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
            # moto keeps one state for the whole process.
            yield f"s3://bucket/runs/{next(_NUMBERS)}", {"workspace_endpoint": endpoint}
        finally:
            server.stop()


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
