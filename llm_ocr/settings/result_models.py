"""The settings of the commands that make something of finished results."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from llm_ocr.settings.groups import COUNT, FILE, FRACTION, NAME, WorkspaceSettings


class ExportSettings(WorkspaceSettings):
    """llm-ocr export: results in the form of what comes next."""

    format: Literal["dataset", "markdown", "json", "jsonl", "dolma", "chunks", "olmocr-bench"] = Field(
        "dataset",
        description="dataset: Parquet files that load_dataset opens; markdown: the tree of documents; json: one file a "
        "document, with blocks and boxes; jsonl: pages that succeeded and pages that did not; dolma: documents for "
        "training; chunks: passages for retrieval; olmocr-bench: the folder that olmOCR's scorer reads",
    )
    output: NAME = Field(
        description="folder, s3:// or gs:// prefix, or hf://datasets/NS/NAME (private unless --public)",
        json_schema_extra={"metavar": "URL"},
    )
    output_profile: NAME | None = Field(None, description="credentials of the output's store")
    output_endpoint: NAME | None = Field(
        None, description="server of the output's store", json_schema_extra={"metavar": "URL"}
    )
    output_region: NAME | None = Field(None, description="region of the output's bucket")
    shard_size: COUNT = Field(500, description="size of the dataset's files in MB")
    max_page_error_rate: FRACTION = Field(
        0.004, description="share of a document's pages that may have failed, or been read by a fallback"
    )
    drop_over_error_rate: bool = Field(
        False, description="leave out documents beyond --max-page-error-rate; dropped-documents.jsonl lists them"
    )
    chunk_size: COUNT = Field(
        2000, description="chunks: the most that one may hold, in characters, or in tokens with --tokenizer"
    )
    chunk_overlap: Annotated[int, Field(ge=0)] = Field(0, description="chunks: how much of the last is repeated")
    tokenizer: NAME | None = Field(
        None, description="chunks: tokenizer.json, or a model of the Hub whose tokens are counted instead of characters"
    )
    chunk_format: Literal["jsonl", "parquet"] = Field("jsonl", description="chunks: lines of JSON, or Parquet")
    public: bool = Field(False, description="let everyone see a dataset repository that is made here")


class ViewSettings(WorkspaceSettings):
    """llm-ocr view: a static site of the results."""

    output: FILE = Field(
        description="folder for the site; open its index.html", json_schema_extra={"metavar": "FOLDER"}
    )
    compare: NAME | None = Field(
        None,
        description="another workspace of the same documents, shown beside this one",
        json_schema_extra={"metavar": "URL"},
    )


class ReportSettings(WorkspaceSettings):
    """llm-ocr report: one HTML page about a run."""

    output: FILE = Field(
        Path("llm-ocr-report.html"), description="where the page is written", json_schema_extra={"metavar": "FILE"}
    )
