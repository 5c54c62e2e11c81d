"""What passes between the readers, which know pages and prompts, and an engine, which knows servers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from llm_ocr.engines import unheard
from llm_ocr.types import EncodedImage


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
class Question:
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
class Answer:
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

    async def ask(self, question: Question, admitted: Callable[[], None] = unheard) -> Answer:
        """The answer; `admitted` is called when the request goes out (again after a server's death, harmlessly).

        Patience with busy servers, replays after a server's death and restarts happen inside. Raises
        `RequestRefused` and `RequestLost` (one try of the page is spent), `PageFailure` quarantined for a question that
        kills servers, `ServerError` when no server can be had.
        """

    def load(self) -> Load:
        """The numbers now; cheap."""

    async def close(self) -> None:
        """Close the connections, then stop the servers."""
