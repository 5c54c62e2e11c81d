"""Exports of texts to a dataset repository, on the fake Hub through the real huggingface_hub."""

import json
import shutil

import pytest
from export_workspaces import files_of, retry
from test_export_hub import commits, making, new_name  # noqa: F401 - fixtures

import llm_ocr
from llm_ocr.storage import StoreOptions, open_store


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_a_repository_gets_the_same_files_in_few_commits(form, making, standing, tmp_path):  # noqa: F811
    name = new_name()
    given = {"output": f"hf://datasets/{name}", "output_endpoint": making.hub().url, "format": form}
    first = llm_ocr.export(workspace=standing, **given)
    assert commits(making, name) <= 4
    again = llm_ocr.export(workspace=standing, **given)
    assert (first.written, again.written) == (first.files, 0)
    llm_ocr.export(workspace=standing, output=tmp_path / "o", format=form)
    store = open_store(given["output"], StoreOptions(endpoint=given["output_endpoint"]))
    assert {info.key: store.get(info.key) for info in store.list()} == files_of(tmp_path / "o")
    assert name in first.load


def test_after_a_retry_the_repository_is_that_of_the_new_state(making, standing, tmp_path):  # noqa: F811
    workspace = tmp_path / "w"
    given = {"output": f"hf://datasets/{new_name()}", "output_endpoint": making.hub().url, "format": "jsonl"}
    shutil.copytree(standing, workspace)
    llm_ocr.export(workspace=workspace, **given)
    retry(str(workspace))
    assert llm_ocr.export(workspace=workspace, **given).written == 1
    store = open_store(given["output"], StoreOptions(endpoint=given["output_endpoint"]))
    keys = [info.key for info in store.list()]
    (successes,) = [key for key in keys if key.startswith("successes/")]
    assert len([json.loads(line) for line in store.get(successes).splitlines()]) == 18
    assert not [key for key in keys if key.startswith(("errors/", "_llm-ocr/begun/"))]
