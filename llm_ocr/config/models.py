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
    NATURAL,
    POSITIVE,
    PRICE,
    REQUIRED,
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
    setting,
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


class ExportSettings(OwnWorkspaceSettings, RemoteSettings, ConfinementSettings):
    """llm-ocr export: convert results to other formats."""

    format: str = setting(
        "dataset",
        "dataset: Parquet files for load_dataset; markdown: a tree of documents; json: one file per document, with "
        "blocks and boxes; html: one self-contained file per document; pdf: the documents with searchable text; hocr: "
        "words with boxes, one file per document; alto: ALTO XML, one file per page; jsonl: lines for pages, and for "
        "failed pages; dolma: documents for training; chunks: passages for retrieval; fields: values found by llm-ocr "
        "fields; olmocr-bench: input of olmOCR-Bench's scorer",
        group=EXPORTS.group,
    )
    output: NAME = setting(
        REQUIRED,
        "Folder, s3:// or gs:// prefix, or hf://datasets/NS/NAME (private unless --public)",
        short="o",
        metavar="URL",
    )
    output_profile: NAME | None = setting(
        None, "Credentials for the output: an AWS profile or a Google credentials file"
    )
    output_endpoint: NAME | None = setting(
        None, "Server of the output's store (default: the provider's)", metavar="URL"
    )
    output_region: NAME | None = setting(None, "Region of the output's bucket (default: the SDK's)")
    source_paths: Literal["relative", "absolute"] = setting(
        "relative", "Sources on this machine in the export: relative to the current folder, or with the whole path"
    )
    shard_size: COUNT = setting(500, "dataset: size of the files in MB", formats=["dataset"])
    max_page_error_rate: FRACTION = setting(0.004, "Allowed share of failed and fallback pages in a document")
    drop_over_error_rate: bool = setting(
        False, "Leave out documents above --max-page-error-rate, and list them in dropped-documents.jsonl"
    )
    only: Literal["balanced"] | None = setting(
        None, "balanced: leave out pages that are not ok, or whose ink or text is not accounted for"
    )
    chunk_size: COUNT = setting(
        2000, "chunks: maximum size of a passage in characters, or in tokens with --tokenizer", formats=["chunks"]
    )
    chunk_overlap: NATURAL = setting(0, "chunks: overlap of consecutive passages, in the same unit", formats=["chunks"])
    tokenizer: NAME | None = setting(
        None, "chunks: measure in tokens of this tokenizer.json or Hub model", formats=["chunks"]
    )
    chunk_format: Literal["jsonl", "parquet"] = setting("jsonl", "chunks: format of the files", formats=["chunks"])
    password: SECRETS = setting(
        (),
        "pdf, hocr, alto: password for encrypted PDFs (repeatable; safer: --password-file)",
        formats=["pdf", "hocr", "alto"],
    )
    password_file: FILE | None = setting(
        None, "pdf, hocr, alto: file with passwords to try, one per line", formats=["pdf", "hocr", "alto"]
    )
    ocr_language: NAME | None = setting(
        None,
        "pdf, hocr, alto: script of scans for OCR, as in `llm-ocr run` (default: Latin, Chinese, Japanese)",
        metavar="NAME",
        formats=["pdf", "hocr", "alto"],
    )
    public: bool = setting(False, "Make a new dataset repository public")

    @field_validator("format")
    @classmethod
    def _is_installed(cls, name: str) -> str:
        formats = EXPORTS.names()
        if formats and name not in formats:  # without any, the export says what is wrong
            raise ValueError(f"must be one of {', '.join(formats)}")
        return name


class ViewSettings(OwnWorkspaceSettings):
    """llm-ocr view: build a static website of the results."""

    output: FILE = setting(REQUIRED, "Folder for the site; open its index.html", short="o", metavar="FOLDER")
    compare: NAME | None = setting(None, "Second workspace with the same documents, shown side by side", metavar="URL")


class ReportSettings(OwnWorkspaceSettings):
    """llm-ocr report: write an HTML report of a run."""

    output: FILE = setting(Path("llm-ocr-report.html"), "File to write", short="o", metavar="FILE")


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

    dry_run: bool = setting(False, "Print what the plan would contain and filter out, and write nothing")


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

    fields_schema: NAME = setting(  # required here
        REQUIRED,
        "JSON Schema of the values to find in each document: a file, or the JSON itself",
        flag="schema",
        metavar="FILE",
    )
    model: NAME = setting(
        "qwen3-vl-8b",
        "Model that follows instructions: qwen3-vl-8b (its Apache-2.0 weights are on the Hub), internvl3.5-8b ..., or "
        "any such model by the name on the server, Hugging Face ID, folder, or s3:// or gs:// URL. If it is not "
        "given, the only model of a server has precedence",
        metavar="NAME",
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

    stdout: bool = setting(
        False, "Print the Markdown of the documents to standard output. Without --workspace, no file remains"
    )

    @property
    def without_folder(self) -> bool:
        """Return whether the Markdown on standard output is the only result."""
        return self.stdout and "workspace" not in self.model_fields_set


class RepairGroup(Group):
    """Pages of a repair."""

    below_quality: FRACTION | None = setting(
        None, "Read only pages with a quality score below this (0 to 1); the better result counts"
    )
    unbalanced: bool = setting(False, "Read only pages with unread ink, or with text that nothing on the page supports")
    max_pages: COUNT | None = setting(None, "Read at most N pages, the worst first")


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

    platform: NAME = setting(
        REQUIRED, "hf-jobs, sagemaker, cloud-run, modal, slurm, or kubernetes", positional=True, metavar="PLATFORM"
    )
    stage: Literal["extract", "describe", "assemble", "pipeline", "fields", "repair"] = setting(
        REQUIRED,
        "extract, describe, assemble, pipeline (all three in order), fields, or repair",
        positional=True,
        metavar="STAGE",
    )


class JobsSettings(WorkspaceSettings):
    """llm-ocr jobs: list, watch, and cancel the jobs of a workspace."""

    action: Literal["list", "logs", "cancel", "clean"] = setting(
        "list",
        "list: show all jobs; logs: print a log; cancel: stop running jobs; clean: remove what launches left on the "
        "platforms",
        positional=True,
        metavar="ACTION",
    )
    job: NAME | None = setting(
        None, "ID or name of one job (default: all; logs: the newest)", positional=True, metavar="JOB"
    )
    follow: bool = setting(False, "logs: continue until the job ends", flag="follow")
    tail: COUNT | None = setting(None, "logs: print only the last N lines")
    json_output: bool = setting(False, "Print JSON", flag="json")


class StatusSettings(OwnWorkspaceSettings):
    """llm-ocr status: show progress, failures, and their reasons."""

    json_output: bool = setting(False, "Print JSON", flag="json")
    watch: bool = setting(False, "Repeat until all pages are done")
    worst: COUNT | None = setting(None, "Also list the N pages with the lowest quality, and their problems")


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

    workspace: NAME | None = setting(  # type: ignore[assignment]  # optional for this command
        None, "Workspace whose plan is estimated if no SOURCE is given", short="w", metavar="URL"
    )
    stage: Literal["extract", "describe", "assemble"] = setting("extract", "Stage to estimate")
    engine: Literal["auto", "vllm", "server", "embedded", "hybrid"] = setting(
        "auto",
        "embedded: the CPU engine, here and on rented machines; vllm, server: a model; hybrid: the CPU engine here, "
        "and a model for the pages that it would read better, from a sample of 24 pages; auto: a model and, without a "
        "GPU here, the CPU engine of this machine first",
    )
    model: NAME = setting("deepseek-ocr", "Model that reads the pages, or `embedded`")
    hardware: NAMES = setting(
        (),
        "Machine to compare, such as hf-jobs:a100-large or modal:L40S (repeatable; default: all with a known price)",
        metavar="PLATFORM:NAME",
    )
    shards: COUNT = setting(1, "Number of machines that share the pages")
    page_count: COUNT | None = setting(None, "Number of pages, instead of SOURCE")
    tokens_in: NATURAL | None = setting(None, "Total prompt tokens (default: estimated)")
    tokens_out: NATURAL | None = setting(None, "Total answer tokens (default: estimated)")
    price_in: PRICE | None = setting(None, "Price per million prompt tokens in dollars")
    price_out: PRICE | None = setting(None, "Price per million answer tokens in dollars")
    price_per_hour: POSITIVE | None = setting(
        None, "Hourly price of the --hardware machine in dollars, or of the machine that --calibrate measures"
    )
    calibrate: bool = setting(
        False,
        "Read a random sample of the pages first (with --server-url, vLLM here, or --engine embedded), and estimate "
        "from its speed",
    )
    calibrate_seconds: POSITIVE = setting(60.0, "Seconds until calibration starts no more pages")
    calibrate_pages: COUNT = setting(2000, "Maximum pages to read for calibration")
    seed: NATURAL = setting(0, "Seed of the random sample")
    live_prices: bool = setting(False, "Query current prices from platforms that publish them (HF Jobs)")
    platform_endpoint: NAME | None = setting(
        None, "API server of the platform (default: the platform's own)", metavar="URL"
    )
    all_options: bool = setting(False, "Show all machines and providers, not the five cheapest", flag="all")
    json_output: bool = setting(False, "Print JSON", flag="json")


class RetrySettings(WorkspaceSettings, RemoteSettings, RenderSettings, EngineSettings):
    """llm-ocr retry-failed: plan failed pages and figures again."""

    password: SECRETS = setting((), "Password for encrypted PDFs (repeatable; safer: --password-file)")
    password_file: FILE | None = setting(None, "File with passwords to try, one per line")
    below_quality: FRACTION | None = setting(
        None, "Also plan pages with a quality score below this (0 to 1); of each, the better result counts"
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

    page_list: FILE | None = setting(
        None,
        "Read only the pages of this file: in each line a page ID, PATH<TAB>PAGE, or JSON with page_id",
        flag="pages-from",
    )
    give_up: bool = setting(
        False, "Read nothing: unread pages of earlier repairs and retries keep their earlier results"
    )


class TransformSettings(WorkspaceSettings, RemoteSettings, ShardSettings):
    """llm_ocr.transform: apply a function of the user to all pages."""


class CleanSettings(WorkspaceSettings):
    """llm-ocr clean: remove files that no finished unit needs."""

    dry_run: bool = setting(False, "List the files without removing them")
    older_than: Annotated[float, Field(ge=0)] = setting(
        86400.0, "Keep files younger than this, in seconds by the store's clock"
    )


class ModelsSettings(VllmSettings, LogSettings):
    """llm-ocr models: list models, show one, or recommend one."""

    name: NAME | None = setting(
        None, "Model to show in detail (default: a table of all models)", positional=True, metavar="NAME"
    )
    recommend: bool = setting(False, "Rank the models for the GPU and the vLLM of this machine")
    gpu_memory: POSITIVE | None = setting(None, "GPU memory in GB (default: from nvidia-smi)", metavar="GB")
    licence: Literal["any", "open"] = setting("any", "open: only permissive licenses, such as MIT and Apache-2.0")
    language: NAME | None = setting(None, "Language of the documents, by English name or code (German, de)")
    json_output: bool = setting(False, "Print JSON", flag="json")


class DemoSettings(LogSettings):
    """llm-ocr demo: run all three stages on the included example documents."""

    workspace: NAME = setting("llm-ocr-demo", "Folder for the results", short="w", metavar="FOLDER", bare=False)


class DoctorSettings(LogSettings, ConfinementSettings):
    """llm-ocr doctor: check what works on this machine, and how to install the rest."""

    json_output: bool = setting(False, "Print JSON", flag="json")


class DebugSettings(RenderSettings, EmbeddedSettings, LogSettings):
    """llm-ocr debug: show how the embedded engine reads a page."""

    subject: Literal["page"] = setting("page", "page: each step of reading one page", positional=True, metavar="page")
    file: FILE = setting(REQUIRED, "PDF or image on this machine", positional=True)
    page: COUNT = setting(1, "Page number, from 1")
    output: FILE | None = setting(
        None,
        "Image of the page with its blocks, .png or .jpg (default: FILE's name with -p0001.png, in this folder)",
        short="o",
        metavar="FILE",
    )
    overwrite: bool = setting(False, "Replace an existing image")
    password: SECRETS = setting((), "Password for encrypted PDFs (repeatable; safer: --password-file)")
    password_file: FILE | None = setting(None, "File with passwords to try, one per line")
    json_output: bool = setting(False, "Print JSON", flag="json")


class InitSettings(LogSettings):
    """llm-ocr init: write a configuration file with every setting explained."""

    path: FILE = setting(Path("llm-ocr.toml"), "File to write", positional=True, metavar="PATH")
    force: bool = setting(False, "Replace an existing file")


class CompletionSettings(LogSettings):
    """llm-ocr completion: print a script that completes commands, flags, and values in a shell."""

    shell: Literal["bash", "zsh", "fish"] = setting("bash", "bash, zsh, or fish", positional=True, metavar="SHELL")


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


#: Value that means no workspace.
NONE = "-"


class WorkerSettings(ExtractSettings):
    """Settings of a serverless worker: documents arrive with requests, and pages are read as in Extract."""

    workspace: NAME = setting(NONE, "Place for replies larger than reply_limit, below replies/ (default: none)")
    reply_limit: POSITIVE = setting(10.0, "Maximum size of a reply in MB (10 for RunPod's /run)")
    worker_concurrency: COUNT = setting(1, "Maximum concurrent requests per worker")
