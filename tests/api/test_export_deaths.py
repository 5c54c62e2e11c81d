"""An export that dies at any of its writes, and the same command after it."""

import shutil
from itertools import count

import pytest
from export_workspaces import exported_with, files_of, loaded, raw, retry, shards

import llm_ocr
from tests.fakes.crash import CrashPoint, When

#: Two files of 3 documents each.
SHARD = {"shard_size": 3}


@pytest.mark.parametrize("first", [True, False], ids=["the first export", "one after a retry"])
def test_after_a_death_at_any_write_the_same_command_makes_it_whole(first, workspace, tmp_path, monkeypatch):
    if not first:
        llm_ocr.export(workspace=workspace, output=tmp_path / "before/o", **SHARD)
        retry(str(workspace))
    llm_ocr.export(workspace=workspace, output=tmp_path / "undisturbed/o", **SHARD)
    for at in count():
        output = tmp_path / str(at) / "o"
        if not first:
            shutil.copytree(tmp_path / "before/o", output)
        point = CrashPoint(at, (When.BEFORE, When.AFTER)[at % 2])
        if not (ended := exported_with(point, monkeypatch, workspace, output, **SHARD)):
            llm_ocr.export(workspace=workspace, output=output, **SHARD)
        assert files_of(output) == files_of(tmp_path / "undisturbed/o")
        if ended:
            assert at > 3
            return


def test_what_a_dead_export_has_left_of_an_older_state_goes(workspace, tmp_path, monkeypatch):
    output = tmp_path / "o"
    assert not exported_with(CrashPoint(3, When.AFTER), monkeypatch, workspace, output, **SHARD)
    assert len(shards(output)) == 2
    assert "An export is in progress" in (output / "README.md").read_text()
    retry(str(workspace))
    assert llm_ocr.export(workspace=workspace, output=output, **SHARD).written == 1
    assert len(shards(output)) == 2
    assert raw(loaded(output)) == raw(llm_ocr.open(workspace).to_dataset())
