"""The settings of every command: one pydantic model each, made of the groups below.

They are the only definition: flags, environment variables (`LLM_OCR_` and the name), the configuration file and the
keywords of the Python API are all made from these fields. `json_schema_extra` of a field may hold `positional` (True),
`short` (a letter), `flag` (when the flag is not the field's name) and `metavar` (how help calls the value).
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from llm_ocr.settings.values import name_text, one_or_many, path_text

FRACTION = Annotated[float, Field(ge=0.0, le=1.0)]
COUNT = Annotated[int, Field(ge=1)]
#: A path or URL. Not pydantic's `str`: that one refuses file names that are not UTF-8.
NAME = Annotated[str, PlainValidator(name_text)]
NAMES = Annotated[tuple[NAME, ...], BeforeValidator(one_or_many)]
SECRETS = Annotated[tuple[SecretStr, ...], BeforeValidator(one_or_many)]
FILE = Annotated[Path, BeforeValidator(path_text)]


class Group(BaseSettings):
    """Base of all settings: unknown names are errors, values are not shown in validation errors.

    Made in Python, only the keywords count; `settings.loading` is what reads flags, the environment and files.
    """

    model_config = SettingsConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        frozen=True,
        validate_default=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
        defer_build=True,
        env_prefix="LLM_OCR_",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keywords alone: a value from the environment must not slip into a call of the Python API."""
        return (init_settings,)


class LogSettings(Group):
    """What is told, and where."""

    quiet: bool = Field(False, description="no progress, only the last line")
    log_level: Literal["debug", "info", "warning", "error"] = Field("warning", description="how much is logged")
    log_file: FILE | None = Field(None, description="write the log there instead of standard error")
    log_format: Literal["text", "json"] = Field("text", description="lines for people or for machines")


class WorkspaceSettings(LogSettings):
    """Where everything of a run stands."""

    workspace: NAME = Field(
        description="workspace: the folder that everything of a run is written to",
        json_schema_extra={"short": "w", "metavar": "FOLDER"},
    )


class SourceSettings(Group):
    """Which documents, and which of their pages."""

    sources: NAMES = Field(
        (),
        description="files, folders, globs, .txt lists of paths or .jsonl manifests",
        json_schema_extra={"positional": True, "metavar": "SOURCE"},
    )
    pages: str | None = Field(
        None, description="pages of each document, for example 1-5,9 or 12-", json_schema_extra={"metavar": "RANGES"}
    )
    only: NAMES = Field((), description="only documents of this file name (repeat it for more)")
    max_pages_per_document: COUNT | None = Field(None, description="read no more than the first N pages of a document")
    max_samples: COUNT | None = Field(None, description="read no more than N documents")
    password: SECRETS = Field((), description="password for encrypted PDFs (better: --password-file)")
    password_file: FILE | None = Field(None, description="file with passwords to try, one a line")
    pages_per_unit: COUNT | None = Field(None, description="pages of one unit of work (16 with the embedded engine)")


class RenderSettings(Group):
    """How pages become images."""

    image_size: Annotated[int, Field(ge=64, le=10000)] | None = Field(
        None, description="longest side of page images in pixels (default: the engine's)"
    )
    image_format: Literal["auto", "png", "jpeg"] = Field(
        "auto", description="encoding of page images; auto: what suits the engine"
    )
    renderer: Literal["pdfium", "poppler"] = Field("pdfium", description="program that renders PDF pages")
    render_timeout: Annotated[float, Field(gt=0)] = Field(60.0, description="seconds until a page's renderer is killed")
    render_memory: Annotated[int, Field(ge=128)] = Field(2048, description="memory limit of a renderer process in MiB")
    render_workers: COUNT | None = Field(None, description="renderer processes (default: one per core)")


class EngineSettings(Group):
    """What reads the pages."""

    engine: Literal["auto", "embedded"] = Field(
        "auto", description="embedded: text layer and OCR on the CPU; auto: the best that works here"
    )
    text_layer: Literal["auto", "never"] = Field(
        "auto", description="auto: a PDF's text layer where it is true; never: OCR"
    )
    ocr_workers: COUNT | None = Field(None, description="OCR processes (default: one per core)")
    ocr_memory: Annotated[int, Field(ge=512)] = Field(4096, description="memory limit of one OCR process in MiB")
    page_timeout: Annotated[float, Field(gt=0)] = Field(300.0, description="seconds until reading one page is given up")


class OutcomeSettings(Group):
    """When a finished run counts as failed."""

    max_failed_rate: FRACTION = Field(0.01, description="exit code 3 when more than this share of the pages failed")


class ShardSettings(Group):
    """Which share of the units this worker does."""

    shard_index: Annotated[int, Field(ge=0)] = Field(0, description="this worker's number, from 0")
    shard_count: COUNT = Field(1, description="number of workers that share the units")

    @field_validator("shard_count")
    @classmethod
    def _above_index(cls, value: int, info: ValidationInfo) -> int:
        index: Any = info.data.get("shard_index", 0)
        if value <= index:
            raise ValueError(f"must be more than shard_index, which is {index} (workers are numbered from 0)")
        return value


class DescribeGroup(Group):
    """How figures are described."""

    describe_mode: Literal["describe", "parse", "classify"] = Field(
        "describe", description="what is asked of each figure"
    )


class AssembleGroup(Group):
    """How the documents are put together."""

    page_markers: bool = Field(True, description="mark where each page begins in a document's Markdown")
    dataset_images: Literal["all", "figures", "none"] = Field("all", description="images that the dataset holds")
    describe_key: str | None = Field(
        None,
        description="descriptions to use (default: the newest)",
        json_schema_extra={"flag": "describe", "metavar": "KEY"},
    )


class PlanSettings(WorkspaceSettings, SourceSettings, RenderSettings, EngineSettings):
    """llm-ocr plan: list documents, count pages, cut units."""


class ExtractSettings(PlanSettings, ShardSettings, OutcomeSettings):
    """llm-ocr extract: pages to Markdown, figures and layout."""


class DescribeSettings(WorkspaceSettings, EngineSettings, DescribeGroup, ShardSettings, OutcomeSettings):
    """llm-ocr describe: figures to descriptions."""


class AssembleSettings(WorkspaceSettings, AssembleGroup, ShardSettings, OutcomeSettings):
    """llm-ocr assemble: descriptions into the Markdown; documents and dataset written."""


class RunSettings(PlanSettings, DescribeGroup, AssembleGroup, OutcomeSettings):
    """llm-ocr run: all three stages here."""

    workspace: NAME = Field(
        "llm-ocr-out",
        description="workspace: the folder that everything of a run is written to",
        json_schema_extra={"short": "w", "metavar": "FOLDER"},
    )
    stdout: bool = Field(False, description="print the Markdown of the documents when done")


class StatusSettings(WorkspaceSettings):
    """llm-ocr status: what is done, what failed and why."""

    json_output: bool = Field(False, description="print JSON", json_schema_extra={"flag": "json"})
    watch: bool = Field(False, description="repeat until every page is accounted for")


class RetrySettings(WorkspaceSettings, RenderSettings):
    """llm-ocr retry-failed: plan the failed pages again."""

    password: SECRETS = Field((), description="password for encrypted PDFs (better: --password-file)")
    password_file: FILE | None = Field(None, description="file with passwords to try, one a line")


class CleanSettings(WorkspaceSettings):
    """llm-ocr clean: remove what no finished unit refers to."""

    dry_run: bool = Field(False, description="only list what would be removed")
    older_than: Annotated[float, Field(ge=0)] = Field(3600.0, description="spare files younger than this, in seconds")


class DemoSettings(LogSettings):
    """llm-ocr demo: the three stages on documents that come with the library."""

    workspace: NAME = Field(
        "llm-ocr-demo", description="folder for the result", json_schema_extra={"short": "w", "metavar": "FOLDER"}
    )


class DoctorSettings(LogSettings):
    """llm-ocr doctor: what works here, and what is missing."""

    json_output: bool = Field(False, description="print JSON", json_schema_extra={"flag": "json"})


class InitSettings(LogSettings):
    """llm-ocr init: a configuration file with every setting of run, commented out."""

    path: FILE = Field(
        Path("llm-ocr.toml"),
        description="where the file is written",
        json_schema_extra={"positional": True, "metavar": "PATH"},
    )
    force: bool = Field(False, description="replace a file that is there")
