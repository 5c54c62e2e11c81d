"""The settings of models and of the servers that run them."""

import shlex
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, SecretStr, ValidationInfo, field_validator

from llm_ocr.settings.groups import ALL, COUNT, FILE, FRACTION, MODELS, NAME, NAMES, SERVER, VLLM, Group
from llm_ocr.settings.values import labels, name_text

PRICE = Annotated[float, Field(ge=0.0)]
SECONDS = Annotated[float, Field(gt=0.0)]
TEMPERATURE = Annotated[float, Field(ge=0.0, le=2.0)]
#: Names that hold no comma: one a flag, or several with commas.
LABELS = Annotated[tuple[NAME, ...], BeforeValidator(labels)]


def _words(text: str) -> str:
    """A command line that a shell could take apart."""
    if not shlex.split(text):
        raise ValueError("must name a program")
    return text


#: A command with its first arguments, quoted as for a shell.
COMMAND = Annotated[str, PlainValidator(name_text), AfterValidator(_words)]
#: A prompt as it goes to the model; `\\n` in it is left as it is.
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


#: What can be asked of figures without a prompt of one's own.
MODES = ("describe", "parse", "classify")


class DescribeGroup(Group):
    """How figures are described."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    # The CPU engine refuses these two by itself.
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
