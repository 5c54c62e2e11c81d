"""Notebooks whose workspace is in a bucket on S3, from top to bottom against stand-ins whose jobs run."""

import pytest
from checked_runs import executed, said

pytestmark = pytest.mark.slow
pytest.importorskip("boto3")
pytest.importorskip("moto.server")


def test_sagemaker(tmp_path):
    notebook = executed("sagemaker", tmp_path)
    assert "create_training_job" in said(notebook, "look")
    assert "sagemaker:ml.c5.xlarge" in said(notebook, "cost")


@pytest.mark.long
def test_modal(tmp_path):
    pytest.importorskip("modal")
    notebook = executed("modal", tmp_path)
    assert "Function.spawn" in said(notebook, "look")
    assert "deleted: records of" in said(notebook, "clean")
