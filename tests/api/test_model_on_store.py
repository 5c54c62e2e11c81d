"""A model on S3 or GCS: fetched once, whole, before the server starts; another model there is noticed."""

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_servers import by_environment, gcs, s3

import llm_ocr
from llm_ocr.errors import LlmOcrError, ServerError, StorageError, UsageError
from llm_ocr.stages.stored_weights import content_of, fetch
from llm_ocr.storage import ObjectStore, open_store
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, stage_keys

FILES = {"config.json": b"{}", "model.safetensors": b"w" * 5000, "tokenizer/vocab.txt": b"a\nb"}
SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr_simulator"])


@pytest.fixture(params=[gcs], ids=["gcs"])
def url(request) -> Iterator[str]:
    """A model there; on GCS, unless the test names another store."""
    with by_environment(request.param) as url:
        made = f"{url}/ocr"
        store = open_store(made)
        for key, data in FILES.items():
            store.put(key, data)
        yield made


def content(url: str) -> str:
    found = content_of(url, offline=False, cache=None)
    assert found
    return found


def got(url: str, cache: Path, said: Callable[[str], None] = lambda _: None, *, offline: bool = False) -> Path:
    return fetch(url, content(url), cache, offline=offline, say=said)


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".llm-ocr"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_all_files_are_fetched_once_and_wrong_sizes_again(url, tmp_path):
    said: list[str] = []
    folder = got(url, tmp_path, said.append)
    assert files(folder) == FILES
    assert got(url, tmp_path, said.append) == folder
    assert sum("fetching" in line for line in said) == 1
    assert "3 of 3 files" in said[0]
    (folder / "model.safetensors").write_bytes(b"w" * 4999)
    assert files(got(url, tmp_path)) == FILES


def test_a_fetch_that_was_cut_off_goes_on_with_what_is_missing(url, tmp_path, monkeypatch):
    kind = type(open_store(url))
    download = kind.download

    def breaks(store: ObjectStore, key: str, path: Path) -> None:
        if key == "model.safetensors":
            raise StorageError("the network is gone")
        download(store, key, path)

    monkeypatch.setattr(kind, "download", breaks)
    with pytest.raises(StorageError, match="network"):
        got(url, tmp_path)
    monkeypatch.setattr(kind, "download", download)
    said: list[str] = []
    assert files(got(url, tmp_path, said.append)) == FILES
    assert any(f"{fetched} of 3 files" in said[0] for fetched in (1, 2))  # some are under way when the cut comes


def test_what_came_in_part_is_not_kept(url, tmp_path, monkeypatch):
    kind = type(open_store(url))
    monkeypatch.setattr(kind, "download", lambda store, key, path: path.write_bytes(b"w"))
    with pytest.raises(StorageError, match="bytes, but 1 arrived"):
        got(url, tmp_path)
    assert not any(path.name == "model.safetensors" for path in tmp_path.rglob("*"))


def test_another_model_at_the_same_place_is_noticed(url, tmp_path):
    first = content(url)
    store = open_store(url)
    store.put("model.safetensors", b"x" * 5000)
    assert content(url) != first
    with pytest.raises(ServerError, match="contains another model"):
        fetch(url, first, tmp_path, offline=False, say=lambda _: None)
    assert files(got(url, tmp_path))["model.safetensors"] == b"x" * 5000


def test_offline_the_copy_counts_and_without_one_it_is_said(url, tmp_path):
    first = content(url)
    assert content_of(url, offline=True, cache=tmp_path) is None
    with pytest.raises(ServerError, match="not in the model cache of this machine"):
        fetch(url, first, tmp_path, offline=True, say=lambda _: None)
    folder = got(url, tmp_path)
    assert content_of(url, offline=True, cache=tmp_path) == first
    assert fetch(url, first, tmp_path, offline=True, say=lambda _: None) == folder


def test_a_place_without_a_model_is_named(url, tmp_path):
    with pytest.raises(UsageError, match=r"contains no model: config.json is missing"):
        content_of(url.rpartition("/")[0], offline=False, cache=tmp_path)
    with pytest.raises(UsageError, match="found: nothing"):
        content_of(f"{url}-none", offline=False, cache=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("url", [s3, pytest.param(gcs, marks=pytest.mark.slow)], ids=["s3", "gcs"], indirect=True)
def test_pages_are_read_by_a_model_on_a_store(url, examples, tmp_path):
    read = {
        "workspace": tmp_path / "w",
        "engine": "vllm",
        "vllm_command": SIMULATOR,
        "vllm_arg": ["--speed=50", "--mean-tokens=300"],
        "model": url,
        "prompt": "<|grounding|>Read this.",
        "parser": "grounding",
        "model_cache": tmp_path / "cache",
        "render_workers": 1,
    }
    run = llm_ocr.extract(examples / "invoice.png", **read)
    assert run.status.pages.ok == 1
    folders = [path.parent for path in (tmp_path / "cache").rglob("config.json")]
    assert [files(folder) for folder in folders] == [FILES]
    reader = stage_keys(Workspace.open(str(tmp_path / "w")), EXTRACT)[-1].settings["reader"]
    assert (reader["model"], reader["revision"]) == (url, content(url))
    log = next((tmp_path / "w" / "logs").rglob("vllm-0.log")).read_text()
    assert f"serve {folders[0]}" in log and "--revision" not in log

    open_store(url).put("config.json", b'{"another": "model"}')
    llm_ocr.extract(workspace=tmp_path / "w", **{name: read[name] for name in read if name != "workspace"})
    (tmp_path / "cache").rename(tmp_path / "gone")
    with pytest.raises(LlmOcrError, match="contains another model"):
        llm_ocr.extract(
            examples / "paper.pdf",
            workspace=tmp_path / "w",
            **{name: read[name] for name in read if name != "workspace"},
        )
