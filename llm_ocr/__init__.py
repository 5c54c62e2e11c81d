"""Batch OCR: documents to clean Markdown with figures cropped and described, in three resumable stages."""

__version__ = "0.1.0"
