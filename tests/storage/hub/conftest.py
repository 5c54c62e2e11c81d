"""Fixtures of the tests of the Hub's stores."""

import pytest

from tests.storage.hub import making as stores_on_the_hub


@pytest.fixture
def making(tmp_path):
    """making.py, with nothing of this machine's settings; the server's faults, accounts and quota are as at first."""
    hub = stores_on_the_hub.hub()
    with stores_on_the_hub.hub_environment(tmp_path):
        yield stores_on_the_hub
    hub.faults.clear()
    hub.state.quota.per_hour = None
    for token in set(hub.state.accounts.by_token) - {stores_on_the_hub.TOKEN}:
        del hub.state.accounts.by_token[token]


@pytest.fixture(params=["bucket", "dataset"])
def kind(request) -> str:
    """Both kinds of places."""
    return request.param
