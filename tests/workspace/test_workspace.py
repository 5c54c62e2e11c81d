"""Opening a workspace: made once, never mixed up with anything else."""

import json

import pytest
from pydantic import SecretStr

from llm_ocr.errors import ObjectNotFound, StorageError, UsageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.storage.local import LocalStore
from llm_ocr.workspace import FORMAT, Workspace, library_version


def test_a_new_workspace_says_its_format_and_version(tmp_path):
    Workspace.open(str(tmp_path / "w"), create=True)
    run = json.loads((tmp_path / "w" / "run.json").read_text())
    assert run == {"format": FORMAT, "created_by": library_version(), "settings": {}}


def test_the_settings_of_a_workspace_of_an_earlier_version_stay(tmp_path):
    run = json.dumps({"format": FORMAT, "created_by": "0.1.0", "settings": {"image_size": 1540}})
    (tmp_path / "run.json").write_text(run)
    assert Workspace.open(str(tmp_path), create=True).settings == {"image_size": 1540}
    assert (tmp_path / "run.json").read_text() == run


def test_reading_makes_nothing(tmp_path):
    with pytest.raises(WorkspaceError, match="no workspace at"):
        Workspace.open(str(tmp_path / "w"))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_workspace_opens_from_a_read_only_place(tmp_path):
    Workspace.open(str(tmp_path / "w"), create=True)

    class ReadOnly(LocalStore):
        def _write_file(self, path, fill):
            raise OSError(30, "Read-only file system")

    assert Workspace.on(ReadOnly(tmp_path / "w")).settings == {}
    with pytest.raises(StorageError, match="read-only"):
        Workspace.on(ReadOnly(tmp_path / "w"), create=True)


def test_a_folder_with_other_content_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.docx").write_text("precious")
    with pytest.raises(WorkspaceError, match=r"thesis\.docx"):
        Workspace.open(str(tmp_path), create=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.docx"]


def test_an_empty_folder_and_a_file_managers_traces_are_fine(tmp_path):
    (tmp_path / ".DS_Store").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    Workspace.open(str(tmp_path), create=True)


def test_a_workspace_of_a_newer_version_asks_for_an_upgrade(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"format": FORMAT + 1, "created_by": "9.9"}))
    for create in (False, True):
        with pytest.raises(WorkspaceMismatch, match=r"newer version: llm-ocr 9\.9.*\n.*Update llm-ocr"):
            Workspace.open(str(tmp_path), create=create)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "one"}', "{}"])
def test_a_damaged_run_file_is_said(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(WorkspaceError, match="damaged"):
        Workspace.open(str(tmp_path), create=True)


def test_an_unknown_scheme_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError):
        Workspace.open("gcs://bucket/run", create=True)


def test_a_wrapped_secret_cannot_be_stored(workspace):
    with pytest.raises(TypeError) as caught:
        workspace.create_json("plan/settings.json", {"api_key": SecretStr("hunter2")})
    assert "hunter2" not in str(caught.value)
    assert workspace.find_json("plan/settings.json") is None


def test_json_objects_are_created_once(workspace):
    assert workspace.find_json("x/y.json") is None
    with pytest.raises(ObjectNotFound):
        workspace.get_json("x/y.json")
    assert workspace.create_json("x/y.json", {"a": 1}) == {"a": 1}
    assert workspace.create_json("x/y.json", {"a": 2}) == {"a": 1}
    assert workspace.get_json("x/y.json") == {"a": 1}


def test_the_spool_is_gone_after_closing(workspace):
    spool = workspace.spool
    (spool / "file").write_bytes(b"1")
    assert workspace.spool == spool
    workspace.close()
    assert not spool.exists()
