"""Notebooks from top to bottom: on this machine, and on platforms against stand-ins whose jobs run.

The cells of all platforms are the same. `test_stored_notebooks.py` plans the jobs of each with its own parameters.
"""

import pytest
from checked_runs import executed, said

pytestmark = pytest.mark.slow


def test_this_machine(tmp_path):
    executed("local", tmp_path)
    assert list((tmp_path / "work" / "llm-ocr-notebook" / "documents").rglob("paper.pdf.md"))


def test_hugging_face_jobs_read_the_data_set(tmp_path):
    pytest.importorskip("rapidocr")
    notebook = executed("hf_jobs", tmp_path)
    assert "hf://datasets/HuggingFaceM4/FineVision@" in said(notebook, "page")
    assert "$" in said(notebook, "cost").partition("hf-jobs:l4x1")[0]
    assert "kept: finished jobs and their logs" in said(notebook, "clean")


@pytest.mark.long
def test_google_cloud_run(tmp_path):
    pytest.importorskip("google.cloud.run_v2")
    pytest.importorskip("google.cloud.storage")
    notebook = executed("cloud_run", tmp_path)
    assert "gs://my-bucket/run-1" in said(notebook, "page")
    assert said(notebook, "clean").count("deleted: job") == 3


@pytest.mark.long
def test_sagemaker(tmp_path):
    pytest.importorskip("moto.server")
    notebook = executed("sagemaker", tmp_path)
    assert "create_training_job" in said(notebook, "look")
    assert "sagemaker:ml.c5.xlarge" in said(notebook, "cost")


@pytest.mark.long
def test_modal(tmp_path):
    pytest.importorskip("modal")
    pytest.importorskip("moto.server")
    notebook = executed("modal", tmp_path)
    assert "Function.spawn" in said(notebook, "look")
    assert "deleted: records of" in said(notebook, "clean")
