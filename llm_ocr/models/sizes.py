"""How much memory of a GPU a model's server needs: arithmetic on what its profile says.

The rule, for one of `n` GPUs that a server splits the model over:

    (weights / n + KV cache / n + 2 GB) / share of the GPU that vLLM may take

Weights are `parameters` times `weight_bytes`. vLLM starts only when its KV cache holds one request of the whole
context: 144 KiB a token, which is what Qwen3's 4B and 8B take and more than most OCR models do. 2 GB are what CUDA, its
graphs and the image encoder take beside that. The share is vLLM's 0.9 unless the profile has another one.
"""

from dataclasses import dataclass
from itertools import pairwise

from llm_ocr.models.profile import Profile

_GB = 1e9
_BESIDE = 2.0 * _GB
_KV_BYTES = 144 * 1024  # of a token
_SHARE = 0.9

#: Memory of GPUs that can be bought or rented, in GB, and into how many a model is split.
_SOLD = (8, 12, 16, 24, 32, 40, 48, 80, 96, 141)
_SPLITS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Gpus:
    """So many GPUs of so many GB each."""

    count: int
    gigabytes: int

    def __str__(self) -> str:
        return f"{self.gigabytes} GB" if self.count == 1 else f"{self.count} x {self.gigabytes} GB"


def weights_of(profile: Profile) -> float:
    """Bytes of the weights; 0 where the size is not known."""
    return profile.parameters * profile.weight_bytes * _GB


def share_of(profile: Profile) -> float:
    """The share of a GPU's memory that the server takes, 0..1, by the last argument that gives one."""
    words = [part for word in profile.server_args for part in word.split("=", 1)]
    given = [value for name, value in pairwise(words) if name.replace("_", "-") == "--gpu-memory-utilization"]
    try:
        share = float(given[-1])
    except (IndexError, ValueError):
        return _SHARE
    return share if 0 < share <= 1 else _SHARE


def needed_memory(weights: float, context: int, *, gpus: int = 1, share: float = _SHARE) -> float:
    """Bytes of each GPU's memory for weights of so many bytes and a context of so many tokens."""
    return ((weights + context * _KV_BYTES) / gpus + _BESIDE) / share


def smallest_gpu(profile: Profile, context: int | None = None) -> Gpus | None:
    """The smallest GPU that is enough, or the fewest of them; None where the model's size is not known.

    `context` in tokens; None: the profile's.
    """
    weights = weights_of(profile)
    if not weights:
        return None
    for count in _SPLITS:
        bytes_ = needed_memory(weights, context or profile.context, gpus=count, share=share_of(profile))
        enough = next((size for size in _SOLD if bytes_ <= size * _GB), None)
        if enough is not None:
            return Gpus(count, enough)
    return Gpus(_SPLITS[-1] * 2, _SOLD[-1])
