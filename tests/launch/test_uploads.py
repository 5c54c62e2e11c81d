"""Documents of the machine that launches: put beside the workspace once, and again when they have changed."""

import os
import time
from pathlib import Path

import pytest

from llm_ocr.cli import main
from llm_ocr.launch.library import uploaded
from llm_ocr.workspace import Workspace


def in_store(workspace: Workspace, source: str) -> dict[str, bytes]:
    """What a job finds at an uploaded source: names below it and contents."""
    prefix = source.removeprefix(f"{workspace.url}/")
    return {info.key.removeprefix(prefix): workspace.store.get(info.key) for info in workspace.store.list(prefix)}


def test_upload_skips_only_unchanged_files_not_equal_sized_ones(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.pdf", "b.pdf"):
        (folder / name).write_bytes(b"first")
    said: list[str] = []
    with Workspace.open(str(tmp_path / "w"), True) as workspace:
        (source,) = uploaded(workspace, [str(folder)], said.append)
        uploaded(workspace, [str(folder)], said.append)
        (folder / "b.pdf").write_bytes(b"other")
        os.utime(folder / "b.pdf", times=(time.time() + 60,) * 2)
        assert uploaded(workspace, [str(folder)], said.append) == (source,)
        assert in_store(workspace, source) == {"a.pdf": b"first", "b.pdf": b"other"}
    assert source.endswith("/in/")
    assert [line.partition(": ")[2].partition(" files")[0] for line in said] == ["2 of 2", "0 of 2", "1 of 2"]


def test_cleaning_removes_wheels_and_names_documents_that_stay(tmp_path, capsys):
    (tmp_path / "a.pdf").write_bytes(b"12345")
    with Workspace.open(str(tmp_path / "w"), True) as workspace:
        (source,) = uploaded(workspace, [str(tmp_path / "a.pdf")], lambda line: None)
        workspace.store.put("launches/20260101-000000-abcd/0123/llm_ocr-1-py3-none-any.whl", b"wheel")
    folder = f"{tmp_path / 'w'}/uploads/documents"
    kept = f"kept: 1 uploaded document, 5 bytes, which retries read: {folder}\n"
    assert main(["clean", "-w", str(tmp_path / "w")]) == 0
    assert capsys.readouterr().out.startswith(kept)
    assert main(["jobs", "clean", "-w", str(tmp_path / "w")]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f"deleted: 1 wheel of llm-ocr, 5 bytes\n{kept}")
    assert not list((tmp_path / "w" / "launches").rglob("*.whl"))
    assert Path(source).read_bytes() == b"12345"


@pytest.mark.parametrize(("given", "found"), [("scans", {"a.pdf"}), ("scans/a.pdf", {""})])
def test_equal_names_in_two_places_do_not_overwrite_each_other(tmp_path, given, found):
    sources: list[Path] = []
    for year in ("2023", "2024"):
        (tmp_path / year / "scans").mkdir(parents=True)
        (tmp_path / year / "scans" / "a.pdf").write_text(year)
        sources.append(tmp_path / year / given)
    with Workspace.open(str(tmp_path / "w"), True) as workspace:
        first, second = uploaded(workspace, [*map(str, sources)], lambda _: None)
        assert in_store(workspace, first) == dict.fromkeys(found, b"2023")
        assert in_store(workspace, second) == dict.fromkeys(found, b"2024")


def test_bad_link_is_reported_and_rest_of_folder_is_uploaded(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(b"first")
    (folder / "circle.pdf").symlink_to("circle.pdf")
    (folder / "long.pdf").symlink_to("x" * 300)
    said: list[str] = []
    with Workspace.open(str(tmp_path / "w"), True) as workspace:
        (source,) = uploaded(workspace, [str(folder)], said.append)
        assert in_store(workspace, source) == {"a.pdf": b"first"}
    assert sorted(said[:-1]) == [
        f"{folder}/circle.pdf was not uploaded: Too many levels of symbolic links",
        f"{folder}/long.pdf was not uploaded: File name too long",
    ]
