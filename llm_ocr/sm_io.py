"""The predecessor's module for S3: its notebook on SageMaker reads results with it."""

from llm_ocr.compat.stage_dataset import load_stage_dataset as load_dataset_from_s3
from llm_ocr.compat.stage_dataset import refused_names

__all__ = ["load_dataset_from_s3"]
__getattr__ = refused_names(__name__, "s3")
