"""GPUs as the engine model sees them, for DeepSeek-OCR in bfloat16. Arithmetic from data sheets, not measurements."""

from dataclasses import dataclass

from llm_ocr.testing.simulator.timing import Costs

# DeepSeek-OCR's language model: 12 layers, hidden size 1280, 10 KV heads of 128, no MLA; 64 experts, 6 of them and 2
# shared ones active: 2.93 B parameters, 0.573 B active (its config.json).
#: Bytes read in each step once a batch of 32 or more touches nearly all experts.
WEIGHT_BYTES = 5.5e9
#: Bytes of KV cache per token: 12 layers x 2 (keys, values) x 1280 x 2 bytes.
KV_BYTES = 61_440
#: Floating point operations to compute one token: twice the active parameters.
TOKEN_FLOP = 2 * 0.573e9
#: Floating point operations of the vision towers for one page: 1024 px global view and six 640 px tiles.
IMAGE_FLOP = 3.35e12
#: Shares of the data sheet that real kernels reach.
BANDWIDTH_REACHED, FLOP_REACHED = 0.8, 0.4
#: Seconds per image in one API server of vLLM: its preprocessing is one thread, 14 pages/s (vllm-project/vllm#58266).
PREPROCESS_SECONDS = 1 / 14


@dataclass(frozen=True, slots=True)
class Preset:
    """A GPU: memory bandwidth in bytes/s, peak dense bfloat16 in FLOP/s, tokens that its KV cache holds."""

    name: str
    bandwidth: float
    flops: float
    kv_tokens: int

    def costs(self, preprocess: float = PREPROCESS_SECONDS) -> Costs:
        """Step times on this GPU; `preprocess` seconds per image ahead of the queue."""
        bandwidth = self.bandwidth * BANDWIDTH_REACHED
        flops = self.flops * FLOP_REACHED
        return Costs(WEIGHT_BYTES / bandwidth, KV_BYTES / bandwidth, TOKEN_FLOP / flops, IMAGE_FLOP / flops, preprocess)


# Bandwidth and dense bfloat16 peak: NVIDIA's data sheets (L4; A100 40 GB; H100 SXM). KV tokens: what is left of the
# card beside weights and activations: 150, 330 and 780 pages of 256 + 1000 tokens, in whole blocks of 16.
L4 = Preset("l4", 300e9, 121e12, 188_400)
A100 = Preset("a100", 1555e9, 312e12, 414_480)
H100 = Preset("h100", 3350e9, 989e12, 979_680)

PRESETS = {preset.name: preset for preset in (L4, A100, H100)}
