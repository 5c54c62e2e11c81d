"""Settings models of all commands. Flags, variables, files, and Python keywords derive from them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

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
    FilterSettings,
    FollowSettings,
    InputSettings,
    LayoutSettings,
    LeaseSettings,
    LimitSettings,
    LogSettings,
    ModelSettings,
    OutcomeSettings,
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
    BeakerGroup,
    CloudRunGroup,
    HfJobsGroup,
    JobGroup,
    KubernetesGroup,
    LaunchGroup,
    LibraryGroup,
    ModalGroup,
    PlatformGroup,
    RunPodGroup,
    SageMakerGroup,
    SlurmGroup,
)

# Settings of the commands that process finished results.


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
    """llm-ocr plan: list documents, count pages, cut units."""

    dry_run: bool = Field(False, description="write nothing: only say what would be planned, and what filtered out")


class ServingSettings(ServerSettings, VllmSettings, RequestSettings):
    """Settings of the commands that run models."""


class ExtractSettings(
    PlanSettings, ServingSettings, ShardSettings, RaySettings, QualitySettings, LimitSettings, OutcomeSettings, JobGroup
):
    """llm-ocr extract: pages to Markdown, figures and layout."""


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
    """llm-ocr describe: figures to descriptions."""


class AssembleSettings(
    WorkspaceSettings, InputSettings, AssembleGroup, ShardSettings, FollowSettings, OutcomeSettings, JobGroup
):
    """llm-ocr assemble: descriptions into the Markdown; documents and dataset written."""


class RunSettings(
    PlanSettings,
    ServingSettings,
    LeaseSettings,
    DescribeGroup,
    RaySettings,
    AssembleGroup,
    QualitySettings,
    LimitSettings,
    OutcomeSettings,
):
    """llm-ocr run: all three stages here."""

    workspace: NAME = Field(
        "llm-ocr-out",
        description="workspace: the folder, s3://, gs:// or hf:// URL that everything of a run is written to",
        json_schema_extra={"short": "w", "metavar": "URL"},
    )
    stdout: bool = Field(False, description="print the Markdown of the documents when done")


class LaunchSettings(
    PlanSettings,
    ServingSettings,
    LeaseSettings,
    DescribeGroup,
    InputSettings,
    AssembleGroup,
    QualitySettings,
    OutcomeSettings,
    LaunchGroup,
    PlatformGroup,
    LibraryGroup,
    HfJobsGroup,
    SageMakerGroup,
    CloudRunGroup,
    ModalGroup,
    RunPodGroup,
    SlurmGroup,
    BeakerGroup,
    KubernetesGroup,
):
    """llm-ocr launch: stages as jobs on rented machines."""

    platform: NAME = Field(
        description="hf-jobs, sagemaker, cloud-run, modal, runpod, slurm, beaker, kubernetes or local",
        json_schema_extra={"positional": True, "metavar": "PLATFORM"},
    )
    stage: Literal["extract", "describe", "assemble", "pipeline"] = Field(
        description="extract, describe, assemble, or pipeline: all three, one after the other",
        json_schema_extra={"positional": True, "metavar": "STAGE"},
    )


class JobsSettings(WorkspaceSettings):
    """llm-ocr jobs: the jobs that were launched on a workspace."""

    action: Literal["list", "logs", "cancel", "clean"] = Field(
        "list",
        description="list, logs, cancel, or clean: remove what launching has left on the platforms",
        json_schema_extra={"positional": True, "metavar": "ACTION"},
    )
    job: NAME | None = Field(
        None,
        description="a job's id or name (default: all that are not over; logs: the newest)",
        json_schema_extra={"positional": True, "metavar": "JOB"},
    )
    follow: bool = Field(False, description="logs: go on until the job is over", json_schema_extra={"flag": "follow"})
    tail: COUNT | None = Field(None, description="logs: only the last N lines")
    json_output: bool = Field(False, description="print JSON", json_schema_extra={"flag": "json"})


class StatusSettings(WorkspaceSettings):
    """llm-ocr status: what is done, what failed and why."""

    json_output: bool = Field(False, description="print JSON", json_schema_extra={"flag": "json"})
    watch: bool = Field(False, description="repeat until every page is accounted for")
    worst: COUNT | None = Field(None, description="also name the N pages of the lowest quality, with what is wrong")


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
    """llm-ocr estimate: what a run will take and cost."""

    workspace: NAME | None = Field(  # type: ignore[assignment]  # optional for this command
        None,
        description="workspace whose plan is meant where no sources are named",
        json_schema_extra={"short": "w", "metavar": "URL"},
    )
    stage: Literal["extract", "describe", "assemble"] = Field("extract", description="of which stage")
    engine: Literal["auto", "vllm", "server", "embedded"] = Field(
        "auto",
        description="embedded: the CPU engine, on this machine and on rented ones; vllm, server: a model; auto: a "
        "model, and the CPU engine of this machine first where no GPU is found",
    )
    model: NAME = Field("deepseek-ocr", description="model that reads the pages, or embedded")
    hardware: NAMES = Field(
        (),
        description="only this machine: PLATFORM:NAME, as hf-jobs:a100-large or modal:L40S (repeat it for more; "
        "default: all that have a price here)",
        json_schema_extra={"metavar": "PLATFORM:NAME"},
    )
    shards: COUNT = Field(1, description="machines that share the pages")
    page_count: COUNT | None = Field(None, description="so many pages, without looking at documents")
    tokens_in: Annotated[int, Field(ge=0)] | None = Field(None, description="tokens of all prompts (default: guessed)")
    tokens_out: Annotated[int, Field(ge=0)] | None = Field(None, description="tokens of all answers")
    price_in: PRICE | None = Field(None, description="a provider's price per million tokens of prompts")
    price_out: PRICE | None = Field(None, description="a provider's price per million tokens of answers")
    price_per_hour: Annotated[float, Field(gt=0)] | None = Field(
        None, description="of one machine named by --hardware; with --calibrate of the one that is calibrated"
    )
    calibrate: bool = Field(
        False,
        description="read some of the pages now, drawn by chance, with --server-url, vLLM here, or --engine embedded, "
        "and estimate by that",
    )
    calibrate_seconds: Annotated[float, Field(gt=0)] = Field(60.0, description="how long it may begin new pages")
    calibrate_pages: COUNT = Field(2000, description="how many pages it may read at most")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="what decides which pages: the same number, the same ones")
    live_prices: bool = Field(False, description="ask platforms that tell their prices (HF Jobs) for them")
    platform_endpoint: NAME | None = Field(
        None, description="another server for the platform's API", json_schema_extra={"metavar": "URL"}
    )
    json_output: bool = Field(False, description="print JSON", json_schema_extra={"flag": "json"})


class RetrySettings(WorkspaceSettings, RemoteSettings, RenderSettings, EngineSettings):
    """llm-ocr retry-failed: plan the failed pages again."""

    password: SECRETS = Field((), description="password for encrypted PDFs (better: --password-file)")
    password_file: FILE | None = Field(None, description="file with passwords to try, one a line")
    below_quality: FRACTION | None = Field(
        None, description="also read pages again whose quality score is below this (0 to 1); the new reading counts"
    )


class TransformSettings(WorkspaceSettings, RemoteSettings, ShardSettings):
    """llm_ocr.transform: apply a function of the user to all pages."""


class CleanSettings(WorkspaceSettings):
    """llm-ocr clean: remove what no finished unit refers to."""

    dry_run: bool = Field(False, description="only list what would be removed")
    older_than: Annotated[float, Field(ge=0)] = Field(
        86400.0, description="spare files younger than this, in seconds, by the store's clock"
    )


class ModelsSettings(VllmSettings, LogSettings):
    """llm-ocr models: the models that are known, one of them, or which suits."""

    name: NAME | None = Field(
        None,
        description="a model, to see all about it; without one: the table of all",
        json_schema_extra={"positional": True, "metavar": "NAME"},
    )
    recommend: bool = Field(False, description="rank them for the vLLM and the GPU that are here")
    gpu_memory: Annotated[float, Field(gt=0)] | None = Field(
        None, description="memory of the GPU in GB (default: what nvidia-smi says)", json_schema_extra={"metavar": "GB"}
    )
    licence: Literal["any", "open"] = Field(
        "any", description="open: only MIT, Apache-2.0 and the like, without further terms"
    )
    language: NAME | None = Field(None, description="language of the documents, by its English name or code (de)")
    json_output: bool = Field(False, description="print JSON", json_schema_extra={"flag": "json"})


class DemoSettings(LogSettings):
    """llm-ocr demo: the three stages on documents that come with the library."""

    workspace: NAME = Field(
        "llm-ocr-demo",
        description="folder for the result",
        json_schema_extra={"short": "w", "metavar": "FOLDER", "bare": False},
    )


class DoctorSettings(LogSettings, ConfinementSettings):
    """llm-ocr doctor: what works here, and what is missing."""

    image: NAME | None = Field(
        None,
        description="instead: whether the packages here can serve this model; a gate for building images (exit 1)",
        json_schema_extra={"metavar": "PROFILE"},
    )
    allowed_edges: FILE | None = Field(
        None,
        description="for --image: TOML file of known mismatches between packages, with reasons (default: our own)",
    )
    json_output: bool = Field(False, description="print JSON", json_schema_extra={"flag": "json"})


class DebugSettings(RenderSettings, EmbeddedSettings, LogSettings):
    """llm-ocr debug: the decisions of the embedded engine on one page."""

    subject: Literal["page"] = Field(
        "page", description="page: the passes of one page", json_schema_extra={"positional": True, "metavar": "page"}
    )
    file: FILE = Field(description="PDF or image on this machine", json_schema_extra={"positional": True})
    page: COUNT = Field(1, description="number of the page, from 1")
    output: FILE | None = Field(
        None, description="image of the page with its blocks, .png or .jpg (default: FILE's name with -p0001.png, here)"
    )
    overwrite: bool = Field(False, description="replace an image that is there")
    password: SECRETS = Field((), description="password for encrypted PDFs (better: --password-file)")
    password_file: FILE | None = Field(None, description="file with passwords to try, one a line")
    json_output: bool = Field(False, description="print JSON", json_schema_extra={"flag": "json"})


class InitSettings(LogSettings):
    """llm-ocr init: a configuration file with every setting of run, commented out."""

    path: FILE = Field(
        Path("llm-ocr.toml"),
        description="where the file is written",
        json_schema_extra={"positional": True, "metavar": "PATH"},
    )
    force: bool = Field(False, description="replace a file that is there")


#: Commands that use an engine: a model's servers, or the embedded engine.
ServingCommand = ExtractSettings | DescribeSettings | RunSettings
#: Commands that read pages, describe figures, and assemble documents.
ReadingCommand = ExtractSettings | RunSettings
FigureCommand = DescribeSettings | RunSettings
AssemblyCommand = AssembleSettings | RunSettings
#: Commands that accept a dataset of the predecessor as input.
InputCommand = DescribeSettings | AssembleSettings
#: Commands that `llm_ocr.runs.execute` runs.
PipelineCommand = (
    PlanSettings | ExtractSettings | DescribeSettings | AssembleSettings | RunSettings | RetrySettings | CleanSettings
)


# Settings of a serverless worker: those of Extract, and limits of a reply.


#: Value that means no workspace.
NONE = "-"


class WorkerSettings(ExtractSettings):
    """Settings of a serverless worker: documents arrive with requests, and pages are read as in Extract."""

    workspace: NAME = Field(
        NONE, description="where replies go that are larger than reply_limit, below replies/ (default: nowhere)"
    )
    allowed_workspaces: NAMES = Field(
        (), description="workspaces of stage requests: these and all below (default: the endpoint's own)"
    )
    reply_limit: Annotated[float, Field(gt=0)] = Field(10.0, description="size of a reply in MB (RunPod's /run: 10)")
    worker_concurrency: COUNT = Field(1, description="requests that a worker takes at the same time")
