"""One request inside the modelled engine, and the sizes of that engine."""

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine holds at once; the names are those of vLLM's settings.

    `blocks` KV blocks of `block_size` tokens; `max_num_batched_tokens` is the token budget of one step and not smaller
    than `max_num_seqs`, so that every running sequence gets its token in every step.
    """

    max_num_seqs: int
    blocks: int
    max_num_batched_tokens: int = 8192
    block_size: int = 16

    def __post_init__(self) -> None:
        if min(self.max_num_seqs, self.blocks, self.block_size) < 1:
            raise ValueError("max_num_seqs, blocks and block_size must be positive")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must not be smaller than max_num_seqs")

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens`."""
        return -(-tokens // self.block_size)


class Place(Enum):
    """Where a sequence is."""

    PREPARING = auto()  # image preprocessing, or the queue before it
    WAITING = auto()
    PREFILLING = auto()
    DECODING = auto()
    ENDED = auto()


@dataclass(eq=False, slots=True)
class Sequence:
    """A request in the engine. Times are those of the engine's clock in seconds; None: not yet.

    `output` tokens will be made, the end-of-sequence token among them. `queued` is when it joined the queue, after
    preprocessing; `admitted` when its first step began; `first` and `end` when its first and last token were made.
    """

    number: int
    prompt: int
    output: int
    images: int
    arrived: float
    queued: float
    admitted: float | None = None
    first: float | None = None
    end: float | None = None
    preemptions: int = 0
    aborted: bool = False
    place: Place = Place.PREPARING
    # The engine's own books. While the sequence decodes, tokens made = the engine's decode counter - offset.
    made: int = 0  # tokens made before it last left the decoding ones
    offset: int = 0
    prefilled: int = 0  # tokens of this prefill that are computed
    blocks: int = 0  # KV blocks held while it prefills

    @property
    def to_prefill(self) -> int:
        """Tokens that a prefill computes: the prompt, and after a preemption what had been made."""
        return self.prompt + self.made
