"""Servers of other folders' tests, and one Hub for all rows."""

import sys
from pathlib import Path

import pytest

for _part in ("remote", "rows"):
    sys.path.append(str(Path(__file__).parents[1] / "documents" / _part))


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A Hub without anything, and the libraries of this process turned to it."""
    from dataset_hub import dataset_hub

    with dataset_hub(tmp_path_factory.mktemp("hf home")) as made:
        yield made
