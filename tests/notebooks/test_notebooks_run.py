"""Notebooks from top to bottom: here for real, on the Hub and Google Cloud against stand-ins whose jobs run."""

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
