"""The settings that commands are made of, in groups.

`json_schema_extra` of a field may hold `positional` (True), `short` (a letter), `flag` (when the flag is not the
field's name), `metavar` (how help calls the value) and `engines` (the engines that it concerns, where these are not
the group's).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PlainValidator, PrivateAttr, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from llm_ocr.settings.values import name_text, one_or_many, path_text

FRACTION = Annotated[float, Field(ge=0.0, le=1.0)]
COUNT = Annotated[int, Field(ge=1)]
#: A path or URL. Not pydantic's `str`: that one refuses file names that are not UTF-8.
NAME = Annotated[str, PlainValidator(name_text)]
NAMES = Annotated[tuple[NAME, ...], BeforeValidator(one_or_many)]
SECRETS = Annotated[tuple[SecretStr, ...], BeforeValidator(one_or_many)]
FILE = Annotated[Path, BeforeValidator(path_text)]


#: The engines, and those of them that ask a model.
EMBEDDED, VLLM, SERVER = "embedded", "vllm", "server"
MODELS = (VLLM, SERVER)
ALL = (EMBEDDED, *MODELS)


@dataclass(frozen=True, slots=True)
class _Origins:
    """Settings with the same values are the same, wherever these came from."""

    places: Mapping[str, str] = field(default_factory=dict, compare=False)


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
    #: The engines that the settings concern which this class itself defines: with another one they have no effect.
    ENGINES: ClassVar[tuple[str, ...]] = ALL
    _origins: _Origins = PrivateAttr(default_factory=_Origins)

    @property
    def origins(self) -> Mapping[str, str]:
        """Where each value came from, as in `settings.loading.Loaded`; empty for settings made in Python."""
        return self._origins.places

    def keep_origins(self, origins: Mapping[str, str]) -> None:
        """Remember where each value came from."""
        self._origins = _Origins(dict(origins))

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
        description="workspace: the folder, s3://, gs:// or hf:// URL that everything of a run is written to",
        json_schema_extra={"short": "w", "metavar": "URL"},
    )
    workspace_profile: NAME | None = Field(
        None, description="credentials of its store: a profile of the AWS configuration, or a Google credentials file"
    )
    workspace_endpoint: NAME | None = Field(
        None,
        description="its store's server, where it is not Amazon's or Google's",
        json_schema_extra={"metavar": "URL"},
    )
    workspace_region: NAME | None = Field(None, description="its bucket's region (default: the SDK's)")


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
    pages_per_unit: COUNT | None = Field(
        None,
        description="pages of one unit of work (default: 64; fewer below 2,048 pages; 16 with the embedded engine)",
    )


class DatasetSettings(Group):
    """A Hugging Face dataset whose rows hold page images, as a source."""

    dataset: NAME | None = Field(
        None, description="Hugging Face dataset whose rows hold page images", json_schema_extra={"metavar": "NS/NAME"}
    )
    dataset_config: NAME | None = Field(None, description="its configuration (default: the only one, or `default`)")
    dataset_split: NAME = Field("train", description="its split")
    dataset_revision: NAME | None = Field(
        None, description="its branch, tag or commit; the commit is recorded when it is planned (default: the newest)"
    )
    image_column: NAME | None = Field(
        None, description="column with the image, or with a list of a document's images (default: the only such column)"
    )
    id_column: NAME | None = Field(
        None, description="column with the documents' ids (default: made of commit, file and row)"
    )


class CountSettings(Group):
    """How the pages of a plan are counted."""

    count_pages: Literal["auto", "exact", "estimate"] = Field(
        "auto",
        description="exact: open every document; estimate: open a sample and judge the others by their size, which "
        "becomes exact when they are read; auto: exact up to 10,000 documents",
    )


class RemoteSettings(Group):
    """How documents on stores and on the web are read."""

    source_profile: NAME | None = Field(
        None, description="credentials of the documents' store, which may be another account than the workspace's"
    )
    source_endpoint: NAME | None = Field(
        None, description="server of the documents' store", json_schema_extra={"metavar": "URL"}
    )
    source_region: NAME | None = Field(None, description="region of the documents' bucket")
    source_cache: COUNT = Field(4096, description="local space for documents that are being read, in MiB")
    allow_private_addresses: bool = Field(False, description="fetch https:// documents from private addresses, too")


class ConfinementSettings(Group):
    """How the processes that look at documents are locked in."""

    confinement: Literal["auto", "off"] = Field(
        "auto",
        description="auto: processes that open documents give up network, files and programs, as far as the kernel "
        "offers it; off: they keep them, where this breaks something (limits on memory and time stay)",
    )


class RenderSettings(ConfinementSettings):
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
    """What reads the pages and describes the figures."""

    engine: Literal["auto", "vllm", "server", "embedded"] = Field(
        "auto",
        description="vllm: a server of our own on this machine's GPUs; server: the one at --server-url; "
        "embedded: text layer and OCR on the CPU; auto: the best that works here",
    )
    batch_id: NAME | None = Field(None, description="a name for this run in status and metrics")


class EmbeddedSettings(ConfinementSettings):
    """The embedded engine."""

    text_layer: Literal["auto", "never"] = Field(
        "auto", description="auto: a PDF's text layer where it is true; never: OCR"
    )
    ocr_workers: COUNT | None = Field(None, description="OCR processes (default: one per core)")
    ocr_memory: Annotated[int, Field(ge=512)] = Field(4096, description="memory limit of one OCR process in MiB")
    page_timeout: Annotated[float, Field(gt=0)] = Field(300.0, description="seconds until reading one page is given up")


class FilterSettings(Group):
    """Which documents are left out of the plan, and which trial of them is made. All off by default."""

    filter_language: NAMES = Field(
        (),
        description="only documents in these languages, by code (en, de; repeat it for more); those without text to "
        "judge by stay",
        json_schema_extra={"metavar": "CODE"},
    )
    filter_forms: bool = Field(False, description="leave out PDFs that are forms to be filled in")
    filter_spam: bool = Field(False, description="leave out documents that read like text made for search engines")
    filter_blank: bool = Field(False, description="leave out documents whose pages are all blank")
    sample: COUNT | None = Field(None, description="read only N documents, drawn by chance over all")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="what decides the draw: the same number, the same sample")


class QualitySettings(Group):
    """What is done about pages that look wrong."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    min_quality: FRACTION | None = Field(
        None,
        description="read a page again, by the next way the model offers, when its quality score is below this "
        "(0 to 1; the best answer is kept; default: off)",
    )


class LimitSettings(Group):
    """When a run stops by itself; what is done stays, and the same command goes on later."""

    max_hours: Annotated[float, Field(gt=0)] | None = Field(
        None, description="stop after so many hours (exit 5)", json_schema_extra={"metavar": "HOURS"}
    )
    max_cost: Annotated[float, Field(gt=0)] | None = Field(
        None, description="stop when the workspace has cost so much (exit 5)", json_schema_extra={"metavar": "DOLLARS"}
    )
    price_per_hour: Annotated[float, Field(gt=0)] | None = Field(
        None, description="what this machine costs, for --max-cost and the record of what was spent"
    )


class OutcomeSettings(Group):
    """When a finished run counts as failed."""

    max_failed_rate: FRACTION = Field(0.01, description="exit code 3 when more than this share of the pages failed")


class LeaseSettings(Group):
    """How workers of one workspace share its units."""

    lease_seconds: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="after so many seconds without a sign of life another worker takes a unit over (default: 300 on "
        "stores that allow it; in a folder units are shared only where this is given)",
    )


class ShardSettings(LeaseSettings):
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


class FollowSettings(Group):
    """Work beside the stage before."""

    follow: bool = Field(
        False, description="take units as soon as the stage before has published them, and wait for it"
    )


class InputSettings(Group):
    """Results of the predecessor to begin with."""

    input: NAME | None = Field(
        None,
        description="a dataset that the predecessor's Extract wrote: s3://, gs://, a folder, or NS/NAME on the Hub; "
        "taken over as this workspace's pages",
        json_schema_extra={"metavar": "URL"},
    )
    pages_from: NAME = Field(
        "extract", description="stage whose pages are taken: extract, or one of your own (llm_ocr.transform)"
    )


class RaySettings(Group):
    """Many machines of a Ray cluster."""

    ray: NAME | None = Field(
        None,
        description="do the units on a Ray cluster: its address, or `auto`, or `local` for one on this machine",
        json_schema_extra={"metavar": "ADDRESS"},
    )
    ray_workers: COUNT | None = Field(
        None, description="workers on the cluster (default: one for each of its GPUs; without GPUs: for each node)"
    )
    ray_gpus: Annotated[float, Field(ge=0)] = Field(
        1.0, description="GPUs of each worker (unless set: as many as one server needs, none without --engine vllm)"
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
