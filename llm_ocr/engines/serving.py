"""What passes between an engine and the servers behind it, our own or somebody else's."""

from dataclasses import dataclass, field
from typing import Protocol


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
