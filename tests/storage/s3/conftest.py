"""Fixtures of the tests of the S3 store."""

from collections.abc import Iterator

import pytest

from tests.storage.proxy import Proxy
from tests.storage.s3 import making


@pytest.fixture(autouse=True)
def aws() -> Iterator[None]:
    """The credentials of the tests, and nothing of this machine's."""
    with making.aws_environment():
        yield


@pytest.fixture(scope="session")
def moto() -> str:
    """The URL of moto's server."""
    return making.moto_url()


@pytest.fixture
def place(moto):
    """A prefix in a new bucket."""
    return making.new_place()


@pytest.fixture
def raw(moto):
    """A client of the same server, past the store."""
    return making.raw()


@pytest.fixture
def store(place):
    """A store that asks moto directly."""
    return making.store_at(place)


@pytest.fixture
def proxy(moto) -> Iterator[Proxy]:
    """What stands before moto and can spoil requests; a fault that no request met is a test of nothing."""
    standing = Proxy(moto)
    yield standing
    standing.close()
    assert [fault for fault in standing.faults if not fault.met] == []


@pytest.fixture
def behind(place, proxy):
    """A store whose requests go through the proxy."""
    return making.store_at(place, proxy.url)
