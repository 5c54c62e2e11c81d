"""The dataset of a run whose last stage is Extract or Describe: the predecessor's notebooks show pages after each."""

from dataclasses import replace
from typing import TYPE_CHECKING

from llm_ocr.api.published import extracted_pages, published_figures
from llm_ocr.api.run import Run
from llm_ocr.errors import StageMissing
from llm_ocr.results.dataset import DatasetWriter
from llm_ocr.results.schema import Images
from llm_ocr.stages.assemble import dataset_row, finished_pages
from llm_ocr.work.items import items
from llm_ocr.work.keys import DESCRIBE, EXTRACT, newest_key, required_key
from llm_ocr.work.publish import markers
from llm_ocr.work.workspace import Workspace

if TYPE_CHECKING:
    from datasets import Dataset


def load_stage_dataset(uri: str, split: str = "train") -> "Dataset":
    """Return the pages of a run as a dataset, after any of its stages.

    Before Assemble, `document_final_markdown` is empty.

    Args:
        uri: URL of the workspace. The predecessor's `/dataset` at its end may stay.
        split: Without effect, as in the predecessor: a run has one split.

    Raises:
        WorkspaceError: There is no workspace at this URL.
        StageMissing: Extract has not begun.
    """
    with Workspace.open(uri.rstrip("/").removesuffix("/dataset")) as workspace:
        try:
            return Run(workspace).to_dataset()
        except StageMissing:
            return _extracted(workspace)


def _extracted(workspace: Workspace) -> "Dataset":
    from datasets import load_dataset

    extract, describe = required_key(workspace, EXTRACT), newest_key(workspace, DESCRIBE)
    described = markers(workspace, DESCRIBE, describe) if describe else {}
    path = workspace.spool / "stage-dataset.parquet"
    with DatasetWriter(path) as dataset:
        for item in items(workspace):
            done = [described[unit] for unit in item.unit_ids if unit in described]
            figures = published_figures(workspace, done)
            rows = extracted_pages(workspace, extract, item, Images.ALL)
            for page in finished_pages(rows, figures, images=Images.ALL):
                dataset.add(dataset_row(replace(page, markdown=""), figures))
    return load_dataset("parquet", data_files={"train": str(path)}, split="train")
