"""Protocols between stages, page readers, and inference engines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from llm_ocr.types import Attempt, EncodedImage, Figure, FigureRecord, Page

# How an answer is made from an image: the protocols; implementations stand beside.


def noop() -> None:
    """For `admitted` where nobody listens."""


class PageReader(Protocol):
    """Reads pages. Raises `PageFailure` for a page that it cannot read; other errors end the run."""

    @property
    def name(self) -> str:
        """Shown to users and stored with each page."""

    def identity(self) -> Mapping[str, Any]:
        """What changes its answers, as JSON values: goes into the stage's key."""

    async def read(self, page: Page, admitted: Callable[[], None] = noop) -> Attempt:
        """The best that could be made of a page.

        A reader that queues pages calls `admitted` when this one's turn has come: then the next may be prepared.
        """

    async def close(self) -> None:
        """End its processes and connections."""


class FigureReader(Protocol):
    """Describes figures. Raises `PageFailure` for a figure that it cannot describe."""

    @property
    def name(self) -> str:
        """Shown to users and stored with each figure."""

    def identity(self) -> Mapping[str, Any]:
        """What changes its answers, as JSON values: goes into the stage's key."""

    async def describe(
        self, figure: Figure, page_id: str, document_id: str, admitted: Callable[[], None] = noop
    ) -> FigureRecord:
        """One figure's row. `admitted` as in `PageReader.read`."""

    async def close(self) -> None:
        """End its processes and connections."""


# What passes between the readers, which know pages and prompts, and an engine, which knows servers.


class TextWatch(Protocol):
    """Looks at an answer while it streams."""

    def feed(self, piece: str) -> bool:
        """The next piece of text; True when the answer is to be cut here: it repeats itself."""


class Finish(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"  # max_tokens or the context was reached
    CUT = "cut"  # by our `TextWatch`
    LATE = "late"  # by us: the answer took too long in all


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One request to a model: an image and a prompt.

    `id` is the page's or figure's, for messages and for telling which one kills servers. `settings` go into the
    request as they are (temperature, max_tokens ...); `vllm_settings` only to servers that are vLLM.
    """

    id: str
    image: EncodedImage
    prompt: str
    settings: Mapping[str, Any]
    vllm_settings: Mapping[str, Any] = field(default_factory=dict)
    image_first: bool = True
    system: str | None = None
    watch: Callable[[], TextWatch] | None = None
    reserve: int = 0  # tokens kept for the prompt, where a server's context leaves less than `max_tokens`


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back, whole. `seconds` from the request to its end, `waited` before it for a place in the window."""

    text: str
    finish: Finish
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    server: str = ""  # which server answered
    estimated: bool = False  # `tokens_out` is an estimate: the server sent no plausible count


@dataclass(frozen=True, slots=True)
class Load:
    """The live numbers of an engine, counted since it began."""

    servers: int = 0  # ready now
    window: int = 0  # requests that may be under way
    in_flight: int = 0  # requests under way
    queued: int = 0  # our own questions that wait for a place
    bytes_waiting: int = 0  # of pages that are prepared, or being so, and not sent yet
    running: int | None = None  # by the servers' gauges; None where they have none
    waiting: int | None = None
    answers: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    busy: int = 0  # 429 and 503
    lost: int = 0  # requests without a whole answer
    restarts: int = 0


class Engine(Protocol):
    """Answers questions: one or many servers behind a window of requests."""

    @property
    def name(self) -> str:
        """The model, as users know it."""

    async def ask(self, question: CompletionRequest, admitted: Callable[[], None] = noop) -> Completion:
        """The answer; `admitted` is called when the request goes out (again after a server's death, harmlessly).

        Patience with busy servers, replays after a server's death and restarts happen inside. Raises
        `RequestRefused` and `RequestLost` (one try of the page is spent), `PageFailure` quarantined for a question that
        kills servers, `ServerError` when no server can be had.
        """

    def load(self) -> Load:
        """The numbers now; cheap."""

    async def close(self) -> None:
        """Close the connections, then stop the servers."""


# What passes between an engine and the servers behind it, our own or somebody else's.


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server answers: `url` ends in /v1. `key` is its API key, "" for none; never shown."""

    url: str
    model: str  # the name to ask for
    key: str = field(default="", repr=False)

    @property
    def root(self) -> str:
        """The URL without /v1: /health, /metrics and /version stand there."""
        return self.url.removesuffix("/v1")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What is known of a running server; None where it is not."""

    vllm: bool = False  # it is vLLM: its own settings are understood, its gauges can be read
    version: str = ""
    max_model_len: int | None = None  # tokens, prompt and answer together
    kv_tokens: int | None = None  # size of its KV cache
    max_concurrency: float | None = None  # requests of max_model_len at once, as vLLM printed it
    max_num_seqs: int | None = None  # sequences that it runs at once
    serves: str = ""  # the model that it lists: its name and what it was loaded from; "" where it does not say


class Server(Protocol):
    """One server of a model."""

    @property
    def name(self) -> str:
        """For messages: `vLLM 0`, or the URL."""

    @property
    def ours(self) -> bool:
        """Whether nobody else asks it, and `restart` makes it anew."""

    async def start(self) -> tuple[Address, ServerFacts]:
        """Returns when it answers. Raises `ServerError` that says why it does not, with the log's last lines."""

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        """After its death, or when it hangs: bring it back, or wait for a server of others. Raises `ServerError`."""

    async def ended(self) -> str:
        """Returns when its process has ended, with the reason; never for a server that is not ours."""

    async def stop(self) -> None:
        """End it. All connections to it must be closed before. May be called twice, and before `start`."""
