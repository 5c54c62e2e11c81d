"""A workspace in a folder of the test's own."""

import pytest
from made_runs import Made


@pytest.fixture
def made(tmp_path) -> Made:
    return Made(tmp_path / "workspace")


@pytest.fixture
def workspace(made):
    with made.workspace() as workspace:
        yield workspace
