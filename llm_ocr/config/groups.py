"""Groups of settings from which the settings models of commands are composed."""

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

# Validators that run before pydantic. File names must pass unchanged.


#: Name and password of a URL. AWS keys can contain a `/`. For text that begins with a name and a colon without a port,
#: the match extends to the last `@`.
_CREDENTIALS = re.compile(r"(//)(?:[^/?#\s@\[]*:(?!\d+(?:[/?#]|$))[^\s@]*(?:@[^/?#\s@]*)*@|[^/?#\s]*@)")


def without_credentials(text: str, instead: str = "") -> str:
    """Return the text with the name and password of each URL replaced by `instead` and, if given, `@`."""
    return _CREDENTIALS.sub(rf"\g<1>{instead}{'@' if instead else ''}", text)


def name_text(value: Any) -> str:
    """Return a path or URL unchanged, file names that are not UTF-8 included; raise ValueError for invalid values."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if not isinstance(value, str):
        raise ValueError("must be text")
    if not value:
        raise ValueError("must not be empty")
    if "\0" in value:
        raise ValueError("must not hold a NUL character")
    return value


def path_text(value: Any) -> Any:
    """Return a `Path` for a name; leave other values for pydantic to refuse."""
    return Path(name_text(value)) if isinstance(value, str | bytes) else value


def one_or_many(value: Any) -> Any:
    """Return a list with one item for a single name; leave other values for pydantic to refuse."""
    if isinstance(value, str | bytes | os.PathLike):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, dict):
        return tuple(value)
    return value


def labels(value: Any) -> Any:
    """Split names at commas: `image,table` is two names."""
    many = one_or_many(value)
    if not isinstance(many, tuple):
        return many
    return tuple(part.strip() for item in many for part in str(item).split(",") if part.strip())


def duration(value: Any) -> Any:
    """Return seconds from a number or a text such as `90s`, `45m`, `2h`, `1d`; leave other values for pydantic."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", value) if isinstance(value, str) else None
    return round(float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]) if match else value


def split_list(text: str) -> tuple[str, ...]:
    """Split a list in an environment variable: a JSON list of texts, or one item per line.

    The text is never split at commas, and `[draft] a, b.pdf` is one name. Real file names contain both.

    Raises:
        ValueError: The text begins like a JSON list of texts but is invalid.
    """
    if text.lstrip().startswith("["):
        try:
            items = json.loads(text)
        except ValueError as error:
            if text.lstrip()[1:].lstrip().startswith('"'):
                raise ValueError(f"begins like a JSON list and is none: {error}") from error
            items = None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return tuple(items)
    return tuple(line for line in text.split("\n") if line)


# Groups of settings. `json_schema_extra` of a field can hold these keys: `positional` (True), `short` (a letter),
# `flag` (if the flag differs from the field's name), `metavar` (name of the value in the help), and `engines` (if they
# differ from the engines of the group).


FRACTION = Annotated[float, Field(ge=0.0, le=1.0)]
COUNT = Annotated[int, Field(ge=1)]
#: A path or URL. Pydantic's `str` refuses file names that are not UTF-8.
NAME = Annotated[str, PlainValidator(name_text)]
NAMES = Annotated[tuple[NAME, ...], BeforeValidator(one_or_many)]
SECRETS = Annotated[tuple[SecretStr, ...], BeforeValidator(one_or_many)]
FILE = Annotated[Path, BeforeValidator(path_text)]


#: The engines, and those that send requests to a model.
EMBEDDED, VLLM, SERVER = "embedded", "vllm", "server"
MODELS = (VLLM, SERVER)
ALL = (EMBEDDED, *MODELS)


@dataclass(frozen=True, slots=True)
class _Origins:
    """Origins of values; all instances are equal, so that settings compare by value only."""

    places: Mapping[str, str] = field(default_factory=dict, compare=False)


class Group(BaseSettings):
    """Base of all settings: unknown names are errors, and validation errors do not show values.

    Settings made in Python take values from keywords only. `config.loading` reads flags, the environment, and files.
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
    #: Engines that the fields defined in this class apply to. The fields have no effect with other engines.
    ENGINES: ClassVar[tuple[str, ...]] = ALL
    _origins: _Origins = PrivateAttr(default_factory=_Origins)

    @property
    def origins(self) -> Mapping[str, str]:
        """Return the origin of each value, as in `config.loading.Loaded`; empty for settings made in Python."""
        return self._origins.places

    def keep_origins(self, origins: Mapping[str, str]) -> None:
        """Store the origin of each value."""
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
        """Use keywords only: a value from the environment must not enter a call of the Python API."""
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


# Settings of models and of their servers.


PRICE = Annotated[float, Field(ge=0.0)]
SECONDS = Annotated[float, Field(gt=0.0)]
TEMPERATURE = Annotated[float, Field(ge=0.0, le=2.0)]
#: Names without commas: one name per flag, or several names separated by commas.
LABELS = Annotated[tuple[NAME, ...], BeforeValidator(labels)]


def _words(text: str) -> str:
    """Return a command line unchanged if a shell could split the text."""
    if not shlex.split(text):
        raise ValueError("must name a program")
    return text


#: Command with its first arguments, quoted for a shell.
COMMAND = Annotated[str, PlainValidator(name_text), AfterValidator(_words)]
#: Prompt for the model; `\\n` in the text is not replaced.
TEXT = Annotated[str, PlainValidator(name_text)]


class WhichModel(Group):
    """Which model reads the pages (vLLM and servers)."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    model: NAME = Field(
        "deepseek-ocr",
        description="deepseek-ocr, deepseek-ocr-2, lightonocr-3, dots.mocr, chandra-2, olmocr-2, glm-ocr, "
        "paddleocr-vl, hunyuanocr, nanonets-ocr2, qwen3-vl ... (llm-ocr models lists them); a profile's .toml or .yaml "
        "file; or with --prompt any model: its Hugging Face id, folder, s3:// or gs:// URL",
        json_schema_extra={"metavar": "NAME"},
    )
    weights: NAME | None = Field(
        None,
        description="other weights for that profile: a folder, an s3:// or gs:// URL, or the Hugging Face id of a copy "
        "or fine-tune",
    )
    revision: NAME | None = Field(None, description="commit or tag of the model (default: the newest, recorded)")
    parser: NAME | None = Field(
        None,
        description="how answers are read, where it is not the profile's way: plain, grounding, lighton, layout-json, "
        "html-blocks, front-matter ... (a wrong name lists all)",
    )
    chat_template: NAME | None = Field(
        None,
        description="the chat template that our own server uses instead of the model's",
        json_schema_extra={"metavar": "FILE"},
    )


class ModelSettings(WhichModel):
    """How the model is asked."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    mode: NAME | None = Field(
        None,
        description="which of its prompts: layout (or layout-all), layout-only, markdown, text (or ocr) ... (default: "
        "the profile's)",
    )
    prompt: TEXT | None = Field(None, description="a prompt of your own instead; needed for a model without a profile")
    max_tokens: COUNT | None = Field(None, description="longest answer in tokens (default: the profile's)")
    temperature: TEMPERATURE | None = Field(None, description="of the first try at a page (default: the profile's)")
    crop: LABELS = Field(
        (),
        description="labels of blocks that are cut out as figures, for example image,table,chart "
        "(default: the profile's; with the CPU engine image, chart and diagram)",
        json_schema_extra={"metavar": "LABELS", "engines": [*ALL]},
    )
    figures_from: Literal["auto", "model", "page", "none"] = Field(
        "auto",
        description="where figures come from: the model's boxes, what is found on the page itself (a PDF's images and "
        "drawings, pictures on scans), nowhere; auto: the model's where its answers have boxes, else the page's",
        json_schema_extra={"engines": [*ALL]},
    )
    rotate: Literal["auto", "never", "probe"] = Field(
        "auto",
        description="auto: a page is turned and read again when the model says that it does not stand upright; probe: "
        "OCR looks at each page before, too (a quarter of a second on the CPU)",
    )
    anchor_text: Annotated[int, Field(ge=0)] = Field(
        0,
        description="so many characters of a PDF's text layer go into the prompt, for models that take it; 0: none",
        json_schema_extra={"metavar": "CHARACTERS"},
    )
    guided: bool = Field(False, description="let vLLM force the form of the answers, for models whose form is known")
    headers: Literal["drop", "keep"] = Field(
        "drop",
        description="running heads and feet and page numbers in the Markdown (the layout has them always)",
        json_schema_extra={"engines": [*ALL]},
    )
    fallback: Literal["none", "text-layer", "embedded"] = Field(
        "text-layer",
        description="what reads a page that the model could not: nothing, the PDF's text layer, or that and OCR on the "
        "CPU; such pages are degraded",
    )


class ServerSettings(Group):
    """Running servers and providers (--engine server)."""

    ENGINES: ClassVar[tuple[str, ...]] = (SERVER,)

    server_url: NAMES = Field(
        (),
        description="OpenAI-compatible server, with or without /v1 (repeat it for more)",
        json_schema_extra={"metavar": "URL"},
    )
    server_key: SecretStr | None = Field(None, description="its API key (better: --server-key-file)")
    server_key_file: FILE | None = Field(None, description="file with its API key")
    server_model: NAME | None = Field(None, description="the model's name there (default: the one it serves)")
    server_wait: SECONDS | None = Field(
        None,
        description="seconds to wait for a server at whose address nobody answers yet (default: 5; in jobs of a "
        "launch, and where --server-timeout is given: that)",
    )
    price_in: PRICE | None = Field(
        None,
        description="its price per million tokens of prompts, for the cost in status",
        json_schema_extra={"engines": [*MODELS]},
    )
    price_out: PRICE | None = Field(
        None, description="its price per million tokens of answers", json_schema_extra={"engines": [*MODELS]}
    )


class VllmSettings(Group):
    """A vLLM server of our own (--engine vllm)."""

    ENGINES: ClassVar[tuple[str, ...]] = (VLLM,)

    vllm_command: COMMAND = Field(
        "vllm",
        description="what starts vLLM: a program, or a whole command such as 'docker run ... image'",
        json_schema_extra={"metavar": "COMMAND"},
    )
    vllm_arg: NAMES = Field(
        (),
        description="one more argument of `vllm serve`, as it is: --vllm-arg=--max-num-seqs=64 (repeat it for more)",
        json_schema_extra={"metavar": "ARG"},
    )
    preset: Literal["l4", "a40", "l40s", "a100", "h100"] | None = Field(
        None,
        description="values for one kind of GPU (docs/tuning.md): they replace the profile's, and yours replace them",
    )
    vllm_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(None, description="port (default: a free one)")
    replicas: COUNT | None = Field(None, description="servers, each with its own GPUs (default: one per GPU)")
    tensor_parallel_size: COUNT = Field(1, description="GPUs that one server splits the model over")
    data_parallel_size: COUNT = Field(1, description="copies of the model inside one server")
    max_model_len: COUNT | None = Field(None, description="context in tokens (default: the profile's)")
    gpu_memory_utilization: FRACTION | None = Field(None, description="share of the GPU's memory (default: vLLM's)")
    model_cache: FILE | None = Field(
        None,
        description="folder for downloaded models (default: Hugging Face's)",
        json_schema_extra={"engines": [*MODELS]},
    )
    compile_cache: FILE | None = Field(None, description="folder for what vLLM compiles (default: vLLM's)")
    offline: bool = Field(
        False, description="use only models that are on this machine", json_schema_extra={"engines": [*MODELS]}
    )
    server_timeout: SECONDS = Field(
        1800.0,
        description="seconds until a server that does not get ready is given up",
        json_schema_extra={"engines": [*MODELS]},
    )
    max_server_restarts: Annotated[int, Field(ge=0)] = Field(
        5,
        description="restarts of a server that died or hangs, without 100 answers in between, before giving up",
        json_schema_extra={"engines": [*MODELS]},
    )


class RequestSettings(Group):
    """How much is asked at once (nothing of it needs to be set)."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    max_inflight_requests: COUNT | None = Field(None, description="requests under way (default: follows the server)")
    max_concurrent_documents: COUNT | None = Field(
        None, description="documents being read at the same time", json_schema_extra={"engines": [*ALL]}
    )
    max_page_concurrency: COUNT | None = Field(
        None, description="pages of one document being read at the same time", json_schema_extra={"engines": [*ALL]}
    )
    workers: COUNT | None = Field(
        None, description="units of work open at the same time", json_schema_extra={"engines": [*ALL]}
    )
    max_page_attempts: COUNT = Field(8, description="tries at a page or figure before it is degraded or failed")
    request_timeout: SECONDS = Field(
        180.0,
        description="seconds without new text until a request is given up; after ten times as many, its answer is cut",
    )


#: Modes of figure requests that need no prompt from the user.
MODES = ("describe", "parse", "classify")


class DescribeGroup(Group):
    """How figures are described."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    # The CPU engine refuses these two fields itself.
    describe_prompt: TEXT | None = Field(
        None, description="what is asked of each figure, in your words", json_schema_extra={"engines": [*ALL]}
    )
    describe_mode: NAME = Field(
        "describe",
        description="describe, parse (data as JSON), classify, or a name for --describe-prompt",
        json_schema_extra={"engines": [*ALL]},
    )
    describe_model: NAME | None = Field(None, description="model that describes (default: the one that read the pages)")
    describe_classes: LABELS = Field(
        (), description="classes to choose from with classify", json_schema_extra={"metavar": "LABELS"}
    )
    describe_known: Literal["ask", "keep"] = Field(
        "ask",
        description="figures of which the model that read the page has said something already: ask all the same, or "
        "keep that (describe mode without a prompt of your own)",
    )
    describe_max_tokens: COUNT | None = Field(None, description="longest description in tokens")
    describe_temperature: TEMPERATURE | None = Field(None, description="of the first try at a figure")

    @field_validator("describe_mode")
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("describe_prompt") is None and value not in MODES:
            raise ValueError(f"must be one of {', '.join(MODES)}, or a name for the prompt given as describe_prompt")
        return value


# Settings of reading pages by regions.


#: `cpu`, `cuda`, or a numbered device: `cuda:1`.
DEVICE = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]


class LayoutSettings(Group):
    """Pages by their regions (--layout-first): a detector finds them, the model reads each by itself."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    layout_first: Literal["auto", "always", "never"] = Field(
        "auto",
        description="auto: where that is the model's way (glm-ocr, paddleocr-vl) and a detector is installed; always: "
        "with any model that has prompts for regions, by the embedded engine's layout where no detector is installed",
    )
    region_task: LABELS = Field(
        (),
        description="what is done with regions of a label: text, table, formula or chart (read so), skip (kept as a "
        "figure) or abandon (left out); for example footer=text (repeat it for more)",
        json_schema_extra={"metavar": "LABEL=TASK"},
    )
    detector: NAME | None = Field(
        None,
        description="Hugging Face id or folder of the detector, or `embedded` "
        "(default: PaddlePaddle/PP-DocLayoutV3_safetensors)",
        json_schema_extra={"metavar": "NAME"},
    )
    detector_revision: NAME | None = Field(None, description="its commit or tag (default: the newest, recorded)")
    detector_threshold: FRACTION = Field(0.3, description="regions of which it is less sure are left out")
    detector_device: DEVICE = Field(
        "auto", description="where it runs: cpu, cuda, cuda:1 ... (auto: a GPU if there is one)"
    )
    detector_workers: COUNT | None = Field(None, description="its processes on the CPU (default: one per core)")
    detector_python: FILE | None = Field(
        None,
        description="a Python that has torch and transformers, where this one has not (such as vLLM's)",
        json_schema_extra={"metavar": "PROGRAM"},
    )
