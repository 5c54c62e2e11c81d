"""Fixtures that many tests share."""

from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return _REPOSITORY


@pytest.fixture(scope="session")
def examples() -> Path:
    """The documents that the project ships."""
    return _REPOSITORY / "examples"


@pytest.fixture(scope="session")
def shared_pdfs() -> Path:
    """Real documents that stand beside the checkout on some machines and never in the project."""
    folder = _REPOSITORY.parent / "shared" / "data" / "pdfs"
    if not folder.is_dir():
        pytest.skip("no folder shared/data/pdfs beside the checkout")
    return folder
