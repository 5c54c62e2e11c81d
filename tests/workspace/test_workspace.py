"""Opening a workspace: made once, never mixed up with anything else."""

import json
import shutil
from pathlib import Path

import pytest
from pydantic import SecretStr

from llm_ocr.errors import ObjectNotFound, StorageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, Reason
from llm_ocr.workspace import FORMAT, Workspace, library_version
from llm_ocr.workspace.generations import generations, read_units, totals_of
from llm_ocr.workspace.items import items
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, claim_key, stage_keys
from llm_ocr.workspace.publish import markers, read_data
from llm_ocr.workspace.status import run_status


def test_a_new_workspace_stores_its_format_and_version(tmp_path):
    Workspace.open(str(tmp_path / "w"), create=True)
    run = json.loads((tmp_path / "w" / "run.json").read_text())
    assert run == {"format": FORMAT, "created_by": library_version(), "settings": {}}


def test_settings_of_earlier_versions_are_kept(tmp_path):
    run = json.dumps({"format": FORMAT, "created_by": "0.1.0", "settings": {"image_size": 1540}})
    (tmp_path / "run.json").write_text(run)
    assert Workspace.open(str(tmp_path), create=True).settings == {"image_size": 1540}
    assert (tmp_path / "run.json").read_text() == run


def test_reading_writes_nothing(tmp_path):
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


def test_files_of_file_managers_are_no_content(tmp_path):
    (tmp_path / ".DS_Store").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    Workspace.open(str(tmp_path), create=True)


def test_a_workspace_of_a_newer_version_asks_for_an_upgrade(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"format": FORMAT + 1, "created_by": "9.9"}))
    for create in (False, True):
        with pytest.raises(WorkspaceMismatch, match=r"newer version: llm-ocr 9\.9.*\n.*Update llm-ocr"):
            Workspace.open(str(tmp_path), create=create)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "one"}', "{}"])
def test_a_damaged_run_file_is_an_error(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(WorkspaceError, match="damaged"):
        Workspace.open(str(tmp_path), create=True)


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


def test_closing_removes_the_spool(workspace):
    spool = workspace.spool
    (spool / "file").write_bytes(b"1")
    assert workspace.spool == spool
    workspace.close()
    assert not spool.exists()


FIXTURE = Path(__file__).parent / "fixtures" / "workspace-format-1"


@pytest.fixture
def old(tmp_path):
    shutil.copytree(FIXTURE, tmp_path / "old")
    with Workspace.on(LocalStore(tmp_path / "old"), create=True) as workspace:
        yield workspace


def test_format_1_is_read(old):
    assert old.settings == {"image_size": 1540, "pages_per_unit": 4}
    totals = totals_of(generations(old))
    assert (totals.generations, totals.documents, totals.units, totals.items) == (2, 4, 6, 3)
    units = list(read_units(old))
    first = units[0].parts
    assert [(part.relative, part.pages, part.aliases) for part in first] == [
        ("a.pdf", (1, 2), ("copy/a.pdf",)),
        ("日本, [b].pdf", (2, 7), ()),
    ]
    assert [part.reason for part in units[-2].parts] == [Reason.ENCRYPTED]
    assert [item.name for item in items(old)] == ["0001-000000.0002", "0001-000001.0001", "0001-000004.0001"]
    status = run_status(old)
    assert status.pages == Counts(14, 12, 0, 2)
    assert status.reasons == {"encrypted": 1, "render timeout": 1}
    assert status.figures == Counts(12, 3, 1, 0)
    assert {name: (stage.done, stage.total) for name, stage in status.stages.items()} == {
        "extract": (6, 6),
        "describe": (2, 6),
        "assemble": (1, 3),
    }
    (key,) = stage_keys(old, EXTRACT)
    assert key.settings == {"engine": "embedded", "image_size": 1540}
    assert len([read_data(old, marker) for marker in markers(old, EXTRACT, key.key).values()]) == 6


def test_format_1_can_be_continued(old, made):
    made.root = Path(old.url)
    (described,) = stage_keys(old, DESCRIBE)
    assert claim_key(old, DESCRIBE, described.settings) == described.key

    locked = {part.relative for unit in read_units(old) for part in unit.parts if part.reason}
    assert made.retry(old, {name: made.document(name, 3) for name in locked}).replaces == 2
    for unit in read_units(old):
        if unit.generation == 3:
            made.extract(old, unit)
    assert run_status(old).pages == Counts(16, 16, 0, 0)
