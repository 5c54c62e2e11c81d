"""The settings of every command: one pydantic model each, made of groups.

They are the only definition: flags, environment variables (`LLM_OCR_` and the name), the configuration file and the
keywords of the Python API are all made from these fields.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from llm_ocr.settings.groups import (
    COUNT,
    FILE,
    NAME,
    NAMES,
    SECRETS,
    AssembleGroup,
    CountSettings,
    DatasetSettings,
    EmbeddedSettings,
    EngineSettings,
    FollowSettings,
    InputSettings,
    LeaseSettings,
    LogSettings,
    OutcomeSettings,
    RaySettings,
    RemoteSettings,
    RenderSettings,
    ShardSettings,
    SourceSettings,
    WorkspaceSettings,
)
from llm_ocr.settings.launch_groups import (
    BeakerGroup,
    CloudRunGroup,
    HfJobsGroup,
    JobGroup,
    LaunchGroup,
    ModalGroup,
    PlatformGroup,
    RunPodGroup,
    SageMakerGroup,
    SlurmGroup,
)
from llm_ocr.settings.layout_group import LayoutSettings
from llm_ocr.settings.model_groups import (
    PRICE,
    DescribeGroup,
    ModelSettings,
    RequestSettings,
    ServerSettings,
    VllmSettings,
    WhichModel,
)


class PlanSettings(
    WorkspaceSettings,
    SourceSettings,
    DatasetSettings,
    CountSettings,
    RemoteSettings,
    RenderSettings,
    EngineSettings,
    ModelSettings,
    LayoutSettings,
    EmbeddedSettings,
):
    """llm-ocr plan: list documents, count pages, cut units."""


class _Serving(ServerSettings, VllmSettings, RequestSettings):
    """What runs the models."""


class ExtractSettings(PlanSettings, _Serving, ShardSettings, RaySettings, OutcomeSettings, JobGroup):
    """llm-ocr extract: pages to Markdown, figures and layout."""


class DescribeSettings(
    WorkspaceSettings,
    InputSettings,
    DescribeGroup,
    EngineSettings,
    WhichModel,
    _Serving,
    EmbeddedSettings,
    ShardSettings,
    FollowSettings,
    RaySettings,
    OutcomeSettings,
    JobGroup,
):
    """llm-ocr describe: figures to descriptions."""


class AssembleSettings(
    WorkspaceSettings, InputSettings, AssembleGroup, ShardSettings, FollowSettings, OutcomeSettings, JobGroup
):
    """llm-ocr assemble: descriptions into the Markdown; documents and dataset written."""


class RunSettings(PlanSettings, _Serving, LeaseSettings, DescribeGroup, RaySettings, AssembleGroup, OutcomeSettings):
    """llm-ocr run: all three stages here."""

    workspace: NAME = Field(
        "llm-ocr-out",
        description="workspace: the folder, s3://, gs:// or hf:// URL that everything of a run is written to",
        json_schema_extra={"short": "w", "metavar": "URL"},
    )
    stdout: bool = Field(False, description="print the Markdown of the documents when done")


class LaunchSettings(
    PlanSettings,
    _Serving,
    LeaseSettings,
    DescribeGroup,
    InputSettings,
    AssembleGroup,
    OutcomeSettings,
    LaunchGroup,
    PlatformGroup,
    HfJobsGroup,
    SageMakerGroup,
    CloudRunGroup,
    ModalGroup,
    RunPodGroup,
    SlurmGroup,
    BeakerGroup,
):
    """llm-ocr launch: stages as jobs on rented machines."""

    platform: NAME = Field(
        description="hf-jobs, sagemaker, cloud-run, modal, runpod, slurm, beaker or local",
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


class EstimateSettings(
    WorkspaceSettings, SourceSettings, DatasetSettings, CountSettings, RemoteSettings, RenderSettings
):
    """llm-ocr estimate: what a run will take and cost."""

    workspace: NAME | None = Field(  # type: ignore[assignment]  # here it is optional
        None,
        description="workspace whose plan is meant where no sources are named",
        json_schema_extra={"short": "w", "metavar": "URL"},
    )
    stage: Literal["extract", "describe", "assemble"] = Field("extract", description="of which stage")
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
    price_per_hour: Annotated[float, Field(gt=0)] | None = Field(None, description="of one machine named by --hardware")
    live_prices: bool = Field(False, description="ask platforms that tell their prices (HF Jobs) for them")
    platform_endpoint: NAME | None = Field(
        None, description="another server for the platform's API", json_schema_extra={"metavar": "URL"}
    )
    json_output: bool = Field(False, description="print JSON", json_schema_extra={"flag": "json"})


class RetrySettings(WorkspaceSettings, RemoteSettings, RenderSettings, EngineSettings):
    """llm-ocr retry-failed: plan the failed pages again."""

    password: SECRETS = Field((), description="password for encrypted PDFs (better: --password-file)")
    password_file: FILE | None = Field(None, description="file with passwords to try, one a line")


class TransformSettings(WorkspaceSettings, RemoteSettings, ShardSettings):
    """llm_ocr.transform: a function of the user's own over all pages."""


class ExportSettings(WorkspaceSettings):
    """llm-ocr export: results in the form of what comes next."""

    format: Literal["dataset"] = Field("dataset", description="dataset: Parquet files that load_dataset opens")
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
    public: bool = Field(False, description="let everyone see a dataset repository that is made here")


class CleanSettings(WorkspaceSettings):
    """llm-ocr clean: remove what no finished unit refers to."""

    dry_run: bool = Field(False, description="only list what would be removed")
    older_than: Annotated[float, Field(ge=0)] = Field(86400.0, description="spare files younger than this, in seconds")


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


class DoctorSettings(LogSettings):
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


class InitSettings(LogSettings):
    """llm-ocr init: a configuration file with every setting of run, commented out."""

    path: FILE = Field(
        Path("llm-ocr.toml"),
        description="where the file is written",
        json_schema_extra={"positional": True, "metavar": "PATH"},
    )
    force: bool = Field(False, description="replace a file that is there")
