"""The predecessor's module for Cloud Storage: its notebook on Cloud Run reads results with it."""

from llm_ocr.compat.stage_dataset import load_stage_dataset as load_dataset_from_gcs
from llm_ocr.compat.stage_dataset import refused_names

__all__ = ["load_dataset_from_gcs"]
__getattr__ = refused_names(__name__, "gs")
