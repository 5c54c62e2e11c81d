"""Hugging Face Jobs for the tests of several files; other platforms stand in the files of their tests."""

from collections.abc import Iterator

import pytest
from hf_jobs_running import Platform

from llm_ocr.launch import launching
from llm_ocr.launch.library import library_wheel
from tests.fakes.hub import TOKEN, running


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> str:
    """A wheel of the library as it stands."""
    made = library_wheel()
    path = tmp_path_factory.mktemp("wheel") / made.name
    path.write_bytes(made.data)
    return str(path)


@pytest.fixture
def platform(wheel, monkeypatch) -> Iterator[Platform]:
    """The token is in the environment, as after a login."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with running() as (hub, _):
        yield Platform(hub, wheel)


@pytest.fixture
def bucket(platform, monkeypatch) -> Platform:
    """With a bucket for a workspace, and asked often."""
    platform.api.create_bucket("tester/ws", private=True)
    monkeypatch.setattr(launching, "EVERY", 0.5)
    return platform
