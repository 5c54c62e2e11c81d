"""Workspaces on Azure Blob Storage: `az://CONTAINER/PREFIX`."""

from llm_ocr_azure.store import open_azure

__all__ = ["open_azure"]
