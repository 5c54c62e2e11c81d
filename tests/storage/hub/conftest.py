"""The parts of making.py, for this folder is no package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _making() -> ModuleType:
    """The same module that the contract suite uses, and so the same server."""
    name = "making_hub"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("making.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


@pytest.fixture
def making(tmp_path):
    """making.py, with nothing of this machine's settings; the server's faults, accounts and quota are as at first."""
    module = _making()
    hub = module.hub()
    with module.hub_environment(tmp_path):
        yield module
    hub.faults.clear()
    hub.state.quota.per_hour = None
    for token in set(hub.state.accounts.by_token) - {module.TOKEN}:
        del hub.state.accounts.by_token[token]


@pytest.fixture(params=["bucket", "dataset"])
def kind(request) -> str:
    """Both kinds of places."""
    return request.param
