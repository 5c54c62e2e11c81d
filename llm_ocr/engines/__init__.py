"""Define the protocols between stages, page readers, engines, and servers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from llm_ocr.types import Attempt, Block, EncodedImage, Figure, FigureRecord, OcrText, Page


def noop() -> None:
    """Do nothing; the default for `on_dispatched`."""


class PageReader(Protocol):
    """Reader of pages.

    `read` raises `PageFailure` for an unreadable page. An unexpected error, such as `IndexError`, also fails only the
    page; other errors end the run.
    """

    @property
    def name(self) -> str:
        """Name shown to users and stored with each page."""

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that change the results, as JSON values for the stage's key."""

    async def read(self, page: Page, on_dispatched: Callable[[], None] = noop) -> Attempt:
        """Read a page and return the best available result.

        Args:
            page: Page with its image.
            on_dispatched: Called when a queued page is dispatched, so that the caller can prepare the next page.
        """

    async def close(self) -> None:
        """End the reader's processes and close its connections."""


class FigureReader(Protocol):
    """Reader that describes figures.

    `describe` raises `PageFailure` for a figure that cannot be described.
    """

    @property
    def name(self) -> str:
        """Name shown to users and stored with each figure."""

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that change the results, as JSON values for the stage's key."""

    async def describe(
        self, figure: Figure, page_id: str, document_id: str, on_dispatched: Callable[[], None] = noop
    ) -> FigureRecord:
        """Describe a figure and return its row. `on_dispatched` is used as in `PageReader.read`."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Inspection of a page for another reader: blocks in reading order, including figures.

    `blocks` are empty without figures. `digital`: the blocks are from the page's own objects and therefore complete;
    otherwise from its pixels. `detail` is the reason for a failed search.
    """

    blocks: tuple[Block, ...] = ()
    digital: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """Recognizer of a language: its file, its dictionary (None: in the model), and the start of the file's SHA-256."""

    model: Path
    dictionary: Path | None
    digest: str


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of a `LocalReader`: `memory` in bytes and `timeout` in seconds per worker process and page.

    `background` a model: the GPU's feeding processes have priority, and as few processes as possible are used. Without
    `ocr`, pages are read from their text layer only, and figures are not read. Pages without a credible text layer then
    fail. `figure_labels`: blocks that are cut out as figures; None: all pictures and drawings. `language`: the
    recognizer of another language. `with_ocr`: attempts have the text that OCR found.
    """

    workers: int
    memory: int = 4096 << 20
    timeout: float = 300.0
    text_layer: bool = True
    ocr: bool = True
    confined: bool = True
    background: bool = False
    figure_labels: frozenset[str] | None = None
    language: LanguageModel | None = None
    with_ocr: bool = False


class LocalReader(PageReader, Protocol):
    """Reader of pages and of text in figures, which also inspects pages that a model reads. Requires `close()`.

    All methods raise `PageFailure` if the work fails.
    """

    @property
    def workers(self) -> int:
        """Number of its processes."""

    def ocr_models(self) -> Mapping[str, str]:
        """Return the part of the identity that names the OCR models; empty for the default models."""

    async def inspect(self, page: Page, *, hinted: bool) -> Inspection:
        """Detect the figures; `hinted`: the page's text mentions figures."""

    async def text(self, page: Page) -> str:
        """Return the text layer in reading order; "" without a credible text layer."""

    async def orientation(self, page: Page) -> int:
        """Return the clockwise turn in degrees that makes the page upright: 0, 90, 180, or 270."""

    async def read_figure(self, image: EncodedImage) -> str:
        """Return the text inside a figure, one line per row."""

    async def ocr_text(self, page: Page) -> OcrText:
        """Return the lines that OCR finds in the page image, unordered, to verify the text of another reader."""


class ContentTools(Protocol):
    """Access to the page's document."""

    async def content(self, page: Page) -> Page:
        """Return the page with its text layer; unchanged without one. Raises `PageFailure`."""


class TextWatch(Protocol):
    """Observer of an answer while the answer streams."""

    def feed(self, piece: str) -> bool:
        """Receive the next piece of text; return True if the answer repeats itself and must be cut."""


class Finish(StrEnum):
    """Reason for the end of an answer."""

    STOP = "stop"
    LENGTH = "length"  # max_tokens or the context limit was reached
    CUT = "cut"  # cut by the client's `TextWatch`
    LATE = "late"  # cut by the client: the total time limit was reached


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """Request to a model: an image, if the question is about one, and a prompt.

    `id` identifies the page or figure in messages and in the detection of requests that kill servers. `settings` are
    sent unchanged (temperature, max_tokens ...). `vllm_settings` are sent only to vLLM servers.
    """

    id: str
    image: EncodedImage | None
    prompt: str
    settings: Mapping[str, Any]
    vllm_settings: Mapping[str, Any] = field(default_factory=dict)
    image_first: bool = True
    system: str | None = None
    watch: Callable[[], TextWatch] | None = None
    reserve: int = 0  # tokens kept for the prompt if the server's context is smaller than `max_tokens`
    prompt_tokens: int = 0  # estimate for the prompt with its image, counted if the server reports no number


@dataclass(frozen=True, slots=True)
class Completion:
    """Complete answer to a request.

    `seconds` is the time from sending to the end. `waited` is the time in the queue before sending.
    """

    text: str
    finish: Finish
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    server: str = ""  # name of the server that answered
    estimated: bool = False  # a number of tokens is an estimate because the server sent no plausible one
    reasoned: int = 0  # characters of reasoning, which are not part of the text


@dataclass(frozen=True, slots=True)
class Load:
    """Live counters of an engine since its start."""

    servers: int = 0  # servers that are ready now
    window: int = 0  # maximum requests in flight
    in_flight: int = 0  # requests in flight
    queued: int = 0  # requests of this client that wait for a place in the window
    bytes_waiting: int = 0  # bytes of pages that are prepared or in preparation and not yet sent
    capped: int = 0  # waits for the user's limits on units, documents, and pages in progress
    running: int | None = None  # from the servers' gauges; None without gauges
    waiting: int | None = None
    kv_usage: float | None = None  # used shares of the KV caches, 0..1 of each, summed over the servers
    max_num_seqs: int | None = None  # summed over the servers; None if one server's is unknown
    answers: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    busy: int = 0  # responses with status 429 or 503
    lost: int = 0  # requests without a complete answer
    restarts: int = 0


class Engine(Protocol):
    """Engine that completes requests on one or more servers within a window of requests."""

    @property
    def name(self) -> str:
        """Model name as shown to users."""

    async def complete(self, request: CompletionRequest, on_dispatched: Callable[[], None] = noop) -> Completion:
        """Complete a request.

        The engine waits for busy servers, restarts dead servers, and replays their requests.

        Args:
            request: The request.
            on_dispatched: Called when the request is sent, and again for each replay after a server's death.

        Raises:
            RequestRefused: The server refused the request; one try of the page is spent.
            RequestLost: The answer was lost; one try of the page is spent.
            PageFailure: The request kills servers and is quarantined.
            ServerError: No server is available.
        """

    def load(self) -> Load:
        """Return the current counters; the call is cheap."""

    async def close(self) -> None:
        """Close the connections, then stop the servers."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server.

    `url` ends in /v1. `key` is the API key, "" for none; the key is never shown.
    """

    url: str
    model: str  # model name for requests
    key: str = field(default="", repr=False)

    @property
    def root(self) -> str:
        """URL without /v1, the base of /health, /metrics, and /version."""
        return self.url.removesuffix("/v1")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Known facts about a running server; None for unknown values."""

    vllm: bool = False  # a vLLM server, which supports vLLM's own settings and has gauges
    version: str = ""
    max_model_len: int | None = None  # tokens of prompt and answer together
    kv_tokens: int | None = None  # size of the KV cache in tokens
    max_num_seqs: int | None = None  # maximum number of sequences that run in parallel
    simulated: bool = False  # the simulator, whose answers are made up
    serves: str = ""  # name and source of the listed model; "" if the server does not report them
    gauges: str = ""  # kind of server whose gauges it has: "vLLM", "SGLang" ...; "" without known gauges


class Server(Protocol):
    """Server of one model."""

    @property
    def name(self) -> str:
        """Name for messages: `vLLM 0`, or the URL."""

    @property
    def managed(self) -> bool:
        """Whether this client is the only user and `restart` starts a new process."""

    async def start(self) -> tuple[Address, ServerFacts]:
        """Start the server and return when requests are accepted.

        Raises:
            ServerError: The server did not start; the error includes the reason and the last log lines.
        """

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        """Restart a dead or hung server, or wait for an external server. Raises `ServerError`."""

    async def ended(self) -> str:
        """Wait for the end of the server's process and return the reason; never returns for an external server."""

    async def stop(self) -> None:
        """Stop the server.

        All connections to the server must be closed before the call. The method may be called twice, and before
        `start`.
        """
