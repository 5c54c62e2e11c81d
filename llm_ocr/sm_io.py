"""The predecessor's module for S3: its notebook on SageMaker reads results with it."""

from llm_ocr.compat.stage_dataset import load_stage_dataset as load_dataset_from_s3

__all__ = ["load_dataset_from_s3"]


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(f"module 'llm_ocr.sm_io' has no attribute {name!r}")
    raise ImportError(
        f"llm_ocr.sm_io has no {name}. Stages write their results to the workspace themselves "
        "(-w s3://BUCKET/PREFIX); llm_ocr.open(URL) reads them. See docs/migrating.md."
    )
