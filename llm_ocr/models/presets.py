"""Settings for one kind of GPU, as data: a starting point, not an optimum.

Measured by the predecessor with DeepSeek-OCR at a context of 8,192 tokens and a memory share of 0.90 (vLLM 0.12): the
KV cache in tokens, and the requests at once with the pages per minute that they gave. For the a40 and the h100 nothing
was measured; what their numbers are derived from stands with them. Nobody measured another context than the profile's:
presets leave it alone. Batched tokens are left to vLLM, which chooses them by the GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Preset:
    """For each server: `sequences` it runs at once, `memory_share` of the GPU (0..1).

    `source` says where the numbers come from.
    """

    name: str
    gigabytes: int  # of the GPU's memory
    sequences: int
    source: str
    memory_share: float = 0.9

    @property
    def window(self) -> int:
        """The most requests under way: what runs, and the small queue of `engines.fleet.window` behind it."""
        return self.sequences + max(4, self.sequences // 8)

    @property
    def server_args(self) -> tuple[str, ...]:
        """As arguments of `vllm serve`."""
        return ("--max-num-seqs", str(self.sequences), "--gpu-memory-utilization", f"{self.memory_share:g}")


_PRESETS = (
    Preset("l4", 24, 32, "measured: 39 pages/min with 32 at once; 215,680 KV tokens hold 32 of 6,740"),
    Preset("a40", 48, 128, "not measured: as much memory as the l40s, so as many sequences"),
    Preset("l40s", 48, 128, "measured: 83 pages/min with 128 at once; 567,488 KV tokens hold 128 of 4,433"),
    Preset("a100", 80, 128, "measured: 91 pages/min with 128 at once; 1,115,616 KV tokens hold 128 of 8,715"),
    Preset("h100", 80, 256, "not measured: the a100's KV tokens hold 256 of 4,357, what the l40s has for each"),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _PRESETS})
