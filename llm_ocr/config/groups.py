"""Groups of settings from which the settings models of commands are composed."""

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypedDict, TypeVar, Unpack

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

from llm_ocr.plugins import ENGINES

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
        raise ValueError("must not contain a NUL character")
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
                raise ValueError(f"is not a valid JSON list: {error}") from error
            items = None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return tuple(items)
    return tuple(line for line in text.split("\n") if line)


FRACTION = Annotated[float, Field(ge=0.0, le=1.0)]
NATURAL = Annotated[int, Field(ge=0)]
COUNT = Annotated[int, Field(ge=1)]
POSITIVE = Annotated[float, Field(gt=0)]
#: A path or URL. Pydantic's `str` refuses file names that are not UTF-8.
NAME = Annotated[str, PlainValidator(name_text)]
NAMES = Annotated[tuple[NAME, ...], BeforeValidator(one_or_many)]
SECRETS = Annotated[tuple[SecretStr, ...], BeforeValidator(one_or_many)]
FILE = Annotated[Path, BeforeValidator(path_text)]


#: The engines, and those that send requests to a model. `hybrid` is the CPU engine, and a model for some pages.
EMBEDDED, VLLM, SERVER, HYBRID = "embedded", "vllm", "server", "hybrid"
MODELS = (VLLM, SERVER)
ALL = (EMBEDDED, *MODELS)
#: In a setting's list of engines: it has no effect if `hybrid` uses one of them.
NOT_HYBRID = "not hybrid"


class Look(TypedDict, total=False):
    """What the command line, messages, and checks know of a setting besides its type."""

    positional: bool
    short: str  # letter of a short flag
    flag: str  # if it differs from the name of the setting
    metavar: str  # name of the value in the help
    bare: bool  # False: not read from the predecessor's variables
    engines: Sequence[str]  # it has no effect with others; default: `ENGINES` of its group
    formats: Sequence[str]  # of exports; it has no effect with others
    group: str  # of entry points, whose names are values, too


#: Default of a setting that must be given.
REQUIRED: Any = ...
T = TypeVar("T")


def setting(default: T, description: str = "", **look: Unpack[Look]) -> T:
    """Return the field of a setting, which has this default and this text in the help."""
    extra: Any = look
    return Field(default, description=description or None, json_schema_extra=extra)


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
        """Return the origin of each value, such as `flag --pages`; empty for settings made in Python."""
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
    """Output and logging."""

    quiet: bool = setting(False, "Print only the result")
    log_level: Literal["debug", "info", "warning", "error"] = setting("warning", "Minimum log level")
    log_file: FILE | None = setting(None, "Log file (default: standard error)")
    log_format: Literal["text", "json"] = setting("text", "Log format: text lines or JSON lines")


class WorkspaceSettings(LogSettings):
    """Workspace."""

    workspace: NAME = setting(
        REQUIRED, "Folder or s3://, gs://, or hf:// URL for the plan and all results", short="w", metavar="URL"
    )
    workspace_profile: NAME | None = setting(
        None, "Credentials for the workspace: an AWS profile or a Google credentials file"
    )
    workspace_endpoint: NAME | None = setting(
        None, "Server of the workspace's store (default: the provider's)", metavar="URL"
    )
    workspace_region: NAME | None = setting(None, "Region of the workspace's bucket (default: the SDK's)")


class OwnWorkspaceSettings(WorkspaceSettings):
    """Workspace."""

    workspace: NAME = setting(
        "llm-ocr-out", "Folder or s3://, gs://, or hf:// URL for the plan and all results", short="w", metavar="URL"
    )


class SourceSettings(Group):
    """Documents and pages."""

    sources: NAMES = setting(
        (), "Files, folders, globs, URLs, .txt lists of paths, or .jsonl manifests", positional=True, metavar="SOURCE"
    )
    pages: str | None = setting(None, "Pages to read of each document, for example 1-5,9 or 12-", metavar="RANGES")
    only: NAMES = setting((), "Read only documents with this file name or pattern (repeatable)")
    max_pages_per_document: COUNT | None = setting(None, "Read at most the first N pages of each document")
    max_samples: COUNT | None = setting(None, "Read at most N documents")
    password: SECRETS = setting((), "Password for encrypted PDFs (repeatable; safer: --password-file)")
    password_file: FILE | None = setting(None, "File with passwords to try, one per line")
    pages_per_unit: COUNT | None = setting(
        None, "Pages per unit of work (default: 64, or 16 with the embedded engine; fewer in small runs)"
    )


class DatasetSettings(Group):
    """Dataset of page images."""

    dataset: NAME | None = setting(
        None,
        "Dataset whose rows contain page images: of the Hub, or a folder or Parquet files here",
        metavar="NS/NAME|FOLDER|FILES",
    )
    dataset_config: NAME | None = setting(None, "Dataset configuration (default: the only one, or `default`)")
    dataset_split: NAME = setting("train", "Dataset split")
    dataset_revision: NAME | None = setting(
        None, "Dataset branch, tag, or commit; the plan records the commit (default: the newest)"
    )
    image_column: NAME | None = setting(
        None, "Column with the image, or with a list of a document's images (default: the only such column)"
    )
    id_column: NAME | None = setting(None, "Column with document IDs (default: IDs from commit, file, and row)")


class CountSettings(Group):
    """Page counts."""

    count_pages: Literal["auto", "exact", "estimate"] = setting(
        "auto",
        "exact: open every document to count its pages; estimate: open a sample, and infer the other counts from file "
        "sizes; auto: exact for up to 10,000 documents",
    )


class RemoteSettings(Group):
    """Remote documents."""

    source_profile: NAME | None = setting(
        None, "Credentials for the documents: AWS profile or Google credentials file (default: the SDK's)"
    )
    source_endpoint: NAME | None = setting(
        None, "Server of the documents' store (default: the provider's)", metavar="URL"
    )
    source_region: NAME | None = setting(None, "Region of the documents' bucket (default: the SDK's)")
    source_cache: COUNT = setting(4096, "Disk space for downloaded documents in MiB")
    allow_private_addresses: bool = setting(False, "Allow https:// documents at private IP addresses")


class ConfinementSettings(Group):
    """Process isolation."""

    confinement: Literal["auto", "off"] = setting(
        "auto",
        "auto: processes that open documents cannot access the network, files, and programs, as far as the kernel "
        "supports this; off: they can, if this breaks something (memory and time limits stay)",
    )


class RenderSettings(ConfinementSettings):
    """Page rendering."""

    image_size: Annotated[int, Field(ge=64, le=10000)] | None = setting(
        None, "Longest side of page images in pixels (default: the engine's)"
    )
    image_format: Literal["auto", "png", "jpeg"] = setting(
        "auto", "Encoding of page images (auto: what suits the engine)"
    )
    renderer: Literal["pdfium", "poppler"] = setting("pdfium", "Renderer of PDF pages")
    render_timeout: POSITIVE = setting(60.0, "Maximum seconds to render a page")
    render_memory: Annotated[int, Field(ge=128)] = setting(2048, "Memory limit of each renderer process in MiB")
    render_workers: COUNT | None = setting(None, "Renderer processes (default: one per core)")


class EngineSettings(Group):
    """Engine."""

    engine: Literal["auto", "vllm", "server", "embedded", "hybrid"] | NAME = setting(
        "auto",
        "vllm: start a vLLM server on the GPUs of this machine; server: use the server at --server-url; embedded: PDF "
        "text layer and OCR on the CPU; hybrid: embedded, and a model for the pages that it would read better; auto: "
        "the best one available",
        group=ENGINES.group,
    )
    batch_id: NAME | None = setting(None, "Name of this run in status and metrics")

    @field_validator("engine")
    @classmethod
    def _is_installed(cls, name: str) -> str:
        own = ("auto", VLLM, SERVER, EMBEDDED, HYBRID)
        if name not in own and name not in (added := ENGINES.names()):
            raise ValueError(f"must be one of {', '.join(dict.fromkeys((*own, *added)))}")
        return name


class EmbeddedSettings(ConfinementSettings):
    """Embedded engine (--engine embedded)."""

    text_layer: Literal["auto", "never"] = setting(
        "auto", "auto: use a PDF's text layer if it is correct; never: always use OCR"
    )
    invisible_text: Literal["drop", "keep"] = setting(
        "drop",
        "Text of a PDF that its pages do not show: hidden, white, clipped, or covered. drop: leave it out; keep: read "
        "it as text of the page. Each row counts it in `invisible_chars`",
    )
    ocr_language: NAME | None = setting(
        None,
        "Script that OCR reads instead of Latin, Chinese, and Japanese: arabic, cyrillic, devanagari, east-slavic, "
        "greek, korean, latin, tamil, telugu, or thai, whose model is downloaded once; or the .onnx file of a PP-OCR "
        "recognizer, with a .txt of the same name if it does not contain its characters. With a model: only with "
        "--verify ocr",
        engines=(EMBEDDED,),
        metavar="NAME",
    )
    ocr_workers: COUNT | None = setting(None, "OCR processes (default: one per core)")
    ocr_memory: Annotated[int, Field(ge=512)] = setting(4096, "Memory limit of each OCR process in MiB")
    page_timeout: POSITIVE = setting(300.0, "Maximum seconds to render or read a page")


class FilterSettings(Group):
    """Document filters and samples."""

    filter_language: NAMES = setting(
        (),
        "Keep only documents in this language, by code such as en or de (repeatable); documents without text are kept",
        metavar="CODE",
    )
    filter_forms: bool = setting(False, "Skip PDFs that are forms to fill in")
    filter_spam: bool = setting(False, "Skip documents that look like search-engine spam")
    filter_blank: bool = setting(False, "Skip documents whose pages are all blank")
    sample: COUNT | None = setting(None, "Read a random sample of N documents")
    seed: NATURAL = setting(0, "Seed of the random sample")


class QualitySettings(Group):
    """Quality."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    min_quality: FRACTION | None = setting(
        None,
        "Read a page again with the model's next method if its quality score is below this (0 to 1), and keep the "
        "best result (default: no page is read again, and pages that contradict their ink or text layer are degraded; "
        "0: neither, without --max-unread and --max-unsupported)",
    )


class LedgerSettings(Group):
    """Ledgers of pages."""

    max_unread: FRACTION | None = setting(
        None,
        "Largest share of a page's ink and text layer (0 to 1) that may be missing from an `ok` page. If given, a "
        "model reads such a page again with its next method (default: 0.02 of the ink, and no passage of a true text "
        "layer or OCR, without reading it again)",
    )
    max_unsupported: FRACTION | None = setting(
        None,
        "Largest share of an `ok` page's text (0 to 1) that neither ink nor text layer supports; 1 also ignores "
        "single numbers. If given, a model reads such a page again (default: 0.02 by ink, and no passage by a true "
        "text layer or OCR, without reading it again)",
    )
    verify: Literal["ink", "layer", "ocr"] = setting(
        "layer",
        "Evidence for the text of a page. ink: the page image alone; layer: also the PDF's text layer if it is "
        "correct; ocr: also, on pages without one, OCR on the CPU beside the model",
    )


class HybridSettings(Group):
    """Pages for the model (--engine hybrid)."""

    ENGINES: ClassVar[tuple[str, ...]] = (HYBRID,)

    model_threshold: FRACTION | None = setting(
        None,
        "Probability (0 to 1) that a model would read a page better, from which on the model reads it (default: "
        "fitted to pages with known text)",
    )
    model_share: Annotated[float, Field(gt=0, le=1)] | None = setting(
        None,
        "Largest share of the pages of each unit that the model reads (0 to 1), those that it would improve most "
        "(default: all above --model-threshold)",
    )


class LimitSettings(Group):
    """Stop conditions."""

    max_hours: POSITIVE | None = setting(
        None, "Stop after this many hours (exit code 5); the same command continues", metavar="HOURS"
    )
    max_cost: POSITIVE | None = setting(
        None, "Stop when the workspace has cost this much (exit code 5)", metavar="DOLLARS"
    )
    price_per_hour: POSITIVE | None = setting(
        None, "Hourly price of this machine in dollars, for --max-cost and cost reports"
    )


class OutcomeSettings(Group):
    """Failures."""

    max_failed_rate: FRACTION = setting(0.01, "Exit with code 3 if more than this share of the pages failed")


class LeaseSettings(Group):
    """Several workers on one workspace."""

    lease_seconds: POSITIVE | None = setting(
        None,
        "Seconds without a heartbeat until another worker takes over a unit (default: 300; in a folder, workers share "
        "units only if this is set)",
    )


class ShardSettings(LeaseSettings):
    """Static shards."""

    shard_index: NATURAL = setting(0, "Number of this worker, from 0")
    shard_count: COUNT = setting(1, "Number of workers that divide the units")

    @field_validator("shard_count")
    @classmethod
    def _above_index(cls, value: int, info: ValidationInfo) -> int:
        index: Any = info.data.get("shard_index", 0)
        if value <= index:
            raise ValueError(f"must be greater than shard_index, which is {index} (workers are numbered from 0)")
        return value


class FollowSettings(Group):
    """Simultaneous stages."""

    follow: bool = setting(False, "Process units as soon as the previous stage publishes them, until it is done")


class InputSettings(Group):
    """Pages from other sources."""

    input: NAME | None = setting(
        None,
        "Import pages that batch-ocr-inference extracted: s3://, gs://, a folder, or NS/NAME on the Hub",
        metavar="URL",
    )
    pages_from: NAME = setting(
        "extract", "Stage whose pages to use: extract, or a stage of your own (llm_ocr.transform)"
    )


class RaySettings(Group):
    """Ray."""

    ray: NAME | None = setting(
        None, "Ray cluster to run on: its address, `auto`, or `local` for a new one on this machine", metavar="ADDRESS"
    )
    ray_workers: COUNT | None = setting(
        None, "Workers on the cluster (default: one per GPU; without GPUs, one per node)"
    )
    ray_gpus: Annotated[float, Field(ge=0)] = setting(
        1.0, "GPUs per worker (default: what one server needs with --engine vllm, otherwise 0)"
    )


class AssembleGroup(Group):
    """Documents and dataset."""

    page_markers: bool = setting(True, "Mark page starts in the Markdown")
    dataset_images: Literal["all", "figures", "none"] = setting("all", "Images to store in the dataset")
    describe_key: str | None = setting(
        None, "Key of the descriptions to use (default: the newest)", flag="describe", metavar="KEY"
    )


PRICE = Annotated[float, Field(ge=0.0)]
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
    """Model (--engine vllm and server)."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    model: NAME = setting(
        "deepseek-ocr",
        "Model to use: deepseek-ocr, lightonocr-3, dots.mocr, olmocr-2 ... (llm-ocr models lists all); a profile's "
        ".toml or .yaml file; or, with --prompt, any model by Hugging Face ID, folder, or s3:// or gs:// URL",
        metavar="NAME",
    )
    weights: NAME | None = setting(
        None, "Other weights for this model: a Hugging Face ID, folder, or s3:// or gs:// URL"
    )
    revision: NAME | None = setting(
        None, "Commit or tag of the model (default: the newest, which the workspace records)"
    )
    parser: NAME | None = setting(
        None,
        "Parser of the answers: plain, grounding, lighton, layout-json, html-blocks, front-matter ... (default: the "
        "model's; an unknown name lists all)",
    )
    chat_template: NAME | None = setting(
        None, "Chat template for the vLLM server (default: the model's)", metavar="FILE"
    )


class ModelSettings(WhichModel):
    """Prompts and results."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    mode: NAME | None = setting(
        None,
        "Prompt of the model to use: layout (or layout-all), layout-only, markdown, text (or ocr) ... (default: the "
        "model's)",
    )
    prompt: TEXT | None = setting(None, "Custom prompt; required for a model without a profile")
    max_tokens: COUNT | None = setting(None, "Maximum tokens per answer (default: the model's)")
    temperature: TEMPERATURE | None = setting(None, "Temperature of the first attempt at a page (default: the model's)")
    crop: LABELS = setting(
        (),
        "Labels of blocks to crop as figures, for example image,table,chart (default: the model's; image, chart, and "
        "diagram with the embedded engine)",
        metavar="LABELS",
        engines=ALL,
    )
    figures_from: Literal["auto", "model", "page", "none"] = setting(
        "auto",
        "Source of figures. model: boxes in the answer; page: images and drawings in a PDF, pictures on a scan; auto: "
        "model if its answers have boxes, otherwise page",
        engines=ALL,
    )
    rotate: Literal["auto", "never", "probe"] = setting(
        "auto",
        "auto: turn a page and read it again if the model reports that it is not upright; probe: also check each page "
        "with OCR first (0.25 s of CPU time)",
    )
    anchor_text: NATURAL = setting(
        0, "Characters of a PDF's text layer to add to the prompt, for models that support it", metavar="CHARACTERS"
    )
    guided: bool = setting(
        False, "Force answers into the model's format with vLLM's structured outputs, where the format is known"
    )
    ngram_processor: bool = setting(
        True,
        "Forbid repeated n-grams in vLLM, for models whose vendor does. Without, only loops are cut, and vLLM's newer "
        "model runner is used where it exists",
    )
    headers: Literal["drop", "keep"] = setting(
        "drop", "Running headers, footers, and page numbers in the Markdown (the layout always has them)", engines=ALL
    )
    fallback: Literal["none", "text-layer", "embedded"] = setting(
        "text-layer",
        "Reader of pages on which the model failed; they count as degraded. embedded: the text layer, otherwise OCR "
        "on the CPU",
        engines=(*MODELS, NOT_HYBRID),
    )


class ServerSettings(Group):
    """Running servers and providers (--engine server)."""

    ENGINES: ClassVar[tuple[str, ...]] = (SERVER,)

    server_url: NAMES = setting((), "OpenAI-compatible server, with or without /v1 (repeatable)", metavar="URL")
    server_key: SecretStr | None = setting(None, "API key (safer: --server-key-file)")
    server_key_file: FILE | None = setting(None, "File with the API key")
    server_model: NAME | None = setting(None, "Model name on the server (default: the one it serves)")
    server_wait: POSITIVE | None = setting(
        None,
        "Seconds to wait for a server that does not respond yet (default: 5; --server-timeout in launched jobs, or if "
        "that is set)",
    )
    price_in: PRICE | None = setting(
        None, "Price per million prompt tokens in dollars, for cost reports", engines=MODELS
    )
    price_out: PRICE | None = setting(None, "Price per million answer tokens in dollars", engines=MODELS)


class VllmSettings(Group):
    """vLLM server started by this run (--engine vllm)."""

    ENGINES: ClassVar[tuple[str, ...]] = (VLLM,)

    vllm_command: COMMAND = setting(
        "vllm",
        "Command that starts vLLM: a program, or a full command such as 'docker run ... image'",
        metavar="COMMAND",
    )
    vllm_arg: NAMES = setting(
        (), "Argument for `vllm serve`, for example --vllm-arg=--max-num-seqs=64 (repeatable)", metavar="ARG"
    )
    preset: Literal["l4", "a40", "l40s", "a100", "h100"] | None = setting(
        None,
        "Server arguments tuned for a GPU (docs/tuning.md); they override the model's, and your flags override them",
    )
    vllm_port: Annotated[int, Field(ge=1, le=65535)] | None = setting(None, "Port of the server (default: a free one)")
    replicas: COUNT | None = setting(None, "Number of servers, each with its own GPUs (default: one per GPU)")
    replicas_per_gpu: COUNT | None = setting(
        None, "Servers that share each GPU (default: 2 for a small model on an H100 or newer with 8 cores, otherwise 1)"
    )
    tensor_parallel_size: COUNT = setting(1, "GPUs per server that the model is split across")
    data_parallel_size: COUNT = setting(1, "Copies of the model inside each server")
    max_model_len: COUNT | None = setting(None, "Context length in tokens (default: the model's)")
    gpu_memory_utilization: FRACTION | None = setting(None, "Share of GPU memory to use (default: vLLM's)")
    model_cache: FILE | None = setting(None, "Folder for downloaded models (default: Hugging Face's)", engines=MODELS)
    compile_cache: FILE | None = setting(None, "Folder for vLLM's compiled code (default: vLLM's)")
    offline: bool = setting(False, "Use only models that are already on this machine", engines=MODELS)
    server_timeout: POSITIVE = setting(1800.0, "Seconds to wait for a server to become ready", engines=MODELS)
    max_server_restarts: NATURAL = setting(
        5, "Maximum restarts of a crashed or hung server; 100 answers reset the count", engines=MODELS
    )


class RequestSettings(Group):
    """Concurrency (defaults are automatic)."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    max_inflight_requests: COUNT | None = setting(None, "Maximum open requests (default: adapts to the server)")
    max_concurrent_documents: COUNT | None = setting(None, "Maximum documents in progress", engines=ALL)
    max_page_concurrency: COUNT | None = setting(None, "Maximum pages in progress per document", engines=ALL)
    workers: COUNT | None = setting(None, "Maximum units in progress", engines=ALL)
    max_page_attempts: COUNT = setting(8, "Maximum attempts per page or figure")
    request_timeout: POSITIVE = setting(
        180.0, "Seconds without new text until a request is aborted; after 10 times as long, its answer is cut"
    )


#: Modes of figure requests that need no prompt from the user.
MODES = ("describe", "parse", "classify")


class DescribeGroup(Group):
    """Figure descriptions."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    # The CPU engine refuses these two fields itself.
    describe_prompt: TEXT | None = setting(None, "Custom prompt for figures", engines=ALL)
    describe_mode: NAME = setting(
        "describe", "describe, parse (data as JSON), classify, or a name for --describe-prompt", engines=ALL
    )
    describe_model: NAME | None = setting(None, "Model that describes figures (default: the model that read the pages)")
    describe_classes: LABELS = setting((), "Classes for --describe-mode classify", metavar="LABELS")
    describe_known: Literal["ask", "keep"] = setting(
        "ask",
        "Figures that the model described while it read the page. ask: describe them again; keep: keep that "
        "description (not with a custom prompt or mode)",
    )
    describe_max_tokens: COUNT | None = setting(None, "Maximum tokens per description")
    describe_temperature: TEMPERATURE | None = setting(None, "Temperature of the first attempt at a figure")

    @field_validator("describe_mode")
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("describe_prompt") is None and value not in MODES:
            raise ValueError(f"must be one of {', '.join(MODES)}, or a name for the prompt in describe_prompt")
        return value


class FieldsGroup(Group):
    """Fields of documents."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    fields_schema: NAME | None = setting(
        None,
        "JSON Schema of the values to find in each document: a file, or the JSON itself",
        flag="schema",
        metavar="FILE",
    )
    fields_prompt: TEXT | None = setting(None, "Custom instructions for the model; the schema and the text follow them")
    fields_max_tokens: COUNT = setting(4096, "Maximum tokens of an answer with fields")
    passage_tokens: COUNT = setting(
        8000, "Maximum tokens of text per request; longer documents are read in passages of whole pages"
    )


#: `cpu`, `cuda`, or a numbered device: `cuda:1`.
DEVICE = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]


class LayoutSettings(Group):
    """Reading by region."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    layout_first: Literal["auto", "always", "never"] = setting(
        "auto",
        "Detect regions first, and read each one separately. auto: for models made for it (glm-ocr, paddleocr-vl), if "
        "a detector is installed; always: for any model with prompts for regions, with the embedded engine's layout "
        "if no detector is installed",
    )
    region_task: LABELS = setting(
        (),
        "Task for regions with this label: text, table, formula, chart, skip (keep as a figure), or abandon (leave "
        "out), for example footer=text (repeatable)",
        metavar="LABEL=TASK",
    )
    detector: NAME | None = setting(
        None,
        "Layout detector: a Hugging Face ID, a folder, or `embedded` (default: "
        "PaddlePaddle/PP-DocLayoutV3_safetensors)",
        metavar="NAME",
    )
    detector_revision: NAME | None = setting(
        None, "Commit or tag of the detector (default: the newest, which the workspace records)"
    )
    detector_threshold: FRACTION = setting(0.3, "Minimum confidence of a region")
    detector_device: DEVICE = setting(
        "auto", "Device of the detector: cpu, cuda, cuda:1 ... (auto: a GPU if available)"
    )
    detector_workers: COUNT | None = setting(None, "Detector processes on the CPU (default: one per core)")
    detector_python: FILE | None = setting(
        None, "Python that has torch and transformers, if this one does not (for example vLLM's)", metavar="PROGRAM"
    )
