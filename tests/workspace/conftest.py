"""A workspace in a folder of the test's own, and a clock that the test moves."""

import pytest
from leasing import Clock
from made_runs import Made


@pytest.fixture
def made(tmp_path) -> Made:
    return Made(tmp_path / "workspace")


@pytest.fixture
def workspace(made):
    with made.workspace() as workspace:
        yield workspace


@pytest.fixture
def clock() -> Clock:
    return Clock()
