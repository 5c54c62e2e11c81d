"""Settings models of all commands. Flags, variables, files, and Python keywords derive from them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from llm_ocr.config.groups import (
    COUNT,
    FILE,
    FRACTION,
    NAME,
    NAMES,
    PRICE,
    SECRETS,
    AssembleGroup,
    ConfinementSettings,
    CountSettings,
    DatasetSettings,
    DescribeGroup,
    EmbeddedSettings,
    EngineSettings,
    FieldsGroup,
    FilterSettings,
    FollowSettings,
    Group,
    HybridSettings,
    InputSettings,
    LayoutSettings,
    LeaseSettings,
    LedgerSettings,
    LimitSettings,
    LogSettings,
    ModelSettings,
    OutcomeSettings,
    OwnWorkspaceSettings,
    QualitySettings,
    RaySettings,
    RemoteSettings,
    RenderSettings,
    RequestSettings,
    ServerSettings,
    ShardSettings,
    SourceSettings,
    VllmSettings,
    WhichModel,
    WorkspaceSettings,
)
from llm_ocr.config.launch_groups import (
    CloudRunGroup,
    HfJobsGroup,
    JobGroup,
    KubernetesGroup,
    LaunchGroup,
    LibraryGroup,
    ModalGroup,
    PlatformGroup,
    SageMakerGroup,
    SlurmGroup,
)
from llm_ocr.plugins import EXPORTS

# Settings of the commands that process finished results.


class ExportSettings(OwnWorkspaceSettings, RemoteSettings, ConfinementSettings):
    """llm-ocr export: convert results to other formats."""

    format: str = Field(
        "dataset",
        description=(
            "dataset: Parquet files for load_dataset; markdown: a tree of documents; json: one file per document,"
            " with blocks and boxes; html: one self-contained file per document; pdf: the documents with searchable"
            " text; hocr: words with boxes, one file per document; alto: ALTO XML, one file per page; jsonl: lines for"
            " pages, and for failed pages; dolma: documents for training; chunks: passages for retrieval; fields:"
            " values found by llm-ocr fields; olmocr-bench: input of olmOCR-Bench's scorer"
        ),
        json_schema_extra={"group": EXPORTS.group},
    )
    output: NAME = Field(
        description="Folder, s3:// or gs:// prefix, or hf://datasets/NS/NAME (private unless --public)",
        json_schema_extra={"short": "o", "metavar": "URL"},
    )
    output_profile: NAME | None = Field(
        None, description="Credentials for the output: an AWS profile or a Google credentials file"
    )
    output_endpoint: NAME | None = Field(
        None, description="Server of the output's store (default: the provider's)", json_schema_extra={"metavar": "URL"}
    )
    output_region: NAME | None = Field(None, description="Region of the output's bucket (default: the SDK's)")
    source_paths: Literal["relative", "absolute"] = Field(
        "relative",
        description="Sources on this machine in the export: relative to the current folder, or with the whole path",
    )
    shard_size: COUNT = Field(
        500, description="dataset: size of the files in MB", json_schema_extra={"formats": ["dataset"]}
    )
    max_page_error_rate: FRACTION = Field(0.004, description="Allowed share of failed and fallback pages in a document")
    drop_over_error_rate: bool = Field(
        False, description="Leave out documents above --max-page-error-rate, and list them in dropped-documents.jsonl"
    )
    only: Literal["balanced"] | None = Field(
        None, description="balanced: leave out pages that are not ok, or whose ink or text is not accounted for"
    )
    chunk_size: COUNT = Field(
        2000,
        description="chunks: maximum size of a passage in characters, or in tokens with --tokenizer",
        json_schema_extra={"formats": ["chunks"]},
    )
    chunk_overlap: Annotated[int, Field(ge=0)] = Field(
        0,
        description="chunks: overlap of consecutive passages, in the same unit",
        json_schema_extra={"formats": ["chunks"]},
    )
    tokenizer: NAME | None = Field(
        None,
        description="chunks: measure in tokens of this tokenizer.json or Hub model",
        json_schema_extra={"formats": ["chunks"]},
    )
    chunk_format: Literal["jsonl", "parquet"] = Field(
        "jsonl", description="chunks: format of the files", json_schema_extra={"formats": ["chunks"]}
    )
    password: SECRETS = Field(
        (),
        description="pdf, hocr, alto: password for encrypted PDFs (repeatable; safer: --password-file)",
        json_schema_extra={"formats": ["pdf", "hocr", "alto"]},
    )
    password_file: FILE | None = Field(
        None,
        description="pdf, hocr, alto: file with passwords to try, one per line",
        json_schema_extra={"formats": ["pdf", "hocr", "alto"]},
    )
    ocr_language: NAME | None = Field(
        None,
        description="pdf, hocr, alto: script of scans for OCR, as in `llm-ocr run` (default: Latin, Chinese, Japanese)",
        json_schema_extra={"metavar": "NAME", "formats": ["pdf", "hocr", "alto"]},
    )
    public: bool = Field(False, description="Make a new dataset repository public")

    @field_validator("format")
    @classmethod
    def _is_installed(cls, name: str) -> str:
        formats = EXPORTS.names()
        if formats and name not in formats:  # without any, the export says what is wrong
            raise ValueError(f"must be one of {', '.join(formats)}")
        return name


class ViewSettings(OwnWorkspaceSettings):
    """llm-ocr view: build a static website of the results."""

    output: FILE = Field(
        description="Folder for the site; open its index.html", json_schema_extra={"short": "o", "metavar": "FOLDER"}
    )
    compare: NAME | None = Field(
        None,
        description="Second workspace with the same documents, shown side by side",
        json_schema_extra={"metavar": "URL"},
    )


class ReportSettings(OwnWorkspaceSettings):
    """llm-ocr report: write an HTML report of a run."""

    output: FILE = Field(
        Path("llm-ocr-report.html"), description="File to write", json_schema_extra={"short": "o", "metavar": "FILE"}
    )


# Settings of all commands: one pydantic model per command, composed of groups. These fields are the only definition of
# flags, environment variables (`LLM_OCR_` and the name), keys of the configuration file, and keywords of the Python
# API.


class PlanSettings(
    WorkspaceSettings,
    SourceSettings,
    DatasetSettings,
    CountSettings,
    FilterSettings,
    RemoteSettings,
    RenderSettings,
    EngineSettings,
    ModelSettings,
    LayoutSettings,
    EmbeddedSettings,
):
    """Settings of all commands that plan."""


class PlanOnlySettings(PlanSettings):
    """llm-ocr plan: list documents, count pages, and divide them into units of work."""

    dry_run: bool = Field(False, description="Print what the plan would contain and filter out, and write nothing")


class ServingSettings(ServerSettings, VllmSettings, RequestSettings):
    """Settings of the commands that run models."""


class ExtractSettings(
    PlanSettings,
    ServingSettings,
    ShardSettings,
    RaySettings,
    HybridSettings,
    QualitySettings,
    LedgerSettings,
    LimitSettings,
    OutcomeSettings,
    JobGroup,
):
    """llm-ocr extract: stage 1, pages to Markdown, figures, and layout."""


class DescribeSettings(
    WorkspaceSettings,
    InputSettings,
    DescribeGroup,
    EngineSettings,
    WhichModel,
    ServingSettings,
    EmbeddedSettings,
    ShardSettings,
    FollowSettings,
    RaySettings,
    LimitSettings,
    OutcomeSettings,
    JobGroup,
):
    """llm-ocr describe: stage 2, a description of each figure."""


class AssembleSettings(
    WorkspaceSettings, InputSettings, AssembleGroup, ShardSettings, FollowSettings, OutcomeSettings, JobGroup
):
    """llm-ocr assemble: stage 3, documents and dataset from pages and descriptions."""


class FieldsSettings(
    WorkspaceSettings,
    FieldsGroup,
    EngineSettings,
    WhichModel,
    ServingSettings,
    ShardSettings,
    LimitSettings,
    OutcomeSettings,
    JobGroup,
):
    """llm-ocr fields: values of a schema from each assembled document, with their quotes."""

    fields_schema: NAME = Field(  # required here
        description="JSON Schema of the values to find in each document: a file, or the JSON itself",
        json_schema_extra={"flag": "schema", "metavar": "FILE"},
    )
    model: NAME = Field(
        "qwen3-vl-8b",
        description=(
            "Model that follows instructions: qwen3-vl-8b (its Apache-2.0 weights are on the Hub), internvl3.5-8b ..., "
            "or any such model by the name on the server, Hugging Face ID, folder, or s3:// or gs:// URL. If it is not "
            "given, the only model of a server has precedence"
        ),
        json_schema_extra={"metavar": "NAME"},
    )


class RunSettings(
    OwnWorkspaceSettings,
    PlanSettings,
    ServingSettings,
    LeaseSettings,
    DescribeGroup,
    RaySettings,
    AssembleGroup,
    HybridSettings,
    QualitySettings,
    LedgerSettings,
    LimitSettings,
    OutcomeSettings,
):
    """llm-ocr run: run all three stages on this machine."""

    stdout: bool = Field(
        False,
        description="Print the Markdown of the documents to standard output. Without --workspace, no file remains",
    )

    @property
    def without_folder(self) -> bool:
        """Return whether the Markdown on standard output is the only result."""
        return self.stdout and "workspace" not in self.model_fields_set


class RepairGroup(Group):
    """Pages of a repair."""

    below_quality: FRACTION | None = Field(
        None, description="Read only pages with a quality score below this (0 to 1); the better result counts"
    )
    unbalanced: bool = Field(
        False, description="Read only pages with unread ink, or with text that nothing on the page supports"
    )
    max_pages: COUNT | None = Field(None, description="Read at most N pages, the worst first")


class LaunchSettings(
    RepairGroup,
    PlanSettings,
    ServingSettings,
    LeaseSettings,
    DescribeGroup,
    InputSettings,
    AssembleGroup,
    FieldsGroup,
    HybridSettings,
    QualitySettings,
    LedgerSettings,
    OutcomeSettings,
    LaunchGroup,
    PlatformGroup,
    LibraryGroup,
    HfJobsGroup,
    SageMakerGroup,
    CloudRunGroup,
    ModalGroup,
    SlurmGroup,
    KubernetesGroup,
):
    """llm-ocr launch: run stages as jobs on a cloud platform or cluster."""

    platform: NAME = Field(
        description="hf-jobs, sagemaker, cloud-run, modal, slurm, or kubernetes",
        json_schema_extra={"positional": True, "metavar": "PLATFORM"},
    )
    stage: Literal["extract", "describe", "assemble", "pipeline", "fields", "repair"] = Field(
        description="extract, describe, assemble, pipeline (all three in order), fields, or repair",
        json_schema_extra={"positional": True, "metavar": "STAGE"},
    )


class JobsSettings(WorkspaceSettings):
    """llm-ocr jobs: list, watch, and cancel the jobs of a workspace."""

    action: Literal["list", "logs", "cancel", "clean"] = Field(
        "list",
        description=(
            "list: show all jobs; logs: print a log; cancel: stop running jobs; clean: remove what launches left "
            "on the platforms"
        ),
        json_schema_extra={"positional": True, "metavar": "ACTION"},
    )
    job: NAME | None = Field(
        None,
        description="ID or name of one job (default: all; logs: the newest)",
        json_schema_extra={"positional": True, "metavar": "JOB"},
    )
    follow: bool = Field(False, description="logs: continue until the job ends", json_schema_extra={"flag": "follow"})
    tail: COUNT | None = Field(None, description="logs: print only the last N lines")
    json_output: bool = Field(False, description="Print JSON", json_schema_extra={"flag": "json"})


class StatusSettings(OwnWorkspaceSettings):
    """llm-ocr status: show progress, failures, and their reasons."""

    json_output: bool = Field(False, description="Print JSON", json_schema_extra={"flag": "json"})
    watch: bool = Field(False, description="Repeat until all pages are done")
    worst: COUNT | None = Field(None, description="Also list the N pages with the lowest quality, and their problems")


class EstimateSettings(
    WorkspaceSettings,
    SourceSettings,
    DatasetSettings,
    CountSettings,
    RemoteSettings,
    RenderSettings,
    ModelSettings,
    LayoutSettings,
    EmbeddedSettings,
    ServingSettings,
):
    """llm-ocr estimate: estimate time and cost of a run."""

    workspace: NAME | None = Field(  # type: ignore[assignment]  # optional for this command
        None,
        description="Workspace whose plan is estimated if no SOURCE is given",
        json_schema_extra={"short": "w", "metavar": "URL"},
    )
    stage: Literal["extract", "describe", "assemble"] = Field("extract", description="Stage to estimate")
    engine: Literal["auto", "vllm", "server", "embedded", "hybrid"] = Field(
        "auto",
        description=(
            "embedded: the CPU engine, here and on rented machines; vllm, server: a model; hybrid: the CPU engine "
            "here, and a model for the pages that it would read better, from a sample of 24 pages; auto: a model and, "
            "without a GPU here, the CPU engine of this machine first"
        ),
    )
    model: NAME = Field("deepseek-ocr", description="Model that reads the pages, or `embedded`")
    hardware: NAMES = Field(
        (),
        description=(
            "Machine to compare, such as hf-jobs:a100-large or modal:L40S (repeatable; default: all with a known price)"
        ),
        json_schema_extra={"metavar": "PLATFORM:NAME"},
    )
    shards: COUNT = Field(1, description="Number of machines that share the pages")
    page_count: COUNT | None = Field(None, description="Number of pages, instead of SOURCE")
    tokens_in: Annotated[int, Field(ge=0)] | None = Field(None, description="Total prompt tokens (default: estimated)")
    tokens_out: Annotated[int, Field(ge=0)] | None = Field(None, description="Total answer tokens (default: estimated)")
    price_in: PRICE | None = Field(None, description="Price per million prompt tokens in dollars")
    price_out: PRICE | None = Field(None, description="Price per million answer tokens in dollars")
    price_per_hour: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Hourly price of the --hardware machine in dollars, or of the machine that --calibrate measures",
    )
    calibrate: bool = Field(
        False,
        description=(
            "Read a random sample of the pages first (with --server-url, vLLM here, or --engine embedded), and "
            "estimate from its speed"
        ),
    )
    calibrate_seconds: Annotated[float, Field(gt=0)] = Field(
        60.0, description="Seconds until calibration starts no more pages"
    )
    calibrate_pages: COUNT = Field(2000, description="Maximum pages to read for calibration")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="Seed of the random sample")
    live_prices: bool = Field(False, description="Query current prices from platforms that publish them (HF Jobs)")
    platform_endpoint: NAME | None = Field(
        None,
        description="API server of the platform (default: the platform's own)",
        json_schema_extra={"metavar": "URL"},
    )
    all_options: bool = Field(
        False, description="Show all machines and providers, not the five cheapest", json_schema_extra={"flag": "all"}
    )
    json_output: bool = Field(False, description="Print JSON", json_schema_extra={"flag": "json"})


class RetrySettings(WorkspaceSettings, RemoteSettings, RenderSettings, EngineSettings):
    """llm-ocr retry-failed: plan failed pages again."""

    password: SECRETS = Field((), description="Password for encrypted PDFs (repeatable; safer: --password-file)")
    password_file: FILE | None = Field(None, description="File with passwords to try, one per line")
    below_quality: FRACTION | None = Field(
        None,
        description="Also plan pages with a quality score below this (0 to 1); of each, the better result counts",
    )


class RepairSettings(
    RepairGroup,
    OwnWorkspaceSettings,
    RetrySettings,
    ModelSettings,
    LayoutSettings,
    EmbeddedSettings,
    ServingSettings,
    ShardSettings,
    HybridSettings,
    RaySettings,
    QualitySettings,
    LedgerSettings,
    LimitSettings,
    OutcomeSettings,
    JobGroup,
):
    """llm-ocr repair: read bad pages again with other settings."""

    page_list: FILE | None = Field(
        None,
        description="Read only the pages of this file: in each line a page ID, PATH<TAB>PAGE, or JSON with page_id",
        json_schema_extra={"flag": "pages-from"},
    )
    give_up: bool = Field(
        False, description="Read nothing: unread pages of earlier repairs and retries keep their earlier results"
    )


class TransformSettings(WorkspaceSettings, RemoteSettings, ShardSettings):
    """llm_ocr.transform: apply a function of the user to all pages."""


class CleanSettings(WorkspaceSettings):
    """llm-ocr clean: remove files that no finished unit needs."""

    dry_run: bool = Field(False, description="List the files without removing them")
    older_than: Annotated[float, Field(ge=0)] = Field(
        86400.0, description="Keep files younger than this, in seconds by the store's clock"
    )


class ModelsSettings(VllmSettings, LogSettings):
    """llm-ocr models: list models, show one, or recommend one."""

    name: NAME | None = Field(
        None,
        description="Model to show in detail (default: a table of all models)",
        json_schema_extra={"positional": True, "metavar": "NAME"},
    )
    recommend: bool = Field(False, description="Rank the models for the GPU and the vLLM of this machine")
    gpu_memory: Annotated[float, Field(gt=0)] | None = Field(
        None, description="GPU memory in GB (default: from nvidia-smi)", json_schema_extra={"metavar": "GB"}
    )
    licence: Literal["any", "open"] = Field(
        "any", description="open: only permissive licenses, such as MIT and Apache-2.0"
    )
    language: NAME | None = Field(None, description="Language of the documents, by English name or code (German, de)")
    json_output: bool = Field(False, description="Print JSON", json_schema_extra={"flag": "json"})


class DemoSettings(LogSettings):
    """llm-ocr demo: run all three stages on the included example documents."""

    workspace: NAME = Field(
        "llm-ocr-demo",
        description="Folder for the results",
        json_schema_extra={"short": "w", "metavar": "FOLDER", "bare": False},
    )


class DoctorSettings(LogSettings, ConfinementSettings):
    """llm-ocr doctor: check what works on this machine, and how to install the rest."""

    json_output: bool = Field(False, description="Print JSON", json_schema_extra={"flag": "json"})


class DebugSettings(RenderSettings, EmbeddedSettings, LogSettings):
    """llm-ocr debug: show how the embedded engine reads a page."""

    subject: Literal["page"] = Field(
        "page",
        description="page: each step of reading one page",
        json_schema_extra={"positional": True, "metavar": "page"},
    )
    file: FILE = Field(description="PDF or image on this machine", json_schema_extra={"positional": True})
    page: COUNT = Field(1, description="Page number, from 1")
    output: FILE | None = Field(
        None,
        description=(
            "Image of the page with its blocks, .png or .jpg (default: FILE's name with -p0001.png, in this folder)"
        ),
        json_schema_extra={"short": "o", "metavar": "FILE"},
    )
    overwrite: bool = Field(False, description="Replace an existing image")
    password: SECRETS = Field((), description="Password for encrypted PDFs (repeatable; safer: --password-file)")
    password_file: FILE | None = Field(None, description="File with passwords to try, one per line")
    json_output: bool = Field(False, description="Print JSON", json_schema_extra={"flag": "json"})


class InitSettings(LogSettings):
    """llm-ocr init: write a configuration file with every setting explained."""

    path: FILE = Field(
        Path("llm-ocr.toml"), description="File to write", json_schema_extra={"positional": True, "metavar": "PATH"}
    )
    force: bool = Field(False, description="Replace an existing file")


class CompletionSettings(LogSettings):
    """llm-ocr completion: print a script that completes commands, flags, and values in a shell."""

    shell: Literal["bash", "zsh", "fish"] = Field(
        "bash", description="bash, zsh, or fish", json_schema_extra={"positional": True, "metavar": "SHELL"}
    )


#: Commands that use an engine: a model's servers, or the embedded engine.
ServingCommand = ExtractSettings | DescribeSettings | FieldsSettings | RunSettings | RepairSettings
#: Commands that a Ray cluster runs.
ClusterCommand = ExtractSettings | DescribeSettings | RunSettings | RepairSettings
#: Commands that read pages, describe figures, and assemble documents.
ReadingCommand = ExtractSettings | RunSettings | RepairSettings
FigureCommand = DescribeSettings | RunSettings
AssemblyCommand = AssembleSettings | RunSettings
#: Commands that accept a dataset of the predecessor as input.
InputCommand = DescribeSettings | AssembleSettings
#: Commands that `llm_ocr.runs.execute` runs.
PipelineCommand = (
    PlanSettings
    | ExtractSettings
    | DescribeSettings
    | AssembleSettings
    | FieldsSettings
    | RunSettings
    | RetrySettings
    | RepairSettings
    | CleanSettings
)


# Settings of a serverless worker: those of Extract, and limits of a reply.


#: Value that means no workspace.
NONE = "-"


class WorkerSettings(ExtractSettings):
    """Settings of a serverless worker: documents arrive with requests, and pages are read as in Extract."""

    workspace: NAME = Field(
        NONE, description="Place for replies larger than reply_limit, below replies/ (default: none)"
    )
    reply_limit: Annotated[float, Field(gt=0)] = Field(
        10.0, description="Maximum size of a reply in MB (10 for RunPod's /run)"
    )
    worker_concurrency: COUNT = Field(1, description="Maximum concurrent requests per worker")
