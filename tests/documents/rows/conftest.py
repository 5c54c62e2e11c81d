"""A Hub with datasets."""

import pytest
from dataset_hub import dataset_hub


@pytest.fixture
def hub(tmp_path):
    """An empty server, and the libraries of this process turned to it."""
    with dataset_hub(tmp_path / "hf home") as made:
        yield made
